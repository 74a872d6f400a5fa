"""map-results: the run's end, from which its FullOutput is built (`agent.output`)."""

from __future__ import annotations

from typing import Any

from ...loop.agentic_loop import verdict
from ...workflow.nodes import Done, Step


def create_map_results_step() -> Step:
    return Step("map-results", map_results, check=lambda ctx: None)  # nothing is left that could be stopped


def map_results(ctx: Any, value: Any) -> Done:
    return Done({"finish_reason": finish_reason_of(value, ctx.scope)}, [{"type": "finished"}])


def finish_reason_of(value: Any, scope: Any) -> str:
    """Why the loop ended: what it said at this start, or what it would say again."""
    return scope.verdict or verdict(value, scope) or "stop"
