"""Time that stands still and threads that are none: for tests that do not wait.

Not here: anything that replaces `time` or `threading` behind a program's back; hand these in where a clock
or an executor is taken.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from typing import Any, Callable


class FrozenClock:
    """A clock that moves only when told to.  Safe to share between threads.

    Parameters:
        now: Seconds since the epoch at the start.
    """

    def __init__(self, now: float = 1_700_000_000.0):
        self._lock = threading.Lock()  # guards _now and _ticks
        self._now = now
        self._ticks = 0.0

    def time(self) -> float:
        """Seconds since the epoch."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        with self._lock:
            return self._ticks

    def advance(self, seconds: float) -> None:
        """Move the clock on.

        Raises:
            ValueError: If `seconds` is negative; time does not go back.
        """
        if seconds < 0:
            raise ValueError("FrozenClock.advance(%r): expected seconds of 0 or more" % (seconds,))
        with self._lock:
            self._now += seconds
            self._ticks += seconds

    def sleep(self, seconds: float) -> None:
        """`advance`, under the name that code which sleeps expects."""
        self.advance(seconds)


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the thread that submits it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            future.set_exception(error)
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Nothing to free: the call has ended before anybody could abandon it."""


def inline() -> InlineExecutor:
    """An executor without threads, as in ``Agent(executor=inline())``; also a context manager."""
    return InlineExecutor()
