"""input-processors: process_input of each processor that has it, each a leaf of its own."""

from __future__ import annotations

from typing import Any, List

from ...workflow.nodes import Done, Node, Step, Workflow


def create_input_processors_step(scope: Any) -> List[Node]:
    """The node, in a list; an empty list if no processor has the hook."""
    ids = scope.runner.ids("process_input")
    if not ids:
        return []
    return [Workflow("input-processors", [
        Step(id, process_input(id), join=lambda value, output: value) for id in ids])]


def process_input(id: str) -> Any:
    """The leaf's body: records the messages only if the hook changed them."""

    def run(ctx: Any, value: Any) -> Done:
        state, runner = ctx.scope.state, ctx.scope.runner
        messages = runner.process_input(id, list(state.messages))
        if messages == state.messages:
            return Done(None, runner.state_changes())
        output = {"messages": [message.to_dict() for message in messages]}
        return Done(output, [{"type": "input-added"}, *runner.state_changes()])

    return run
