"""JSON Schema of an annotation: what a model is told about a Python type.

The subset of 2020-12 that is written here means the same to a draft 7 validator wherever it can; classes that
have a name go to ``$defs``.  What is not here: functions (`function`), and checking values (`validate`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..errors import EncodeError, SchemaError
from .annotations import Shape, scalars, shape
from .docstrings import class_docstring
from .encode import encode
from .hints import spelled
from .records import MISSING, Field, field_place, record_fields

_SCALARS: Dict[str, Dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "duration": {"type": "number", "description": "Duration in seconds."},
    "uuid": {"type": "string", "format": "uuid"},
    "decimal": {"anyOf": [{"type": "string"}, {"type": "number"}], "description": "Decimal number, as text."},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "path": {"type": "string"},
}
_REFERENCE = "#/$defs/"


def json_schema(annotation: Any, where: str = "the value") -> Dict[str, Any]:
    """Return the JSON Schema of one annotation, complete with ``$defs``; never just a ``$ref``.

    Raises:
        SchemaError: If it holds a type without a JSON form.
    """
    builder = SchemaBuilder()
    schema = builder.schema(annotation, where)
    if schema.get("$ref", "").startswith(_REFERENCE):
        # Providers want an object at the root.  A class that refers to itself keeps its entry as well.
        name = schema["$ref"][len(_REFERENCE):]
        schema = dict(builder.defs[name])
        if not _mentions(builder.defs, _REFERENCE + name):
            del builder.defs[name]
    return builder.finished(schema)


def described(schema: Dict[str, Any], text: str) -> Dict[str, Any]:
    """Return the schema with a description; the given one if the text is empty."""
    return annotated(schema, {"description": text}) if text else schema


def annotated(schema: Dict[str, Any], words: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the schema with keywords that check nothing, such as ``description`` and ``default``.

    Draft 7 and some providers allow nothing beside a ``$ref``; the reference moves into an ``anyOf``.
    """
    if "$ref" in schema:
        schema = {"anyOf": [schema]}
    return {**schema, **words}


class SchemaBuilder:
    """Collects the definitions of the classes that it meets.

    Attributes:
        defs: Schema by name, for ``$defs``.
    """

    def __init__(self, names: Optional[Mapping[str, Any]] = None):
        """`names` is what string annotations of classes may refer to besides their module."""
        self.defs: Dict[str, Any] = {}
        self._names = names or {}
        self._refs: Dict[Any, str] = {}

    def schema(self, annotation: Any, where: str) -> Dict[str, Any]:
        """Return the schema of an annotation; `where` says what it belongs to."""
        found = shape(annotation, where)
        make = getattr(self, "_" + found.kind)
        made: Dict[str, Any] = make(found, where)
        return described(made, found.description)

    def finished(self, schema: Dict[str, Any]) -> Dict[str, Any]:
        """Return a schema with the collected definitions added."""
        return {**schema, "$defs": self.defs} if self.defs else schema

    def field(self, field: Field, where: str) -> Dict[str, Any]:
        """Return the schema of a field or parameter, with its description and default."""
        schema = self.schema(field.annotation, where)
        if not shape(field.annotation, where).description:
            schema = described(schema, field.description)
        if field.default is not MISSING:
            try:
                return annotated(schema, {"default": encode(field.default)})
            except EncodeError:  # a default that JSON cannot show is still a default
                pass
        return schema

    def _any(self, found: Shape, where: str) -> Dict[str, Any]:
        return {}

    def _scalar(self, found: Shape, where: str) -> Dict[str, Any]:
        return json.loads(json.dumps(_SCALARS[scalars()[found.type]]))  # type: ignore[no-any-return]

    def _literal(self, found: Shape, where: str) -> Dict[str, Any]:
        return _choice(found.args, where)

    def _enum(self, found: Shape, where: str) -> Dict[str, Any]:
        members = list(found.type)
        if _is_flag(found.type):
            return {"type": "integer", "description": "Sum of " + _legend(members)}
        if not members:
            raise SchemaError("%s is annotated %s, an Enum without members; give it some"
                              % (where, found.type.__name__))
        schema = _choice(members, where)
        text = class_docstring(found.type).text
        if any(not isinstance(member.value, str) for member in members):
            text = (text + "\n" + _legend(members)).strip()
        return described(schema, text)

    def _union(self, found: Shape, where: str) -> Dict[str, Any]:
        members = [self.schema(member, where) for member in found.args]
        if found.description:  # the text of Optional[Annotated[...]] belongs to the whole
            members = [_without_text(member, found.description) for member in members]
        return {"anyOf": members}

    def _list(self, found: Shape, where: str) -> Dict[str, Any]:
        return {"type": "array", "items": self.schema(found.args[0], where)}

    def _set(self, found: Shape, where: str) -> Dict[str, Any]:
        return {**self._list(found, where), "uniqueItems": True}

    def _tuple(self, found: Shape, where: str) -> Dict[str, Any]:
        items = [self.schema(item, where) for item in found.args]
        size = {"minItems": len(items), "maxItems": len(items)}
        kinds = [item for at, item in enumerate(items) if item not in items[:at]]
        if len(kinds) < 2:
            return {"type": "array", "items": kinds[0] if kinds else {}, **size}
        # `items` says nothing more where prefixItems is known, and checks what it can where it is not.
        return {"type": "array", "prefixItems": items, "items": {"anyOf": kinds}, **size}

    def _dict(self, found: Shape, where: str) -> Dict[str, Any]:
        key, value = found.args
        schema: Dict[str, Any] = {"type": "object", "additionalProperties": self.schema(value, where)}
        choices = _key_schema(self.schema(key, where), key, where)
        return {**schema, "propertyNames": choices} if choices else schema

    def _record(self, found: Shape, where: str) -> Dict[str, Any]:
        return self._named(found.type, lambda: self._record_schema(found.type, where))

    def _record_schema(self, cls: Any, where: str) -> Dict[str, Any]:
        fields = record_fields(cls, where, self._names)
        properties = {field.name: self.field(field, field_place(field.name, cls, where))
                      for field in fields}
        schema = object_schema(properties, [field.name for field in fields if field.required])
        return described(schema, class_docstring(cls).text)

    def _alias(self, found: Shape, where: str) -> Dict[str, Any]:
        return self._named(found.type, lambda: self.schema(found.type.__value__, where))

    def _named(self, thing: Any, make: Any) -> Dict[str, Any]:
        if thing not in self._refs:
            name = self._free_name(thing.__name__)
            # Known before it is made, so that a class may refer to itself.
            self._refs[thing] = name
            self.defs[name] = {}
            self.defs[name] = make()
        return {"$ref": _REFERENCE + self._refs[thing]}

    def _free_name(self, name: str) -> str:
        number, free = 2, name
        while free in self.defs:
            free, number = "%s_%d" % (name, number), number + 1
        return free

    def _model(self, found: Shape, where: str) -> Dict[str, Any]:
        cls = found.type
        if cls not in self._refs:
            schema = _model_schema(cls, found.args[0], where)
            own = schema.pop("$defs", schema.pop("definitions", {}))
            top = schema.get("$ref", "")
            if not top.startswith(_REFERENCE):
                name = re.sub(r"\W+", "_", cls.__name__)
                own.setdefault(name, schema)
                top = _REFERENCE + name
            names = self._names_for(own)
            for name, inner in own.items():
                self.defs[names[name]] = _renamed(inner, names)
            self._refs[cls] = names[top[len(_REFERENCE):]]
        return {"$ref": _REFERENCE + self._refs[cls]}

    def _names_for(self, own: Mapping[str, Any]) -> Dict[str, str]:
        """Return new names for a model's definitions: their own ones unless they mean something else here."""
        if all(self.defs.get(name, inner) == inner for name, inner in own.items()):
            return {name: name for name in own}
        return {name: self._free_name(name) for name in own}


def object_schema(properties: Dict[str, Any], required: List[str]) -> Dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    schema: Dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _without_text(schema: Dict[str, Any], text: str) -> Dict[str, Any]:
    return {key: item for key, item in schema.items() if key != "description" or item != text}


def _is_flag(cls: Any) -> bool:
    import enum

    return issubclass(cls, enum.Flag)


def _legend(members: List[Any]) -> str:
    return ", ".join("%s = %s" % (json.dumps(encode(member.value)), member.name) for member in members)


def _choice(values: Any, where: str) -> Dict[str, Any]:
    """Return the schema of a fixed list of values."""
    try:
        encoded = [encode(value) for value in values]
    except EncodeError as error:
        raise SchemaError("%s offers a value without a JSON form: %s" % (where, error)) from error
    types = {type(value) for value in encoded}
    schema: Dict[str, Any] = {"enum": encoded}
    for kind, name in ((str, "string"), (bool, "boolean"), (int, "integer")):
        if types == {kind}:
            return {"type": name, **schema}
    return schema


def _key_schema(schema: Dict[str, Any], key: Any, where: str) -> Dict[str, Any]:
    """Return what the keys of an object are checked for; the rest is checked when they are converted."""
    found = shape(key, where)
    if found.kind not in ("any", "scalar", "literal", "enum", "union"):
        raise SchemaError("%s has keys of type %s; JSON keys are strings; use str, int, an Enum or a Literal,"
                          " or a list of pairs" % (where, spelled(key)))
    choices = schema.get("enum", ())
    return {"enum": choices} if choices and all(isinstance(choice, str) for choice in choices) else {}


def _model_schema(cls: Any, version: int, where: str) -> Dict[str, Any]:
    try:
        if version == 2:
            made = cls.model_json_schema(ref_template=_REFERENCE + "{model}")
        else:
            made = cls.schema(ref_template=_REFERENCE + "{model}")
    except Exception as error:
        raise SchemaError("%s is annotated %s, and its JSON Schema cannot be made: %s"
                          % (where, cls.__name__, error)) from error
    copied: Dict[str, Any] = json.loads(json.dumps(made))
    return copied


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a copy in which references to definitions have new names."""
    if isinstance(schema, list):
        return [_renamed(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: _renamed(item, names) for key, item in schema.items()}
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith(_REFERENCE):
        name = target[len(_REFERENCE):]
        copied["$ref"] = _REFERENCE + names.get(name, name)
    return copied


def _mentions(schema: Any, reference: str) -> bool:
    items: Tuple[Any, ...] = ()
    if isinstance(schema, dict):
        if schema.get("$ref") == reference:
            return True
        items = tuple(schema.values())
    elif isinstance(schema, list):
        items = tuple(schema)
    return any(_mentions(item, reference) for item in items)
