"""JSON values to Python values: what a model wrote becomes what the annotation says.

The counterpart of `types` and `encode`.  What is not here: explaining everything that is wrong with a value
(that is `validate`); the first thing that cannot be converted is reported.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ..errors import EncodeError, InvalidArguments, SchemaError, did_you_mean
from .annotations import Shape, is_typed_dict, scalars, shape
from .encode import encode
from .paths import json_path, preview, type_name
from .records import Field, field_place, record_fields

#: Converts one JSON value; raises Mismatch.
Converter = Callable[[Any], Any]


class Mismatch(Exception):
    """A value does not fit.  Collects the path, innermost key first, while it rises.

    Attributes:
        problems: Pairs (keys, reason).
    """

    def __init__(self, reason: Union[str, List[Tuple[Tuple[Any, ...], str]]]):
        """`reason` is one reason for the value itself, or a list of such pairs."""
        super().__init__(reason)
        self.problems = [((), reason)] if isinstance(reason, str) else reason

    def below(self, key: Any) -> None:
        """Move the problems below a key."""
        self.problems = [((key,) + parts, reason) for parts, reason in self.problems]

    def invalid(self) -> InvalidArguments:
        """Return the public error."""
        return invalid_arguments([(json_path(parts), reason) for parts, reason in self.problems])


def invalid_arguments(problems: List[Tuple[str, str]]) -> InvalidArguments:
    """Return the error for some problems; its message names the first three."""
    text = "; ".join("%s: %s" % problem for problem in problems[:3])
    more = "; and %d more" % (len(problems) - 3) if len(problems) > 3 else ""
    return InvalidArguments("the value does not fit: %s%s" % (text, more), problems)


def from_json(annotation: Any, value: Any) -> Any:
    """Convert a JSON value to the type that an annotation says.

    Raises:
        SchemaError: If the annotation has no JSON form.
        InvalidArguments: If the value does not fit; `problems` says where and why.
    """
    return converted(ConverterBuilder().converter(annotation, "the value"), value)


def converted(convert: Converter, value: Any) -> Any:
    """Convert a value.

    Raises:
        InvalidArguments: If it does not fit.
    """
    try:
        return convert(value)
    except Mismatch as mismatch:
        raise mismatch.invalid() from mismatch
    except RecursionError as error:
        raise invalid_arguments([("$", "is nested too deeply")]) from error


class ConverterBuilder:
    """Makes the converters of one function or type; classes that refer to themselves are met only once."""

    def __init__(self, names: Optional[Mapping[str, Any]] = None):
        """`names` is what string annotations of classes may refer to besides their module."""
        self._names = names or {}
        self._known: Dict[Any, Converter] = {}

    def converter(self, annotation: Any, where: str) -> Converter:
        """Return the converter of an annotation; `where` says what it belongs to."""
        found = shape(annotation, where)
        made: Converter = getattr(self, "_" + found.kind)(found, where)
        return made

    def _any(self, found: Shape, where: str) -> Converter:
        return lambda value: value

    def _scalar(self, found: Shape, where: str) -> Converter:
        return _scalar_converter(found.type)

    def _literal(self, found: Shape, where: str) -> Converter:
        return _choice(found.args)

    def _enum(self, found: Shape, where: str) -> Converter:
        import enum

        if issubclass(found.type, enum.Flag):
            return lambda value: _made(found.type, _whole(value))
        return _choice(tuple(found.type))

    def _union(self, found: Shape, where: str) -> Converter:
        members = [self.converter(member, where) for member in found.args]
        # 3 is an int also in Union[float, int].
        exact = {member for member in found.args if member in (int, bool, type(None))}
        return lambda value: value if type(value) in exact else _first(members, value)

    def _list(self, found: Shape, where: str) -> Converter:
        convert, build = self.converter(found.args[0], where), found.type
        if build is list:
            return lambda value: _items(value, convert)
        return lambda value: build(_items(value, convert))

    def _set(self, found: Shape, where: str) -> Converter:
        convert, build = self.converter(found.args[0], where), found.type
        return lambda value: _made(build, _items(value, convert))

    def _tuple(self, found: Shape, where: str) -> Converter:
        members = [self.converter(item, where) for item in found.args]
        return lambda value: _fixed(value, members)

    def _dict(self, found: Shape, where: str) -> Converter:
        key, item = self._key(found.args[0], where), self.converter(found.args[1], where)
        return lambda value: found.type(_pairs(value, key, item))

    def _key(self, annotation: Any, where: str) -> Converter:
        """Return a converter of keys, which are always strings in JSON."""
        found, convert = shape(annotation, where), self.converter(annotation, where)
        if found.kind == "union":
            members = [self._key(member, where) for member in found.args]
            return lambda key: _first(members, key)
        name = scalars().get(found.type, "") if found.kind == "scalar" else ""
        if name in ("integer", "number", "boolean", "null") or found.kind in ("literal", "enum"):
            return lambda key: _read_key(key, convert)
        return convert

    def _alias(self, found: Shape, where: str) -> Converter:
        return self._once(found.type, lambda: self.converter(found.type.__value__, where))

    def _record(self, found: Shape, where: str) -> Converter:
        return self._once(found.type, lambda: self._record_converter(found.type, where))

    def _record_converter(self, cls: Any, where: str) -> Converter:
        fields = record_fields(cls, where, self._names)
        converters = {field.name: self.converter(field.annotation, field_place(field.name, cls, where))
                      for field in fields}
        build = dict if is_typed_dict(cls) else cls
        return lambda value: _made(_keywords(build), convert_fields(value, fields, converters))

    def _once(self, thing: Any, make: Callable[[], Converter]) -> Converter:
        if thing not in self._known:
            # Known before it is made: inside itself, a class looks its converter up when it is used.
            self._known[thing] = lambda value: self._known[thing](value)
            self._known[thing] = make()
        return self._known[thing]

    def _model(self, found: Shape, where: str) -> Converter:
        parse = found.type.model_validate if found.args[0] == 2 else found.type.parse_obj
        return lambda value: _parsed(parse, value)


def convert_fields(value: Any, fields: List[Field], converters: Mapping[str, Converter]) -> Dict[str, Any]:
    """Convert the items of a JSON object, one converter per field; what is left out stays left out.

    Raises:
        Mismatch: With all that is wrong: unknown names, missing names, values that do not fit.
    """
    problems: List[Tuple[Tuple[Any, ...], str]] = []
    result = {}
    for name, item in _typed(value, dict, "object").items():
        if name not in converters:
            problems.append(((name,), unknown_name(name, list(converters))))
            continue
        try:
            result[name] = converters[name](item)
        except Mismatch as mismatch:
            mismatch.below(name)
            problems.extend(mismatch.problems)
    missing = [field.name for field in fields if field.required and field.name not in value]
    problems.extend(((name,), "is required") for name in missing)
    if problems:
        raise Mismatch(problems)
    return result


def unknown_name(name: str, known: List[str]) -> str:
    """Return what to say about a name that an object does not have."""
    expected = "expected one of " + ", ".join(known) if known else "expected no names at all"
    return "is not a known name%s; %s" % (did_you_mean(name, known), expected)


def _keywords(build: Callable[..., Any]) -> Callable[[Dict[str, Any]], Any]:
    return lambda values: build(**values)


def _made(build: Callable[[Any], Any], value: Any) -> Any:
    """Build a value with code that is not ours, which may refuse it in any way."""
    try:
        return build(value)
    except Mismatch:
        raise
    except Exception as error:
        raise Mismatch("was refused (%s: %s)" % (type(error).__name__, error)) from error


def _typed(value: Any, kind: Any, name: str) -> Any:
    if isinstance(value, kind):
        return value
    raise Mismatch("expected %s, got %s %s" % (name, type_name(value), preview(value)))


def _items(value: Any, convert: Converter) -> List[Any]:
    result = []
    for at, item in enumerate(_typed(value, list, "array")):
        try:
            result.append(convert(item))
        except Mismatch as mismatch:
            mismatch.below(at)
            raise
    return result


def _fixed(value: Any, members: List[Converter]) -> Tuple[Any, ...]:
    if len(_typed(value, list, "array")) != len(members):
        raise Mismatch("expected exactly %d items, got %d" % (len(members), len(value)))
    result = []
    for at, convert in enumerate(members):
        try:
            result.append(convert(value[at]))
        except Mismatch as mismatch:
            mismatch.below(at)
            raise
    return tuple(result)


def _pairs(value: Any, convert_key: Converter, convert: Converter) -> Dict[Any, Any]:
    result: Dict[Any, Any] = {}
    for key, item in _typed(value, dict, "object").items():
        try:
            result[convert_key(key)] = convert(item)
        except Mismatch as mismatch:
            mismatch.below(key)
            raise
    return result


def _first(members: List[Converter], value: Any) -> Any:
    """Return what the first fitting member of a union makes of a value."""
    best: Optional[Mismatch] = None
    for convert in members:
        try:
            return convert(value)
        except Mismatch as mismatch:
            # The member that got furthest into the value is the one that was meant.
            if best is None or _depth(mismatch) > _depth(best):
                best = mismatch
    raise best or Mismatch("fits nothing")


def _depth(mismatch: Mismatch) -> int:
    return max(len(parts) for parts, _ in mismatch.problems)


def _choice(values: Tuple[Any, ...]) -> Converter:
    """Return a converter from the JSON forms of some values to the values."""
    try:
        pairs = [(encode(value), value) for value in values]
    except EncodeError as error:
        raise SchemaError("a Literal or Enum offers a value without a JSON form: %s" % error) from error

    def convert(value: Any) -> Any:
        for encoded, original in pairs:
            if encoded == value and isinstance(encoded, bool) == isinstance(value, bool):
                return original
        choices = preview([pair[0] for pair in pairs], 300)
        raise Mismatch("expected one of %s, got %s" % (choices, preview(value)))

    return convert


def _read_key(key: str, convert: Converter) -> Any:
    """Convert a key that may be a string, or the text of a number, boolean or null."""
    import json

    try:
        return convert(key)
    except Mismatch as mismatch:
        try:
            return convert(json.loads(key))
        except (ValueError, Mismatch):
            raise mismatch from None


def _parsed(parse: Callable[[Any], Any], value: Any) -> Any:
    """Let pydantic read a value, and take over the places that it complains about."""
    try:
        return parse(value)
    except Exception as error:
        details: Any = getattr(error, "errors", tuple)()
        problems = [(tuple(item["loc"]), str(item["msg"])) for item in details]
        raise Mismatch(problems or str(error)) from error


def _whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool):
        raise Mismatch("expected integer, got boolean %r" % value)
    return int(_typed(value, int, "integer"))


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise Mismatch("expected number, got boolean %r" % value)
    number = _made(float, _typed(value, (int, float), "number"))
    if number - number != 0:
        raise Mismatch("expected a finite number, got %r" % value)
    return float(number)


def _scalar_converter(cls: Any) -> Converter:
    name = scalars()[cls]
    if name in ("string", "boolean", "null"):
        return lambda value: _typed(value, cls, name)
    if name in ("integer", "number"):
        return _whole if name == "integer" else _number
    if name in ("datetime", "date", "time"):
        return lambda value: _moment(cls, _FORMS[name], _typed(value, str, "string"))
    if name == "duration":
        return lambda value: _made(lambda seconds: cls(seconds=seconds), _number(value))
    if name == "decimal":
        return lambda value: _decimal(cls, value)
    if name == "bytes":
        return lambda value: cls(_binary(_typed(value, str, "string")))
    expected = "a UUID" if name == "uuid" else "a path"
    return lambda value: _read(cls, _typed(value, str, "string"), expected)


_FORMS = {"datetime": "a date and time such as 2024-12-31T23:59:00+01:00",
          "date": "a date such as 2024-12-31", "time": "a time such as 23:59:00"}
_CLOCK = re.compile(r"((?:\d{4}-\d\d-\d\d.)?\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?\s*(Z|[+-]\d\d(?::?\d\d)?)?\Z",
                    re.IGNORECASE)


def _moment(cls: Any, expected: str, text: str) -> Any:
    """Read ISO 8601.  Older interpreters know only what they write themselves; the rest is made like it."""
    try:
        return cls.fromisoformat(text)
    except ValueError:
        parts = _CLOCK.match(text)
    if parts is None:
        return _read(cls.fromisoformat, text, expected)
    clock, fraction, zone = parts.groups()
    zone = {"": "", "Z": "+00:00"}.get((zone or "").upper(), zone)
    if zone and ":" not in zone:
        zone = zone[:3] + ":" + (zone[3:] or "00")
    digits = "." + (fraction + "000000")[:6] if fraction else ""
    return _read(cls.fromisoformat, clock + digits + zone, expected)


def _read(parse: Callable[[str], Any], text: str, expected: str) -> Any:
    try:
        return parse(text)
    except Exception as error:
        raise Mismatch("expected %s, got %s" % (expected, preview(text))) from error


def _decimal(cls: Any, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Mismatch("expected a decimal number, got %s %s" % (type_name(value), preview(value)))
    made = _read(cls, repr(value) if isinstance(value, float) else str(value), "a decimal number")
    if not made.is_finite():
        raise Mismatch("expected a finite number, got %s" % preview(value))
    return made


def _binary(text: str) -> bytes:
    import base64

    return bytes(_read(lambda given: base64.b64decode(given, validate=True), text, "base64"))
