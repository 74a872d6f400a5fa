"""output-processors: process_output of each processor that has it, last registered first, each a leaf.

They are asked when the loop has ended by itself: not for a run that waits, was interrupted or tripped.
"""

from __future__ import annotations

from typing import Any, List

from ...schema import encode
from ...workflow.nodes import Done, Node, Step, Workflow
from ..output import full_output
from .map_results_step import finish_reason_of

EDITABLE = ("text", "object", "metadata")


def create_output_processors_step(scope: Any) -> List[Node]:
    """The node, in a list; an empty list if no processor has the hook."""
    ids = scope.runner.ids("process_output")
    if not ids:
        return []
    return [Workflow("output-processors", [
        Step(id, process_output(id), join=lambda value, output: value) for id in ids])]


def process_output(id: str) -> Any:
    """The leaf's body: records what the hook changed."""

    def run(ctx: Any, value: Any) -> Done:
        scope = ctx.scope
        before = full_output(scope.state, finish_reason_of(value, scope))
        after = scope.runner.process_output(id, before)
        output = {name: encode(getattr(after, name)) for name in EDITABLE
                  if getattr(after, name) != getattr(before, name)}
        changes = [{"type": "output-edited"}] if output else []
        return Done(output or None, changes + scope.runner.state_changes())

    return run
