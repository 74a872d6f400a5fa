"""Paths and previews: how the schema room points into a JSON value when something is wrong with it.

What is not here: walking a value.  The walkers collect keys; this only writes them down.
"""

from __future__ import annotations

import re
from typing import Any, Iterable

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def json_path(parts: Iterable[Any]) -> str:
    """Write keys and positions, outermost first, as a path such as ``$.items[2].name``."""
    return "$" + "".join(_step(part) for part in parts)


def _step(part: Any) -> str:
    if isinstance(part, str):
        return "." + part if _PLAIN.match(part) else "[%s]" % preview(part)
    return "[%s]" % preview(part)


def preview(value: Any, limit: int = 80) -> str:
    """Return the repr of a JSON value, with long texts and long lists cut to about `limit` characters."""
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = limit
    short.maxlist = short.maxdict = short.maxtuple = 4
    short.maxlevel = 3
    return shortened(short.repr(value), limit)


def shortened(text: str, limit: int = 200) -> str:
    """Return a text of somebody else's, cut to `limit` characters."""
    return text if len(text) <= limit else text[:limit - 3] + "..."


def type_name(value: Any) -> str:
    """Return the JSON name of a value's type, or the Python name where JSON has none."""
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
             dict: "object", list: "array"}
    return names.get(type(value), type(value).__name__)
