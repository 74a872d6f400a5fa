"""A JSON Schema made self-contained: every reference becomes a pointer into the same document, or an error.

What is not here: jsonschema, and checking values (`validate`).
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Set, Tuple

from ..errors import SchemaError
from .encode import encode
from .paths import json_path, preview, type_name

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
#: Keywords that hold schemas: one, a list, or a dict of them; and those of them that hold a dict.
_HOLDERS = ("items", "additionalItems", "prefixItems", "contains", "unevaluatedItems", "properties",
            "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties",
            "dependentSchemas", "dependencies", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
            "$defs", "definitions", "contentSchema")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")

#: Keys that lead to a place.
Parts = Tuple[Any, ...]


class Document:
    """A private copy of a schema in which every reference is a plain pointer into itself.

    Ids, anchors and dynamic references are gone: with only one document they say nothing that a pointer does
    not, and each version of jsonschema treats them differently.

    Attributes:
        schema: The copy.
        dialect: What ``$schema`` says, such as "Draft7" or "Draft202012"; without it, the one that the schema
            can be, preferably the newest.
        declared: Whether ``$schema`` said it.
    """

    def __init__(self, schema: Any):
        self.schema = _copied(schema)
        said = _dialect(_dict(self.schema).get("$schema"))
        self._old_tuples = False  # whether `items` is a list somewhere, which has been an error since 2020-12
        self._anchors: Dict[str, str] = {}
        self._references: List[Tuple[Parts, Dict[str, Any], str]] = []
        self._seen: Set[int] = set()
        self._visit((), self.schema)
        while self._references:
            self._redirect(*self._references.pop())
        self.declared = bool(said)
        self.dialect = said or ("Draft7" if self._old_tuples else "Draft202012")

    def resolve(self, reference: str) -> Any:
        """Return what a reference such as ``#/$defs/Node`` points at; LookupError if nothing is there."""
        found = self.schema
        for step in _steps(reference):
            found = found[int(step)] if isinstance(found, list) else found[step]
        return found

    def _visit(self, parts: Parts, schema: Any) -> None:
        todo = [(parts, schema)]
        while todo:
            parts, schema = todo.pop()
            if not isinstance(schema, dict) or id(schema) in self._seen:
                continue
            self._seen.add(id(schema))
            self._note(parts, schema)
            _spell_out_false(schema)
            todo.extend(_subschemas(parts, schema))

    def _note(self, parts: Parts, schema: Dict[str, Any]) -> None:
        for word in _ANCHORS:
            if isinstance(schema.get(word), str):
                self._anchors[schema.pop(word)] = _pointer(parts)
        # A $schema further down, or of a dialect that jsonschema does not know, would only bring a warning.
        for word in ("$id", "id", "$schema", "$recursiveAnchor"):
            if isinstance(schema.get(word), (str, bool)):
                del schema[word]
        self._references.extend((parts, schema, word) for word in _REFERENCES if word in schema)
        self._old_tuples = self._old_tuples or isinstance(schema.get("items"), list)
        for pattern in [schema.get("pattern")] + list(_dict(schema.get("patternProperties"))):
            _check_pattern(pattern, parts)

    def _redirect(self, parts: Parts, schema: Dict[str, Any], word: str) -> None:
        """Turn a reference into a pointer, and look at what it points to."""
        reference = schema[word]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaError("the schema refers to %s at %s; only references that begin with # are followed,"
                              " nothing is fetched; put the definition into $defs"
                              % (preview(reference), json_path(parts + (word,))))
        reference = self._anchors.get(reference[1:], reference)
        try:
            target = self.resolve(reference)
        except (LookupError, TypeError, ValueError):
            raise SchemaError("the schema refers to %s at %s, where nothing is; correct the reference"
                              % (preview(reference), json_path(parts + (word,)))) from None
        del schema[word]
        if "$ref" in schema:
            schema.setdefault("allOf", []).append({"$ref": reference})
        else:
            schema["$ref"] = reference
        self._visit(tuple(_steps(reference)), target)


def _copied(schema: Any) -> Any:
    if not isinstance(schema, bool) and not hasattr(schema, "items"):
        raise SchemaError("a JSON Schema is a dict, got %s %s" % (type_name(schema), preview(schema)))
    try:
        return encode(schema)
    except Exception as error:
        raise SchemaError("the schema is not JSON: %s" % error) from error


def _dialect(said: Any) -> str:
    """Return the name of a dialect, such as "Draft7", or "" if it is none that is known."""
    found = re.search(r"json-schema\.org/draft[-/](?:0([3-7])|(2019|2020)-(09|12))/", str(said))
    return "Draft" + "".join(part for part in found.groups() if part) if found else ""


def _dict(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _spell_out_false(schema: Dict[str, Any]) -> None:
    """Write ``false`` as a schema that says the same: jsonschema reports it without its place."""
    for word in _HOLDERS:
        held: Any = schema.get(word)
        places: Any = ()
        if isinstance(held, list):
            places = enumerate(held)
        elif isinstance(held, dict) and word in _NAMED:
            places = list(held.items())
        for key, item in places:
            if item is False:
                held[key] = {"not": {}}


def _subschemas(parts: Parts, schema: Dict[str, Any]) -> Iterator[Tuple[Parts, Any]]:
    for word in _HOLDERS:
        held = schema.get(word)
        if isinstance(held, list):
            yield from ((parts + (word, at), item) for at, item in enumerate(held))
        elif isinstance(held, dict) and word in _NAMED:
            yield from ((parts + (word, name), item) for name, item in held.items())
        elif isinstance(held, dict):
            yield parts + (word,), held


def _pointer(parts: Parts) -> str:
    steps = (str(part).replace("~", "~0").replace("/", "~1").replace("%", "%25") for part in parts)
    return "#" + "".join("/" + step for step in steps)


def _steps(reference: str) -> List[str]:
    from urllib.parse import unquote

    path = unquote(reference[1:])
    if not path:
        return []
    if not path.startswith("/"):
        raise LookupError(reference)
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _check_pattern(pattern: Any, parts: Parts) -> None:
    if isinstance(pattern, str):
        try:
            re.compile(pattern)
        except re.error as error:
            raise SchemaError("the schema has a pattern at %s that Python cannot read: %s (%s)"
                              % (json_path(parts), preview(pattern), error)) from error
