"""The scripted server: real bytes, read here with a bare socket."""

import json
import socket
import threading

import pytest

from minagent.errors import ConfigError, RateLimited, TruncatedStream
from minagent.testing import Reply, ScriptedServer, calls, fails, says


def talk(server, body=b"{}", count=1, path="/v1/chat/completions"):
    """Send a request `count` times on one connection and return all that comes until the server is silent."""
    host, port = server.url[len("http://"):].split(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        head = "POST %s HTTP/1.1\r\nHost: x\r\nX-Key: Value\r\nContent-Length: %d\r\n" % (path, len(body))
        for index in range(count):
            last = "Connection: close\r\n" if index == count - 1 else ""
            client.sendall((head + last + "\r\n").encode() + body)
        received = []
        while True:
            data = client.recv(65536)
            if not data:
                return b"".join(received)
            received.append(data)


def dechunk(raw):
    """The chunks of a body."""
    rest, found = raw.split(b"\r\n\r\n", 1)[1], []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if size == b"0":
            return found
        found.append(rest[:int(size, 16)])
        rest = rest[int(size, 16) + 2:]
    raise AssertionError("the body has no end mark")


def test_requests_are_kept_and_connections_stay_open():
    """Two requests come on one connection; method, path, headers and body are there to look at."""
    with ScriptedServer([Reply.json({"n": 1}), Reply.json({"n": 2}, 201, headers={"X-A": "b"})]) as server:
        raw = talk(server, b'{"a": "\xc3\xa4"}', count=2, path="/x?y=1")
    assert b'{"n": 1}' in raw and b"HTTP/1.1 201" in raw and b"X-A: b" in raw and server.connections == 1
    first = server.requests[0]
    assert (first.method, first.path, first.headers["x-key"]) == ("POST", "/x?y=1", "Value")
    assert first.json == {"a": "ä"} and first.raw == b'{"a": "\xc3\xa4"}'


def test_a_list_is_sent_chunk_by_chunk():
    """Each item of bytes is a chunk of its own."""
    with ScriptedServer([Reply([b"ab", 0.01, b"c"])]) as server:
        assert dechunk(talk(server)) == [b"ab", b"c"]


def test_a_request_too_many_is_answered_with_the_reason():
    """The script's end is told, not hung on."""
    with ScriptedServer([]) as server:
        raw = talk(server)
    assert b"HTTP/1.1 599" in raw and b"has 0 replies" in raw


@pytest.mark.parametrize("body", [b"abc", [b"abc"]])
def test_a_disconnect_cuts_the_body(body):
    """The end mark or the last byte is missing."""
    with ScriptedServer([Reply(body, end="disconnect")]) as server:
        raw = talk(server)
    assert b"abc" in raw and not raw.endswith(b"0\r\n\r\n")
    assert not isinstance(body, bytes) or b"content-length: 4" in raw


def test_a_reset_is_a_reset():
    """The client sees the connection reset, not closed."""
    with ScriptedServer([Reply(end="reset")]) as server:
        with pytest.raises(ConnectionResetError):
            talk(server)


def test_a_gate_holds_the_answer_back_and_a_client_that_leaves_is_noticed():
    """Before the headers and in the middle; leaving ends the wait."""
    gate = threading.Event()
    with ScriptedServer([Reply(b"x", before=gate)]) as server:
        host, port = server.url[len("http://"):].split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.hung_up.wait(5)
    gate.set()
    with ScriptedServer([Reply([b"x", gate, b"y"], before=gate)]) as server:
        assert dechunk(talk(server)) == [b"x", b"y"]


def test_closing_the_server_ends_everything_it_started():
    """A held answer does not keep the server's threads."""
    before = threading.active_count()
    with ScriptedServer([Reply(b"x", before=threading.Event())]) as server:
        host, port = server.url[len("http://"):].split(":")
        client = socket.create_connection((host, int(port)))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        idle = socket.create_connection((host, int(port)))
    assert threading.active_count() == before
    client.close()
    idle.close()


def test_the_chat_server_says_the_same_turn_plain_and_streamed():
    """The request's `stream` decides; the words are the same."""
    turn = says("Hello ä.", reasoning="Hm.") + calls("add", a=1)
    with ScriptedServer.openai_chat([turn, turn]) as server:
        plain = json.loads(talk(server, b'{"model": "m"}').split(b"\r\n\r\n", 1)[1])
        streamed = dechunk(talk(server, b'{"stream": true, "stream_options": {"include_usage": true}}'))
    message = plain["choices"][0]["message"]
    assert message["content"] == "Hello ä." and plain["choices"][0]["finish_reason"] == "tool_calls"
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    chunks = [json.loads(item[6:]) for item in streamed[:-1]]
    deltas = [item["choices"][0]["delta"] for item in chunks if item["choices"]]
    assert "".join([delta.get("content", "") for delta in deltas]) == "Hello ä."
    assert streamed[-1] == b"data: [DONE]\n\n" and chunks[-1]["usage"] == plain["usage"]


def test_the_chat_server_fails_as_a_provider_does():
    """A failing turn becomes the status and body that lead to that error."""
    turns = [fails(RateLimited("slow down", retry_after=1.5)), fails(TruncatedStream("cut"), after="Hel")]
    with ScriptedServer.openai_chat(turns) as server:
        refused = talk(server)
        cut = talk(server, b'{"stream": true}')
    assert b"HTTP/1.1 429" in refused and b"retry-after: 1.5" in refused and b"slow down" in refused
    assert b"Hel"[:1] in cut and not cut.endswith(b"0\r\n\r\n")


def test_a_script_for_the_chat_server_is_checked_like_any_other():
    """A text is no script, and a reply's end is one of three words."""
    with pytest.raises(ConfigError, match="expected a list of turns"):
        ScriptedServer.openai_chat("Hello.")
    with pytest.raises(ConfigError, match="expected one of"):
        Reply(end="gone")
