"""The engine: visits a workflow's nodes, runs the leaves that have no record, and records what they return.

Running and resuming are the same call: a leaf with a record hands on what it recorded, a leaf without one is
run.  A visit has one of three modes:

* LIVE: leaves without a record are run;
* SETTLED: something behind this place has records, so nothing here is asked or run again;
* PROBE: tells whether a ForEach's item still has work, without doing any.

What is not here: reading and writing records (`journal`), threads (an executor is handed in), and anything
about agents.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextvars import copy_context
from hashlib import sha256
from json import dumps
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .._util import CancelToken, Deadline, shorter
from ..errors import Abort, Cancelled, LimitReached, Signal, Suspend
from .entries import Entry
from .nodes import Branch, DoWhile, ForEach, Mount, Node, Step, Workflow, as_done

LIVE, SETTLED, PROBE = range(3)


class _Answered:
    """What a door that answers for its whole Workflow hands out."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


class _Frontier(BaseException):
    """A probe reached a place that has work to do."""


class StepContext:
    """What a leaf may use.

    Attributes:
        scope: The live things of the run.
        entry: What is recorded of the leaf so far.
        unfinished: Whether the leaf was started before and no end of it is recorded.
        run_number: Which start this is, from 1.
    """

    __slots__ = ("scope", "entry", "unfinished", "run_number", "_engine", "_value", "_asked")

    def __init__(self, engine: "Engine", entry: Entry, value: Any):
        self.scope = engine.scope
        self.entry = entry
        self.unfinished = entry.status == "started"
        self.run_number = entry.starts + 1
        self._engine = engine
        self._value = value
        self._asked = 0

    @property
    def path(self) -> str:
        return self.entry.path()

    @property
    def cancelled(self) -> bool:
        return bool(self._engine.cancel)

    def start(self, changes: Sequence[Mapping[str, Any]] = (), sync: bool = False) -> None:
        """Record that the leaf's effects begin now."""
        self.run_number = self.entry.starts + 1
        self._engine.journal.append(self.entry, "started", None, changes, sync)

    def note(self, output: Any, changes: Sequence[Mapping[str, Any]] = ()) -> None:
        """Record something about the leaf that does not end it."""
        self._engine.journal.append(self.entry, "noted", output, changes)

    def suspend(self, payload: Any = None, resume_schema: Optional[Mapping[str, Any]] = None, label: str = "",
                **about: Any) -> Any:
        """Stop here until somebody decides, and return the decision.

        The leaf runs again from its top then, and its k-th call of `suspend` returns the k-th decision.

        Parameters:
            payload: JSON value shown to whoever decides.
            resume_schema: JSON Schema of the decision's value; recorded, not checked here.
            label: A short text.
            about: More JSON members of the recorded suspension.
        """
        number, self._asked = self._asked, self._asked + 1
        waits = self.entry.waits or []
        if number < len(waits) and "decision" in waits[number]:
            return waits[number]["decision"]
        suspension = dict(about, id=self._suspension_id(number), payload=payload, created_at=self._engine.journal.now())
        suspension.update({key: item for key, item in (("resume_schema", resume_schema), ("label", label)) if item})
        signal = Suspend([suspension])
        signal.output = suspension
        signal.changes = [{"type": "suspension-opened"}]
        raise signal

    def _suspension_id(self, number: int) -> str:
        digest = dumps(self._value, sort_keys=True, ensure_ascii=True, default=str)
        parts = (self._engine.journal.run_id, self.path, str(number), digest)
        return "s" + sha256("\0".join(parts).encode()).hexdigest()[:24]


class Engine:
    """Drives workflows over one journal.

    Parameters:
        journal: A `Journal`.
        scope: The live things of the run, handed to leaves, conditions and binds.
        executor: Makes the `concurrent.futures.Executor` for a ForEach with two or more items to do; called once,
            when it is needed.  None: items are done one after the other in the caller's thread.
        foreign: Whether that executor is shared with others; the caller's thread then helps out when no worker is
            free, so that nesting cannot deadlock.
        cancel: Set by anybody to stop the run.
        deadline: When running items are told to stop.
        grace: Seconds that running items get after a cancel or the deadline before they are abandoned.
    """

    def __init__(self, journal: Any, scope: Any = None, *, executor: Optional[Callable[[], Executor]] = None,
                 foreign: bool = False, cancel: Optional[CancelToken] = None, deadline: Optional[Deadline] = None,
                 grace: float = 2.0):
        self.journal = journal
        self.scope = scope
        self.cancel = cancel or CancelToken()
        self.deadline = deadline or Deadline()
        self.grace = grace
        self._make_executor = executor
        self._foreign = foreign
        self._executor: Optional[Executor] = None
        self._executor_lock = threading.Lock()  # guards the making of _executor
        self._turn = threading.RLock()  # held by an exclusive leaf, its record included
        self._visits: Dict[type, Callable[..., Any]] = {
            Step: self._step, Workflow: self._workflow, Branch: self._branch, ForEach: self._for_each,
            DoWhile: self._do_while, Mount: self._mount}

    def run(self, node: Node, value: Any = None) -> Any:
        """Run a workflow to its end, or as far as it gets.

        Returns:
            What the node hands on.

        Raises:
            Suspend: With all open suspensions; decide them and run the same workflow again.
            Abort: If it was aborted, now or at an earlier run.
            Cancelled, LimitReached: If it was told to stop.
        """
        if self.journal.aborted is not None:
            raise Abort("aborted", self.journal.aborted)
        return self._plain(self.visit(node, self.journal.root.child(node.name), value, LIVE))

    def decide(self, decisions: Mapping[str, Any]) -> List[str]:
        """Record decisions about open suspensions; returns the ids that were open."""
        taken = []
        for entry in list(self.journal.root.leaves()):
            for suspension in entry.open_waits():
                if suspension["id"] in decisions:
                    output = {"id": suspension["id"], "decision": decisions[suspension["id"]]}
                    self.journal.append(entry, "decided", output, [{"type": "suspension-closed"}])
                    taken.append(suspension["id"])
        return taken

    # Visiting: each takes (node, entry, value, mode) and returns what is handed on.

    def visit(self, node: Node, entry: Entry, value: Any, mode: int) -> Any:
        return self._visits[type(node)](node, entry, value, mode)

    @staticmethod
    def _plain(value: Any) -> Any:
        return value.value if type(value) is _Answered else value

    def _step(self, node: Step, entry: Entry, value: Any, mode: int) -> Any:
        if entry.status != "done":
            if mode == SETTLED:
                return value
            if mode == PROBE and not entry.open_waits():
                raise _Frontier()
            self._run(node, entry, value)
        if node.bind is not None:
            node.bind(self.scope, entry.output)
        return node.join(value, entry.output) if node.join is not None else entry.output

    def _workflow(self, node: Workflow, entry: Entry, value: Any, mode: int) -> Any:
        places = [entry.child(child.name) for child in node.nodes]
        frontier = max([index for index, place in enumerate(places) if place.touched], default=0)
        for index, child in enumerate(node.nodes):
            value = self.visit(child, places[index], value, SETTLED if index < frontier else mode)
            if type(value) is _Answered:
                return value.value
        return value

    def _branch(self, node: Branch, entry: Entry, value: Any, mode: int) -> Any:
        name = next((name for name, child in entry.children.items() if child.touched), None)
        if name is None:
            if mode == SETTLED:
                return value
            if mode == PROBE:
                raise _Frontier()
            name = next((name for name, door in node.doors.items() if door.when(value, self.scope)), None)
        door = node.doors.get(name) if name is not None else None
        if name is None or door is None:
            return value
        if door.node is not None:
            value = self.visit(door.node, entry.child(name), value, mode)
        return _Answered(value) if door.answers else value

    def _do_while(self, node: DoWhile, entry: Entry, value: Any, mode: int) -> Any:
        finished, value = entry.last or (0, value)
        highest = max(entry.highest(), finished)
        settled = highest if mode == SETTLED else highest - 1
        while finished < settled:
            finished, value = self._iteration(node, entry, finished + 1, value, SETTLED)
        if mode == SETTLED:
            return value
        if finished < highest or highest == 0:
            finished, value = self._iteration(node, entry, finished + 1, value, mode)
        while node.again(value, self.scope):
            finished, value = self._iteration(node, entry, finished + 1, value, mode)
        return value

    def _iteration(self, node: DoWhile, entry: Entry, number: int, value: Any, mode: int) -> Any:
        value = self._plain(self.visit(node.body, entry.child(str(number)), value, mode))
        entry.fold(number, value)
        return number, value

    def _mount(self, node: Mount, entry: Entry, value: Any, mode: int) -> Any:
        return node.enter(self.scope, value, lambda inner, given: self._plain(self.visit(inner, entry, given, mode)))

    def _for_each(self, node: ForEach, entry: Entry, value: Any, mode: int) -> Any:
        items = node.items(value) if node.items is not None else value
        if not items:
            return value
        gathering = _Gathering(self, node.body, entry, items)
        gathering.collect(mode)
        if gathering.due and mode == PROBE:
            raise _Frontier()
        if len(gathering.due) > 1 and self._make_executor is not None:
            gathering.in_parallel(self._shared_executor(), self._foreign)
        else:
            gathering.in_turn()
        return gathering.result()

    def _shared_executor(self) -> Executor:
        with self._executor_lock:
            if self._executor is None:
                assert self._make_executor is not None
                self._executor = self._make_executor()
            return self._executor

    # Leaves.

    def _run(self, node: Step, entry: Entry, value: Any) -> None:
        waiting = entry.open_waits()
        if waiting:
            raise Suspend(waiting)
        if node.exclusive:
            with self._turn:
                self._run_and_record(node, entry, value)
        else:
            self._run_and_record(node, entry, value)

    def _run_and_record(self, node: Step, entry: Entry, value: Any) -> None:
        ctx = StepContext(self, entry, value)
        try:
            if node.check is not None:
                node.check(ctx)
            done = as_done(node.run(ctx, value))
        except BaseException as error:
            self.journal.append_failure(entry, error)
            raise
        self.journal.append(entry, "done", done.output, done.changes, done.sync)


class _Gathering:
    """One visit of a ForEach: which items have work, and what came of each.

    Attributes:
        due: Indexes of items with neither an end nor an open suspension.
    """

    def __init__(self, engine: Engine, body: Node, entry: Entry, items: Sequence[Any]):
        self.engine = engine
        self.body = body
        self.items = items
        self.places = [entry.child(str(index)) for index in range(len(items))]
        self.outputs: List[Any] = [None] * len(items)
        self.raised: List[Tuple[int, BaseException]] = []
        self.due: List[int] = []
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

    def _probe(self, index: int) -> None:
        try:
            self._visit(index, PROBE)
        except _Frontier:
            self.due.append(index)
        except Suspend as signal:
            self.raised.append((index, signal))

    def _visit(self, index: int, mode: int) -> None:
        engine = self.engine
        self.outputs[index] = engine._plain(engine.visit(self.body, self.places[index], self.items[index], mode))

    def do(self, index: int) -> None:
        """Visit one item, unless another one has stopped the run."""
        if self._halt.is_set():
            return
        try:
            self._visit(index, LIVE)
        except BaseException as error:
            self.raised.append((index, error))
            if not isinstance(error, Suspend):
                self._halt.set()

    def in_turn(self) -> None:
        for index in self.due:
            self.do(index)

    def in_parallel(self, executor: Executor, foreign: bool) -> None:
        """Start all due items, and wait until each has ended or is abandoned."""
        pending = {executor.submit(copy_context().run, self.do, index): index for index in self.due}
        wake: "Future[None]" = Future()
        forget = self.engine.cancel.on_cancel(lambda: wake.set_result(None))
        try:
            self._wait(pending, wake, foreign)
        except BaseException:  # a KeyboardInterrupt while waiting: nothing more is started
            self.engine.cancel.cancel()
            raise
        finally:
            forget()
            self._abandon(executor, pending)

    def _wait(self, pending: Dict["Future[Any]", int], wake: "Future[None]", foreign: bool) -> None:
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
            waited: List["Future[Any]"] = list(pending) if told else [*pending, wake]
            for future in wait(waited, shorter(limit, 0.01 if foreign else None), FIRST_COMPLETED).done:
                pending.pop(future, None)
            if foreign:
                self._help(pending)

    def _help(self, pending: Dict["Future[Any]", int]) -> None:
        """Do one item that no worker has taken up, in this thread."""
        for future, index in pending.items():
            if future.cancel():
                del pending[future]
                self.do(index)
                return

    def _abandon(self, executor: Executor, pending: Mapping["Future[Any]", int]) -> None:
        for future, index in pending.items():
            if not future.cancel() and hasattr(executor, "abandon"):
                executor.abandon(future)
            reason = self.engine.cancel.reason
            self.raised.append((index, LimitReached("deadline") if reason == "deadline" else Cancelled(reason)))

    def result(self) -> List[Any]:
        """The outputs, or the signal that takes precedence: failure, cancel, abort, limit, suspend."""
        if not self.raised:
            return self.outputs
        errors = [error for _, error in sorted(self.raised, key=lambda item: item[0])]
        worst = max(errors, key=lambda error: error.rank if isinstance(error, Signal) else 99)
        if isinstance(worst, Suspend):
            raise Suspend([item for error in errors if isinstance(error, Suspend) for item in error.suspensions])
        raise worst
