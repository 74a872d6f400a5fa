"""Annotations that are text, resolved: what `from __future__ import annotations` and quotes leave behind.

What is not here: what an annotation means (`annotations`).
"""

from __future__ import annotations

import re
import sys
import typing
from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import SchemaError


def get_type_hints(holder: Any, scope: Optional[Dict[str, Any]], local: Dict[str, Any]) -> Dict[str, Any]:
    if sys.version_info >= (3, 9):
        return typing.get_type_hints(holder, scope, local, include_extras=True)
    return typing.get_type_hints(holder, scope, local)


def settle(annotation: Any, scope: Mapping[str, Any], names: Mapping[str, Any],
           seen: Tuple[str, ...] = ()) -> Any:
    """Resolve text inside text, and inside ``list[...]``, which older interpreters leave alone."""
    if isinstance(annotation, (str, typing.ForwardRef)):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        if text in seen:  # an alias that refers to itself never ends
            return annotation
        return settle(_evaluated(text, scope, names), scope, names, seen + (text,))
    origin, args = getattr(annotation, "__origin__", None), getattr(annotation, "__args__", ())
    if not args or getattr(origin, "_name", None) == "Literal":
        return annotation
    resolved = tuple(settle(arg, scope, names, seen) for arg in args)
    if all(new is old for new, old in zip(resolved, args)):
        return annotation
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(resolved)
    return typing.Union[resolved] if origin is None else origin[resolved]


def _evaluated(annotation: Any, scope: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    # Always with local names: without them, typing may hand out what the same text meant in another module.
    return get_type_hints(_Holder(annotation), dict(scope), dict(names))["it"]


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
        return settle(_evaluated(annotation, scope, names), scope, names)
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
