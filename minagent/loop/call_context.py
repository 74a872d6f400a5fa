"""What a tool gets of its run: the live `ToolContext` of one call."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Dict, Mapping, Optional, Sequence

from .._util import Deadline, shorter
from ..errors import MinagentError, Signal
from ..results import Usage
from ..schema import Validator, encode
from ..tools import ToolContext


class Declined(Signal):
    """The answer to a tool's `suspend` was a Decline: the call gets a declined result."""


class CallContext(ToolContext):
    """The context of one call.

    Parameters:
        scope: Of the run.
        call: The call: call_id, name, args.
        leaf: Context of the leaf that runs it; None where a policy is asked before.
        timeout: Seconds that this run of the call may take, or None.
    """

    def __init__(self, scope: Any, call: Mapping[str, Any], leaf: Any = None, timeout: Optional[float] = None):
        self._scope = scope
        self._leaf = leaf
        self._call = call
        self._end = Deadline(timeout)
        self.run_id = scope.run_id
        self.call_id = call["call_id"]
        self.tool_name = call["name"]
        self.step = scope.state.step
        self.attempt = leaf.run_number if leaf is not None else 1
        self.deps = scope.deps
        self.request_context = scope.request_context
        self.thread_id = scope.options.get("thread_id")
        self.resource_id = scope.options.get("resource_id")

    @property
    def idempotency_key(self) -> str:  # type: ignore[override]
        return key_of(self.run_id, self._leaf.path if self._leaf is not None else self._call.get("path", self.call_id))

    @property
    def messages(self) -> Sequence[Any]:
        return tuple(self._scope.state.messages)

    @property
    def usage(self) -> Usage:
        usage: Usage = self._scope.state.usage
        return usage

    @property
    def logger(self) -> Any:
        return self._scope.logger

    @property
    def cancelled(self) -> bool:
        return bool(self._scope.cancel) or self._end.passed() or self._scope.deadline.passed()

    def remaining(self) -> Optional[float]:
        return shorter(self._end.remaining(), self._scope.deadline.remaining())

    def suspend(self, payload: Any = None, resume_schema: Optional[Mapping[str, Any]] = None, label: str = "") -> Any:
        if self._leaf is None:
            raise MinagentError("tool %s called ctx.suspend where nothing can wait; suspend in the tool's own body, "
                                "not in a predicate or in the background" % self.tool_name)
        if resume_schema is not None:
            Validator(resume_schema).check_schema()
        decision = self._leaf.suspend(encode(payload), resume_schema, label, **about(self._scope, self._call, "tool"))
        if decision["type"] == "decline":
            raise Declined(decision.get("reason", ""))
        return decision.get("value") if decision["type"] == "answer" else True

    def emit(self, value: Any) -> None:
        self._scope.emit("tool-output", {"call_id": self.call_id, "tool_name": self.tool_name, "output": encode(value)})


def about(scope: Any, call: Mapping[str, Any], kind: str) -> Dict[str, Any]:
    """What a suspension says of its call."""
    return {"kind": kind, "call_id": call["call_id"], "tool_name": call["name"], "args": call["args"],
            "agent_path": [scope.agent_name]}


def own_copy(value: Any) -> Any:
    """A copy of JSON, so that a tool that changes its arguments changes nothing else."""
    if isinstance(value, dict):
        return {key: own_copy(item) for key, item in value.items()}
    return [own_copy(item) for item in value] if isinstance(value, list) else value


def key_of(run_id: str, path: str) -> str:
    """The same for every run of one call, and different for any other call."""
    return sha256(("%s|%s" % (run_id, path)).encode()).hexdigest()[:32]
