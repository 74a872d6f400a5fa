"""JSON Schemas as a grammar compiler can take them.

A server that forces an answer into a JSON Schema compiles it to a grammar, and knows fewer words than JSON
Schema has.  Here a schema is made wider until every word in it is one that such compilers know: what the
model writes is still checked against the whole schema by whoever asked for it.  What is not here: checking.
Keywords: those of llama.cpp's json-schema-to-grammar.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Tuple

#: Any JSON value; an empty schema is an object to some compilers.
ANYTHING: Dict[str, Any] = {"type": ["object", "array", "string", "number", "boolean", "null"]}

#: Longer repetitions make grammars that compilers refuse.
MAX_REPETITIONS = 1000

_KEPT = ("type", "enum", "const", "required")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_ALTERNATIVES = ("anyOf", "oneOf")


def for_grammar(schema: Any) -> Dict[str, Any]:
    """Return a schema without references, formats and patterns that accepts whatever `schema` accepts.

    An object that lists its members takes no others, unless it says that it does.  A schema inside itself
    becomes any value at its second turn.
    """
    return _widened(schema, schema, ())


def sketch(schema: Any) -> str:
    """Return a schema as a person would scribble it: ``{"name": string, "age": integer}``."""
    return _sketch(for_grammar(schema))


def _widened(schema: Any, root: Any, inside: Tuple[str, ...]) -> Dict[str, Any]:
    if not isinstance(schema, Mapping) or not schema:
        return dict(ANYTHING)
    if "$ref" in schema:
        return _referred(str(schema["$ref"]), root, inside)
    made: Dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    made.update({key: schema[key] for key in _COUNTS if _small(schema.get(key))})
    if schema.get("type") == "integer":
        made.update({key: schema[key] for key in _BOUNDS if type(schema.get(key)) is int})
    for key in _ALTERNATIVES:
        if schema.get(key):
            made["anyOf"] = [_widened(item, root, inside) for item in schema[key]]
    if len(schema.get("allOf") or ()) == 1:
        made = dict(_widened(schema["allOf"][0], root, inside), **made)
    _widen_members(made, schema, root, inside)
    return made or dict(ANYTHING)


def _small(count: Any) -> bool:
    return type(count) is int and count <= MAX_REPETITIONS


def _widen_members(made: Dict[str, Any], schema: Mapping[str, Any], root: Any, inside: Tuple[str, ...]) -> None:
    if isinstance(schema.get("properties"), Mapping):
        made["properties"] = {name: _widened(item, root, inside) for name, item in schema["properties"].items()}
        made["additionalProperties"] = False
    others = schema.get("additionalProperties")
    if others is True or isinstance(others, Mapping):
        made["additionalProperties"] = _widened(others, root, inside)
    if isinstance(schema.get("items"), Mapping):
        made["items"] = _widened(schema["items"], root, inside)
    listed = schema.get("prefixItems") or schema.get("items")
    if isinstance(listed, list):
        made["prefixItems"] = [_widened(item, root, inside) for item in listed]


def _referred(reference: str, root: Any, inside: Tuple[str, ...]) -> Dict[str, Any]:
    if reference in inside or not reference.startswith("#"):
        return dict(ANYTHING)
    found = root
    for step in reference[1:].split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return _widened(found, root, (*inside, reference))


def _sketch(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return " | ".join([json.dumps(value, ensure_ascii=False) for value in schema["enum"]])
    if "anyOf" in schema:
        return " | ".join([_sketch(item) for item in schema["anyOf"]])
    if schema.get("properties"):
        members = ['"%s": %s' % (name, _sketch(item)) for name, item in schema["properties"].items()]
        return "{%s}" % ", ".join(members)
    if schema.get("items"):
        return "[%s, ...]" % _sketch(schema["items"])
    kinds: Any = schema.get("type", "any")
    names: List[str] = kinds if isinstance(kinds, list) else [kinds]
    return "any" if len(names) == len(ANYTHING["type"]) else " | ".join(names)
