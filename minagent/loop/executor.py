"""DaemonExecutor: threads for tools that never hold the interpreter's exit.

`concurrent.futures.ThreadPoolExecutor` joins its threads at exit, so one hung tool keeps a script alive.
What is not here: who waits for the futures (`workflow.engine`, `tool_call`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Executor, Future
from contextvars import copy_context
from typing import Any, Callable, Deque, List, Optional, Set, Tuple

from ..errors import ConfigError

Job = Tuple["Future[Any]", Any, Callable[..., Any], Tuple[Any, ...], Any]


class DaemonExecutor(Executor):
    """Real Futures on daemon threads; each job runs in a copy of the submitter's contextvars.

    Parameters:
        max_workers: Threads at most, abandoned ones not counted; None for no bound.
        name: Prefix of the threads' names.
        wrapper: ``wrapper(work)`` is what a thread runs; it must call ``work()``.
    """

    def __init__(self, max_workers: Optional[int] = 8, name: str = "minagent-tool",
                 wrapper: Optional[Callable[[Callable[[], None]], None]] = None):
        self._max = max_workers
        self._name = name
        self._wrapper = wrapper
        self._ready = threading.Condition()  # guards all below
        self._jobs: Deque[Job] = deque()
        self._running: Set[Future[Any]] = set()
        self._abandoned: Set[Future[Any]] = set()
        self._workers = 0
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()
        with self._ready:
            if self._closed:
                raise RuntimeError("this DaemonExecutor was shut down")
            self._jobs.append((future, copy_context(), fn, args, kwargs))
            if self._idle >= len(self._jobs):
                self._ready.notify()
            elif self._max is None or self._workers < self._max:
                self._start_worker()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Give the place of a running job to another one; its result, if one ever comes, is dropped."""
        with self._ready:
            if future in self._running:
                self._abandoned.add(future)
                self._workers -= 1
                if self._jobs and not self._closed:
                    self._start_worker()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; with `wait`, return when the running ones that are not abandoned have ended."""
        with self._ready:
            self._closed = True
            if cancel_futures:
                while self._jobs:
                    self._jobs.popleft()[0].cancel()
            self._ready.notify_all()
            while wait and self._workers:
                self._ready.wait()

    def _start_worker(self) -> None:
        threading.Thread(target=self._work if self._wrapper is None else self._wrapped, name=self._name,
                         daemon=True).start()
        self._workers += 1

    def _wrapped(self) -> None:
        """Run the wrapper; if it never calls the work, the oldest job is given back instead of waiting for ever."""
        begun: List[bool] = []

        def work() -> None:
            begun.append(True)
            self._work()

        error: Optional[BaseException] = None
        try:
            self._wrapper(work)  # type: ignore[misc]
        except BaseException as raised:
            error = raised
        if error is None and not begun:
            error = ConfigError("the thread_wrapper %r did not call what it was given; it must call work()"
                                % (self._wrapper,))
        if error is not None:
            logging.getLogger(__name__.rsplit(".", 2)[0]).error("the thread_wrapper failed", exc_info=error)
        if error is not None and not begun:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        with self._ready:
            self._workers -= 1
            job = self._jobs.popleft() if self._jobs else None
            self._ready.notify_all()
        if job is not None and job[0].set_running_or_notify_cancel():
            job[0].set_exception(error)

    def _work(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            _run(job)
            with self._ready:
                self._running.discard(job[0])
                if job[0] in self._abandoned:
                    self._abandoned.discard(job[0])
                    return

    def _next(self) -> Optional[Job]:
        with self._ready:
            while not self._jobs:
                if self._closed:
                    self._workers -= 1
                    self._ready.notify_all()
                    return None
                self._idle += 1
                self._ready.wait()
                self._idle -= 1
            job = self._jobs.popleft()
            self._running.add(job[0])
            return job


def _run(job: Job) -> None:
    future, context, fn, args, kwargs = job
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = context.run(fn, *args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
