"""Annotations taken apart: which of a few shapes a type has, and which fields a class has.

`types` makes a schema of every shape and `convert` makes values of it, so that both always mean the same.
What is not here: JSON Schema, and values.
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import functools
import re
import sys
import typing
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..errors import SchemaError
from .docstrings import class_docstring

#: Stands for "no default", which None cannot.
MISSING: Any = object()

#: Names of special forms that say something about a field and nothing about its values.
_QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar")

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


class Field(NamedTuple):
    """One field of a dataclass, TypedDict or NamedTuple; `default` is MISSING if it has none to show."""

    name: str
    annotation: Any
    required: bool
    default: Any
    description: str


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
            # The outermost text is the most specific one.
            description = description or _text_of(annotation.__metadata__)
            annotation = origin
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif getattr(origin, "_name", None) in _QUALIFIERS:
            annotation = annotation.__args__[0]
        elif isinstance(annotation, typing.TypeVar):
            annotation = _bound(annotation)
        else:
            return annotation, description


def qualifiers(annotation: Any) -> List[str]:
    """Return the names of the field qualifiers around an annotation, such as ``["NotRequired"]``."""
    found = []
    while True:
        origin = getattr(annotation, "__origin__", None)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            found.append(str(getattr(origin, "_name", "")))
            annotation = annotation.__args__[0]
        elif hasattr(annotation, "__metadata__"):
            annotation = origin
        else:
            return found


def _text_of(metadata: Tuple[Any, ...]) -> str:
    for item in metadata:
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


def record_fields(cls: Any, where: str, names: Optional[Mapping[str, Any]] = None) -> List[Field]:
    """Return the fields that a JSON object for a dataclass, TypedDict or NamedTuple has.

    Args:
        names: What string annotations may refer to besides the class's module.
    """
    hints = _class_hints(cls, where, names or {})
    texts = class_docstring(cls).parameters
    if is_typed_dict(cls):
        return [_key_field(cls, name, hint, texts) for name, hint in hints.items()]
    fields = _tuple_fields(cls, hints, texts) if is_named_tuple(cls) else _class_fields(cls, hints, texts)
    return [field._replace(annotation=optional_if_none(field.annotation, field.default, where))
            for field in fields]


def _tuple_fields(cls: Any, hints: Mapping[str, Any], texts: Mapping[str, str]) -> List[Field]:
    defaults = getattr(cls, "_field_defaults", {})
    return [Field(name, hints.get(name, Any), name not in defaults, defaults.get(name, MISSING),
                  texts.get(name, "")) for name in cls._fields]


def _key_field(cls: Any, name: str, hint: Any, texts: Mapping[str, str]) -> Field:
    # A qualifier inside a string annotation was not seen when the class was made, so it is asked first.
    said = qualifiers(hint)
    if "Required" in said or "NotRequired" in said:
        required = "Required" in said
    else:
        required = name in cls.__required_keys__ if hasattr(cls, "__required_keys__") else bool(cls.__total__)
    return Field(name, hint, required, MISSING, texts.get(name, ""))


def _class_fields(cls: Any, hints: Mapping[str, Any], texts: Mapping[str, str]) -> List[Field]:
    import dataclasses

    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise SchemaError("field %r of %s is an InitVar, which cannot be read back; make it a plain field"
                              % (name, cls.__name__))
    return [_class_field(field, hints, texts) for field in dataclasses.fields(cls) if field.init]


def _class_field(field: Any, hints: Mapping[str, Any], texts: Mapping[str, str]) -> Field:
    import dataclasses

    has_default = field.default is not dataclasses.MISSING
    required = not has_default and field.default_factory is dataclasses.MISSING
    text = field.metadata.get("description") or texts.get(field.name, "")
    return Field(field.name, hints.get(field.name, Any), required, field.default if has_default else MISSING,
                 text if isinstance(text, str) else "")


def optional_if_none(annotation: Any, default: Any, where: str) -> Any:
    """Return the annotation, made Optional if its default is None: that is what ``x: int = None`` means."""
    if default is None and not _admits_none(annotation, where):
        return typing.Optional[annotation]
    return annotation


def _admits_none(annotation: Any, where: str) -> bool:
    found = shape(annotation, where)
    if found.kind == "union":
        return any(_admits_none(member, where) for member in found.args)
    if found.kind == "alias":
        return _admits_none(found.type.__value__, where)
    return found.kind == "any" or found.type is type(None) or found.kind == "literal" and None in found.args


def _class_hints(cls: Any, where: str, names: Mapping[str, Any]) -> Dict[str, Any]:
    local = dict(names)
    local.update((name, value) for name, value in vars(cls).items() if isinstance(value, type))
    local[cls.__name__] = cls
    try:
        return _get_type_hints(cls, None, local)
    except Exception:
        return _hints_one_by_one(cls, where, local)


def _hints_one_by_one(cls: Any, where: str, local: Mapping[str, Any]) -> Dict[str, Any]:
    """Resolve a class's annotations singly, so that the message can name the one that fails."""
    hints = {}
    for base in reversed(cls.__mro__):
        module = vars(sys.modules.get(base.__module__, typing))
        for name, annotation in base.__dict__.get("__annotations__", {}).items():
            hints[name] = resolve(annotation, module, local, field_place(name, cls, where))
    return hints


def field_place(name: str, cls: Any, where: str) -> str:
    """Return what messages call a field."""
    return "field %r of %s (%s)" % (name, cls.__name__, where)


def _get_type_hints(holder: Any, scope: Optional[Dict[str, Any]], local: Dict[str, Any]) -> Dict[str, Any]:
    if sys.version_info >= (3, 9):
        return typing.get_type_hints(holder, scope, local, include_extras=True)
    return typing.get_type_hints(holder, scope, local)


class _Holder:
    """Something with annotations, which is all that `typing.get_type_hints` wants."""

    def __init__(self, annotation: Any):
        self.__annotations__ = {"it": annotation}


def resolve(annotation: Any, scope: Mapping[str, Any], names: Mapping[str, Any], where: str) -> Any:
    """Turn an annotation that is, or holds, a string into the real thing.

    Args:
        scope: Globals of the module in which it was written.
        names: Further names that it may use.

    Raises:
        SchemaError: If a name in it does not exist at run time, or this interpreter cannot read it.
    """
    try:
        return _get_type_hints(_Holder(annotation), dict(scope), dict(names))["it"]
    except NameError as error:
        name = getattr(error, "name", None) or "".join(re.findall(r"'(\w+)'", str(error))[:1])
        raise SchemaError(
            "%s is annotated %s, but %r does not exist at run time; if it is imported under "
            "`if TYPE_CHECKING:`, import it always; if it is defined inside a function, move it to the module"
            % (where, spelled(annotation), name)) from error
    except Exception as error:
        raise SchemaError("%s is annotated %s, which Python %d.%d cannot read (%s); %s" % (
            (where, spelled(annotation)) + sys.version_info[:2] + (error, _instead(annotation)))) from error


def _instead(annotation: Any) -> str:
    text = spelled(annotation)
    if "|" in text:
        return "write Optional[X] or Union[X, Y] from typing instead of X | Y"
    old = re.search(r"\b(list|dict|set|frozenset|tuple|type|Sequence|Mapping)\[", text)
    if old:
        word = {"frozenset": "FrozenSet"}.get(old.group(1), old.group(1)[0].upper() + old.group(1)[1:])
        return "write typing.%s[...] instead of %s[...]" % (word, old.group(1))
    return "correct the annotation"


def spelled(annotation: Any) -> str:
    """Return an annotation as its author wrote it, as nearly as can be known."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return repr(annotation)
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__qualname__
    return repr(annotation).replace("typing.", "")
