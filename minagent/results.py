"""Results: what a run has come to, as immutable values that travel as JSON.

What is not here: how they come about (`loop.state` folds them from the journal).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar, Union

from .errors import InvalidDecision, RunNotFinished
from .messages import FilePart, Message, ToolCallPart, ToolResultPart

T = TypeVar("T")
Json = Dict[str, Any]

FINISHED = ("stop", "length", "content-filter", "max-steps", "tripwire")
USAGE_KEYS = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_input_tokens", "cache_write_tokens")


@dataclass(frozen=True)
class Usage:
    """Tokens used.  Input includes cached tokens, output includes reasoning, for every provider.

    Attributes:
        input_tokens: Tokens sent; None if unknown (as for each of the others).
        output_tokens: Tokens received.
        reasoning_tokens: The part of the output that was reasoning.
        cached_input_tokens: The part of the input that was read from the provider's cache.
        cache_write_tokens: The part of the input that was written to it.
        partial: True for a sum in which some number was unknown.
    """

    input_tokens: Optional[int] = None
    output_tokens: Optional[int] = None
    reasoning_tokens: Optional[int] = None
    cached_input_tokens: Optional[int] = None
    cache_write_tokens: Optional[int] = None
    partial: bool = False

    @property
    def total_tokens(self) -> Optional[int]:
        """Input plus output, or None if both are unknown."""
        return _sum(self.input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        unknown = (self.input_tokens is None or other.input_tokens is None
                   or self.output_tokens is None or other.output_tokens is None)
        return Usage(_sum(self.input_tokens, other.input_tokens), _sum(self.output_tokens, other.output_tokens),
                     _sum(self.reasoning_tokens, other.reasoning_tokens),
                     _sum(self.cached_input_tokens, other.cached_input_tokens),
                     _sum(self.cache_write_tokens, other.cache_write_tokens),
                     self.partial or other.partial or unknown)

    def to_dict(self) -> Json:
        data: Json = {key: getattr(self, key) for key in USAGE_KEYS if getattr(self, key) is not None}
        if self.partial:
            data["partial"] = True
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        members: Dict[str, Any] = {key: _count(data.get(key)) for key in USAGE_KEYS}
        return cls(**members, partial=bool(data.get("partial", False)))


#: The neutral element of `+`.
NO_USAGE = Usage(0, 0)


def _count(value: Any) -> Optional[int]:
    """A number of tokens; what is none is unknown, so that no provider's odd answer can spoil a sum."""
    return value if type(value) is int and value >= 0 else None


def _sum(a: Optional[int], b: Optional[int]) -> Optional[int]:
    return b if a is None else a if b is None else a + b


@dataclass(frozen=True)
class Tripwire:
    """Why a run was stopped before its end.

    Attributes:
        kind: processor, tokens, cost, tool-calls or deadline.
        reason: A sentence.
        processor: Id of the processor that aborted, or None.
        hook: Its hook, or None.
        retry: Whether the processor asked for another attempt.
        metadata: What the processor added.
    """

    kind: str
    reason: str = ""
    processor: Optional[str] = None
    hook: Optional[str] = None
    retry: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Json:
        return _filled(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tripwire:
        return cls(**{key: data[key] for key in _names(cls) if key in data})


@dataclass(frozen=True)
class Suspension:
    """A question that the run waits for.

    Attributes:
        id: What a decision names.
        call_id: The tool call that asks, or "".
        tool_name: Its tool.
        kind: approval, tool, background, elicitation or unknown-outcome.
        args: The call's arguments.
        payload: What the tool said when it suspended.
        resume_schema: JSON Schema of the expected answer (for approvals: of edited arguments), or None.
        label: A short text of the tool's, or "".
        agent_path: Names of the agents from the outermost one.
        created_at: Seconds since the epoch.
        expires_at: Seconds since the epoch, after which it counts as declined, or None.
    """

    id: str
    call_id: str = ""
    tool_name: str = ""
    kind: str = "tool"
    args: Optional[Mapping[str, Any]] = None
    payload: Any = None
    resume_schema: Optional[Mapping[str, Any]] = None
    label: str = ""
    agent_path: Tuple[str, ...] = ()
    created_at: float = 0.0
    expires_at: Optional[float] = None

    def to_dict(self) -> Json:
        return _filled(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Suspension:
        known = {key: data[key] for key in _names(cls) if key in data}
        known["agent_path"] = tuple(known.get("agent_path", ()))
        return cls(**known)


@dataclass(frozen=True)
class Approve:
    """Let the call run, with edited arguments if `args` is given.

    Attributes:
        args: The arguments to run with, or None for the asked ones.  Checked against the tool's schema.
        by: Who decided, or "".
    """

    args: Optional[Mapping[str, Any]] = None
    by: str = ""
    type = "approve"


@dataclass(frozen=True)
class Decline:
    """Do not run the call; the model is told the reason.

    Attributes:
        reason: Shown to the model.
        by: Who decided, or "".
    """

    reason: str = ""
    by: str = ""
    type = "decline"


@dataclass(frozen=True)
class Answer:
    """Answer a suspended tool, or answer instead of running the call.

    Attributes:
        value: Any JSON value.
        by: Who decided, or "".
    """

    value: Any = None
    by: str = ""
    type = "answer"


Decision = Union[Approve, Decline, Answer]
DECISIONS = {"approve": Approve, "decline": Decline, "answer": Answer}


def decision_to_dict(decision: Any) -> Json:
    """Return a decision as JSON.  Dicts in that form are taken as they are.

    Raises:
        InvalidDecision: If it is something else.
    """
    if isinstance(decision, Mapping) and decision.get("type") in DECISIONS:
        return dict(decision)
    if not isinstance(decision, (Approve, Decline, Answer)):
        raise InvalidDecision("a decision is %r; expected Approve(...), Decline(reason) or Answer(value)" % (decision,))
    data = {"type": decision.type}
    data.update({item.name: getattr(decision, item.name) for item in fields(decision)})
    return {key: value for key, value in data.items() if key in ("type", "value") or value not in (None, "")}


@dataclass(frozen=True)
class StepResult:
    """One turn of the agentic loop: a model's answer and the results of its calls.

    Attributes:
        index: From 1.
        text: The answer's text.
        reasoning: The answer's reasoning text.
        tool_calls: The calls it asked for.
        tool_results: Their results, in the order of the calls.
        finish_reason: stop, length, content-filter, tool-calls or error; None while the step is open.
        usage: Of all attempts of this step.
        cost_usd: In US dollars, or None if unknown.
        model: Which model answered.
        attempts: Model calls made for this step, rejected ones included.
        warnings: Sentences.
        started_at: Seconds since the epoch.
        finished_at: Seconds since the epoch; 0 while the step is open.
        cached: True if a cache answered.
        notes: Decisions of processors.
    """

    index: int
    text: str = ""
    reasoning: str = ""
    tool_calls: Tuple[ToolCallPart, ...] = ()
    tool_results: Tuple[ToolResultPart, ...] = ()
    finish_reason: Optional[str] = None
    usage: Usage = NO_USAGE
    cost_usd: Optional[float] = None
    model: str = ""
    attempts: int = 1
    warnings: Tuple[str, ...] = ()
    started_at: float = 0.0
    finished_at: float = 0.0
    cached: bool = False
    notes: Tuple[Any, ...] = ()

    def to_dict(self) -> Json:
        return _filled(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StepResult:
        known = {key: data[key] for key in _names(cls) if key in data}
        known["tool_calls"] = tuple(ToolCallPart.from_dict(item) for item in data.get("tool_calls", ()))
        known["tool_results"] = tuple(ToolResultPart.from_dict(item) for item in data.get("tool_results", ()))
        known["usage"] = Usage.from_dict(data.get("usage", {}))
        known["warnings"] = tuple(data.get("warnings", ()))
        known["notes"] = tuple(data.get("notes", ()))
        return cls(**known)


@dataclass(frozen=True)
class FullOutput(Generic[T]):
    """What a run has come to, built from its journal alone, at any time.

    Attributes:
        text: The last turn's text; empty after a tripwire.
        transcript: The text of all turns, joined by blank lines.
        object: The structured answer, or None.
        object_error: Why `object` could not be read, or None.
        reasoning: Reasoning text of all turns.
        tool_calls: All calls, in order.
        tool_results: All results that are no errors.
        tool_errors: All results that are errors.
        steps: All turns; an open one is last and has no finish_reason.
        usage: Sum over all attempts of all turns.
        cost_usd: In US dollars, or None if unknown.
        finish_reason: stop, length, content-filter, max-steps, suspended, tripwire, cancelled or error.
        suspensions: What the run waits for.
        tripwire: Why it was stopped, or None.
        messages: The whole conversation, input included.
        response_messages: What this run added to it.
        sources: Citations.
        files: Files that the model made.
        attempts: Rejected answers and model calls, as dicts, in order.
        run_id: The run.
        thread_id: The memory thread, or None.
        snapshot: What `Agent.resume` takes where there is no store, or None.
        warnings: Sentences.
        error: What failed, as a dict with type and message, or None.
    """

    text: str = ""
    transcript: str = ""
    object: Optional[T] = None
    object_error: Optional[str] = None
    reasoning: str = ""
    tool_calls: Tuple[ToolCallPart, ...] = ()
    tool_results: Tuple[ToolResultPart, ...] = ()
    tool_errors: Tuple[ToolResultPart, ...] = ()
    steps: Tuple[StepResult, ...] = ()
    usage: Usage = NO_USAGE
    cost_usd: Optional[float] = None
    finish_reason: str = "stop"
    suspensions: Tuple[Suspension, ...] = ()
    tripwire: Optional[Tripwire] = None
    messages: List[Message] = field(default_factory=list)
    response_messages: List[Message] = field(default_factory=list)
    sources: Tuple[Any, ...] = ()
    files: Tuple[FilePart, ...] = ()
    attempts: Tuple[Any, ...] = ()
    run_id: str = ""
    thread_id: Optional[str] = None
    snapshot: Optional[Json] = None
    warnings: Tuple[str, ...] = ()
    error: Optional[Json] = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def raise_unless_finished(self) -> FullOutput[T]:
        """Return self if the run ended by itself, like `requests.Response.raise_for_status`.

        Raises:
            RunNotFinished: If it waits, was cancelled, stopped by a limit or a processor, or failed.
        """
        if self.finish_reason in ("stop", "length", "content-filter", "max-steps"):
            return self
        reason = self.tripwire.reason if self.tripwire else (self.error or {}).get("message", "")
        raise RunNotFinished("run %s has not finished: finish_reason is %r%s"
                             % (self.run_id, self.finish_reason, ": " + reason if reason else ""), self.run_id, self)

    def to_dict(self) -> Json:
        return _filled(self)


def _names(cls: Any) -> List[str]:
    return [item.name for item in fields(cls)]


def _filled(value: Any) -> Json:
    """The fields of a value that say something, as JSON."""
    data = {name: _json(getattr(value, name)) for name in _names(type(value))}
    return {name: item for name, item in data.items() if name == "object" and item is not None or not _empty(item)}


def _empty(item: Any) -> bool:
    return item is None or item is False or item == "" or item == [] or item == {}


def _json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_json(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_dict() if hasattr(value, "to_dict") else value
