"""The engine: visits a workflow's nodes, runs the leaves that have no record, and records what they return.

Running and resuming are the same call: a leaf with a record hands on what it recorded, a leaf without one is
run.  A visit has one of three modes:

* LIVE: leaves without a record are run;
* SETTLED: something behind this place has records, so nothing here is asked or run again;
* PROBE: tells whether a ForEach's item still has work, without doing any.

What is not here: reading and writing records (`journal`), the items of a ForEach (`gathering`), and anything
about agents.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from hashlib import sha256
from json import dumps
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .._util import CancelToken, Deadline
from ..errors import Abort, Cancelled, ConfigError, LimitReached, ResumeMismatch, Signal, Suspend
from .entries import Entry
from .gathering import LIVE, PROBE, SETTLED, Frontier, Gathering
from .nodes import Branch, DoWhile, ForEach, Mount, Node, Step, Workflow, as_done


class _Answered:
    """What a door that answers for its whole Workflow hands out."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


class StepContext:
    """What a leaf may use.

    Attributes:
        scope: The live things of the run.
        entry: What is recorded of the leaf so far.
        unfinished: Whether the leaf was started before and no end of it is recorded.
        run_number: Which start this is, from 1.
    """

    __slots__ = ("scope", "entry", "unfinished", "run_number", "_engine", "_value", "_asked")

    def __init__(self, engine: Engine, entry: Entry, value: Any):
        self.scope = engine.scope
        self.entry = entry
        self.unfinished = entry.status == "started"
        self.run_number = entry.starts + 1
        self._engine = engine
        self._value = value
        self._asked: Dict[str, int] = {}  # calls of suspend, by series

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

    def sync(self) -> None:
        """Return when everything that was recorded so far is on disk."""
        self._engine.journal.lease.sync()

    def note(self, output: Any, changes: Sequence[Mapping[str, Any]] = ()) -> None:
        """Record something about the leaf that does not end it."""
        self._engine.journal.append(self.entry, "noted", output, changes)

    def suspend(self, payload: Any = None, resume_schema: Optional[Mapping[str, Any]] = None, label: str = "",
                series: str = "", **about: Any) -> Any:
        """Stop here until somebody decides, and return the decision.

        The leaf runs again from its top then, and its k-th call of `suspend` returns the k-th decision.

        Parameters:
            payload: JSON value shown to whoever decides.
            resume_schema: JSON Schema of the decision's value; recorded, not checked here.
            label: A short text.
            series: Suspensions of one series are counted on their own.
            about: More JSON members of the recorded suspension.
        """
        number = self._asked.get(series, 0)
        self._asked[series] = number + 1
        waits = [wait for wait in self.entry.waits or () if wait.get("series", "") == series]
        if number < len(waits) and "decision" in waits[number]:
            return waits[number]["decision"]
        suspension = dict(about, id=self._suspension_id("%s%d" % (series, number)), payload=payload,
                          created_at=self._engine.journal.now())
        if series:
            suspension["series"] = series
        if resume_schema:
            suspension["resume_schema"] = resume_schema
        if label:
            suspension["label"] = label
        signal = Suspend([suspension])
        signal.output = suspension
        signal.changes = [{"type": "suspension-opened"}]
        raise signal

    def _suspension_id(self, number: str) -> str:
        try:
            digest = dumps(self._value, sort_keys=True, default=str)
        except (TypeError, ValueError):  # keys that cannot be sorted, a value inside itself
            digest = repr(self._value)
        parts = (self._engine.journal.run_id, self.path, number, digest)
        return "s" + sha256("\0".join(parts).encode()).hexdigest()[:24]


class Engine:
    """Drives workflows over one journal.

    Parameters:
        journal: A `Journal`.
        scope: The live things of the run, handed to leaves, conditions and binds.
        executor: Makes the `concurrent.futures.Executor` for a ForEach with two or more items to do; called
            once, when it is needed.  None: items are done one after the other in the caller's thread.
        foreign: Whether that executor is shared with others; the caller's thread then helps out when no
            worker is free.  A worker's thread always does, so that nesting cannot deadlock.
        cancel: Set by anybody to stop the run.
        deadline: When running items are told to stop.
        grace: Seconds that running items get after a cancel or the deadline before they are abandoned.
    """

    def __init__(self, journal: Any, scope: Any = None, *, executor: Optional[Callable[[], Executor]] = None,
                 foreign: bool = False, cancel: Optional[CancelToken] = None,
                 deadline: Optional[Deadline] = None, grace: float = 2.0):
        self.journal = journal
        self.scope = scope
        self.cancel = cancel if cancel is not None else CancelToken()  # an unset token is false
        self.deadline = deadline if deadline is not None else Deadline()
        self.grace = grace
        self._make_executor = executor
        self._foreign = foreign
        self._executor: Optional[Executor] = None
        self._caller = threading.get_ident()  # of `run`
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
        aborted = self.journal.aborted
        if aborted is not None:
            raise Abort(aborted.get("reason", "aborted") if isinstance(aborted, dict) else "aborted", aborted)
        self._caller = threading.get_ident()
        try:
            return self.visit_plain(node, self.journal.root.child(node.name), value, LIVE)
        except Signal as signal:
            # Recorded in this journal, and not to be again by a leaf that this engine runs in.
            signal.changes = []
            if isinstance(signal, Suspend):
                signal.output = None
            raise

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

    def close(self) -> None:
        """Let the executor's threads go; nothing more is run."""
        with self._executor_lock:
            executor, self._executor = self._executor, None
        if executor is not None and not self._foreign:
            executor.shutdown(wait=False)

    # Visiting: each takes (node, entry, value, mode) and returns what is handed on.

    def visit(self, node: Node, entry: Entry, value: Any, mode: int) -> Any:
        visit = self._visits.get(type(node))
        return (visit or self._visit_of(node))(node, entry, value, mode)

    def visit_plain(self, node: Node, entry: Entry, value: Any, mode: int) -> Any:
        """The same, where a door that answers has no Workflow to answer for but the node itself."""
        value = self.visit(node, entry, value, mode)
        return value.value if type(value) is _Answered else value

    def _visit_of(self, node: Node) -> Callable[..., Any]:
        for kind in type(node).__mro__:
            if kind in self._visits:
                return self._visits.setdefault(type(node), self._visits[kind])
        raise ConfigError("%r cannot be visited; expected a Step, Workflow, Branch, ForEach, DoWhile or "
                          "Mount, or a subclass of one" % (node,))

    def _step(self, node: Step, entry: Entry, value: Any, mode: int) -> Any:
        if entry.status != "done":
            if mode == SETTLED:
                return value
            if mode == PROBE and not entry.open_waits():
                raise Frontier()
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
                raise Frontier()
            name = next((name for name, door in node.doors.items() if door.when(value, self.scope)), None)
        if name is None:
            return value
        if name not in node.doors:
            raise ResumeMismatch(
                "%r is recorded as the door taken, but branch %r has only %s; names are stored: keep the "
                "door as long as runs may be behind it" % (
                    entry.child(name).path(), node.name, sorted(node.doors)), self.journal.run_id)
        door = node.doors[name]
        if door.node is not None:
            visit = self.visit_plain if door.answers else self.visit
            value = visit(door.node, entry.child(name), value, mode)
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
        value = self.visit_plain(node.body, entry.child(str(number)), value, mode)
        entry.fold(number, value)
        return number, value

    def _mount(self, node: Mount, entry: Entry, value: Any, mode: int) -> Any:
        if not entry.touched and mode == SETTLED:
            return value
        if not entry.touched and mode == PROBE:
            raise Frontier()

        def drive(inner: Node, given: Any) -> Any:
            return self.visit_plain(inner, entry, given, mode)

        output = node.enter(self.scope, value, drive)
        return output if entry.touched else value

    def _for_each(self, node: ForEach, entry: Entry, value: Any, mode: int) -> Any:
        if not entry.touched and mode == SETTLED:
            return value
        items = node.items(value) if node.items is not None else value
        if not items:
            return value
        gathering = Gathering(self, node.body, entry, list(items))
        gathering.collect(mode)
        if gathering.due and mode == PROBE:
            raise Frontier()
        if len(gathering.due) > 1 and self._make_executor is not None:
            # A thread that is itself a worker must not wait for one.
            helps = self._foreign or threading.get_ident() != self._caller
            gathering.in_parallel(self._shared_executor(), helps)
        else:
            gathering.in_turn()
        outputs = gathering.result()
        return outputs if entry.touched else value

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
            (node.check or self._check)(ctx)
            done = as_done(node.run(ctx, value))
            self.journal.append(entry, "done", done.output, done.changes, done.sync)
        except BaseException as error:
            self.record_failure(entry, error)
            raise

    def record_failure(self, entry: Entry, error: BaseException) -> None:
        """Record why a place was left, as far as it can be recorded."""
        try:
            self.journal.append_failure(entry, error)
        except Exception:
            # A suspension or an abort that is not on record must not be told; anything else must.
            if isinstance(error, Signal) and error.status != "noted":
                raise

    def _check(self, ctx: StepContext) -> None:
        """The check of leaves that have none of their own."""
        if self.deadline.passed():
            self.cancel.cancel("deadline")
        if self.cancel:
            raise self.told()

    def told(self) -> Signal:
        """The signal that says why the run was told to stop."""
        reason = self.cancel.reason
        if reason == "deadline":
            return LimitReached("the deadline of %g seconds has passed" % (self.deadline.seconds or 0))
        return Cancelled(reason)
