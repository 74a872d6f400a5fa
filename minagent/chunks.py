"""Chunks: what a watcher sees while a run happens.

A chunk is never stored and never read back; what must survive is in the journal.  The types and the keys of
their payloads are listed in `CHUNK_TYPES`; ``data-*`` types belong to hooks and tools.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple

#: Chunk type -> the keys of its payload.  A sub-agent's chunks also have `agent_path`.
CHUNK_TYPES: Dict[str, str] = {
    "start": "resumed",
    "step-start": "attempt",
    "text-start": "id",
    "text-delta": "id text",
    "text-end": "id",
    "reasoning-start": "id",
    "reasoning-delta": "id text",
    "reasoning-end": "id",
    "tool-call-input-streaming-start": "call_id tool_name",
    "tool-call-delta": "call_id tool_name args_text",
    "tool-call-input-streaming-end": "call_id tool_name",
    "tool-call": "call_id tool_name args",
    "tool-call-approval": "suspension",
    "tool-call-suspended": "suspension",
    "tool-output": "call_id tool_name output",
    "tool-result": "call_id tool_name output",
    "tool-error": "call_id tool_name error kind",
    "tool-output-denied": "call_id tool_name reason",
    "background-task-started": "call_id tool_name",
    "background-task-completed": "call_id tool_name output",
    "background-task-failed": "call_id tool_name error",
    "source": "value",
    "file": "value",
    "object": "value",
    "retry": "attempt wait_seconds error",
    "model-fallback": "from_model to_model",
    "step-finish": "step",
    "tripwire": "tripwire",
    "error": "error",
    "abort": "reason",
    "finish": "output",
}

#: A stream ends with exactly one of these.
LAST_TYPES = ("finish", "error", "abort")


class Chunk(NamedTuple):
    """One thing that happened.

    Attributes:
        type: One of `CHUNK_TYPES`, or ``data-...``.
        run_id: The run.
        step: Index of the step, from 1; 0 before the first one.
        payload: See `CHUNK_TYPES`.
        seq: The journal's last sequence number when the chunk was made.
    """

    type: str
    run_id: str
    step: int
    payload: Mapping[str, Any]
    seq: int

    def to_dict(self) -> Dict[str, Any]:
        """A JSON-able dict; values in the payload that have `to_dict` are written by it."""
        return {"type": self.type, "run_id": self.run_id, "step": self.step, "seq": self.seq,
                "payload": {key: _plain(value) for key, value in self.payload.items()}}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, BaseException):
        return {"type": type(value).__name__, "message": str(value)}
    return value
