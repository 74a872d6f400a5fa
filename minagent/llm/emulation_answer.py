"""Reads the answer of an emulated model: a call or a text, in JSON, turned back into parts.

Text is shown while it comes; a call is taken when it is whole.  A model that answers outside the schema is
read as far as it can be: JSON in a fence counts, and everything else is text.  What is not here: the schema
(`emulation`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .base import StreamPart
from .wire import random_call_id

_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*')
_FENCE = re.compile(r"\s*```\w*\s*")
# A pair of escaped surrogates is one character, so it is one token.
_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_TOKEN = re.compile(r'[^"\\]+|%s\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]' % _HIGH, re.DOTALL)
_UNPAIRED = re.compile(_HIGH + r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")

_CUT = "the answer was cut inside a tool call, which was dropped; allow more output tokens"


class AnswerReader:
    """Turns the parts of the inner model into those of the emulated one.

    Parameters:
        kind: "plain" (text as it comes), "text" or "json" (what stands under ``answer``).
    """

    def __init__(self, kind: str):
        self._kind = kind
        self._write: Callable[[str], str] = _Plain() if kind == "plain" else self._undecided
        self._held = ""
        self._shown = False
        self._called = False

    def feed(self, type: str, payload: Dict[str, Any]) -> List[StreamPart]:
        """Return the parts that a part of the inner model becomes."""
        if type in ("text-start", "text-end"):
            return []
        if type == "text-delta":
            return self._show(self._write(payload["text"]))
        if type == "finish":
            return self._finish(payload)
        self._called = self._called or type == "tool-call"
        return [(type, {key: value for key, value in payload.items() if key != "provider_metadata"})]

    def _show(self, text: str) -> List[StreamPart]:
        if not text:
            return []
        started: List[StreamPart] = [] if self._shown else [("text-start", {"id": "text-0"})]
        self._shown = True
        return [*started, ("text-delta", {"id": "text-0", "text": text})]

    def _undecided(self, text: str) -> str:
        """Hold the text until it is clear what it is; JSON that is no answer in text is held to its end."""
        self._held += text
        start = self._held.lstrip()[:1]
        match = _ANSWER.match(self._held)
        writer: Any = None
        if start not in ("", "{", "`"):
            writer, rest = _Plain(), self._held
        elif match and self._held[match.end():]:
            rest = self._held[match.end():]
            if self._kind == "json":
                writer = _Json()
            elif rest[0] == '"':
                writer, rest = _String(), rest[1:]
        if writer is None:
            return ""
        self._held, self._write = "", writer
        return str(writer(rest))

    def _finish(self, payload: Mapping[str, Any]) -> List[StreamPart]:
        reason = payload.get("finish_reason", "stop")
        warnings = list(payload.get("warnings") or ())
        parts = self._show(self._write.rest()) if isinstance(self._write, _Json) else []
        for kind, value in _understood(self._held):
            if kind == "call":
                parts += self._call(value)
            elif reason == "length" and '"tool"' in value:
                warnings.append(_CUT)
            else:
                parts += self._show(value)
        if self._shown:
            parts.append(("text-end", {"id": "text-0"}))
        if self._called:
            reason = "tool-calls"
        elif reason == "tool-calls":
            reason = "stop"
        return [*parts, ("finish", dict(payload, finish_reason=reason, warnings=warnings))]

    def _call(self, call: Mapping[str, Any]) -> List[StreamPart]:
        self._called = True
        args = call.get("arguments")
        named = {"call_id": random_call_id(0), "tool_name": call["tool"]}
        raw = json.dumps({} if args is None else args, ensure_ascii=False)
        known = {} if args is None else args if isinstance(args, dict) else None
        return [("tool-call-input-streaming-start", dict(named)),
                ("tool-call-delta", dict(named, args_text=raw)),
                ("tool-call-input-streaming-end", dict(named)),
                ("tool-call", dict(named, raw_args=raw, args=known))]


def _understood(held: str) -> List[Tuple[str, Any]]:
    """What a text that was held to its end says: ("call", the object) or ("text", text)."""
    if not held.strip():
        return []
    value = _first_json(held)
    if isinstance(value, dict):
        if value.get("tool") and isinstance(value["tool"], str):
            return [("call", value)]
        if "answer" in value:
            answer = value["answer"]
            return [("text", answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))]
    return [("text", held.strip())]


def _first_json(text: str) -> Any:
    """The JSON value at the start of a text, or of the fence at its start; what follows it is no matter."""
    fence = _FENCE.match(text)
    try:
        return json.JSONDecoder().raw_decode(text[fence.end() if fence else 0:].lstrip())[0]
    except (ValueError, RecursionError):
        return None


class _Plain:
    """Text without the space around it."""

    def __init__(self) -> None:
        self._space: Optional[str] = None

    def __call__(self, text: str) -> str:
        body = text.rstrip()
        if self._space is None:
            body, text = body.lstrip(), text.lstrip()
        if not body:
            self._space = None if self._space is None else self._space + text
            return ""
        shown = (self._space or "") + body
        self._space = text[len(body):]
        return shown


class _String:
    """The inside of a JSON string, decoded as it comes."""

    def __init__(self) -> None:
        self._raw = ""
        self._closed = False

    def __call__(self, text: str) -> str:
        if self._closed:
            return ""
        self._raw += text
        end = 0
        while True:
            token = _TOKEN.match(self._raw, end)
            if token is None or _UNPAIRED.match(self._raw, end):
                break
            end = token.end()
        whole, self._raw = self._raw[:end], self._raw[end:]
        self._closed = self._raw.startswith('"')
        return _decoded(whole)


def _decoded(text: str) -> str:
    """What the inside of a JSON string stands for; half of a surrogate pair is a replacement character."""
    try:
        value = str(json.loads('"%s"' % text, strict=False))
    except ValueError:
        return text
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Json:
    """The text of a JSON value that is the last member of an object: all but the object's last brace."""

    def __init__(self) -> None:
        self._tail = ""

    def __call__(self, text: str) -> str:
        text = self._tail + text
        # The object's own brace may be the last one so far, wherever the text was cut.
        body = text.rstrip().rstrip("}").rstrip() if text.rstrip().endswith("}") else text
        self._tail = text[len(body):]
        return body

    def rest(self) -> str:
        """What is left of the tail without the object's own brace."""
        return self._tail.rstrip()[:-1].rstrip() if self._tail.rstrip().endswith("}") else self._tail
