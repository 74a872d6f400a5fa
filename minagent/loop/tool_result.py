"""Tool results: what a tool returned or raised, as the one result of its call.

Large texts are cut head and tail for the model and kept whole in the run's blobs, where the built-in tool
`read_tool_result` reads them.
"""

from __future__ import annotations

from json import dumps
from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import ToolError
from ..messages import FilePart, TextPart, ToolResultPart
from ..schema import encode
from ..tools import Tool, ToolContext, ToolPolicy
from .scope import READ_TOOL

Json = Dict[str, Any]

#: Longest text of a result that a model gets, in characters; and how much of a cut one's head and tail.
MAX_CHARACTERS = 64 * 1024
HEAD, TAIL = 24 * 1024, 8 * 1024


def success(scope: Any, call: Mapping[str, Any], value: Any) -> Json:
    """The result for a value that a tool returned, as JSON.

    Raises:
        EncodeError: If the value is no JSON.
    """
    parts = _parts(value)
    if parts:
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        part = ToolResultPart(call["call_id"], call["name"], "\n".join(texts), content=parts)
        return part.to_dict()
    return _fitted(scope, ToolResultPart(call["call_id"], call["name"], encode(value)).to_dict())


def _parts(value: Any) -> Tuple[Any, ...]:
    """The parts of a multimodal value, or none."""
    items = value if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") else [value]
    if items and all(isinstance(item, (FilePart, TextPart)) for item in items):
        return tuple(items)
    return ()


def failure(scope: Any, call: Mapping[str, Any], message: str, kind: str) -> Json:
    """The result for a call that failed."""
    return _fitted(scope, ToolResultPart(call["call_id"], call["name"], message, True, kind).to_dict())


def raised(scope: Any, call: Mapping[str, Any], error: BaseException) -> Json:
    """The result for an exception that a tool raised."""
    message = str(error) if isinstance(error, ToolError) else "%s: %s" % (type(error).__name__, error)
    return failure(scope, call, encode(message), "exception")


def _fitted(scope: Any, result: Json) -> Json:
    output = result["output"]
    if output is None or isinstance(output, (bool, int, float)):
        return result
    text = output if isinstance(output, str) else dumps(output, ensure_ascii=False)
    if len(text) <= MAX_CHARACTERS or result["name"] == READ_TOOL:
        return result
    note = ("\n[%d of %d characters cut; %s(call_id=%r, offset=%d) reads on]\n"
            % (len(text) - HEAD - TAIL, len(text), READ_TOOL, result["call_id"], HEAD))
    cut = {"blob": scope.lease.put_blob(text.encode("utf-8", "replace")), "characters": len(text)}
    return dict(result, output=text[:HEAD] + note + text[-TAIL:], cut=cut)


def create_read_tool(scope: Any) -> Tool:
    """The built-in tool that reads what was cut; it is offered once something was."""

    def read_tool_result(call_id: str, offset: int = 0, ctx: Optional[ToolContext] = None) -> str:
        """Read more of a tool result that was cut.

        Args:
            call_id: The call whose result was cut.
            offset: First character to read.
        """
        found = scope.state.cut.get(call_id)
        if found is None:
            raise ToolError("no result of call %r was cut; cut ones: %s" % (call_id, ", ".join(scope.state.cut)))
        text = scope.lease.get_blob(found["blob"]).decode("utf-8")
        piece = text[max(0, offset):max(0, offset) + HEAD]
        end = max(0, offset) + len(piece)
        return "%s\n[characters %d to %d of %d]" % (piece, max(0, offset), end, len(text))

    return Tool(read_tool_result, name=READ_TOOL, policy=ToolPolicy(effect="read"))
