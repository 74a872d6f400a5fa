"""What the wires share: JSON as bytes, arguments that models write, ids of calls, secrets of a request.

Not here: any provider's spelling, and HTTP.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple
from urllib.parse import unquote

Headers = Mapping[str, str]

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(value: Any) -> bytes:
    """Return a JSON value as UTF-8.  Half of a surrogate pair is written as its escape."""
    text = _dumps(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(text: str) -> Any:
    """Return the value of a JSON text, in half the time of `json.loads` for what has no space around it.

    Numbers that JSON does not know (NaN, infinite or too large) become None, unpaired surrogates U+FFFD, so
    that whatever came from outside can be written again.

    Raises:
        ValueError: If it is no JSON.
        RecursionError: If it is nested too deeply.
    """
    try:
        value, end = _decoder.raw_decode(text)
    except ValueError:
        end = -1
    if end != len(text):
        value = _decoder.decode(text)
    return cleaned(value) if "\\ud" in text or "\\uD" in text else value


def _finite(word: str) -> Optional[float]:
    number = float(word)
    return number if math.isfinite(number) else None


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=lambda word: None)


def cleaned(value: Any) -> Any:
    """Return a JSON value in which unpaired surrogates are U+FFFD and pairs the character they mean."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    return [cleaned(item) for item in value] if isinstance(value, list) else value


def parse_arguments(raw: str) -> Optional[Dict[str, Any]]:
    """Return the arguments that a model wrote, or None if they are no JSON object.

    Nothing and ``null`` are no arguments; an object that was written as a JSON string is read twice, because
    some servers encode it twice.  A fence or prose around one object and commas before a closing bracket are
    overlooked; where more than one reading is possible, there is none.
    """
    found = strict_arguments(raw)
    if found is None:
        found = strict_arguments(_TRAILING_COMMA.sub(r"\1", _only_object(raw)) or "[]")
    return found


def strict_arguments(raw: str) -> Optional[Dict[str, Any]]:
    """Like `parse_arguments`, without overlooking anything."""
    if not raw.strip():
        return {}
    value = _loads(raw)
    if isinstance(value, str):
        value = _loads(value)
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


#: A string, kept; or a comma after a value and before a closing bracket.
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]+|\\.)*"?)|(?<=[\w"\]}])\s*,(?=\s*[\]}])', re.DOTALL)


def _only_object(text: str) -> str:
    """The part of a text from its first brace to its last, or "" if what is around it may be JSON too."""
    start, end = text.find("{"), text.rfind("}") + 1
    around = text[:start] + text[end:]
    return "" if start < 0 or any(sign in around for sign in '{}[]"') else text[start:end]


def _loads(text: str) -> Any:
    try:
        value = _strict.decode(text)
        return cleaned(value) if "\\u" in text else value
    except (ValueError, RecursionError):
        return False


def _no_json(word: str) -> Any:
    raise ValueError("%s is no JSON" % word)


def _strictly_finite(word: str) -> float:
    return float(word) if math.isfinite(float(word)) else _no_json(word)


_strict = json.JSONDecoder(parse_float=_strictly_finite, parse_constant=_no_json)


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


#: Names of headers and of members of a query whose values are secret, and names whose values never are.
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|passw|credential|session|signature|^sig$", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"^(content|accept|user-agent|http-referer|x-title)|version", re.IGNORECASE)
#: Any other value that long, without a space, is taken for a key.
_LONG = 20


def secrets_of(headers: Headers, url: str = "") -> Tuple[str, ...]:
    """The secret texts of a request, the longest first: in its headers, with and without a scheme before them,
    and in the user information and query of its URL, as they are and as they may be quoted.
    """
    found: List[str] = []
    for name, value in headers.items():
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        if isinstance(value, Secret) or _is_secret(name, text):
            found += [text, text.partition(" ")[2]]
    _, _, rest = url.partition("://")
    user, _, password = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")[0].partition(":")
    found += [user, password, user + ":" + password] if password or user else []
    for member in re.split("[?&]", rest.partition("#")[0])[1:]:
        name, _, value = member.partition("=")
        if _is_secret(name, value):
            found.append(value)
    forms = {form for text in found for form in _forms(text)}
    return tuple(sorted(forms, key=len, reverse=True))


def _is_secret(name: str, value: str) -> bool:
    if _PLAIN_NAME.search(name):
        return False
    return bool(_SECRET_NAME.search(name)) or (len(value) >= _LONG and " " not in value)


def _forms(text: str) -> List[str]:
    """A secret as it may appear: without the space around it, percent-decoded, or escaped in JSON."""
    plain = [text.strip(), unquote(text).strip()]
    forms = plain + [json.dumps(form)[1:-1] for form in plain] + [form.replace("/", "\\/") for form in plain]
    return [form for form in forms if form]
