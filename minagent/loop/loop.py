"""loop(): builds the agentic loop and drives it into the run's sink.

There is one loop: generate, stream, resume and background work differ only in the sink, and in whether the
journal already has entries.
"""

from __future__ import annotations

from typing import Any, Callable

from .agentic_loop import create_agentic_loop


def loop(scope: Any, value: Any, drive: Callable[[Any, Any], Any]) -> Any:
    """Drive the agentic loop; returns what its last iteration handed on.

    Parameters:
        scope: The live side of the run.
        value: What prepare-stream handed on.
        drive: ``drive(node, value)`` visits a node in the run's journal.
    """
    return drive(create_agentic_loop(scope), value)
