"""Python values to JSON values: the fixed encodings of what tools return and what is recorded.

What is not here: writing JSON text (that is `json`), and the way back (that is `convert`).
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Tuple

from ..errors import EncodeError
from .paths import json_path

#: Levels of nesting beyond which a value is refused.  Far below the interpreter's own limit of 1000 frames.
MAX_DEPTH = 100

# Since Python 3.11 an integer of more than 4300 digits is not written as text, so there can be no JSON of it.
_INT_LIMIT = 10 ** 4300
_INFINITY = float("inf")
_NOTHING = object()


def encode(value: Any) -> Any:
    """Return a fresh JSON value for a Python value; nothing in it is shared with the original.

    JSON scalars, lists, tuples and dicts are copied.  Besides: dataclass, NamedTuple and mapping (object),
    set and frozenset (array, sorted), datetime, date and time (ISO 8601), timedelta (seconds), Decimal, UUID
    and path (string), Enum (its value), bytes (base64), pydantic models, and objects with ``to_dict()``.
    Keys that are int, float, bool, None, Enum, date, Decimal or UUID become strings.  Unpaired surrogates in
    strings become U+FFFD, so that the result can always be written as UTF-8.

    Raises:
        EncodeError: If something has no encoding, is not finite, contains itself or is nested more than 100
            levels deep, or if two keys of a dict become the same string.
    """
    try:
        return _encode(value, 0)
    except _Unencodable as problem:
        path = _shortened(problem.parts[::-1])
        reason = problem.reason
    except RecursionError:
        path, reason = "$", "is nested too deeply for the stack that was left; call from less deep"
    raise EncodeError("cannot write the value at %s as JSON: it %s" % (path, reason), path)


def _shortened(parts: List[Any]) -> str:
    return json_path(parts) if len(parts) <= 20 else json_path(parts[:20]) + "..."


class _Unencodable(Exception):
    """Collects the path, innermost key first, while it rises."""

    def __init__(self, reason: str, culprit: Any = None, at_key: bool = False):
        super().__init__(reason)
        self.reason = reason
        self.parts: List[Any] = []
        self.at_key = at_key  # the trouble is the key itself: the place is the dict
        self.culprit = culprit  # the container at the depth limit: met again further out, it contains itself

    def rise(self, container: Any, key: Any) -> None:
        """Note that the trouble lies below `container[key]`."""
        if self.at_key:
            self.at_key = False
        else:
            self.parts.append(key)
        if self.culprit is not None and self.culprit is container:
            self.restart()

    def restart(self) -> None:
        """The culprit is met further out: it is a cycle, and the path ends where it begins."""
        self.parts, self.reason = [], "contains itself; break the cycle or return a part of it"


def _encode(value: Any, depth: int) -> Any:
    # Exact types first: nearly everything that comes here is JSON already.
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _clean(value)
    if kind is dict:
        return _encode_dict(value, depth)
    if kind is list or kind is tuple:
        return _encode_list(value, depth)
    if kind is bool or value is None:
        return value
    if kind is int:
        return _encode_int(value)
    if kind is float:
        return _encode_float(value)
    return _encode_other(value, depth)


def _encode_dict(value: Any, depth: int) -> Dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(value)
    result: Dict[str, Any] = {}
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                key = _unused(_encode_key(key), result)
            kind = type(item)
            if kind is str and item.isascii() or kind is bool or item is None:
                result[key] = item
            else:
                result[key] = _encode(item, depth + 1)
    except _Unencodable as problem:
        problem.rise(value, key)
        raise
    except RuntimeError as error:
        raise _changed(error) from error
    if len(result) != len(value):  # a converted key was followed by a plain one of the same text
        raise _Unencodable("has two keys that are the same text in JSON; rename one")
    return result


def _encode_list(value: Any, depth: int) -> List[Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(value)
    result: List[Any] = []
    append = result.append
    try:
        for item in value:
            kind = type(item)
            if kind is str and item.isascii() or kind is bool or item is None:
                append(item)
            else:
                append(_encode(item, depth + 1))
    except _Unencodable as problem:
        problem.rise(value, len(result))
        raise
    return result


def _too_deep(value: Any) -> _Unencodable:
    return _Unencodable("is nested more than %d levels deep; return a flatter value" % MAX_DEPTH, value)


def _changed(error: RuntimeError) -> Exception:
    if isinstance(error, RecursionError) or "changed size" not in str(error):
        return error
    return _Unencodable("was changed by another thread meanwhile; return a copy")


def _clean(text: str) -> str:
    """Return `text` such that UTF-8 can write it: pairs of surrogates joined, unpaired ones U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _encode_int(value: int) -> int:
    if -_INT_LIMIT < value < _INT_LIMIT:
        return value
    raise _Unencodable("is an integer of more than 4300 digits; return it as a string")


def _encode_float(value: float) -> float:
    if -_INFINITY < value < _INFINITY:
        return value
    raise _Unencodable("is %r, which JSON does not have; return None or a string" % value)


def _encode_key(key: Any) -> str:
    import enum

    while isinstance(key, enum.Enum):
        key = key.value
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    written = None if isinstance(key, (tuple, bytes)) else _write(key, MAX_DEPTH)
    if isinstance(written, (str, int, float)):
        return written if isinstance(written, str) else repr(written)
    raise _Unencodable("has a key of type %s; expected a string; convert the keys" % _named(key), at_key=True)


def _unused(key: str, result: Dict[str, Any]) -> str:
    if key in result:
        raise _Unencodable("has two keys that are both %r in JSON; rename one" % key, at_key=True)
    return key


def _encode_other(value: Any, depth: int) -> Any:
    written = _write(value, depth)
    if written is not _NOTHING:
        return written
    plain = _opened(value)
    # An object stands for the dict of its fields, and is a level of its own if it says to be another object:
    # a to_dict() that returns a new object each time must come to an end.
    below = depth + (type(plain) is not dict)
    try:
        if below > MAX_DEPTH:
            raise _too_deep(plain)
        return _encode(plain, below)
    except _Unencodable as problem:
        if problem.culprit is plain and not problem.parts:
            problem.culprit = value
        elif problem.culprit is value:
            problem.restart()
        raise


def _write(value: Any, depth: int) -> Any:
    """Return the encoding that the value's type has of its own, or `_NOTHING` if it has none."""
    kind = type(value)
    if kind is str or kind is int or kind is float:
        return _encode(value, depth)
    for kinds, write in _writers():
        if isinstance(value, kinds):
            return write(value, depth)
    return _NOTHING


def _opened(value: Any) -> Any:
    """Return what an object consists of."""
    kind = type(value)
    if hasattr(kind, "model_dump"):  # pydantic 2
        return _called(value, "model_dump", mode="json")
    if hasattr(kind, "__fields__") and hasattr(kind, "parse_obj"):  # pydantic 1
        import json

        return json.loads(_called(value, "json"))
    if callable(getattr(kind, "to_dict", None)):
        return _called(value, "to_dict")
    if hasattr(kind, "__dataclass_fields__"):
        return _fields(value, kind)
    raise _Unencodable(_hint(value))


def _called(value: Any, method: str, **options: Any) -> Any:
    try:
        return getattr(value, method)(**options)
    except Exception as error:
        raise _Unencodable("is a %s whose %s() raised %s: %s"
                           % (_named(value), method, type(error).__name__, error)) from error


def _fields(value: Any, kind: Any) -> Dict[str, Any]:
    import dataclasses

    try:
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    except AttributeError as error:
        raise _Unencodable("is a %s with a field that was never set: %s" % (_named(value), error)) from error


def _encode_tuple(value: Any, depth: int) -> Any:
    names = getattr(value, "_fields", None)
    return _encode_list(value, depth) if names is None else _encode_dict(dict(zip(names, value)), depth)


def _encode_set(value: Any, depth: int) -> List[Any]:
    import json

    items = _encode_list(value, depth)
    try:
        return sorted(items)
    except TypeError:  # mixed types have no order of their own; their text has
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _encode_decimal(value: Any, depth: int) -> str:
    if value.is_finite():
        return str(value)
    raise _Unencodable("is %r, which JSON does not have; return None or a string" % value)


def _encode_bytes(value: Any, depth: int) -> str:
    import base64

    return base64.b64encode(bytes(value)).decode("ascii")


def _encode_duration(value: Any, depth: int) -> Any:
    return value.total_seconds() if value.microseconds else value.days * 86400 + value.seconds


@functools.lru_cache(maxsize=None)
def _writers() -> Tuple[Tuple[Any, Callable[[Any, int], Any]], ...]:
    """Return types and their encodings; made on first use, for these imports are not free."""
    from collections.abc import Mapping
    from datetime import date, time, timedelta
    from decimal import Decimal
    from enum import Enum
    from pathlib import PurePath
    from uuid import UUID

    # In order: an Enum may be a str or an int, a datetime is a date; a bool never comes here.
    return (
        (Enum, lambda value, depth: _encode(value.value, depth)),
        (str, lambda value, depth: _clean(str.__str__(value))),
        (int, lambda value, depth: _encode_int(int.__int__(value))),
        (float, lambda value, depth: _encode_float(float.__float__(value))),
        ((date, time), lambda value, depth: value.isoformat()),
        (timedelta, _encode_duration),
        (Decimal, _encode_decimal),
        ((UUID, PurePath), lambda value, depth: _clean(str(value))),
        ((bytes, bytearray, memoryview), _encode_bytes),
        (tuple, _encode_tuple),
        (list, _encode_list),
        ((set, frozenset), _encode_set),
        (Mapping, _encode_dict),
    )


def _named(value: Any) -> str:
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else "%s.%s" % (module, kind.__qualname__)


def _hint(value: Any) -> str:
    if isinstance(value, type):
        return "is the class %s; return an instance" % value.__qualname__
    if hasattr(value, "__await__"):
        return "is a %s that nobody awaits; tools are plain functions here" % _named(value)
    if hasattr(value, "__next__"):
        return "is a %s; return list(...) of it" % _named(value)
    return ("is a %s; return str, int, float, bool, None, list, dict or a dataclass, or give the class a "
            "to_dict() method" % _named(value))
