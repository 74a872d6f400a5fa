"""The transport over real sockets: answers, refusals, retries, keys and connections."""

import email.utils
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from minagent._util import Deadline
from minagent.errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
    ContentFiltered,
    ContextLengthExceeded,
    LimitReached,
    ModelError,
    ModelTimeout,
    ModelUnreachable,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    TruncatedStream,
)
from minagent.llm.base import ModelCall
from minagent.llm.failures import retry_after
from minagent.llm.transport import Transport
from minagent.llm.wire import Secret
from minagent.testing import Reply, ScriptedServer

HEADERS = {"content-type": "application/json", "authorization": Secret("Bearer sk-secret")}


def transport(**settings):
    return Transport("the model", **dict({"retry_wait": 0.001}, **settings))


def send(server, made=None, headers=HEADERS, path="/v1/x", **members):
    return (made or transport()).send(server.url + path, b'{"a": 1}', headers, ModelCall(**members))


def stream(server, made=None, **members):
    opened = (made or transport()).stream(server.url + "/v1/x", b"{}", HEADERS, ModelCall(stream=True, **members))
    try:
        events = [event.data for events in opened for event in events]
        opened.finish()
        return events
    finally:
        opened.close()


def test_a_request_arrives_as_it_was_given():
    """Body and headers are sent unchanged, and the answer comes back with its headers."""
    with ScriptedServer([Reply.json({"ok": 1}, headers={"x-request-id": "r1"})]) as server:
        answer = send(server)
    asked = server.requests[0]
    assert (asked.method, asked.path, asked.raw) == ("POST", "/v1/x", b'{"a": 1}')
    assert asked.headers["authorization"] == "Bearer sk-secret" and asked.headers["content-length"] == "8"
    assert (answer.status, answer.body, answer.headers["X-Request-Id"]) == (200, b'{"ok": 1}', "r1")


def test_one_thread_keeps_one_connection_for_plain_and_streamed_answers():
    """A finished answer gives its connection back, also when the end mark comes after the last event."""
    with ScriptedServer([Reply.json({}), Reply.sse([{"n": 1}]), Reply.json({}), Reply.json({}, 400),
                         Reply.json({})]) as server:
        made = transport()
        send(server, made)
        assert stream(server, made) == ['{"n": 1}', "[DONE]"]
        send(server, made)
        with pytest.raises(BadRequest):
            send(server, made)
        send(server, made)
    assert server.connections == 1


def test_cookies_are_neither_kept_nor_sent():
    """What one answer sets, no other request carries."""
    cookie = Reply.json({}, headers={"set-cookie": "a=b; Path=/"})
    with ScriptedServer([cookie, cookie]) as server:
        made = transport()
        send(server, made)
        send(server, made)
    assert "cookie" not in server.requests[1].headers


def test_a_netrc_file_neither_replaces_nor_adds_a_key(tmp_path, monkeypatch):
    """requests would take the file's password for this host; ours stays, and where there is none, none comes."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with ScriptedServer([Reply.json({})] * 2) as server:
        send(server)
        send(server, headers={})
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret"
    assert "authorization" not in server.requests[1].headers


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    """http_proxy is honoured: the request goes there, with the whole URL."""
    with ScriptedServer([Reply.json({"via": "proxy"})]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        answer = transport().send("http://model.invalid/v1/x", b"{}", HEADERS, ModelCall())
    assert answer.body == b'{"via": "proxy"}'
    assert proxy.requests[0].path == "http://model.invalid/v1/x"


def test_a_mounted_adapter_is_used():
    """Adapters, recorders and mocks that users mount see every request."""
    from requests.adapters import HTTPAdapter

    seen = []

    class Spy(HTTPAdapter):
        def send(self, request, **settings):
            seen.append(request.url)
            return super().send(request, **settings)

    with ScriptedServer([Reply.json({}), Reply.sse([{}])]) as server:
        made = transport(configure_session=lambda session: session.mount("http://", Spy()))
        send(server, made)
        assert stream(server, made) == ["{}", "[DONE]"]
    assert seen == [server.url + "/v1/x"] * 2


@pytest.mark.parametrize("status, body, error", [
    (400, {"error": {"message": "no such field", "code": "bad"}}, BadRequest),
    (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, ContextLengthExceeded),
    (400, {"error": {"message": "This model's maximum context length is 5"}}, ContextLengthExceeded),
    (400, {"error": {"message": "prompt is too long: 9 tokens > 5"}}, ContextLengthExceeded),
    (400, {"error": {"message": "x", "code": "content_filter"}}, ContentFiltered),
    (400, {"code": "invalid_api_key", "error": "Incorrect API key"}, AuthenticationFailed),
    (401, {"detail": "Unauthorized"}, AuthenticationFailed),
    (403, b"<html><title>No</title><body>Forbidden</body></html>", AuthenticationFailed),
    (402, {"error": {"message": "pay"}}, QuotaExhausted),
    (404, [{"error": {"code": 404, "message": "no model", "status": "NOT_FOUND"}}], BadRequest),
    (422, {"detail": [{"msg": "field required"}]}, BadRequest),
    (429, {"error": {"message": "slow down"}}, RateLimited),
    (429, {"error": {"message": "x", "code": "insufficient_quota"}}, QuotaExhausted),
    (408, b"", ModelTimeout),
    (409, {}, Overloaded),
    (500, b"<html>oops</html>", Overloaded),
    (503, b"", Overloaded),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Overloaded),
])
def test_a_refusal_becomes_the_error_that_it_means(status, body, error):
    """Status, code and words decide; the message holds the provider's words and the status."""
    reply = Reply(body, status, content_type="text/html") if isinstance(body, bytes) else Reply.json(body, status)
    with ScriptedServer([reply]) as server:
        with pytest.raises(ModelError) as caught:
            send(server, retries=0)
    assert type(caught.value) is error and caught.value.status == status
    assert str(status) in str(caught.value)


@pytest.mark.parametrize("status, body, path, words", [
    (404, b"404 page not found", "", "a forgotten /v1 at its end is the usual cause"),
    (404, {"detail": "Not Found"}, "", "a forgotten /v1"),
    (404, {"error": {"message": "no such model"}}, "/v1", "check the name of the model and base_url"),
    (405, {"detail": "Method Not Allowed"}, "", "check base_url"),
    (403, b"<html>Forbidden</html>", "/v1", "check .*base_url"),
    (400, b"Bad Request", "", "check base_url"),
])
def test_what_was_asked_is_named_where_the_address_may_be_wrong(status, body, path, words):
    """The URL stands in the message, but neither its query nor its user and password."""
    reply = Reply(body, status) if isinstance(body, bytes) else Reply.json(body, status)
    with ScriptedServer([reply]) as server:
        url = server.url + path + "/chat/completions"
        with pytest.raises(ModelError, match=words) as caught:
            transport().send(url.replace("//", "//me:pass@") + "?key=hidden", b"{}", {}, ModelCall(retries=0))
    assert "asked at %s;" % url in str(caught.value)
    assert "pass@" not in str(caught.value) and "hidden" not in str(caught.value)


@pytest.mark.parametrize("headers", [{}, HEADERS])
def test_a_refusal_for_want_of_a_key_says_that_none_was_sent(headers):
    """A key in the environment may have been expected to go along; one that was sent is wrong instead."""
    with ScriptedServer([Reply.json({"error": {"message": "who are you?"}}, 401)]) as server:
        with pytest.raises(AuthenticationFailed) as caught:
            send(server, headers=headers)
    assert ("no key was sent, pass api_key=" in str(caught.value)) is (headers == {})


def test_a_provider_s_own_refusal_says_nothing_of_addresses():
    """Whoever explains what is wrong with the request was found."""
    with ScriptedServer([Reply.json({"error": {"message": "no such field"}}, 400)]) as server:
        with pytest.raises(BadRequest) as caught:
            send(server)
    assert "base_url" not in str(caught.value)


def test_an_error_carries_what_support_needs_and_no_key():
    """Code, request id, wait and body are there; the key is not, even if the provider quotes it."""
    body = {"error": {"message": "Bad key sk-secret given", "code": 17}}
    with ScriptedServer([Reply.json(body, 429, headers={"x-request-id": "r9", "retry-after": "3"})]) as server:
        with pytest.raises(RateLimited, match=r"Bad key \*\*\* given") as caught:
            send(server, retries=0)
    error = caught.value
    assert (error.code, error.request_id, error.retry_after) == ("17", "r9", 3.0)
    assert "sk-secret" not in str(error) + repr(error) + error.body and "Bad key" in error.body
    assert "sk-secret" not in repr(HEADERS)


def test_a_redirect_is_not_followed():
    """A key is never carried to another address."""
    with ScriptedServer([Reply(b"", 307, headers={"location": "http://elsewhere.invalid/"})]) as server:
        with pytest.raises(BadRequest, match=r"base_url.*elsewhere"):
            send(server)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(status):
    """Two retries by default; each is announced before its wait."""
    told = []
    with ScriptedServer([Reply(b"", status), Reply(end="reset"), Reply.json({"ok": 1})]) as server:
        answer = send(server, on_retry=lambda *news: told.append(news))
    assert answer.body == b'{"ok": 1}' and len(server.requests) == 3
    assert [attempt for attempt, _, _ in told] == [1, 2]
    assert isinstance(told[1][2], ModelUnreachable) and 0 < told[0][1] < told[1][1]


@pytest.mark.parametrize("reply, asked", [
    (Reply.json({}, 400), 1),
    (Reply.json({}, 404), 1),
    (Reply.json({"error": {"message": "x", "type": "insufficient_quota"}}, 429), 1),
    (Reply.json({}, 503, headers={"x-should-retry": "false"}), 1),
    (Reply.json({}, 400, headers={"x-should-retry": "true"}), 3),
    (Reply.json({}, 503, headers={"retry-after": "86400"}), 1),
    (Reply.json({}, 503, headers={"retry-after": "0"}), 3),
    (Reply.json({}, 503), 3),
])
def test_retries_follow_the_provider_and_never_a_quota(reply, asked):
    """x-should-retry decides first, a spent quota and a wait of a day are not waited for."""
    with ScriptedServer(lambda request: reply) as server:
        with pytest.raises(ModelError):
            send(server)
    assert len(server.requests) == asked


@pytest.mark.parametrize("headers, wanted", [
    ({"retry-after": "2"}, 2.0), ({"Retry-After": "0.25"}, 0.25), ({"retry-after-ms": "1500"}, 1.5),
    ({"retry-after": "1", "retry-after-ms": "0"}, 1.0), ({}, None), ({"retry-after": "soon"}, None),
    ({"retry-after": "-5"}, None), ({"retry-after": "nan"}, None),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
])
def test_every_form_of_retry_after_is_read(headers, wanted):
    """Seconds, fractions, milliseconds, dates; nonsense is no wish."""
    assert retry_after(headers) == wanted


def test_a_date_in_retry_after_is_a_wait_from_now():
    """An HTTP date lies in the future by its distance."""
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 28 < retry_after({"retry-after": date}) <= 30


def test_a_wish_to_wait_is_obeyed():
    """The announced and the real wait are what the provider asked for."""
    told = []
    with ScriptedServer([Reply.json({}, 429, headers={"retry-after-ms": "60"}), Reply.json({})]) as server:
        start = time.monotonic()
        send(server, on_retry=lambda *news: told.append(news[1]))
    assert told == [0.06] and time.monotonic() - start >= 0.06


def test_a_wait_beyond_the_deadline_fails_at_once():
    """The provider's error is raised instead of sleeping towards a deadline."""
    start = time.monotonic()
    with ScriptedServer([Reply.json({}, 429, headers={"retry-after": "20"})]) as server:
        with pytest.raises(RateLimited):
            send(server, deadline=Deadline(5))
    assert time.monotonic() - start < 2


def test_a_failed_connection_is_told_in_plain_words():
    """Host and port, a short reason and what to do; no object of the libraries below, which is the cause."""
    with ScriptedServer([Reply.json({})] * 2) as server:
        port = server.url.rpartition(":")[2]
        told = {"TLS": failed("https://localhost:%s/v1/x" % port)}
    told["hung up"] = hung_up()
    told["connection refused"] = failed(server.url + "/v1/x")
    told["the name of the host is not known"] = failed("http://model.invalid:81/v1/x?key=hidden")
    told["its proxy failed: connection refused"] = failed("http://model.invalid:81/", proxies={"http": server.url})
    for words, error in told.items():
        assert words in str(error) and error.__cause__ is not None
        for foreign in ("Recording", "Pool", "urllib3", "object at", "Errno", "HTTPConnection", "hidden", "Error"):
            assert foreign not in str(error), str(error)
    assert "127.0.0.1:%s failed" % port in str(told["connection refused"])
    assert "is the server running at %s? check base_url" % server.url in str(told["connection refused"])
    assert "model.invalid:81 failed" in str(told["the name of the host is not known"])
    assert "and the proxies" in str(told["its proxy failed: connection refused"])
    assert "https:// or http://?" in str(told["TLS"])


def failed(url, **settings):
    with pytest.raises(ModelUnreachable) as caught:
        transport(**settings).send(url, b"", {}, ModelCall(retries=0))
    return caught.value


def hung_up():
    with ScriptedServer([Reply(end="reset")]) as server:
        return failed(server.url)


def test_nobody_there_is_unreachable_and_bad_addresses_are_mistakes():
    """A closed port is the network's fault, a URL that is none is the caller's."""
    with ScriptedServer([]) as server:
        pass
    with pytest.raises(ModelUnreachable, match="check base_url"):
        send(server, retries=1)
    for url in ("localhost:80", "ftp://x/y", "http://", "http://*/"):
        with pytest.raises(ConfigError, match="base_url"):
            transport().send(url, b"", {}, ModelCall())
    with pytest.raises(ConfigError, match="idle_timeout is 0"):
        transport(idle_timeout=0)


def test_a_plain_answer_that_was_cut_is_asked_for_again():
    """Half of a body is never taken for all of it."""
    whole = b'{"text": "' + b"x" * 200_000 + b'"}'
    for cut in (Reply(whole, end="disconnect"), Reply([whole], end="disconnect")):
        with ScriptedServer([cut, Reply(whole)]) as server:
            assert send(server).body == whole
        with ScriptedServer([cut]) as server:
            with pytest.raises(TruncatedStream, match="ended before"):
                send(server, retries=0)


def test_a_stream_is_tried_again_only_before_its_first_event():
    """After an event was seen, a broken connection is the end."""
    first = Reply.sse([b": hello\n\n"], done=False, end="disconnect")
    second = Reply.sse([{"n": 1}, {"n": 2}], done=False, end="disconnect")
    with ScriptedServer([first, second]) as server:
        opened = transport().stream(server.url, b"{}", {}, ModelCall())
        seen = []
        with pytest.raises(TruncatedStream):
            for events in opened:
                seen += [event.data for event in events]
        opened.close()
    assert seen == ['{"n": 1}', '{"n": 2}'] and len(server.requests) == 2


def test_a_body_without_events_is_handed_over_whole():
    """Some servers answer a streamed request in plain JSON."""
    with ScriptedServer([Reply([b'{"a":', b" 1}"])]) as server:
        opened = transport().stream(server.url, b"{}", {}, ModelCall())
        assert list(opened) == [] and opened.rest == b'{"a": 1}'
        opened.close()


@pytest.mark.parametrize("chunked", [True, False])
def test_a_stream_is_delivered_event_by_event(chunked):
    """An event is there when its bytes are, with chunked encoding and without."""
    gate = threading.Event()
    body = [b'data: {"n": 1}\n\n', gate, b'data: {"n": 2}\n\n']
    reply = Reply(body, content_type="text/event-stream")
    server = ScriptedServer([reply]) if chunked else RawServer(body)
    with server:
        opened = transport().stream(server.url, b"{}", {}, ModelCall())
        events = iter(opened)
        assert [event.data for event in next(events)] == ['{"n": 1}']
        gate.set()
        assert [event.data for event in next(events)] == ['{"n": 2}']
        assert list(events) == []
        opened.close()


class RawServer:
    """One answer that ends with its connection, as HTTP/1.0 has it."""

    def __init__(self, body):
        import socket

        self._body = body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._thread.join()
        self._listener.close()

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection:
            asked = b""
            while not asked.endswith(b"\r\n\r\n{}"):
                asked += connection.recv(65536)
            connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            for item in self._body:
                if isinstance(item, bytes):
                    connection.sendall(item)
                else:
                    item.wait(10)


def test_many_threads_share_a_transport():
    """Twenty threads, a connection each, every answer with its own question."""
    with ScriptedServer(lambda request: Reply.json(request.json)) as server:
        made = transport()

        def ask(number):
            body = b'{"n": %d}' % number
            return made.send(server.url, body, HEADERS, ModelCall()).body == body

        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(ask, range(200)))
    assert server.connections <= 20


def test_a_closed_transport_has_no_connection_and_may_be_used_again():
    """The idle ones of all threads are closed, the one of an open stream after it; then new ones are made."""
    gate = threading.Event()
    event = Reply.sse([{"n": 1}, gate])
    with ScriptedServer(lambda request: event if request.raw == b"{}" else Reply.json({})) as server:
        made = transport()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(send, server, made).result()
            send(server, made)
            idle = sockets_of(made)
            assert len(idle) == 2
            made.close()
            assert [sock.fileno() for sock in idle] == [-1, -1]
            opened = made.stream(server.url, b"{}", HEADERS, ModelCall(stream=True))
            made.close()
            gate.set()
            assert [event.data for events in opened for event in events] == ['{"n": 1}', "[DONE]"]
            assert send(server, made).status == 200
            opened.finish()
            opened.close()
            assert pool.submit(send, server, made).result().status == 200
        assert server.connections == 5


def sockets_of(made):
    """The idle sockets of a transport's sessions."""
    pools = [used.session.get_adapter("http://").poolmanager.pools for used in made._sessions[os.getpid()]._all]
    kept = [found[key] for found in pools for key in found.keys()]
    return [connection.sock for pool in kept for connection in list(pool.pool.queue) if connection is not None]


def test_a_transport_may_be_closed_while_others_send():
    """A pool that is closed between its choice and its use would refuse the request; no request fails for it."""
    from minagent.llm.connection import recording_adapter

    class Interrupted(recording_adapter()):
        def get_connection(self, *args, **kwargs):
            return closing_after(super().get_connection(*args, **kwargs))

        def get_connection_with_tls_context(self, *args, **kwargs):
            return closing_after(super().get_connection_with_tls_context(*args, **kwargs))

    def closing_after(pool):
        closer = threading.Thread(target=made.close)
        closer.start()
        closer.join()
        return pool

    made = transport(configure_session=lambda session: session.mount("http://", Interrupted()))
    with ScriptedServer([Reply.json({})] * 2) as server:
        for _ in range(2):
            assert send(server, made, retries=0).status == 200
    assert server.connections == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_opens_its_own_connections():
    """Parent and child do not read each other's answers, and a deadline is kept in the child too."""
    with ScriptedServer(answer_bytes) as server:
        made = transport()
        assert made.send(server.url, b"before", {}, ModelCall(deadline=Deadline(9))).body == b"before"
        child = fork_quietly()
        if child == 0:
            os._exit(in_child(made, server))
        assert {made.send(server.url, b"parent", {}, ModelCall()).body for _ in range(5)} == {b"parent"}
        assert os.waitpid(child, 0)[1] == 0
    used = {raw: {request.connection for request in server.requests if request.raw == raw}
            for raw in (b"before", b"parent", b"child")}
    assert used[b"child"].isdisjoint(used[b"before"] | used[b"parent"])


def in_child(made, server):
    """Exit code of a child: its own answers come, and a trickling one ends at its deadline."""
    try:
        answers = {made.send(server.url, b"child", {}, ModelCall(deadline=Deadline(9))).body for _ in range(5)}
        try:
            made.send(server.url, b"trickle", {}, ModelCall(deadline=Deadline(0.2)))
        except LimitReached:
            return 0 if answers == {b"child"} else 1
        return 2
    except BaseException:
        return 3


def answer_bytes(request):
    return Reply([b" ", 0.02] * 100) if request.raw == b"trickle" else Reply(request.raw, before=0.01)


def fork_quietly():
    """Fork although there are threads: just that is tested."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
