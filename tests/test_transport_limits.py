"""How a call ends before its answer: cancelled, out of time, or waiting for nothing."""

import itertools
import socket
import threading
import time

import pytest

from minagent._util import CancelToken, Deadline
from minagent.errors import Cancelled, LimitReached, ModelTimeout
from minagent.llm.base import ModelCall
from minagent.llm.connection import Line, Watchdog
from minagent.llm.transport import Transport
from minagent.testing import Reply, ScriptedServer

NEVER = threading.Event()


def read(server, call, **settings):
    """Read a stream to its end; return the data of its events."""
    made = Transport("the model", **dict({"retry_wait": 0.001}, **settings))
    opened = made.stream(server.url, b"{}", {}, call)
    try:
        return [event.data for events in opened for event in events]
    finally:
        opened.close()


def plain(server, call, **settings):
    made = Transport("the model", **dict({"retry_wait": 0.001}, **settings))
    return made.send(server.url, b"{}", {}, call)


def comments(seconds):
    """A body that keeps its connection alive and says nothing."""
    return itertools.chain.from_iterable((b": keep-alive\n\n", 0.02) for _ in range(int(seconds / 0.02)))


#: Where a call can be when it is ended: what the server does, and how it is read.
PHASES = {
    "before the headers": (lambda: Reply(b"", before=NEVER), read),
    "before the headers of a plain answer": (lambda: Reply(b"", before=NEVER), plain),
    "in a plain answer": (lambda: Reply([b"{", NEVER]), plain),
    "before the first event": (lambda: Reply([NEVER]), read),
    "in the middle": (lambda: Reply([b"data: 1\n\n", NEVER]), read),
    "while comments trickle": (lambda: Reply(list(comments(30))), read),
    "while a plain answer trickles": (lambda: Reply([b" ", 0.02] * 1500), plain),
    "while it waits to retry": (lambda: Reply(b"", 429, {"retry-after": "20"}), read),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_call_ends_at_once(phase):
    """Wherever it waits, it raises Cancelled within a moment, and the server sees the connection end."""
    make, ask = PHASES[phase]
    cancel = CancelToken()
    with ScriptedServer(lambda request: make()) as server:
        timer = threading.Timer(0.1, cancel.cancel)
        timer.start()
        start = time.monotonic()
        with pytest.raises(Cancelled):
            ask(server, ModelCall(cancel=cancel))
        assert time.monotonic() - start < 0.6
        timer.join()
        assert phase == "while it waits to retry" or server.hung_up.wait(5)


@pytest.mark.parametrize("phase", sorted(set(PHASES) - {"while it waits to retry"}))
def test_a_call_ends_when_its_deadline_passes(phase):
    """One deadline covers headers, first event, silence and trickling bytes."""
    make, ask = PHASES[phase]
    with ScriptedServer(lambda request: make()) as server:
        start = time.monotonic()
        with pytest.raises(LimitReached, match="deadline of 0.2 s"):
            ask(server, ModelCall(deadline=Deadline(0.2)))
        assert 0.15 < time.monotonic() - start < 0.8
        assert server.hung_up.wait(5)


def test_a_deadline_that_has_passed_sends_nothing():
    """Before the first byte and between retries, the clock is asked first."""
    cancel = CancelToken()
    cancel.cancel()
    with ScriptedServer([]) as server:
        with pytest.raises(LimitReached):
            plain(server, ModelCall(deadline=Deadline(0)))
        with pytest.raises(Cancelled):
            plain(server, ModelCall(cancel=cancel))
    assert server.requests == []


def test_a_token_that_says_deadline_is_a_limit():
    """A watcher may end a call for time by its token; that is no cancellation."""
    cancel = CancelToken()
    cancel.cancel("deadline")
    with ScriptedServer([]) as server, pytest.raises(LimitReached):
        plain(server, ModelCall(cancel=cancel, deadline=Deadline(60)))


@pytest.mark.parametrize("make, settings, words", [
    (lambda: Reply(b"", before=NEVER), {"first_byte_timeout": 0.1}, "first_byte_timeout"),
    (lambda: Reply([NEVER]), {"first_byte_timeout": 0.1}, "first_byte_timeout"),
    (lambda: Reply(list(comments(30))), {"first_byte_timeout": 0.1}, "said nothing for too long"),
    (lambda: Reply([b": flood\n\n"] * 100_000), {"first_byte_timeout": 0.05}, "said nothing for too long"),
    (lambda: Reply([b"data: 1\n\n", NEVER]), {"idle_timeout": 0.1}, "idle_timeout"),
    (lambda: Reply([b"data: 1\n\n", *comments(30)]), {"idle_timeout": 0.1}, "said nothing for too long"),
])
def test_silence_has_limits_of_its_own(make, settings, words):
    """Nothing, or nothing but comments, is borne for so long; before the first event it is tried again."""
    with ScriptedServer(lambda request: make()) as server:
        start = time.monotonic()
        with pytest.raises(ModelTimeout, match=words):
            read(server, ModelCall(retries=1), **settings)
        assert time.monotonic() - start < 1.5
    assert len(server.requests) == (1 if "idle_timeout" in settings else 2)


def test_events_that_keep_coming_are_not_silence():
    """A slow answer is fine as long as it goes on, and so is a slow reader."""
    body = [item for number in range(6) for item in (b"data: %d\n\n" % number, 0.06)]
    with ScriptedServer([Reply(body)]) as server:
        opened = Transport("m", idle_timeout=0.2).stream(server.url, b"{}", {}, ModelCall())
        seen = []
        for events in opened:
            seen += [event.data for event in events]
            NEVER.wait(0.25 if len(seen) == 1 else 0)
        opened.close()
    assert seen == ["0", "1", "2", "3", "4", "5"]


def test_a_plain_answer_may_not_be_silent_for_long():
    """The idle limit holds inside a plain answer too."""
    with ScriptedServer([Reply([b"{", NEVER])]) as server:
        start = time.monotonic()
        with pytest.raises(ModelTimeout, match="idle_timeout"):
            plain(server, ModelCall(retries=0), idle_timeout=0.1)
        assert time.monotonic() - start < 1.5


def test_a_call_on_a_connection_that_was_kept_can_be_cancelled():
    """The second request has no new socket; the old one is known."""
    cancel = CancelToken()
    made = Transport("m")
    with ScriptedServer([Reply.json({}), Reply(b"", before=NEVER)]) as server:
        made.send(server.url, b"{}", {}, ModelCall())
        timer = threading.Timer(0.1, cancel.cancel)
        timer.start()
        start = time.monotonic()
        with pytest.raises(Cancelled):
            made.send(server.url, b"{}", {}, ModelCall(cancel=cancel))
        assert time.monotonic() - start < 0.6
        timer.join()
        assert server.connections == 1


def test_a_call_through_an_adapter_of_the_users_ends_with_the_next_bytes():
    """Its sockets are not known; the call looks at its token and clock whenever something comes."""
    from requests.adapters import HTTPAdapter

    made = Transport("m", configure_session=lambda session: session.mount("http://", HTTPAdapter()))
    cancel = CancelToken()
    with ScriptedServer(lambda request: Reply([b"data: 1\n\n", 0.02] * 500)) as server:
        opened = made.stream(server.url, b"{}", {}, ModelCall(cancel=cancel))
        start = time.monotonic()
        with pytest.raises(Cancelled):
            for _ in opened:
                cancel.cancel()
        opened.close()
        assert time.monotonic() - start < 1


def test_a_socket_that_comes_after_the_end_is_shut_as_well():
    """A call that is cancelled while it connects does not go on with the connection that it gets."""
    ours, theirs = socket.socketpair()
    kept, other = socket.socketpair()
    with ours, theirs, kept, other:
        line = Line()
        line.attach(kept)
        line.detach()
        line.shut()
        line.attach(ours)
        assert theirs.recv(1) == b""
        other.sendall(b"x")
        assert kept.recv(1) == b"x"


class ForgetfulToken(CancelToken):
    """Calls what was registered even if it was to be forgotten: the moment between the two."""

    forgotten = 0

    def on_cancel(self, callback):
        super().on_cancel(callback)

        def forget():
            self.forgotten += 1

        return forget


def test_cancelling_one_call_leaves_the_next_on_its_thread_alone():
    """A socket that went back to the pool is not shut by the token of the call that used it before."""
    cancel = ForgetfulToken()
    made = Transport("m")
    with ScriptedServer([Reply.json({"n": 1}), Reply.json({"n": 2}, before=0.1)]) as server:
        made.send(server.url, b"{}", {}, ModelCall(cancel=cancel))
        timer = threading.Timer(0.03, cancel.cancel)
        timer.start()
        assert made.send(server.url, b"{}", {}, ModelCall()).body == b'{"n": 2}'
        timer.join()
    assert server.connections == 1 and cancel.forgotten == 1


def test_a_stream_that_is_left_early_closes_its_connection():
    """The server notices that nobody listens any more."""
    with ScriptedServer([Reply([b"data: 1\n\n", NEVER])]) as server:
        opened = Transport("m").stream(server.url, b"{}", {}, ModelCall())
        opened.close()
        assert server.hung_up.wait(5)


def test_an_end_mark_that_does_not_come_is_not_waited_for():
    """After the last event a server has a moment to end the body; then the connection is closed."""
    with ScriptedServer([Reply([b"data: [DONE]\n\n", NEVER])]) as server:
        opened = Transport("m").stream(server.url, b"{}", {}, ModelCall())
        start = time.monotonic()
        opened.finish()
        opened.close()
        assert time.monotonic() - start < 1
        assert server.hung_up.wait(5)


def test_the_watch_over_deadlines_ends_when_there_is_nothing_to_watch():
    """Its thread is there while calls with deadlines are, and leaves after them."""
    dog, line = Watchdog(), Line()
    dog.LINGER = 0.02
    dog.watch(Deadline(None), line)
    assert not named("minagent-deadlines-test")
    dog.NAME = "minagent-deadlines-test"
    dog.watch(Deadline(60), line)
    threads = named(dog.NAME)
    assert len(threads) == 1
    dog.watch(Deadline(0.01), Line())
    dog.forget(line)
    threads[0].join(5)
    assert not threads[0].is_alive()


def named(name):
    return [thread for thread in threading.enumerate() if thread.name == name]
