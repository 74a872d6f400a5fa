"""agentic-execution: one iteration of the loop.

::

    llm-execution   attempts of (model-call, review)
    tool-calls      for each call, in parallel: check, gate, run, process-result
    mapping         results to messages, the turn to a StepResult
    collect         finished background work
"""

from __future__ import annotations

from typing import Any, List

from ..workflow.nodes import DoWhile, ForEach, Node, Workflow
from .background import create_collect
from .mapping import create_mapping
from .model_call import create_model_call
from .review import asks_again, create_review
from .tool_call import calls_of, create_tool_call_node


def create_agentic_execution(scope: Any) -> Workflow:
    attempt: List[Node] = [create_model_call()]
    held = scope.state.open is not None and scope.state.open.held and not scope.state.open.accepted
    if scope.runner.reviews or held:  # an answer may have been held for processors that are gone
        attempt.append(create_review())
    return Workflow("agentic-execution", [
        DoWhile("llm-execution", Workflow("attempt", attempt), asks_again),
        ForEach("tool-calls", create_tool_call_node(scope), calls_of),
        create_mapping(),
        create_collect(),
    ])
