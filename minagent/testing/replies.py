"""What `ScriptedServer` answers and what it was asked, as values.

Not here: sockets (`server`), and what a provider's answers look like (`openai_wire`).
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Sequence, Union

from ..errors import ConfigError

Wait = Union[float, threading.Event]
ENDS = ("complete", "disconnect", "reset")


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
        body: Bytes, sent with a content-length; or a list for a chunked body, in which bytes are one chunk,
            flushed; a number is that many seconds of silence and a `threading.Event` is silence until it is
            set.
        status: HTTP status.
        headers: Added to content-type and the header of the length.
        content_type: Of the body.
        before: Silence before the status line: seconds or an event.
        end: "complete"; "disconnect" closes the connection after the body without its end mark; "reset"
            too, with a reset instead of an orderly end.
    """

    body: Union[bytes, Sequence[Union[bytes, Wait]]] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    before: Optional[Wait] = None
    end: str = "complete"

    def __post_init__(self) -> None:
        if self.end not in ENDS:
            raise ConfigError("a Reply's end is %r; expected one of %s" % (self.end, ", ".join(ENDS)))

    @classmethod
    def json(cls, value: Any, status: int = 200, **members: Any) -> Reply:
        """A body of JSON."""
        return cls(json.dumps(value).encode(), status, **members)

    @classmethod
    def sse(cls, events: Sequence[Any], done: bool = True, **members: Any) -> Reply:
        """A stream: each event is JSON, bytes sent as they are, or a silence; then ``[DONE]`` if `done`."""
        body: List[Any] = [_event(item) for item in events]
        body += [b"data: [DONE]\n\n"] if done else []
        return cls(body, content_type="text/event-stream", **members)


def _event(item: Any) -> Any:
    if isinstance(item, (bytes, int, float, threading.Event)):
        return item
    return b"data: " + json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n\n"


@dataclass(frozen=True)
class ServedRequest:
    """What a client sent.

    Attributes:
        method: Such as "POST".
        path: With the query.
        headers: Names in lower case.
        raw: The body.
        json: The body as JSON, or None if it is none.
        connection: Number of the connection it came on, from 0.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    json: Any
    connection: int
