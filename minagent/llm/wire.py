"""What the wires share: JSON as bytes, arguments that models write, ids of calls, secrets in headers.

Not here: any provider's spelling, and HTTP.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple

Headers = Mapping[str, str]

_decode = json.JSONDecoder().raw_decode
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(value: Any) -> bytes:
    """Return a JSON value as UTF-8.  Half of a surrogate pair is written as its escape."""
    text = _dumps(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(text: str) -> Any:
    """Return the value of a JSON text.  Like `json.loads`, in half the time for what has no space around it.

    Raises:
        ValueError: If it is no JSON.
    """
    try:
        value, end = _decode(text)
    except ValueError:
        end = -1
    return value if end == len(text) else json.loads(text)


def parse_arguments(raw: str) -> Optional[Dict[str, Any]]:
    """Return the arguments that a model wrote, or None if they are no JSON object.

    Nothing and ``null`` are no arguments; an object that was written as a JSON string is read twice, because
    some servers encode it twice.
    """
    if not raw.strip():
        return {}
    value = _loads(raw)
    if isinstance(value, str):
        value = _loads(value)
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False


def _no_json(word: str) -> Any:
    raise ValueError("%s is no JSON" % word)


def random_call_id(index: int) -> str:
    """An id for a call that came without one."""
    return "call_" + os.urandom(12).hex()


class CallIds:
    """Makes the ids of one answer's calls unique.

    Parameters:
        make: Gives an id for the call of an index (from 0).
    """

    def __init__(self, make: Callable[[int], str] = random_call_id):
        self._make = make
        self._taken: Set[str] = set()
        self._count = 0

    def unique(self, call_id: Any) -> str:
        """Return `call_id`, or a made one if it is taken, empty or no text."""
        index, self._count = self._count, self._count + 1
        if not call_id or not isinstance(call_id, str) or call_id in self._taken:
            call_id = self._make(index)
            while call_id in self._taken:
                call_id += "_"
        self._taken.add(call_id)
        return str(call_id)


class Secret(str):
    """Text that does not show itself where a repr is printed, such as the locals of a traceback."""

    def __repr__(self) -> str:
        return "<secret>"


def secrets_of(headers: Headers) -> Tuple[str, ...]:
    """The secret texts among some headers' values, with and without a scheme before them."""
    found = [str(value) for value in headers.values() if isinstance(value, Secret)]
    return tuple(found + [value.split(" ", 1)[1] for value in found if " " in value])
