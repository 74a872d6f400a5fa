"""prepare-memory: whose conversation this is.

The thread's history is loaded by the memory processor, not here.
"""

from __future__ import annotations

from typing import Any, Dict

from ...workflow.nodes import Step


def create_memory_step() -> Step:
    return Step("prepare-memory", prepare_memory, join=lambda value, output: value)


def prepare_memory(ctx: Any, value: Any) -> Dict[str, Any]:
    """Record the thread and its owner."""
    options = ctx.scope.options
    return {name: options[name] for name in ("thread_id", "resource_id") if options.get(name)}
