"""Small things without a home of their own: cancel tokens, clocks and ids.

What is not here: anything that knows what a run, a model or a tool is.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, List, Optional

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def new_run_id() -> str:
    """Return ``r`` and 26 characters that sort by time: 50 bits of milliseconds, 80 random ones."""
    number = (int(time.time() * 1000) << 80) | int.from_bytes(os.urandom(10), "big")
    letters = []
    for _ in range(26):
        letters.append(_ORDERED[number & 31])
        number >>= 5
    return "r" + "".join(reversed(letters))


#: Base 32 in ASCII order, so that ids sort like the numbers that they write.
_ORDERED = "".join(sorted(_ALPHABET))


class CancelToken:
    """Tells the threads of one run to stop.  Set once, never cleared.

    Attributes:
        reason: Why, once it is set: "cancelled" or "deadline".
    """

    def __init__(self) -> None:
        self.reason = ""
        self._event = threading.Event()
        self._lock = threading.Lock()  # guards _callbacks and reason
        self._callbacks: List[Callable[[], Any]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; return whether it is."""
        return self._event.wait(timeout)

    def cancel(self, reason: str = "cancelled") -> None:
        """Set the token and call what was registered, in the calling thread.  Later calls do nothing."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], Any]) -> Callable[[], None]:
        """Call `callback` when the token is set, or now if it is.  Returns a function that forgets it."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._forget(callback)
        callback()
        return lambda: None

    def _forget(self, callback: Callable[[], Any]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


class Deadline:
    """A point in time.

    Attributes:
        seconds: How far away it was when it was set, or None for never.
    """

    def __init__(self, seconds: Optional[float] = None, clock: Callable[[], float] = time.monotonic):
        self.seconds = seconds
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    def remaining(self) -> Optional[float]:
        """Seconds left, 0 when it has passed, None when there is none."""
        return None if self._end is None else max(0.0, self._end - self._clock())

    def passed(self) -> bool:
        return self._end is not None and self._clock() >= self._end


def process_mark() -> str:
    """A text that names this process among all that this machine has had since it was started."""
    return "%s/%d/%s" % (_node(), os.getpid(), _started(os.getpid()))


def may_live(mark: str) -> bool:
    """Whether the process of a mark may still be there; one of another machine counts as gone."""
    node, pid, started = mark.rsplit("/", 2)
    if node != _node():
        return False
    if _started(int(pid)) or os.name != "posix":
        return _started(int(pid)) == started
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not started


def _node() -> str:
    import platform

    return platform.node()


def _started(pid: int) -> str:
    """When a process was started, in the kernel's ticks (proc(5), field 22 of stat); "" where that is not told."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return ""


def shorter(*limits: Optional[float]) -> Optional[float]:
    """The shortest of some limits in seconds; None is no limit."""
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
