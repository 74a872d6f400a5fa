"""`ScriptedServer`: a real HTTP server on 127.0.0.1 that answers by a script and misbehaves where told to.

It speaks HTTP/1.1 with keep-alive over real sockets, so that everything above the socket is real in a test.
Not here: what a provider's answers look like (`openai_wire`).
"""

from __future__ import annotations

import functools
import json
import select
import socket
import struct
import threading
from typing import Any, BinaryIO, Callable, List, Sequence, Union

from .replies import Reply, ServedRequest, Wait


class ScriptedServer:
    """An HTTP server that follows a script; use it as a context manager.

    Parameters:
        replies: Replies in order, or a function of the `ServedRequest` that returns one.  A request too
            many gets status 599.

    Attributes:
        url: ``http://127.0.0.1:port``.
        requests: What was asked, in order of arrival.
        hung_up: Set when a client closed its connection while an answer was held back or sent.
        connections: How many connections were accepted.
    """

    def __init__(self, replies: Union[Sequence[Reply], Callable[[ServedRequest], Reply]]):
        self.url = ""
        self.requests: List[ServedRequest] = []
        self.hung_up = threading.Event()
        self.connections = 0
        self._replies = replies
        self._closing = threading.Event()
        self._lock = threading.Lock()  # guards requests and _open
        self._open: List[socket.socket] = []
        self._threads: List[threading.Thread] = []

    @classmethod
    def openai_chat(cls, turns: Any, *, loop: bool = False, by_step: bool = False) -> ScriptedServer:
        """A server of OpenAI's Chat Completions that says `turns`, streamed or plain as it is asked.

        Parameters:
            turns: As for `ScriptedModel`; a function gets the request's JSON.  A turn that `fails` with a
                `ModelError` is answered with the status and body that lead to that error.
            loop, by_step: As for `ScriptedModel`.
        """
        from .openai_wire import ChatScript

        return cls(ChatScript(turns, loop, by_step))

    def __enter__(self) -> ScriptedServer:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="scripted-server", daemon=True)
        self._acceptor.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._closing.set()
        # Wakes the acceptor in a way that works everywhere.
        socket.create_connection(self._listener.getsockname()).close()
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _shut(connection)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            connection, address = self._listener.accept()
            if self._closing.is_set():
                connection.close()
                return
            thread = threading.Thread(target=self._converse, args=(connection, address, self.connections),
                                      name="scripted-connection", daemon=True)
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _converse(self, connection: socket.socket, address: Any, number: int) -> None:
        with self._lock:
            self._open.append(connection)
        try:
            if not self._closing.is_set():
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _handler()(connection, address, self, number)
        except OSError:
            self.hung_up.set()
        finally:
            with self._lock:
                self._open.remove(connection)
                connection.close()

    def _reply(self, request: ServedRequest) -> Reply:
        with self._lock:
            index = len(self.requests)
            self.requests.append(request)
        if callable(self._replies):
            return self._replies(request)
        if index < len(self._replies):
            return self._replies[index]
        message = "the script has %d replies and was asked for number %d" % (len(self._replies), index + 1)
        return Reply.json({"error": {"message": message}}, 599)

    def _wait(self, wait: Wait, connection: socket.socket) -> bool:
        """Wait; return False if the client hung up or the server is closing."""
        gate = wait if isinstance(wait, threading.Event) else threading.Event()
        seconds = None if isinstance(wait, threading.Event) else float(wait)
        while not gate.is_set() and not self._closing.is_set() and (seconds is None or seconds > 0):
            step = 0.01 if seconds is None else min(0.01, seconds)
            if _has_ended(connection, step):
                self.hung_up.set()
                return False
            seconds = None if seconds is None else seconds - step
        return not self._closing.is_set()


@functools.lru_cache(maxsize=None)
def _handler() -> Any:
    """The class of connections.  Some versions of `http.server` read a file of the system when imported."""
    from http.server import BaseHTTPRequestHandler

    return type("_Handler", (_Connection, BaseHTTPRequestHandler), {})


class _Connection:
    """One connection: reads requests and writes replies until one side has enough.

    The first half of a class whose other half is `BaseHTTPRequestHandler`.
    """

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    command: str
    path: str
    close_connection: bool
    server: Any
    connection: Any
    headers: Any
    rfile: BinaryIO
    wfile: BinaryIO
    send_response: Any
    send_header: Any
    end_headers: Any

    def __init__(self, connection: socket.socket, address: Any, server: ScriptedServer, number: int):
        self.number = number
        super().__init__(connection, address, server)  # type: ignore[call-arg]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        raw = self._read_body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ServedRequest(self.command, self.path, headers, raw, _json_or_none(raw), self.number)
        self._answer(self.server._reply(request))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        raw = b""
        while True:
            size = int(self.rfile.readline().split(b";")[0].strip() or b"0", 16)
            raw += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return raw

    def _answer(self, reply: Reply) -> None:
        if reply.before is not None and not self._wait(reply.before):
            return
        if not (reply.end == "reset" and not reply.body):
            self._send_head(reply)
            if not self._send_body(reply):
                return
        if reply.end != "complete":
            self._hang_up(reply.end == "reset")

    def _send_head(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if isinstance(reply.body, bytes):
            # A length that is never reached is what a cut answer looks like.
            self.send_header("content-length", str(len(reply.body) + (reply.end != "complete")))
        else:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _send_body(self, reply: Reply) -> bool:
        if isinstance(reply.body, bytes):
            self.wfile.write(reply.body)
        else:
            self.wfile.flush()
            for item in reply.body:
                if not isinstance(item, bytes):
                    if not self._wait(item):
                        return False
                elif item:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(item), item))
                    self.wfile.flush()
            if reply.end == "complete":
                self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        return True

    def _wait(self, wait: Wait) -> bool:
        going_on: bool = self.server._wait(wait, self.connection)
        self.close_connection = self.close_connection or not going_on
        return going_on

    def _hang_up(self, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            _shut(self.connection)


def _json_or_none(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def _has_ended(connection: socket.socket, seconds: float) -> bool:
    """Wait for the other side to close, at most some seconds."""
    if not select.select([connection], [], [], seconds)[0]:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # The other side was faster.
