"""minagent: agents for synchronous Python programs.

Names are loaded on first use; importing this package loads next to nothing else.
"""

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from .agent.agent import Agent as Agent
    from .agent.options import GenerateOptions as GenerateOptions
    from .agent.output import AgentStream as AgentStream
    from .chunks import Chunk as Chunk
    from .errors import MinagentError as MinagentError
    from .errors import ToolError as ToolError
    from .llm.base import LanguageModel as LanguageModel
    from .llm.base import ModelRequest as ModelRequest
    from .llm.base import ModelResponse as ModelResponse
    from .llm.openai_chat import OpenAIChat as OpenAIChat
    from .loop.limits import Limits as Limits
    from .loop.stop_conditions import has_tool_call as has_tool_call
    from .messages import FilePart as FilePart
    from .messages import Message as Message
    from .messages import ReasoningPart as ReasoningPart
    from .messages import TextPart as TextPart
    from .messages import ToolCallPart as ToolCallPart
    from .messages import ToolResultPart as ToolResultPart
    from .processors.base import Processor as Processor
    from .results import Answer as Answer
    from .results import Approve as Approve
    from .results import Decline as Decline
    from .results import FullOutput as FullOutput
    from .results import StepResult as StepResult
    from .results import Suspension as Suspension
    from .results import Tripwire as Tripwire
    from .results import Usage as Usage
    from .tools import Tool as Tool
    from .tools import ToolContext as ToolContext
    from .tools import tool as tool

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agent.agent", "GenerateOptions": "agent.options", "AgentStream": "agent.output", "Chunk": "chunks",
    "MinagentError": "errors", "ToolError": "errors", "LanguageModel": "llm.base", "ModelRequest": "llm.base",
    "ModelResponse": "llm.base", "OpenAIChat": "llm.openai_chat", "Limits": "loop.limits",
    "has_tool_call": "loop.stop_conditions", "FilePart": "messages", "Message": "messages",
    "ReasoningPart": "messages", "TextPart": "messages", "ToolCallPart": "messages", "ToolResultPart": "messages",
    "Processor": "processors.base", "Answer": "results", "Approve": "results", "Decline": "results",
    "FullOutput": "results", "StepResult": "results", "Suspension": "results", "Tripwire": "results",
    "Usage": "results", "Tool": "tools", "ToolContext": "tools", "tool": "tools",
}
__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
