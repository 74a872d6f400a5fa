"""review: whether a held answer is accepted, edited, rejected and asked for again, or ends the run.

The leaf is part of the plan only if some processor reviews answers; without one, model-call accepts its answer
in the same record.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..errors import Abort
from ..workflow.nodes import Done, Step
from .answer import response_from_dict


def create_review() -> Step:
    return Step("review", review, join=lambda value, output: dict(value, **output))


def review(ctx: Any, value: Mapping[str, Any]) -> Done:
    """Ask process_llm_response; the record holds only what was changed."""
    runner = ctx.scope.runner
    if ctx.scope.state.open.accepted:
        return Done({})  # recorded when no processor reviewed answers
    if "rejected_by" in value:
        return reject(ctx, Abort(value["rejected_by"]["reason"], value["rejected_by"], [{"type": "tripped"}]))
    held = response_from_dict(value)
    try:
        response = runner.process_llm_response(held)
    except Abort as abort:
        return reject(ctx, abort)
    output: Dict[str, Any] = {}
    if response.message != held.message:
        output["message"] = response.message.to_dict()
    if output or response.finish_reason != held.finish_reason:
        output["finish_reason"] = _reason(response)
    return Done(output, [{"type": "answer-accepted"}, *runner.state_changes()])


def _reason(response: Any) -> str:
    if response.message.tool_calls:
        return "tool-calls"
    reason: str = response.finish_reason
    return "stop" if reason == "tool-calls" else reason


def reject(ctx: Any, abort: Abort) -> Done:
    """Ask again while attempts are left, else end the run."""
    scope = ctx.scope
    used = len(scope.state.open.rejected)
    if not abort.output.get("retry") or used >= scope.options.get("max_processor_retries", 2):
        abort.changes = [*scope.runner.state_changes(), *abort.changes]
        raise abort
    return Done({"rejected": abort.output}, [{"type": "attempt-rejected"}, *scope.runner.state_changes()])


def asks_again(value: Mapping[str, Any], scope: Any) -> bool:
    """Whether llm-execution makes another attempt."""
    return "rejected" in value
