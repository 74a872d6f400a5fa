"""Server-sent events, read from bytes that may be cut anywhere.

After https://html.spec.whatwg.org/multipage/server-sent-events.html, with one difference: a last event
without its blank line counts if its data is complete JSON, because some servers leave the blank line out.
Not here: what the data means, sockets, and ``id:`` and ``retry:``, which are for clients that reconnect.
"""

from __future__ import annotations

import json
from typing import List, NamedTuple, Optional

_BOM = "\ufeff"


class SseEvent(NamedTuple):
    """One event.

    Attributes:
        event: Its name, or "".
        data: Its data lines, joined by line feeds.
    """

    event: str
    data: str


class SseReader:
    """Turns the chunks of one stream into events.

    Bytes are kept until the blank line that ends their event has come, so a character or a line end may be
    cut between two chunks.  Invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> List[SseEvent]:
        """Take what one read brought and return the events that it completed."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        buffer = self._buffer
        if not buffer and chunk.endswith(b"\n\n"):
            return self._events(chunk[:-2])
        # A blank line can begin in the last byte of what was there.
        start = max(0, len(buffer) - 1)
        buffer += chunk
        end = buffer.rfind(b"\n\n", start)
        if end < 0:
            return []
        block = bytes(buffer[:end])
        del buffer[:end + 2]
        return self._events(block)

    def close(self) -> List[SseEvent]:
        """Take the end of the stream; return the last event if only its blank line is missing."""
        block = bytes(self._buffer)
        self._buffer.clear()
        return [event for event in self._events(block) if _is_whole(event.data)]

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk.startswith(b"\n"):
            # The second half of a line end that was cut; the first half was taken for all of it.
            chunk, self._after_cr = chunk[1:], False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, block: bytes) -> List[SseEvent]:
        text = block.decode("utf-8", "replace")
        if not self._started:
            self._started = True
            text = text[1:] if text.startswith(_BOM) else text
        events = []
        for lines in text.split("\n\n"):
            if lines.startswith("data: ") and "\n" not in lines:
                # Nearly every event of nearly every server.
                event: Optional[SseEvent] = SseEvent("", lines[6:])
            else:
                event = _event(lines)
            if event is not None and event.data:
                events.append(event)
        return events


def _event(lines: str) -> Optional[SseEvent]:
    name, data = "", []
    for line in lines.split("\n"):
        field, _, value = line.partition(":")
        if value.startswith(" "):
            value = value[1:]
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return SseEvent(name, "\n".join(data)) if data else None


def _is_whole(data: str) -> bool:
    if data.strip() == "[DONE]":
        return True
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
