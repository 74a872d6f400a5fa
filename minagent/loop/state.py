"""RunState: what a run has come to, as the fold of its journal's changes.

Everything that must survive is here and travels as JSON; what is live is in `scope`.  The closed list of
changes is `CHANGES`.  A change names its record's output and never repeats it; only processor-state carries a
value of its own.  What is not here: making records (the leaves do) and the caller's view (`agent.output`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..messages import Message, ToolCallPart, ToolResultPart
from ..results import NO_USAGE, StepResult, Suspension, Tripwire, Usage

Json = Dict[str, Any]
Record = Mapping[str, Any]


class OpenStep:
    """The step that the loop is in.

    Attributes:
        attempts: Model calls begun for it.
        answered: Whether the last one has an end.
        held: The last answer, as recorded, until it is accepted or rejected.
        accepted: Whether its answer is in the messages.
        rejected: Answers that processors rejected: dicts with message, reason, processor and hook.
        results: Results by call id.
        usage: Of all attempts.
        cost_usd: Of all attempts, or None if unknown.
        started_at: Seconds since the epoch.
        notes: What leaves and processors noted.
    """

    def __init__(self, started_at: float = 0.0):
        self.attempts = 0
        self.answered = True
        self.held: Json = {}
        self.accepted = False
        self.rejected: List[Json] = []
        self.results: Dict[str, ToolResultPart] = {}
        self.usage: Usage = NO_USAGE
        self.cost_usd: Optional[float] = None
        self.started_at = started_at
        self.notes: List[Any] = []

    def to_dict(self) -> Json:
        return {"attempts": self.attempts, "answered": self.answered, "held": self.held, "accepted": self.accepted,
                "rejected": self.rejected, "results": [part.to_dict() for part in self.results.values()],
                "usage": self.usage.to_dict(), "cost_usd": self.cost_usd, "started_at": self.started_at,
                "notes": self.notes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OpenStep:
        step = cls(data["started_at"])
        step.attempts, step.answered, step.accepted = data["attempts"], data["answered"], data["accepted"]
        step.held, step.rejected, step.notes = dict(data["held"]), list(data["rejected"]), list(data["notes"])
        results = [ToolResultPart.from_dict(item) for item in data["results"]]
        step.results = {part.call_id: part for part in results}
        step.usage, step.cost_usd = Usage.from_dict(data["usage"]), data["cost_usd"]
        return step


class RunState:
    """The fold.  Read it anywhere; only `apply` changes it.

    Attributes:
        run_id: The run.
        agent: Name of the agent.
        options: The value options that the run was asked with.
        digest: Of what was asked.
        live: Names of live options that the call gave.
        fruitless: Starts since the last progress.
        messages: The conversation.
        input_count: How many of them were there before the first step.
        made: Message ids made so far.
        steps: Finished steps.
        open: The step that the loop is in, or None between steps.
        attempts: Rejected answers of the whole run, as dicts.
        usage: Of the whole run.
        cost_usd: Of the whole run, or None if unknown.
        tool_calls: Calls with a result.
        suspensions: Open ones by id, in order.
        background: Open background tasks by id, as dicts.
        tools: Digest of each tool's schema by name.
        cut: Blobs of results that were cut for the model, by call id.
        tripwire: What aborted the run, or None.
        ended: Why the run was left before its end ({signal, ...}), or None; forgotten when it goes on.
        finish_reason: Why it finished, or None.
        edits: What processors made of text, object and metadata at the end.
    """

    def __init__(self, run_id: str = ""):
        self.run_id = run_id
        self.agent = ""
        self.options: Json = {}
        self.digest = ""
        self.live: List[str] = []
        self.fruitless = 0
        self.messages: List[Message] = []
        self.input_count = 0
        self.made = 0
        self.steps: List[StepResult] = []
        self.open: Optional[OpenStep] = None
        self.attempts: List[Json] = []
        self.usage: Usage = NO_USAGE
        self.cost_usd: Optional[float] = None
        self.tool_calls = 0
        self.suspensions: Dict[str, Suspension] = {}
        self.background: Dict[str, Json] = {}
        self.processor_state: Dict[str, Json] = {}
        self.tools: Dict[str, str] = {}
        self.cut: Dict[str, Json] = {}
        self.sources: List[Any] = []
        self.warnings: List[str] = []
        self.tripwire: Optional[Tripwire] = None
        self.ended: Optional[Json] = None
        self.finish_reason: Optional[str] = None
        self.edits: Json = {}

    # What the leaves ask.

    @property
    def step(self) -> int:
        """Index of the step that the loop is in, from 1; after a finished step still that one."""
        return len(self.steps) + (1 if self.open is not None else 0)

    @property
    def attempt(self) -> int:
        """Which answer of the open step is asked for, from 1; calls that were cut off are not counted."""
        return len(self.open.rejected) + 1 if self.open is not None else 0

    @property
    def calls(self) -> List[ToolCallPart]:
        """Calls of the answer that the open step has accepted."""
        if self.open is None or not self.open.accepted:
            return []
        return self.messages[-1].tool_calls

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None or self.tripwire is not None

    @property
    def status(self) -> str:
        """finished, waiting or interrupted; whether it is running only its store knows."""
        if self.finished:
            return "finished"
        waits = self.suspensions or (self.background and self.ended and self.ended["signal"] == "Suspend")
        return "waiting" if waits and (self.ended is None or self.ended["signal"] == "Suspend") else "interrupted"

    def processor_state_of(self, id: str) -> Json:
        """A copy of a processor's recorded state, for its context to change."""
        state: Json = _copy(self.processor_state.get(id, {}))
        return state

    def _new_id(self) -> str:
        """An id for a message: unique, and the same whenever the journal is folded."""
        self.made += 1
        return "%s.%d" % (self.run_id, self.made)

    # The fold.

    def apply(self, record: Record) -> None:
        """Fold one record."""
        status = record["status"]
        if status == "owned":
            if self.status != "waiting":  # to look whether somebody has answered is no failed start
                self.fruitless += 1
            self.ended = None
            self.options.update((record.get("output") or {}).get("options", {}))
        elif status in ("done", "suspended", "decided"):
            self.fruitless = 0
        elif status == "noted" and "signal" in record and record["signal"] == "Suspend":
            self.ended = {"signal": "Suspend"}
        for change in record.get("changes", ()):
            CHANGES[change["type"]](self, change, record)

    def _input_added(self, change: Json, record: Record) -> None:
        output = record["output"]
        if record["status"] == "created":
            self.agent, self.options = output["agent"], dict(output["options"])
            self.digest, self.live = output.get("digest", ""), list(output.get("live", ()))
        messages = [Message.from_dict(item) for item in output["messages"]]
        self.messages = [item if item.id else item.recorded(self._new_id(), record["at"]) for item in messages]
        self.input_count = len(self.messages)

    def _tools_set(self, change: Json, record: Record) -> None:
        self.tools = dict(record["output"]["tools"])

    def _attempt_started(self, change: Json, record: Record) -> None:
        if self.open is None:
            self.open = OpenStep(record["at"])
        if not self.open.answered:
            self._add_usage(Usage(), None)
        self.open.attempts += 1
        self.open.answered = False

    def _usage_added(self, change: Json, record: Record) -> None:
        output = record["output"]
        self._add_usage(Usage.from_dict(output.get("usage", {})), output.get("cost_usd"))
        if self.open is not None:
            self.open.answered = True

    def _add_usage(self, usage: Usage, cost: Optional[float]) -> None:
        step = self.open or OpenStep()
        step.usage, self.usage = step.usage + usage, self.usage + usage
        if cost is not None:
            step.cost_usd, self.cost_usd = (step.cost_usd or 0.0) + cost, (self.cost_usd or 0.0) + cost

    def _answer_held(self, change: Json, record: Record) -> None:
        self._opened(record).held = record["output"]
        self._count_tries(record["output"])

    def _count_tries(self, output: Record) -> None:
        """Failures that a model call got over are attempts, too."""
        self.attempts.extend([dict(each, step=self.step, attempt=self.attempt) for each in output.get("tries", ())])

    def _answer_accepted(self, change: Json, record: Record) -> None:
        step, output = self._opened(record), record.get("output") or {}
        step.held = dict(step.held, **output)
        message = Message.from_dict(step.held["message"])
        self.messages.append(message.recorded(self._new_id(), record["at"]))
        self.sources.extend(step.held.get("sources", ()))
        step.accepted = True

    def _attempt_rejected(self, change: Json, record: Record) -> None:
        step = self._opened(record)
        rejected = record["output"]["rejected"]
        step.rejected.append(dict(rejected, message=step.held.get("message")))
        self.attempts.append(dict(rejected, step=self.step, attempt=len(step.rejected)))
        step.held = {}

    def _result_added(self, change: Json, record: Record) -> None:
        part = ToolResultPart.from_dict(record["output"])
        step = self._opened(record)
        if part.call_id not in step.results:
            self.tool_calls += 1
        step.results[part.call_id] = part
        if "cut" in record["output"]:
            self.cut[part.call_id] = record["output"]["cut"]

    def _step_finished(self, change: Json, record: Record) -> None:
        step = self._opened(record)
        self.steps.append(replace(self.open_result(), finish_reason=record["output"]["finish_reason"],
                                  finished_at=record["at"]))
        self._add_results(step, record["at"])
        self.warnings.extend(step.held.get("warnings", ()))
        self.open = None

    def _add_results(self, step: OpenStep, at: float) -> None:
        results = [step.results[call.call_id] for call in self.calls if call.call_id in step.results]
        if results:
            self.messages.append(Message.tool(results, id=self._new_id(), created_at=at))

    def _suspension_opened(self, change: Json, record: Record) -> None:
        suspension = Suspension.from_dict(record["output"])
        self.suspensions[suspension.id] = suspension

    def _suspension_closed(self, change: Json, record: Record) -> None:
        self.suspensions.pop(record["output"]["id"], None)

    def _background_opened(self, change: Json, record: Record) -> None:
        task = record["output"]["background"]
        self.background[task["id"]] = task

    def _background_closed(self, change: Json, record: Record) -> None:
        task = self.background.pop(change["id"])
        if change["id"] in record["output"].get("cut", {}):
            self.cut[task["call_id"]] = record["output"]["cut"][change["id"]]
        message = Message.from_dict(record["output"]["messages"][change["id"]])
        self.messages.append(message.recorded(self._new_id(), record["at"]))

    def _processor_state(self, change: Json, record: Record) -> None:
        self.processor_state[change["id"]] = change["value"]

    def _output_edited(self, change: Json, record: Record) -> None:
        self.edits.update(record["output"])

    def _tripped(self, change: Json, record: Record) -> None:
        """Open suspensions are void; a call without a result gets one that says so."""
        self.tripwire = Tripwire.from_dict(record["output"])
        self.suspensions.clear()
        if self.tripwire.hook == "process_output" and self.steps:
            self._withdraw_last_words()
        for call in self.calls:
            void = ToolResultPart(call.call_id, call.name, "no result: the run was stopped: " + self.tripwire.reason,
                                  True, "cancelled")
            self._opened(record).results.setdefault(call.call_id, void)
        if self.open is not None:
            self._add_results(self.open, record["at"])

    def _withdraw_last_words(self) -> None:
        """A text that was blocked at the end is in no message, no step and no edit; calls that were made stay."""
        place = max(index for index, message in enumerate(self.messages) if message.role == "assistant")
        parts = [part for part in self.messages[place].parts if part.type not in ("text", "reasoning")]
        self.messages[place:place + 1] = [replace(self.messages[place], parts=tuple(parts))] if parts else []
        self.steps[-1] = replace(self.steps[-1], text="", reasoning="")
        self.edits = {name: value for name, value in self.edits.items() if name == "metadata"}

    def _ended_early(self, change: Json, record: Record) -> None:
        self.ended = dict(record.get("output") or {}, signal=record.get("signal", ""))
        self._count_tries(self.ended)
        if self.open is not None and not self.open.answered:
            self._add_usage(Usage(), None)
            self.open.answered = True

    def _finished(self, change: Json, record: Record) -> None:
        self.finish_reason = record["output"]["finish_reason"]

    def _opened(self, record: Record) -> OpenStep:
        if self.open is None:
            self.open = OpenStep(record["at"])
        return self.open

    # Views.

    def open_result(self) -> StepResult:
        """The open step as a StepResult without finish_reason."""
        step = self.open or OpenStep()
        partial = (self.ended or {}).get("message")
        shown = self.messages[-1] if step.accepted else Message.from_dict(partial) if partial else Message("assistant")
        if step.accepted and shown.role == "tool":
            shown = self.messages[-2]
        calls = tuple(shown.tool_calls) if step.accepted else ()
        return StepResult(
            len(self.steps) + 1, shown.text, shown.reasoning, calls,
            tuple([step.results[call.call_id] for call in calls if call.call_id in step.results]), None, step.usage,
            step.cost_usd, step.held.get("model", ""), step.attempts, tuple(step.held.get("warnings", ())),
            step.started_at, 0.0, bool(step.held.get("cached")), tuple(step.notes))

    def to_dict(self) -> Json:
        """All of it as JSON, for a checkpoint."""
        data: Json = {name: _copy(getattr(self, name)) for name in PLAIN}
        data.update(messages=[item.to_dict() for item in self.messages], steps=[item.to_dict() for item in self.steps],
                    open=self.open.to_dict() if self.open else None, usage=self.usage.to_dict(),
                    suspensions=[item.to_dict() for item in self.suspensions.values()],
                    tripwire=self.tripwire.to_dict() if self.tripwire else None)
        return data

    def restore(self, data: Mapping[str, Any]) -> None:
        """Become what `to_dict` wrote."""
        for name in PLAIN:
            setattr(self, name, _copy(data[name]))
        self.messages = [Message.from_dict(item) for item in data["messages"]]
        self.steps = [StepResult.from_dict(item) for item in data["steps"]]
        self.open = OpenStep.from_dict(data["open"]) if data["open"] else None
        self.usage = Usage.from_dict(data["usage"])
        suspensions = [Suspension.from_dict(item) for item in data["suspensions"]]
        self.suspensions = {item.id: item for item in suspensions}
        self.tripwire = Tripwire.from_dict(data["tripwire"]) if data["tripwire"] else None


#: Members that are JSON as they are.
PLAIN = ("run_id", "agent", "options", "digest", "live", "fruitless", "input_count", "made", "attempts", "cost_usd",
         "tool_calls", "background", "processor_state", "tools", "cut", "sources", "warnings", "ended", "finish_reason",
         "edits")

#: The closed list of changes.
CHANGES: Dict[str, Callable[[RunState, Json, Record], None]] = {
    "input-added": RunState._input_added,
    "tools-set": RunState._tools_set,
    "attempt-started": RunState._attempt_started,
    "usage-added": RunState._usage_added,
    "answer-held": RunState._answer_held,
    "answer-accepted": RunState._answer_accepted,
    "attempt-rejected": RunState._attempt_rejected,
    "result-added": RunState._result_added,
    "step-finished": RunState._step_finished,
    "suspension-opened": RunState._suspension_opened,
    "suspension-closed": RunState._suspension_closed,
    "background-opened": RunState._background_opened,
    "background-closed": RunState._background_closed,
    "processor-state": RunState._processor_state,
    "output-edited": RunState._output_edited,
    "tripped": RunState._tripped,
    "ended-early": RunState._ended_early,
    "finished": RunState._finished,
}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
