"""Histories that callers hand in: every call of an assistant message gets exactly one result.

A run that waited, was cancelled or lost its process leaves calls without results; a provider refuses such a
history.  What is not here: trimming, and what a run itself keeps (its state is always whole).
"""

from __future__ import annotations

from typing import Dict, List, Sequence

from ..messages import Message, ToolResultPart

NO_RESULT = "no result: the call had not ended when the conversation went on; check whether it took effect"


def completed(messages: Sequence[Message]) -> List[Message]:
    """The messages, with a result for each call that has none, right behind the results that there are."""
    whole: List[Message] = []
    missing: Dict[str, ToolResultPart] = {}
    for message in messages:
        if missing and message.role != "tool":
            whole.append(Message.tool(list(missing.values())))
            missing = {}
        for result in message.tool_results:
            missing.pop(result.call_id, None)
        whole.append(message)
        if message.role == "assistant":
            missing = {call.call_id: ToolResultPart(call.call_id, call.name, NO_RESULT, True, "cancelled")
                       for call in message.tool_calls}
    return whole + ([Message.tool(list(missing.values()))] if missing else [])
