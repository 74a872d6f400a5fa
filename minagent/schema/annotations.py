"""Annotations taken apart: which of a few shapes a type has.

`types` makes a schema of every shape and `convert` makes values of it, so that both always mean the same.
What is not here: JSON Schema, values, and the fields of classes (`records`).
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import functools
import typing
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..errors import SchemaError
from .hints import spelled

#: Names of special forms that say something about a field and nothing about its values.
QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar")

_COLLECTIONS: Dict[Any, Tuple[str, Any]] = {
    list: ("list", list), collections.abc.Sequence: ("list", list),
    collections.abc.MutableSequence: ("list", list), collections.abc.Iterable: ("list", list),
    collections.abc.Collection: ("list", list),
    collections.deque: ("list", collections.deque),
    set: ("set", set), frozenset: ("set", frozenset), collections.abc.Set: ("set", frozenset),
    collections.abc.MutableSet: ("set", set), tuple: ("tuple", tuple),
    dict: ("dict", dict), collections.abc.Mapping: ("dict", dict),
    collections.abc.MutableMapping: ("dict", dict),
    collections.OrderedDict: ("dict", collections.OrderedDict),
}
_HELP = ("use str, int, float, bool, None, Optional, Union, Literal, an Enum, list, tuple, set, dict, "
         "a dataclass, TypedDict, NamedTuple, datetime, date, time, timedelta, UUID, Decimal, Path, "
         "bytes, Any or a pydantic model")


class Shape(NamedTuple):
    """One annotation, with NewType, Annotated and type aliases removed.

    Attributes:
        kind: "any", "scalar", "literal", "enum", "union", "list", "set", "tuple", "dict", "record", "model",
            "alias".
        type: The class, or what builds the collection, or the alias.
        args: Types of the items, members of the union, values of the literal.  `Tuple[int, ...]` is a "list"
            of type tuple.
        description: Text that came with the annotation, or "".
    """

    kind: str
    type: Any
    args: Tuple[Any, ...] = ()
    description: str = ""


def shape(annotation: Any, where: str) -> Shape:
    """Classify an annotation.

    Args:
        where: What the annotation belongs to, for the message, such as "parameter 'x' of refund()".

    Raises:
        SchemaError: If it is none of the supported ones.
    """
    annotation, description = unwrap(annotation)
    found = _plain_shape(annotation) or _origin_shape(annotation, where) or _class_shape(annotation)
    if found is None and isinstance(annotation, (str, typing.ForwardRef)):
        raise SchemaError("%s refers to %s by name, and the name cannot be looked up here; write the class "
                          "itself" % (where, spelled(annotation)))
    if found is None:
        raise SchemaError("%s is annotated %s, which has no JSON form; %s"
                          % (where, spelled(annotation), _HELP))
    if not description and found.kind == "union":
        members = [arg for arg in found.args if arg is not type(None)]
        description = unwrap(members[0])[1] if len(members) == 1 else ""
    return found._replace(description=description)


def unwrap(annotation: Any) -> Tuple[Any, str]:
    """Remove Annotated, NewType, Required and the like; return what is left and the text found on the way."""
    description = ""
    while True:
        origin = getattr(annotation, "__origin__", None)
        if hasattr(annotation, "__metadata__"):
            description = description or _text_of(annotation.__metadata__)
            annotation = origin
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif getattr(origin, "_name", None) in QUALIFIERS:
            annotation = annotation.__args__[0]
        elif isinstance(annotation, typing.TypeVar):
            annotation = _bound(annotation)
        else:
            return annotation, description


def _text_of(metadata: Tuple[Any, ...]) -> str:
    for item in reversed(metadata):  # the outermost text, which is the most specific one, is the last
        # Not only text: `description` is what pydantic's Field has, `documentation` what Doc has.
        for text in (item, getattr(item, "description", None), getattr(item, "documentation", None)):
            if isinstance(text, str) and text:
                return text
    return ""


def _bound(variable: Any) -> Any:
    if variable.__bound__ is not None:
        return variable.__bound__
    return typing.Union[variable.__constraints__] if variable.__constraints__ else Any


@functools.lru_cache(maxsize=None)
def scalars() -> Mapping[Any, str]:
    """Return the classes that are one JSON string, number, boolean or null, with their names in this room."""
    import datetime
    import decimal
    import pathlib
    import uuid

    paths = (pathlib.Path, pathlib.PurePath, pathlib.PosixPath, pathlib.PurePosixPath, pathlib.WindowsPath,
             pathlib.PureWindowsPath)
    return {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
            datetime.datetime: "datetime", datetime.date: "date", datetime.time: "time",
            datetime.timedelta: "duration", uuid.UUID: "uuid", decimal.Decimal: "decimal",
            bytes: "bytes", bytearray: "bytes", **dict.fromkeys(paths, "path")}


def _plain_shape(annotation: Any) -> Optional[Shape]:
    if annotation is Any or annotation is object:
        return Shape("any", annotation)
    if annotation is None:
        annotation = type(None)
    if annotation is tuple or annotation is typing.Tuple:
        return Shape("list", tuple, (Any,))
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        if annotation in scalars():
            return Shape("scalar", annotation)
        if annotation in _COLLECTIONS:
            return _collection(annotation, ())
    return None


def _origin_shape(annotation: Any, where: str) -> Optional[Shape]:
    origin = getattr(annotation, "__origin__", None)
    if origin is None and hasattr(annotation, "__value__"):  # type X = ...
        return Shape("alias", annotation)
    if origin is None and type(annotation).__name__ == "UnionType":  # int | str
        origin = typing.Union
    args = tuple(getattr(annotation, "__args__", ()))
    if origin is typing.Union:
        return Shape("union", origin, args)
    if origin is not None and getattr(origin, "_name", None) == "Literal":
        return Shape("literal", origin, _literal_values(args))
    if isinstance(origin, type) and origin in _COLLECTIONS:
        return _collection(origin, tuple(arg for arg in args if not isinstance(arg, typing.TypeVar)))
    if hasattr(origin, "__value__") or isinstance(origin, type) and _class_shape(origin):
        raise SchemaError("%s is annotated %s; generic classes are not supported; write a class without "
                          "parameters" % (where, spelled(annotation)))
    return None


def _literal_values(args: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """Return the values of a Literal; one inside another is flattened, as newer interpreters do."""
    values: List[Any] = []
    for arg in args:
        inner = getattr(arg, "__args__", None)
        values.extend(_literal_values(inner) if inner else [arg])
    return tuple(values)


def _collection(origin: Any, args: Tuple[Any, ...]) -> Shape:
    kind, build = _COLLECTIONS[origin]
    if kind != "tuple":
        missing = (2 if kind == "dict" else 1) - len(args)
        return Shape(kind, build, args + (Any,) * missing)
    if args == ((),):  # how older interpreters write Tuple[()]
        args = ()
    elif len(args) == 2 and args[1] is Ellipsis:
        return Shape("list", tuple, args[:1])
    return Shape("tuple", tuple, args)


def _class_shape(annotation: Any) -> Optional[Shape]:
    if not isinstance(annotation, type):
        return None
    if hasattr(annotation, "model_json_schema") and hasattr(annotation, "model_validate"):
        return Shape("model", annotation, (2,))
    if hasattr(annotation, "parse_obj") and hasattr(annotation, "schema"):
        return Shape("model", annotation, (1,))
    if issubclass(annotation, enum.Enum):
        return Shape("enum", annotation)
    if is_typed_dict(annotation) or hasattr(annotation, "__dataclass_fields__") or is_named_tuple(annotation):
        return Shape("record", annotation)
    return None


def is_typed_dict(cls: Any) -> bool:
    return hasattr(cls, "__total__") and issubclass(cls, dict)


def is_named_tuple(cls: Any) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")
