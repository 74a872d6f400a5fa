"""The socket that a call uses at the moment, and how another thread ends it.

A thread that waits in ``recv`` is freed by ``shutdown`` on its socket, and by nothing else; so the socket
of every request is noted here, before its headers are sent.  Only public interfaces of requests and urllib3
are used.
Not here: what is sent, and why a call ends.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from typing import Any, Dict, Optional, Tuple

from .._util import Deadline

#: `line`: the Line of the request that this thread is sending.
_SENDING = threading.local()


class Line:
    """One call's connection.  `shut` may be called by any thread, everything else by the call's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _socket and _is_shut
        self._socket: Any = None
        self._is_shut = False

    def __enter__(self) -> Line:
        _SENDING.line = self
        return self

    def __exit__(self, *exc_info: Any) -> None:
        _SENDING.line = None

    def attach(self, connection: Any) -> None:
        """Note the socket that is used from now on."""
        with self._lock:
            self._socket = connection
            if self._is_shut:
                _shut(connection)

    def detach(self) -> None:
        """Forget the socket, before it may serve somebody else."""
        with self._lock:
            self._socket = None

    def shut(self) -> None:
        """End the connection in both directions, and any that follows.  The call's own thread closes it."""
        with self._lock:
            self._is_shut = True
            if self._socket is not None:
                _shut(self._socket)

    def limit_silence(self, seconds: float) -> None:
        """Let the next read fail after that many seconds without a byte."""
        if self._socket is not None:
            try:
                self._socket.settimeout(max(seconds, 0.001))
            except OSError:
                pass  # Closed: the next read says so.


def _shut(connection: Any) -> None:
    try:
        if isinstance(connection, socket.socket):
            # Not the method of SSLSocket, which takes the reader's TLS state away under its feet.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        else:
            connection.shutdown(socket.SHUT_RDWR)
    except (OSError, ValueError):
        pass  # Not connected any more.


class Watchdog:
    """Shuts lines whose deadline has passed, in one thread that lives while there is something to watch."""

    #: Seconds for which the thread stays when there is nothing to watch.
    LINGER = 2.0
    NAME = "minagent-deadlines"

    def __init__(self) -> None:
        self._condition = threading.Condition()  # guards all that follows
        self._watched: Dict[int, Tuple[Deadline, Line]] = {}
        self._wakes_at = 0.0
        self._runs = False

    def watch(self, deadline: Deadline, line: Line) -> None:
        """Shut `line` when `deadline` passes, until `forget`."""
        remaining = deadline.remaining()
        if remaining is None:
            return
        with self._condition:
            self._watched[id(line)] = (deadline, line)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name=self.NAME, daemon=True).start()
            elif time.monotonic() + remaining < self._wakes_at:
                self._condition.notify()

    def forget(self, line: Line) -> None:
        with self._condition:
            self._watched.pop(id(line), None)

    def _run(self) -> None:
        with self._condition:
            while True:
                waits = self._shut_the_late()
                self._wakes_at = time.monotonic() + (waits or self.LINGER)
                self._condition.wait(waits or self.LINGER)
                if waits is None and not self._watched:
                    self._runs = False
                    return

    def _shut_the_late(self) -> Optional[float]:
        """Shut what is late; return the seconds until the next one may be, or None if none is watched."""
        waits = []
        for key, (deadline, line) in list(self._watched.items()):
            remaining = deadline.remaining() or 0.0
            if remaining > 0:
                waits.append(remaining)
            else:
                del self._watched[key]
                line.shut()
        return max(min(waits), 0.001) if waits else None


#: Process id -> its watchdog: a fork leaves the thread, and perhaps a held lock, behind.
_WATCHDOGS: Dict[int, Watchdog] = {}


def watchdog() -> Watchdog:
    """Return this process's watchdog."""
    pid = os.getpid()
    return _WATCHDOGS.get(pid) or _WATCHDOGS.setdefault(pid, Watchdog())


@functools.lru_cache(maxsize=None)
def recording_adapter() -> Any:
    """Return the class of adapters that tell the sending thread's `Line` which socket they use."""
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager

    standard = PoolManager().pool_classes_by_scheme
    recording = {"http": _recording_pool(HTTPConnectionPool), "https": _recording_pool(HTTPSConnectionPool)}

    class RecordingAdapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            self.poolmanager.pool_classes_by_scheme = recording

        def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
            manager = super().proxy_manager_for(proxy, **kwargs)
            if manager.pool_classes_by_scheme is standard:  # That of a SOCKS proxy is not.
                manager.pool_classes_by_scheme = recording
            return manager

        def close(self) -> None:
            # Newer versions of urllib3 only let go of their pools, which others may still hold.
            for manager in (self.poolmanager, *self.proxy_manager.values()):
                for pool in map(manager.pools.get, list(manager.pools.keys())):
                    if pool is not None:
                        pool.close()
            super().close()

    return RecordingAdapter


def _recording_pool(pool: Any) -> Any:
    class RecordingPool(pool):  # type: ignore[misc]
        @property
        def ConnectionCls(self) -> Any:
            return _recording_connection(pool.ConnectionCls)

    return RecordingPool


@functools.lru_cache(maxsize=8)
def _recording_connection(connection: Any) -> Any:
    if connection.__module__ != "urllib3.connection":
        return connection  # Somebody records or replays traffic: that has precedence.

    class RecordingConnection(connection):  # type: ignore[misc]
        @property
        def sock(self) -> Any:
            return self.__dict__.get("sock")

        @sock.setter
        def sock(self, value: Any) -> None:
            self.__dict__["sock"] = value
            self._note()

        def putrequest(self, *args: Any, **kwargs: Any) -> None:
            self._note()  # A connection that was kept open has its socket already.
            super().putrequest(*args, **kwargs)

        def _note(self) -> None:
            line = getattr(_SENDING, "line", None)
            if line is not None and self.sock is not None:
                line.attach(self.sock)

    return RecordingConnection
