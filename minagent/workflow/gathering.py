"""One visit of a ForEach: which items have work, in which threads it is done, and what came of it.

What is not here: what an item does (the engine visits it) and the threads (an executor is handed in).
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextvars import copy_context
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._util import Deadline, shorter
from ..errors import Signal, Suspend
from .entries import Entry
from .nodes import Node

#: How a place is visited; the engine's docstring says what each means.
LIVE, SETTLED, PROBE = range(3)


class Frontier(BaseException):
    """A probe reached a place that has work to do."""


class Gathering:
    """One visit of a ForEach.

    Attributes:
        due: Indexes of items with neither an end nor an open suspension.
    """

    def __init__(self, engine: Any, body: Node, entry: Entry, items: Sequence[Any]):
        self.engine = engine
        self.body = body
        self.items = items
        self.places = [entry.child(str(index)) for index in range(len(items))]
        self.outputs: List[Any] = [None] * len(items)
        self.raised: List[Tuple[int, BaseException]] = []
        self.due: List[int] = []
        self._untaken: Dict[int, bool] = {}  # due items that no thread has taken up
        self._halt = threading.Event()

    def collect(self, mode: int) -> None:
        """Hand on what is recorded, and find out what is due."""
        for index, place in enumerate(self.places):
            if mode == SETTLED:
                self._visit(index, SETTLED)
            elif not place.touched:
                self.due.append(index)
            else:
                self._probe(index)
        self._untaken = dict.fromkeys(self.due, True)

    def _probe(self, index: int) -> None:
        try:
            self._visit(index, PROBE)
        except Frontier:
            self.due.append(index)
        except Suspend as signal:
            self.raised.append((index, signal))

    def _visit(self, index: int, mode: int) -> None:
        self.outputs[index] = self.engine.visit_plain(self.body, self.places[index], self.items[index], mode)

    def do(self, index: int) -> None:
        """Visit one item, unless it was taken up elsewhere or something has stopped the run."""
        if self._halt.is_set() or not self._untaken.pop(index, False):
            return
        try:
            self._visit(index, LIVE)
        except BaseException as error:
            self.raised.append((index, error))
            if not isinstance(error, Suspend):
                self._halt.set()
            if isinstance(error, KeyboardInterrupt):  # the user waits for all of them to stop
                self.engine.cancel.cancel()

    def in_turn(self) -> None:
        for index in self.due:
            self.do(index)

    def in_parallel(self, executor: Executor, helps: bool) -> None:
        """Start all due items, and wait until each has ended or is abandoned.

        Parameters:
            helps: Whether this thread does what no worker has taken up.
        """
        pending: Dict[Future[Any], int] = {}
        wake: Future[None] = Future()
        forget = self.engine.cancel.on_cancel(lambda: wake.set_result(None))
        try:
            self._submit(executor, pending)
            self._wait(pending, wake, helps)
        except BaseException:  # a KeyboardInterrupt: nothing more is started, what runs gets its grace
            self.engine.cancel.cancel()
            self._wait(pending, wake, helps)
            raise
        finally:
            forget()
            self._abandon(executor, pending)
        self.in_turn()  # what the executor did not take, or gave back

    def _submit(self, executor: Executor, pending: Dict[Future[Any], int]) -> None:
        for index in self.due:
            try:
                pending[executor.submit(copy_context().run, self.do, index)] = index
            except RuntimeError as error:
                if "shut" not in str(error) and "thread" not in str(error):
                    raise  # not the executor's word, but a signal handler's
                return  # it is shut down, or there are no more threads to be had

    def _wait(self, pending: Dict[Future[Any], int], wake: Future[None], helps: bool) -> None:
        """Take ended items out of `pending`; what is left at the end is to be abandoned."""
        engine, stop = self.engine, Deadline()
        while pending:
            if engine.cancel and stop.seconds is None:
                self._halt.set()
                stop = Deadline(engine.grace)
            told = stop.seconds is not None
            if stop.passed():
                return
            if engine.deadline.passed() and not told:
                engine.cancel.cancel("deadline")
                continue
            limit = stop.remaining() if told else engine.deadline.remaining()
            waited: List[Future[Any]] = list(pending) if told else [*pending, wake]
            for future in wait(waited, shorter(limit, 0.01 if helps else None), FIRST_COMPLETED).done:
                pending.pop(future, None)
            if helps:
                self._help(pending)

    def _help(self, pending: Dict[Future[Any], int]) -> None:
        """Do one item that no worker has taken up, in this thread."""
        for future, index in pending.items():
            if future.cancel():
                del pending[future]
                self.do(index)
                return

    def _abandon(self, executor: Executor, pending: Mapping[Future[Any], int]) -> None:
        for future, index in pending.items():
            if not future.cancel() and hasattr(executor, "abandon"):
                executor.abandon(future)
            self._leave(index)

    def _leave(self, index: int) -> None:
        """Record and raise, for an item that cannot do so itself, that it was told to stop."""
        signal = self.engine.told()
        self.engine.record_failure(self.places[index], signal)
        self.raised.append((index, signal))

    def result(self) -> List[Any]:
        """The outputs, or the signal that takes precedence: failure, cancel, abort, limit, suspend."""
        if self._untaken and self.engine.cancel:
            self._leave(min(self._untaken))
        if not self.raised:
            return self.outputs
        errors = [error for _, error in sorted(self.raised, key=lambda item: item[0])]
        worst = max(errors, key=lambda error: error.rank if isinstance(error, Signal) else 99)
        if isinstance(worst, Suspend):  # then they all are
            raise Suspend([each for error in errors for each in getattr(error, "suspensions", ())])
        raise worst
