"""The prepare-stream workflow.

::

    prepare-memory      whose conversation it is
    prepare-tools       names and schemas
    input-processors    process_input, each its own leaf
    agentic-loop        ModelLoop.stream() → loop()
    output-processors   process_output, each its own leaf
    map-results         RunState → FullOutput
"""

from __future__ import annotations

from typing import Any

from ...workflow.nodes import Mount, Workflow
from ..model_loop import ModelLoop
from .input_processors_step import create_input_processors_step
from .map_results_step import create_map_results_step
from .memory_step import create_memory_step
from .output_processors_step import create_output_processors_step
from .tools_step import create_tools_step


def create_prepare_stream(scope: Any) -> Workflow:
    model_loop = ModelLoop(scope.models)
    return Workflow("prepare-stream", [
        create_memory_step(),
        create_tools_step(),
        *create_input_processors_step(scope),
        Mount("agentic-loop", model_loop.stream),
        *create_output_processors_step(scope),
        create_map_results_step(),
    ])
