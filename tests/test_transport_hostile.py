"""What a transport does with bytes that no well-behaved server sends, and with keys that come back in them."""

import contextlib
import socket
import threading
import time
import traceback

import pytest

from minagent._util import CancelToken, Deadline
from minagent.errors import (
    BadRequest,
    BadResponse,
    Cancelled,
    ConfigError,
    LimitReached,
    ModelUnreachable,
    TruncatedStream,
)
from minagent.llm import exchange
from minagent.llm.base import ModelCall
from minagent.llm.transport import Transport
from minagent.llm.wire import Secret, secrets_of
from minagent.testing import Reply, ScriptedServer

KEY = "sk-very/secret"
HEADERS = {"authorization": Secret("Bearer " + KEY)}


@contextlib.contextmanager
def raw_server(*pieces, hang_up=False):
    """A server that sends the pieces, a moment between two, then hangs up or waits for the other side to do so."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)

        def serve():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                asked = received = connection.recv(65536)
                while received and not asked.endswith(b"{}"):  # Else hanging up would be a reset.
                    received = connection.recv(65536)
                    asked += received
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.02)
                while not hang_up and connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield "http://127.0.0.1:%d" % listener.getsockname()[1]
        thread.join(10)


def send(url, headers=HEADERS, **members):
    made = Transport("the model", retry_wait=0.001)
    try:
        return made.send(url, b"{}", headers, ModelCall(**members))
    finally:
        made.close()


def stream(url, **members):
    made = Transport("the model", retry_wait=0.001)
    opened = made.stream(url, b"{}", HEADERS, ModelCall(stream=True, **members))
    try:
        return [event.data for events in opened for event in events]
    finally:
        opened.close()
        made.close()


#: Answers that look complete once the socket has been shut.
UNBOUNDED = {
    "a body without a length": [b'HTTP/1.1 200 OK\r\n\r\n{"choices": ['],
    "headers byte by byte": [b"HTTP/1.1 200 OK\r\nx: ", *[b"y"] * 20],
    "a refusal without a length": [b'HTTP/1.1 400 Bad\r\n\r\n{"error": '],
}


@pytest.mark.parametrize("pieces", UNBOUNDED.values(), ids=list(UNBOUNDED))
def test_a_deadline_within_an_answer_without_a_length_is_the_deadline(pieces):
    """What ended because the call shut its socket is not taken for a whole answer."""
    with raw_server(*pieces) as url, pytest.raises(LimitReached):
        send(url, deadline=Deadline(0.2), retries=0)


@pytest.mark.parametrize("pieces", UNBOUNDED.values(), ids=list(UNBOUNDED))
def test_a_cancel_within_an_answer_without_a_length_is_the_cancel(pieces):
    """The same for a call that somebody else ends."""
    cancel = CancelToken()
    timer = threading.Timer(0.2, cancel.cancel)
    timer.start()
    with raw_server(*pieces) as url, pytest.raises(Cancelled):
        send(url, cancel=cancel, retries=0)
    timer.join()


# Answers without an end, and without a beginning.

def test_an_event_without_an_end_is_a_bad_response(monkeypatch):
    """A stream may not fill the memory with one line, or with comments; events in between begin anew."""
    monkeypatch.setattr(exchange, "EVENT_LIMIT", 1000)
    for line in (b"data: " + b"x" * 94, b": " + b"x" * 96 + b"\n\n"):
        with ScriptedServer([Reply([line] * 100)]) as server:
            with pytest.raises(BadResponse, match="without an end") as caught:
                stream(server.url)
        assert caught.value.body.startswith(line[:50].decode())
    with ScriptedServer([Reply([b"data: " + b"x" * 494 + b"\n\n"] * 10)]) as server:
        assert len(stream(server.url)) == 10
    with ScriptedServer([Reply([b"data: 1\n\n"] + [b"data: x"] * 200)]) as server, pytest.raises(BadResponse):
        stream(server.url)


def test_a_plain_answer_without_an_end_is_a_bad_response(monkeypatch):
    """A plain answer may not fill the memory either."""
    monkeypatch.setattr(exchange, "ANSWER_LIMIT", 1000)
    with ScriptedServer([Reply([b"x" * 100] * 100)]) as server, pytest.raises(BadResponse, match="without an end"):
        send(server.url)


def test_a_length_that_is_no_number_is_ignored():
    """A digit that is not one of ASCII says nothing about the body."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n"
    with raw_server(head, b"{}", hang_up=True) as url:
        assert send(url, retries=0).body == b"{}"


@pytest.mark.parametrize("reply", [Reply(b"", 204), Reply(b""), Reply([]), Reply([b"\r\n"]),
                                   Reply(b"", content_type="text/event-stream")])
@pytest.mark.parametrize("ask", [send, stream])
def test_an_empty_answer_is_one_that_ended_too_early(reply, ask):
    """Plain or streamed, it is tried again, and then told as what it is."""
    with ScriptedServer([reply, reply]) as server:
        with pytest.raises(TruncatedStream, match="empty") as caught:
            ask(server.url, retries=1)
    assert len(server.requests) == 2 and caught.value.retryable


def test_comments_alone_are_an_empty_stream():
    """A server that kept a connection alive and then gave up has answered nothing."""
    with ScriptedServer([Reply([b": wait\n\n"] * 3), Reply.sse([{"n": 1}])]) as server:
        assert stream(server.url) == ['{"n": 1}', "[DONE]"]


# Keys.

def shown(error):
    """All that an error and those behind it show."""
    text = "".join(traceback.format_exception(type(error), error, None))
    while error is not None:
        text += str(error) + repr(error) + repr(vars(error))
        error = error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize("headers, secret", [
    (HEADERS, KEY), ({"x-api-key": KEY}, KEY), ({"Cookie": "a=" + KEY}, KEY),
    ({"x-own": "0123456789" * 3}, "0123456789"), ({"authorization": b"Bearer " + KEY.encode()}, KEY),
])
def test_a_refusal_quotes_no_secret_of_a_header(headers, secret):
    """Whoever gave the header, and however a body escapes it."""
    value = list(headers.values())[0]
    value = value.decode() if isinstance(value, bytes) else value
    body = '{"error": {"message": "bad %s", "code": "%s"}}' % (value, value.replace("/", "\\/"))
    with ScriptedServer([Reply(body.encode(), 400, {"x-request-id": value})]) as server:
        with pytest.raises(BadRequest, match=r"\*\*\*") as caught:
            send(server.url, headers)
    assert secret not in shown(caught.value) and secret.replace("/", "\\/") not in caught.value.body


@pytest.mark.parametrize("path, headers", [("", HEADERS), ("/x?key=" + KEY, {})])
def test_a_secret_is_found_where_a_long_body_is_cut(path, headers):
    """Half of a key would not be found: the body is cut after the search."""
    body = b"x" * (64 * 1024 - 8) + KEY.encode() + b"y" * 100_000
    with ScriptedServer([Reply(body, 400)]) as server, pytest.raises(BadRequest) as caught:
        send(server.url + path, headers)
    assert KEY[:8] not in caught.value.body and len(caught.value.body) <= 64 * 1024


def test_a_redirect_shows_no_secret():
    """Where it points is named without user, query, and whatever is known to be secret."""
    place = "http://me:pass@elsewhere.invalid/%s/v1?token=other" % KEY
    with ScriptedServer([Reply(b"", 307, {"location": place})]) as server:
        with pytest.raises(BadRequest, match=r"elsewhere.invalid/\*\*\*/v1") as caught:
            send(server.url)
    assert KEY not in shown(caught.value) and "pass@" not in shown(caught.value)
    assert "other" not in str(caught.value)


def test_the_address_may_hold_secrets():
    """User, password and keys in the query are told neither by the provider's words nor by a broken connection."""
    body = b'{"error": {"message": "no pass%2Fw pass/w or kkkkkk in 2024-02-01"}}'
    with ScriptedServer([Reply(body, 400)]) as server:
        with pytest.raises(BadRequest, match="2024-02-01") as caught:
            send("http://mee:pass%2Fw@" + server.url[7:] + "/x?api-version=2024-02-01&key=kkkkkk", {})
    assert not any(secret in shown(caught.value) for secret in ("kkkkkk", "pass%2Fw", "pass/w"))
    with pytest.raises(ModelUnreachable) as caught:
        send("http://127.0.0.1:1/x?key=kkkkkk", {}, retries=0)
    assert "kkkkkk" not in shown(caught.value)
    with pytest.raises(ConfigError, match="ftp://") as caught:
        send("ftp://mee:pass%2Fw@host/", {})
    assert "pass%2Fw" not in shown(caught.value)


def test_what_is_told_before_a_retry_has_no_secret():
    """The error that `on_retry` gets went through the same place."""
    told = []
    with pytest.raises(ModelUnreachable):
        send("http://127.0.0.1:1/x?key=kkkkkk", {}, retries=1, on_retry=lambda *news: told.append(news[2]))
    assert "kkkkkk" not in shown(told[0])


def test_a_key_that_no_header_can_hold_is_a_config_error():
    """A key read from a file with its line end is told as such, and not shown."""
    with ScriptedServer([]) as server, pytest.raises(ConfigError, match="headers") as caught:
        send(server.url, {"authorization": Secret("Bearer %s\n" % KEY)})
    assert KEY not in shown(caught.value)


def test_what_is_no_secret_stays_readable():
    """A media type, a version or a title is no key; and of two secrets the longer is replaced first."""
    assert secrets_of({"content-type": "application/json; x", "user-agent": "agent/1.0-with-a-long-name",
                       "x-a": "short", "x-version": "2024-02-01-preview-long"},
                      "http://host/v1?api-version=2024-02-01-preview") == ()
    assert secrets_of({"a-key": "abcd"}, "http://h?key=abcdef")[0] == "abcdef"
