"""Opening a run: made new, found by its id, or loaded to be resumed.

What is not here: driving it (`run`), and the live side that the agent fills in (`agent`).
"""

from __future__ import annotations

import time
from hashlib import sha256
from json import dumps
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .._util import new_run_id
from ..errors import (
    AlreadyDecided,
    ConfigError,
    ResumeMismatch,
    RunConflict,
    RunFinished,
    UnknownSuspension,
)
from ..messages import Message
from ..results import FullOutput, Suspension
from ..runs.base import already_decided
from ..runs.decisions import check, plain
from ..runs.null import NullRuns
from ..runs.records import check_schema
from . import options as opts
from .output import full_output, open_suspensions
from .run import SCHEMA, Run, decisions_by_id, folded, is_bare


class Opener:
    """Opens the runs of one agent.

    Parameters:
        agent: Name of the agent.
        runs: Its store.
        max_recoveries: Starts without progress after which a run is refused.
    """

    def __init__(self, agent: str, runs: Any, max_recoveries: int):
        self.agent = agent
        self.runs = runs
        self.max_recoveries = max_recoveries

    # A new run, or one of that id.

    def create(self, messages: Sequence[Message], values: Dict[str, Any], given_live: Sequence[str]) -> Any:
        """Record what is asked, and own the run.

        Returns:
            A `Run`; or the FullOutput of a run of that id that has ended or waits.

        Raises:
            RunBusy, RunConflict: If there is a run of that id that goes on, or that was asked something else.
        """
        run_id = values.pop("run_id") if "run_id" in values else new_run_id()
        said = [message.to_dict() for message in messages]
        output = {"schema": SCHEMA, "agent": self.agent, "options": values, "messages": said, "digest": digest(said)}
        output.update({name: values[name] for name in ("thread_id", "resource_id", "metadata") if values.get(name)})
        if given_live:
            output["live"] = list(given_live)
        record = {"seq": 1, "at": time.time(), "epoch": 1, "path": "", "status": "created", "output": output,
                  "changes": [{"type": "input-added"}]}
        lease = self.runs.create(run_id, record)
        return Run(lease, self.runs.keeps) if lease is not None else self._existing(run_id, digest(said))

    def _existing(self, run_id: str, asked: str) -> Any:
        state = folded(run_id, self.runs.read(run_id))
        if state.digest != asked or state.agent != self.agent:
            other = "" if state.agent == self.agent else " for agent %r" % state.agent
            raise RunConflict("run %s exists with other input%s; choose another run_id" % (run_id, other), run_id)
        posted = set(state.suspensions) & set(self.runs.inbox(run_id))
        asks = bool(state.suspensions) and not posted and self.runs.status(run_id) == "waiting"
        if state.finished or asks:  # what waits for background work alone goes on: its process may be gone
            output: FullOutput[Any] = full_output(state)
            return output
        run = Run(self.runs.acquire(run_id), self.runs.keeps)
        run.own({}, self.max_recoveries)
        return run

    # A run to go on with.

    def load(self, resumed: Any, decisions: Any, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Run:
        """Post decisions, then own the run.

        Raises:
            RunFinished: If there is nothing to resume; with its output.
            ResumeMismatch: If it is another agent's, or something live is missing.
        """
        if not isinstance(resumed, (str, Mapping)):
            got = "None" if resumed is None else "a " + type(resumed).__name__
            raise ConfigError("resume got %s; expected a run id (out.run_id), or out.snapshot where the agent has no "
                              "store" % got)
        overrides, _ = opts.split({name: given[name] for name in opts.REPLACED if given.get(name) is not None}, False)
        recoveries = opts.checked("max_recoveries", given.get("max_recoveries"))
        opening: Callable[..., Run] = self._snapshot if isinstance(resumed, Mapping) else self._stored
        run = opening(resumed, decisions, lambda state: check_live(state, given, defaults))
        try:
            if run.state.finished:
                run.complete()  # a process may have died between the last step and this
                raise RunFinished("run %s has finished; there is nothing to resume" % run.id, run.id, run.output())
            run.own(overrides, self.max_recoveries if recoveries is None else recoveries)
        except BaseException:
            run.lease.release()
            raise
        return run

    def _stored(self, run_id: str, decisions: Any, check_given: Callable[[Any], None]) -> Run:
        state = folded(run_id, self.runs.read(run_id))
        self._check_agent(state)
        if not state.finished:
            check_given(state)
        try:
            self._decide(run_id, decisions, state)
        except (AlreadyDecided, RunFinished) as error:
            error.output = self._output_if_finished(run_id)
            raise
        return Run(self.runs.acquire(run_id), self.runs.keeps)

    def _decide(self, run_id: str, decisions: Any, state: Any) -> None:
        """Post decisions, none of them if one does not fit."""
        if decisions is None:
            return
        asked = {item.id: item for item in open_suspensions(state)}
        posted = self.runs.inbox(run_id)
        undecided = [id for id in asked if id not in posted]
        if is_bare(decisions) and not undecided:
            self._too_late(run_id, posted, state)
        chosen = decisions_by_id(run_id, decisions, undecided)
        for id in set(chosen) - set(undecided):
            self.runs.decide(run_id, id, chosen[id])  # says why not, unless it was asked just now
        fitting = {id: chosen[id] for id in undecided if id in chosen}
        check_all(run_id, asked, fitting)
        for id, decision in fitting.items():
            self.runs.decide(run_id, id, decision)

    def _too_late(self, run_id: str, posted: Mapping[str, Any], state: Any) -> None:
        """Raise for a bare decision where nothing waits any more: somebody else was first."""
        if state.finished:
            raise RunFinished("run %s has finished; there is nothing left to decide" % run_id, run_id)
        decided = {**self.runs.standing(run_id).decided, **{id: item["decision"] for id, item in posted.items()}}
        if decided:
            id, first = list(decided.items())[-1]
            raise already_decided(run_id, id, {"decision": first})

    def _output_if_finished(self, run_id: str) -> Optional[FullOutput[Any]]:
        state = folded(run_id, self.runs.read(run_id))
        return full_output(state) if state.finished else None

    def _snapshot(self, snapshot: Mapping[str, Any], decisions: Any, check_given: Callable[[Any], None]) -> Run:
        run = _restored(snapshot)
        self._check_agent(run.state)
        check_given(run.state)
        waiting = {item.id: item for item in open_suspensions(run.state)}
        chosen = decisions_by_id(run.id, decisions, list(waiting))
        for id in set(chosen) - set(waiting):
            raise UnknownSuspension("run %s has no open suspension %r; open are: %s"
                                    % (run.id, id, ", ".join(waiting) or "none"), run.id)
        check_all(run.id, waiting, chosen)
        for id, decision in chosen.items():
            run.lease.post(id, decision)
        return run

    def _check_agent(self, state: Any) -> None:
        if state.agent != self.agent:
            raise ResumeMismatch("run %s belongs to agent %r, not to %r; resume it with that agent"
                                 % (state.run_id, state.agent, self.agent), state.run_id)


def _restored(snapshot: Mapping[str, Any]) -> Run:
    """The run of a snapshot.

    Raises:
        ConfigError: If it is none, or damaged.
        RunTooNew: If a newer version made it.
    """
    if snapshot.get("status") != "checkpoint" or not isinstance(snapshot.get("output"), Mapping):
        raise ConfigError("resume got a dict that is no snapshot; pass output.snapshot, or a run id")
    output = snapshot["output"]
    check_schema(dict(snapshot), str(output.get("run_id")))
    try:
        return Run(NullRuns().restore(output["run_id"], dict(snapshot)), False)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ConfigError("the snapshot is damaged (%s: %s); pass output.snapshot as it was"
                          % (type(error).__name__, error)) from error


def check_all(run_id: str, waiting: Mapping[str, Suspension], chosen: Mapping[str, Any]) -> None:
    """See that each decision fits its suspension, before any of them is posted.

    Raises:
        InvalidDecision: If one does not.
    """
    for id, decision in chosen.items():
        check(waiting[id].to_dict(), plain(decision, run_id), run_id, time.time())


def check_live(state: Any, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """See that what is live and was given at the start is there again; a model may be the agent's.

    Raises:
        ResumeMismatch: If it is not, naming it.
    """
    missing: List[str] = [name for name in state.live if given.get(name) is None and (
        name != "model" or defaults.get(name) is None)]
    if missing:
        raise ResumeMismatch("run %s was started with %s, which cannot be stored; pass it to resume again"
                             % (state.run_id, " and ".join(name + "=" for name in missing)), state.run_id)


def digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """What was asked, ids and times aside."""
    said = [{key: value for key, value in message.items() if key not in ("id", "created_at")} for message in messages]
    return sha256(dumps(said, sort_keys=True, default=str).encode()).hexdigest()
