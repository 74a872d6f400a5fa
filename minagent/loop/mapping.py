"""mapping: closes a step: results become a message, the turn a StepResult."""

from __future__ import annotations

from typing import Any

from ..workflow.nodes import Done, Step


def create_mapping() -> Step:
    # Unchecked: a step whose results are in is closed, also in a run that was told to stop meanwhile.
    return Step("mapping", finish_step, check=lambda ctx: None)


def finish_step(ctx: Any, value: Any) -> Done:
    """Record that the step is finished; what follows reads `calls` and `finish_reason`."""
    scope = ctx.scope
    calls = len(scope.state.calls)
    reason = scope.state.open.held.get("finish_reason", "stop")
    if calls:
        reason = "tool-calls"
    elif reason == "tool-calls":
        reason = "stop"
    scope.iterations += 1
    scope.claimed.clear()
    output = {"calls": calls, "finish_reason": "stop" if reason == "pause" else reason}
    if reason == "pause":
        output["paused"] = True
    return Done(output, [{"type": "step-finished"}])
