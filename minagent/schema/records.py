"""The fields of a class that is an object in JSON: dataclass, TypedDict, NamedTuple.

What is not here: what the types of the fields mean (`annotations`), and functions, whose parameters are such
fields as well (`function`).
"""

from __future__ import annotations

import sys
import typing
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from ..errors import SchemaError
from .annotations import QUALIFIERS, is_named_tuple, is_typed_dict, shape
from .docstrings import class_docstring
from .hints import get_type_hints, resolve, settle

#: Stands for "no default", which None cannot.
MISSING: Any = object()


class Field(NamedTuple):
    """One field of a class, or parameter of a function; `default` is MISSING if it has none to show."""

    name: str
    annotation: Any
    required: bool
    default: Any
    description: str


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
        hints = get_type_hints(cls, None, local)
        scope = vars(sys.modules.get(cls.__module__, typing))
        return {name: settle(hint, scope, local) for name, hint in hints.items()}
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


def qualifiers(annotation: Any) -> List[str]:
    """Return the names of the field qualifiers around an annotation, such as ``["NotRequired"]``."""
    found = []
    while True:
        origin = getattr(annotation, "__origin__", None)
        if getattr(origin, "_name", None) in QUALIFIERS:
            found.append(str(getattr(origin, "_name", "")))
            annotation = annotation.__args__[0]
        elif hasattr(annotation, "__metadata__"):
            annotation = origin
        else:
            return found
