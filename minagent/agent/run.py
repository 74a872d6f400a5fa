"""Run: one start of a run, from its lease to its FullOutput.

Running, resuming, streaming: all are `Run.drive`.  What is not here: checking options (`options`), and the
workflow that is driven (`prepare_stream`).
"""

from __future__ import annotations

from threading import get_ident
from typing import Any, Dict, Mapping, NoReturn, Sequence

from ..errors import Abort, Cancelled, InvalidDecision, LimitReached, RunPoisoned, Suspend
from ..loop.background import BackgroundTasks
from ..loop.scope import RunScope
from ..loop.state import RunState
from ..loop.stream import Sink, show
from ..results import FullOutput, decision_to_dict
from ..workflow.engine import Engine
from ..workflow.journal import Journal
from .output import full_output, last_chunk, open_suspensions
from .prepare_stream.workflow import create_prepare_stream

#: Format of the journals that this version writes.
SCHEMA = 1


class Run:
    """One start of a run.

    Parameters:
        lease: Ownership of the run.
        keeps: Whether its store keeps it; without one a run that has not finished gets a snapshot.

    Attributes:
        scope: The live side; the agent fills it in before `drive`.
        state: The fold.
    """

    def __init__(self, lease: Any, keeps: bool = True):
        self.lease = lease
        self.keeps = keeps
        self.state = RunState(lease.run_id)
        self.journal = Journal(lease, self.state)
        self.scope = RunScope(lease.run_id, self.state, lease)
        self.scope.journal = self.journal
        self.resumed = False
        self.on_suspend: Any = None
        self._closed = False

    @property
    def id(self) -> str:
        run_id: str = self.lease.run_id
        return run_id

    def own(self, overrides: Mapping[str, Any], max_recoveries: int) -> None:
        """Take a recorded run up again, with some of its options replaced.

        Raises:
            RunPoisoned: If it was taken up too often without getting any further.
        """
        self.resumed = True
        if self.state.fruitless > max_recoveries:
            self.lease.release()
            raise RunPoisoned("run %s was started %d times without progress; find out why (its journal tells), then "
                              "resume it with a higher max_recoveries" % (self.id, self.state.fruitless), self.id)
        self.journal.append_run("owned", {"options": dict(overrides)} if overrides else None)

    def drive(self, sink: Sink, on_step: Any = None) -> FullOutput[Any]:
        """Run as far as it gets.

        Returns:
            What it has come to: finished, suspended, cancelled, or stopped by a limit.

        Raises:
            Exception: What failed; its `output` and `run_id` are set, and the run can be resumed.
        """
        scope = self.scope
        scope.sink, scope.home = sink, get_ident()
        if sink.watched or on_step is not None:
            self.journal.listener = lambda record: show(scope, on_step, record)
        try:
            scope.emit("start", {"resumed": self.resumed})
            self._run()
        except (Suspend, Cancelled, LimitReached):
            pass  # recorded where it was raised
        except BaseException as error:
            self._failed(error)
        finally:
            self._close()
        return self._ended()

    def _run(self) -> None:
        scope = self.scope
        scope.background = BackgroundTasks(scope)
        parallel = scope.executor is not None or scope.options.get("tool_concurrency", 8) > 1
        engine = Engine(self.journal, scope, executor=scope.make_executor if parallel else None,
                        foreign=scope.executor is not None, cancel=scope.cancel, deadline=scope.deadline,
                        grace=scope.grace)
        try:
            engine.decide(self._decisions())
            self._to_the_end(engine)
        except Suspend:
            raise
        except BaseException as error:
            self._record(engine, error)
            if not isinstance(error, Abort):  # an abort has finished the run
                raise
        finally:
            engine.close()
        self.complete()

    def _record(self, engine: Engine, error: BaseException) -> None:
        """Record why the run was left, if no leaf has: a bind raised it, or somebody who watches."""
        if self.state.ended is None and not self.state.finished:
            if isinstance(error, Abort):
                error.changes = [{"type": "tripped"}]
            engine.record_failure(self.journal.root.at("prepare-stream/prepare-tools"), error)

    def complete(self) -> None:
        """Record that the run is finished, unless that is recorded."""
        if not self.journal.completed:
            self.journal.append_run("completed", {"status": "finished"}, sync=True)

    def _to_the_end(self, engine: Engine) -> None:
        plan = create_prepare_stream(self.scope)
        while True:
            try:
                engine.run(plan)
                return
            except Suspend:
                # Somebody may have decided between the record and now, and found the run owned.
                if not engine.decide(self._decisions()):
                    raise

    def _decisions(self) -> Dict[str, Any]:
        """Posted decisions about open suspensions; an expired one counts as declined."""
        if not self.state.suspensions:
            return {}
        posted, now = self.lease.inbox(), self.journal.now()
        decisions = {id: {"type": "decline", "reason": "expired"} for id, suspension in self.state.suspensions.items()
                     if suspension.expires_at is not None and suspension.expires_at <= now}
        decisions.update({id: posted[id]["decision"] for id in self.state.suspensions if id in posted})
        return decisions

    def _failed(self, error: BaseException) -> NoReturn:
        """Raise the error on, with what the run had come to."""
        self._close()
        output = self.output()
        if isinstance(error, Exception):
            vars(error).update(output=output, run_id=self.id)
        chunk = last_chunk(output, self.state, error)
        self.scope.emit(chunk["type"], chunk["payload"])
        raise error

    def _ended(self) -> FullOutput[Any]:
        output = self.output()
        if output.finish_reason == "suspended" and self.on_suspend is not None:
            try:
                self.on_suspend(output)
            except Exception:
                self.scope.logger.exception("on_suspend raised; the run waits all the same")
        chunk = last_chunk(output, self.state, None)
        self.scope.emit(chunk["type"], chunk["payload"])
        return output

    def _close(self) -> None:
        if not self._closed:  # the journal's own mark is set, too, when a record was left halfway
            self._closed = True
            self.journal.close()
            self.scope.close()
            try:
                self.lease.head(self.head())
            finally:
                self.lease.release()

    def output(self) -> FullOutput[Any]:
        """What the run has come to."""
        snapshot = None if self.keeps or self.state.finished else snapshot_of(self.journal)
        return full_output(self.state, None, snapshot)

    def head(self) -> Dict[str, Any]:
        """What a person who looks at the run is shown."""
        state = self.state
        shown: Dict[str, Any] = {"status": state.status, "agent": state.agent, "step": state.step,
                                 "usage": state.usage.to_dict()}
        waiting = [{"id": item.id, "kind": item.kind, "tool_name": item.tool_name} for item in open_suspensions(state)]
        members = {"waiting_on": waiting, "error": (state.ended or {}).get("error"),
                   "finish_reason": state.finish_reason}
        shown.update({name: value for name, value in members.items() if value})
        return shown


def snapshot_of(journal: Journal) -> Dict[str, Any]:
    """A run as one JSON-able record, which `Agent.resume` takes."""
    record = journal.checkpoint()
    state: Any = journal.state
    record["output"].update(schema=SCHEMA, run_id=journal.run_id, agent=state.agent)
    return record


def is_bare(decisions: Any) -> bool:
    """Whether it is one decision rather than a dict of them by suspension id."""
    return not isinstance(decisions, Mapping) or "type" in decisions


def decisions_by_id(run_id: str, decisions: Any, open_ids: Sequence[str]) -> Dict[str, Dict[str, Any]]:
    """Decisions as dicts by suspension id; a bare one answers the only open suspension.

    Raises:
        InvalidDecision: If it is bare and not exactly one suspension is open.
    """
    if decisions is None:
        return {}
    if not is_bare(decisions):
        return {str(id): decision_to_dict(decision) for id, decision in decisions.items()}
    if len(open_ids) != 1:
        raise InvalidDecision("run %s has %d open suspensions (%s); pass a dict {id: decision} instead of one decision"
                              % (run_id, len(open_ids), ", ".join(open_ids) or "none"), run_id)
    return {open_ids[0]: decision_to_dict(decisions)}


def folded(run_id: str, records: Sequence[Mapping[str, Any]]) -> RunState:
    """The state that some records stand for."""
    from ..workflow.journal import NullLease

    state = RunState(run_id)
    Journal(NullLease(run_id, [dict(record) for record in records]), state)
    return state


