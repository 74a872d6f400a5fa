"""The quick answer to whether a value fits a schema: yes, or don't know.

Most values fit, and most schemas use few keywords; for those no jsonschema is needed, not even imported.
What is not here: saying no.  Whatever is not certain here is left to jsonschema (`validate`).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from .document import Document

#: Says True only if the value fits for certain.
Check = Callable[[Any], bool]

#: Keywords that check nothing.
_SILENT = frozenset((
    "title", "description", "default", "examples", "example", "format", "$comment", "deprecated", "readOnly",
    "writeOnly", "contentEncoding", "contentMediaType", "$defs", "definitions", "discriminator"))


class _Unknown(Exception):
    """The schema says something that is not understood here."""


def quick_check(document: Document) -> Optional[Check]:
    """Return a check for a schema, or None if it uses anything that is not understood here."""
    if document.dialect in ("Draft3", "Draft4"):  # 1.0 is no integer there, and other things differ
        return None
    try:
        return _Builder(document).check(document.schema)
    except (_Unknown, LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return None


class _Builder:
    def __init__(self, document: Document):
        self._document = document
        self._known: Dict[str, Check] = {}

    def check(self, schema: Any) -> Check:
        """Return the check of a schema: of all its keywords."""
        if schema is True or schema == {}:
            return _anything
        if schema is False:
            return _nothing
        checks: List[Check] = []
        for word, expected in schema.items():
            if word not in _SILENT and word not in _OBJECT and word not in _ARRAY:
                checks.append(self._keyword(word, expected))
        if not _OBJECT.isdisjoint(schema):
            checks.append(self._object(schema))
        if not _ARRAY.isdisjoint(schema):
            checks.append(self._array(schema))
        if len(checks) < 2:
            return checks[0] if checks else _anything
        return lambda value: all(check(value) for check in checks)

    def _keyword(self, word: str, expected: Any) -> Check:
        if word == "$ref":
            return self._reference(expected)
        if word in ("anyOf", "allOf"):
            branches = [self.check(inner) for inner in expected]
            combine = any if word == "anyOf" else all
            return lambda value: combine(branch(value) for branch in branches)
        make = _KEYWORDS.get(word)
        if make is None:
            raise _Unknown(word)
        return make(expected)

    def _reference(self, reference: str) -> Check:
        if reference not in self._known:
            # Known before it is made, so that a schema may refer to itself.
            self._known[reference] = lambda value: self._known[reference](value)
            self._known[reference] = self.check(self._document.resolve(reference))
        return self._known[reference]

    def _object(self, schema: Dict[str, Any]) -> Check:
        properties = {name: self.check(inner) for name, inner in schema.get("properties", {}).items()}
        required = tuple(_texts(schema.get("required", [])))
        other = self.check(schema.get("additionalProperties", True))
        names = self.check(schema.get("propertyNames", True))

        def check(value: Any) -> bool:
            if type(value) is not dict:
                return _of_another_type(value, dict)
            for name in required:
                if name not in value:
                    return False
            for name, item in value.items():
                if not properties.get(name, other)(item) or not names(name):
                    return False
            return True

        return check

    def _array(self, schema: Dict[str, Any]) -> Check:
        prefix = tuple(self.check(inner) for inner in schema.get("prefixItems", ()))
        items = schema.get("items", True)
        if isinstance(items, list):
            raise _Unknown("items")
        other = self.check(items)

        def check(value: Any) -> bool:
            if type(value) is not list:
                return _of_another_type(value, list)
            for inner, item in zip(prefix, value):
                if not inner(item):
                    return False
            return other is _anything or all(other(item) for item in value[len(prefix):])

        return check


_OBJECT = frozenset(("properties", "required", "additionalProperties", "propertyNames"))
_ARRAY = frozenset(("prefixItems", "items"))


def _anything(value: Any) -> bool:
    return True


def _nothing(value: Any) -> bool:
    return False


def _of_another_type(value: Any, kind: Any) -> bool:
    """A keyword says nothing about values of other types; what only resembles its own is left to jsonschema."""
    return not isinstance(value, kind)


def _texts(value: Any) -> List[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _Unknown("required")
    return value


_CHOICES = (str, int, bool, type(None))
_TYPES: Dict[str, Check] = {
    "null": lambda value: value is None,
    "boolean": lambda value: value is True or value is False,
    "integer": lambda value: type(value) is int or type(value) is float and value.is_integer(),
    "number": lambda value: type(value) is int or type(value) is float,
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}


def _type(expected: Any) -> Check:
    if isinstance(expected, str):
        return _TYPES[expected]
    checks = [_TYPES[name] for name in expected]
    return lambda value: any(check(value) for check in checks)


def _enum(expected: Any) -> Check:
    if not isinstance(expected, list):
        raise _Unknown("enum")
    # Only plain values of the same type are certain: 1, 1.0 and True are equal in Python.
    choices = {(type(choice), choice) for choice in expected if type(choice) in _CHOICES}
    return lambda value: type(value) in _CHOICES and (type(value), value) in choices


def _limit(kinds: Tuple[Any, ...], fits: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    """Return the maker of a check that compares values of some types with a number."""
    def make(expected: Any) -> Check:
        if type(expected) not in (int, float):
            raise _Unknown("limit")
        return lambda value: fits(value, expected) if type(value) in kinds else _plain(value)

    return make


def _plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str, list, dict)


def _pattern(expected: Any) -> Check:
    found = re.compile(expected).search
    return lambda value: found(value) is not None if type(value) is str else _plain(value)


def _unique(expected: Any) -> Check:
    if expected is not True:
        raise _Unknown("uniqueItems")
    return lambda value: _distinct(value) if type(value) is list else _plain(value)


def _distinct(items: List[Any]) -> bool:
    """Say whether items are certainly all different: texts or whole numbers, for others can be equal unseen."""
    kinds = {type(item) for item in items}
    return len(items) < 2 or kinds in ({str}, {int}) and len(set(items)) == len(items)


_NUMBER = (int, float)
_KEYWORDS: Dict[str, Callable[[Any], Check]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda expected: _enum([expected]),
    "minimum": _limit(_NUMBER, lambda value, limit: bool(value >= limit)),
    "maximum": _limit(_NUMBER, lambda value, limit: bool(value <= limit)),
    "exclusiveMinimum": _limit(_NUMBER, lambda value, limit: bool(value > limit)),
    "exclusiveMaximum": _limit(_NUMBER, lambda value, limit: bool(value < limit)),
    "minLength": _limit((str,), lambda value, limit: len(value) >= limit),
    "maxLength": _limit((str,), lambda value, limit: len(value) <= limit),
    "minItems": _limit((list,), lambda value, limit: len(value) >= limit),
    "maxItems": _limit((list,), lambda value, limit: len(value) <= limit),
    "minProperties": _limit((dict,), lambda value, limit: len(value) >= limit),
    "maxProperties": _limit((dict,), lambda value, limit: len(value) <= limit),
    "pattern": _pattern,
    "uniqueItems": _unique,
}
