"""agentic-loop: agentic-execution again and again, until nothing keeps it going.

An answer without tool calls ends the loop whatever finish word the provider used; calls go on.  What is not
here: limits that interrupt a run (`limits`).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ..workflow.nodes import DoWhile
from .agentic_execution import create_agentic_execution


def create_agentic_loop(scope: Any) -> DoWhile:
    return DoWhile("agentic-loop", create_agentic_execution(scope), goes_on)


def goes_on(value: Mapping[str, Any], scope: Any) -> bool:
    scope.verdict = verdict(value, scope)
    return scope.verdict is None


def verdict(value: Mapping[str, Any], scope: Any) -> Optional[str]:
    """Why the loop ends after a step, or None if it goes on."""
    if not (value["calls"] or value.get("paused") or value.get("arrived")):
        over = len(scope.state.steps) > scope.options["max_steps"]
        reason: str = value["finish_reason"]
        return "max-steps" if over else reason
    if scope.stop_when is not None and scope.stop_when(tuple(scope.state.steps)):
        return "stop"
    most = scope.options["max_steps"] + (1 if scope.options.get("final_answer_at_max_steps") else 0)
    return "max-steps" if len(scope.state.steps) >= most else None
