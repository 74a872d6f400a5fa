"""One request and its answer: opened, read and closed by one thread, ended early by any.

Not here: whether to try again, and sessions (`transport`).
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Type
from urllib.parse import urlsplit

from .._util import shorter
from ..errors import BadResponse, ConfigError, ModelError, ModelTimeout, ModelUnreachable, TruncatedStream
from .base import ModelCall
from .connection import Line, watchdog
from .failures import BODY_LIMIT, bare_url, reason
from .sse import SseEvent, SseReader
from .wire import Headers

#: What a stream may still send after its last event, in seconds: an end mark, for the connection to be kept.
LAST_BYTES = 0.25
#: A stream may send that many bytes without completing an event.
EVENT_LIMIT = 64 * 1024 * 1024
#: A plain answer may have that many bytes.
ANSWER_LIMIT = 256 * 1024 * 1024


class Patience(NamedTuple):
    """How long a model is waited for, in seconds; see `Transport`."""

    connect: float = 10.0
    first_byte: float = 120.0
    idle: float = 60.0


class Place(NamedTuple):
    """How messages name what is asked ("is ollama running?"), and the setting that says where it is."""

    server: str = "the server"
    setting: str = "base_url"


class Answer(NamedTuple):
    """A whole answer.

    Attributes:
        status: HTTP status.
        headers: Names in any case.
        body: Its bytes, decompressed.
    """

    status: int
    headers: Headers
    body: bytes


class Exchange:
    """One request and its answer, while it is under way.

    Attributes:
        who: Names the model in messages.
        patience: How long it is waited for.
        call: Its deadline and cancel token end the exchange.
        status: HTTP status, once `open` has returned.
        headers: Names in any case.
        address: Scheme, host and port, once `open` is called.
        place: Names the server and the setting that says where it is.
        on_close: Called once, when all is over.
        translating: A context in which errors of requests and urllib3 become ours.
    """

    def __init__(self, who: str, patience: Patience, call: ModelCall):
        self.who = who
        self.patience = patience
        self.call = call
        self.status = 0
        self.headers: Headers = {}
        self.line = Line()
        self.address = ""
        self.place = Place()
        self.on_close: Callable[[], None] = _nothing
        self.translating = Translating(self)
        self._response: Any = None
        self._forget = call.cancel.on_cancel(self.line.shut)
        watchdog().watch(call.deadline, self.line)

    def open(self, adapter: Any, request: Any, **settings: Any) -> None:
        """Send a prepared request and wait for the headers of the answer."""
        self.address = "/".join(bare_url(request.url).split("/")[:3])
        remaining = self.call.deadline.remaining()
        limits = shorter(self.patience.connect, remaining), shorter(self.patience.first_byte, remaining)
        with self.translating, self.line:
            self._response = adapter.send(request, stream=True, timeout=limits, **settings)
        self.status = self._response.status_code
        self.headers = self._response.headers

    def read(self) -> bytes:
        """Return the whole body.

        Raises:
            TruncatedStream: If the connection ends before it.
            BadResponse: If it does not end.
        """
        self.line.limit_silence(self.patience.idle)
        body = bytearray()
        try:
            with self.translating:
                for chunk in self._response.iter_content(64 * 1024):
                    body += chunk
                    if len(body) > ANSWER_LIMIT:
                        raise endless(self.who, ANSWER_LIMIT, bytes(body))
        except ModelUnreachable as error:
            raise truncated(self.who, reason(error.__cause__ or error)) from error
        # A socket that was shut looks like the end of the headers, or of a body without a length.
        self.call.check()
        length = self.headers.get("content-length", "")
        if re.match(r"[0-9]{1,18}\Z", length) and len(body) < int(length) and "content-encoding" not in self.headers:
            raise truncated(self.who, "%d of %s bytes" % (len(body), length))
        return bytes(body)

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes."""
        from urllib3 import HTTPResponse

        raw = self._response.raw
        is_real = isinstance(raw, HTTPResponse)
        with self.translating:
            if is_real and raw.chunked:
                yield from raw.stream(64 * 1024, decode_content=True)
            elif is_real and hasattr(raw, "read1"):
                yield from iter(lambda: raw.read1(64 * 1024, decode_content=True), b"")
            else:
                # An older urllib3, and perhaps a stand-in, waits for as many bytes as it was asked for.
                yield from self._response.iter_content(1)

    def close(self) -> None:
        """Give the connection back if all was read, else close it."""
        self._forget()
        watchdog().forget(self.line)
        self.line.detach()
        if self._response is not None:
            self._response.close()
        on_close, self.on_close = self.on_close, _nothing
        on_close()

    def unreachable(self, why: str) -> ModelUnreachable:
        """Return the error for a connection that was not made or broke."""
        server, setting = self.place
        is_near = urlsplit(self.address).hostname in ("localhost", "127.0.0.1", "::1")
        if why.startswith("TLS"):
            advice = "check %s (https:// or http://?) and verify=" % setting
        elif (is_near or setting != "base_url" or "refused" in why) and "proxy" not in why:
            advice = "is %s running at %s? check %s" % (server, self.address, setting)
        else:
            advice = "check %s, the network and the proxies" % setting
        return ModelUnreachable("the connection to %s at %s failed (%s); %s"
                                % (self.who, self.address.partition("://")[2], why, advice))


def _nothing() -> None:
    pass


def truncated(who: str, how: object) -> TruncatedStream:
    """Return the error for an answer that ended too early."""
    return TruncatedStream("the answer of %s ended before it was complete (%s); ask again" % (who, how))


def unsendable(who: str, error: Exception) -> ConfigError:
    """Return the error for a request that cannot be sent."""
    return ConfigError("%s could not be asked (%s); check base_url, headers and proxies" % (who, reason(error)))


def empty(who: str) -> TruncatedStream:
    """Return the error for an answer with nothing in it, which is one that ended before it began."""
    return truncated(who, "its body is empty")


def endless(who: str, limit: int, begun: bytes) -> BadResponse:
    """Return the error for an answer that does not come to its end."""
    return BadResponse("%s sent more than %d MiB without an end; check base_url" % (who, limit // 1024 ** 2),
                       status=200, body=begun[:2 * BODY_LIMIT].decode("utf-8", "replace"))


def silent(who: str, patience: Patience) -> ModelTimeout:
    """Return the error for an answer that went on with nothing, or with nothing but comments."""
    return ModelTimeout("%s said nothing for too long (first_byte_timeout is %g s, idle_timeout %g s)"
                        % (who, patience.first_byte, patience.idle))


class Translating:
    """Turns what went wrong on a connection into what it means for the call."""

    def __init__(self, exchange: Exchange):
        self._exchange = exchange

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, ModelError):
            return
        # A socket that was shut under its reader makes the reader fail in whatever it was about to do.
        self._exchange.call.check()
        meaning = _translated(error, self._exchange)
        if meaning is not error:
            raise meaning from error


def _translated(error: Exception, exchange: Exchange) -> Exception:
    from http.client import HTTPException

    from requests import exceptions
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    if not isinstance(error, (OSError, HTTPError, HTTPException)):
        # Before there is an answer: what a header or an address cannot hold, such as the line end of a key.
        if not isinstance(error, UnicodeError if exchange.status else ValueError):
            return error  # Nobody's connection: a mistake in an adapter or here.
        return unsendable(exchange.who, error)
    who, patience = exchange.who, exchange.patience
    if isinstance(error, (exceptions.InvalidURL, exceptions.InvalidSchema, exceptions.InvalidHeader,
                          exceptions.InvalidProxyURL)):
        return unsendable(who, error)
    if isinstance(error, exceptions.ConnectTimeout):
        return ModelTimeout("%s could not be reached at %s within %g s (connect_timeout); check base_url and the "
                            "network" % (who, exchange.address.partition("://")[2], patience.connect))
    if isinstance(error, exceptions.ReadTimeout):
        return ModelTimeout("%s sent no headers within %g s (first_byte_timeout)"
                            % (who, patience.first_byte))
    if any(isinstance(item, ReadTimeoutError) for item in (error, *error.args)):
        return silent(who, patience)
    return exchange.unreachable(reason(error))


class EventStream:
    """The events of an answer, as lists of what one read brought.  Used and closed by one thread.

    Attributes:
        headers: Of the answer.
        rest: The whole body if it held no event at all (some servers answer in plain JSON), else b"".
    """

    def __init__(self, exchange: Exchange):
        self.headers = exchange.headers
        self.rest = b""
        self._exchange = exchange
        self._chunks = exchange.chunks()
        self._batches = self._read()
        self._first: List[SseEvent] = []

    def begin(self) -> None:
        """Wait for the first event, or the end of a body without any.

        Raises:
            TruncatedStream: If there is nothing in the body, or nothing but comments.
        """
        self._first = next(self._batches, [])
        if not self._first and not re.sub(br"(?m)^:[^\r\n]*", b"", self.rest).strip():
            raise empty(self._exchange.who)

    def __iter__(self) -> Iterator[List[SseEvent]]:
        """The events, those of the first read included.

        Raises:
            TruncatedStream: If the connection breaks after the first event.
            BadResponse: If an event does not end.
        """
        if self._first:
            yield self._first
        try:
            yield from self._batches
        except ModelUnreachable as error:
            raise truncated(self._exchange.who, reason(error.__cause__ or error)) from error

    def _read(self) -> Iterator[List[SseEvent]]:
        exchange, reader, line = self._exchange, SseReader(), self._exchange.line
        unread: Optional[List[bytes]] = []
        limit, since = exchange.patience.first_byte, time.monotonic()
        size = 0  # Of what has come since the last event.
        shortened = True  # To begin with, the socket has the limit of the first byte.
        for chunk in self._chunks:
            exchange.call.check()
            events = reader.feed(chunk)
            size = 0 if events else size + len(chunk)
            if size > EVENT_LIMIT:
                raise endless(exchange.who, EVENT_LIMIT, b"".join(unread or [chunk]))
            if events:
                unread = None
                yield events
                limit, since = exchange.patience.idle, time.monotonic()
            elif unread is not None:
                unread.append(chunk)
            if shortened or not events:
                # Comments keep a connection alive, not a call: silence counts from the last event.
                left = limit - (time.monotonic() - since)
                if left <= 0:
                    raise silent(exchange.who, exchange.patience)
                line.limit_silence(left)
                shortened = not events
        exchange.call.check()
        events = reader.close()
        if events:
            yield events
        elif unread is not None:
            self.rest = b"".join(unread)

    def finish(self) -> None:
        """The answer is complete: read its end mark if that comes at once; then the connection is kept."""
        end = time.monotonic() + LAST_BYTES
        self._exchange.line.limit_silence(LAST_BYTES)
        try:
            for _ in self._chunks:
                if time.monotonic() > end:
                    break
        except Exception:
            pass  # Then the connection is closed; the answer is there all the same.

    def close(self) -> None:
        self._exchange.close()
