"""What a processor is: a plain class with an id and hooks that do nothing unless overridden.

What is not here: calling the hooks (`runner`) and any processor of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from ..chunks import Chunk
from ..errors import Abort, ModelError
from ..llm.base import ModelRequest, ModelResponse, ToolChoice
from ..messages import Message, ToolResultPart
from ..results import FullOutput, Tripwire, Usage

INPUT_HOOKS = ("tools", "process_input", "process_input_step", "process_llm_request")
OUTPUT_HOOKS = ("process_output_stream", "process_llm_response", "process_tool_result", "process_output",
                "process_api_error")
HOOKS = INPUT_HOOKS + OUTPUT_HOOKS


@dataclass(frozen=True)
class StepInput:
    """What one attempt of a step starts from.

    Attributes:
        messages: The conversation, rejected attempts of this step and their reasons included.
        system: System text.
        model: A `LanguageModel`, or a string that names one.
        active_tools: Names of the tools that the model is told of.
        tool_choice: "auto", "none", "required" or ``{"name": ...}``.
        settings: Sampling settings, see `llm.base.SETTINGS`.
    """

    messages: Sequence[Message]
    system: str
    model: Any
    active_tools: Tuple[str, ...]
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def replace(self, **members: Any) -> StepInput:
        """Return a copy in which members are replaced."""
        return replace(self, **members)


class ProcessorContext:
    """What a hook may use; one object for each processor and run.

    Attributes:
        id: Of the processor.
        hook: Name of the hook that runs.
    """

    def __init__(self, id: str, scope: Any):
        self.id = id
        self.hook = ""
        self._scope = scope
        self._state: Optional[Dict[str, Any]] = None

    @property
    def run_id(self) -> str:
        run_id: str = self._scope.run_id
        return run_id

    @property
    def agent(self) -> str:
        """Name of the agent."""
        name: str = self._scope.agent_name
        return name

    @property
    def step(self) -> int:
        """Index of the step, from 1; 0 before the first."""
        step: int = self._scope.state.step
        return step

    @property
    def attempt(self) -> int:
        """Attempt within the step, from 1."""
        attempt: int = self._scope.state.attempt
        return attempt

    @property
    def state(self) -> Dict[str, Any]:
        """A JSON dict of this processor's, written with the record of the leaf in which the hook ran."""
        if self._state is None:
            self._state = self._scope.state.processor_state_of(self.id)
        return self._state

    @property
    def deps(self) -> Any:
        return self._scope.deps

    @property
    def request_context(self) -> Mapping[str, Any]:
        context: Mapping[str, Any] = self._scope.request_context
        return context

    @property
    def thread_id(self) -> Optional[str]:
        thread_id: Optional[str] = self._scope.options.get("thread_id")
        return thread_id

    @property
    def resource_id(self) -> Optional[str]:
        resource_id: Optional[str] = self._scope.options.get("resource_id")
        return resource_id

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far (read only)."""
        return tuple(self._scope.state.messages)

    @property
    def usage(self) -> Usage:
        """Of the run so far."""
        usage: Usage = self._scope.state.usage
        return usage

    @property
    def logger(self) -> Any:
        return self._scope.logger

    def remaining(self) -> Optional[float]:
        """Seconds until the run's deadline, or None."""
        seconds: Optional[float] = self._scope.deadline.remaining()
        return seconds

    def emit(self, type: str, value: Any) -> None:
        """Show a JSON value to watchers as a chunk whose type begins with ``data-``."""
        self._scope.emit_data(type, value)

    def abort(self, reason: str, retry: bool = False, metadata: Optional[Mapping[str, Any]] = None) -> NoReturn:
        """Stop the run: nothing more runs, and the result has finish_reason "tripwire".

        Parameters:
            reason: A sentence.
            retry: Where there is an answer to reject (`process_output_stream`, `process_llm_response`): show the
                model the answer and the reason, and ask again, up to `max_processor_retries` times.  In
                `process_tool_result`: the reason becomes the call's error result.
            metadata: JSON for whoever reads the result's tripwire.
        """
        tripwire = Tripwire("processor", reason, self.id, self.hook, retry, dict(metadata or {}))
        raise Abort(reason, tripwire.to_dict(), [{"type": "tripped"}])


class Processor:
    """Override any subset of the hooks; the defaults let everything through.

    Input-side hooks (up to `process_llm_request`) run in the order of registration, the others in reverse.  The
    hooks of one run are never called concurrently.  An ordinary exception stops the run with `ProcessorError`,
    unless `fail_open` is True.  Outside effects must be keyed: a hook may run again after a crash.

    Attributes:
        id: Unique among the processors of an agent; default: the name of the class.
        fail_open: Whether an exception in a hook is logged and its input let through.
    """

    id: str = ""
    fail_open: bool = False

    def tools(self, ctx: ProcessorContext) -> Sequence[Any]:
        """Return tools to add.  Called at every start of the run, resumes included."""
        return ()

    def process_input(self, messages: List[Message], ctx: ProcessorContext) -> Sequence[Message]:
        """Return the messages to start from.  Called once, before the loop; recorded, not called on resume."""
        return messages

    def process_input_step(self, step_input: StepInput, ctx: ProcessorContext) -> StepInput:
        """Return what to build the request from.  Called at every attempt of every step."""
        return step_input

    def process_llm_request(self, request: ModelRequest, ctx: ProcessorContext) -> Union[ModelRequest, ModelResponse]:
        """Return the request to send, or a response to use instead of calling the model."""
        return request

    def process_output_stream(self, chunk: Chunk, ctx: ProcessorContext) -> Union[Chunk, None, List[Chunk]]:
        """Return what becomes of a chunk that came from the model: a chunk, None, or several.

        The answer is assembled from what is let through.  Called without watchers, too.
        """
        return chunk

    def process_llm_response(self, response: ModelResponse, ctx: ProcessorContext) -> ModelResponse:
        """Return the answer to keep; text may be edited and calls dropped.  Called before its tools run."""
        return response

    def process_tool_result(self, result: ToolResultPart, ctx: ProcessorContext) -> ToolResultPart:
        """Return the result that enters the history.  Called for errors, too."""
        return result

    def process_output(self, output: FullOutput[Any], ctx: ProcessorContext) -> FullOutput[Any]:
        """Return the run's output; changes of text, object and metadata are kept.

        Called once, when the run ends with stop, length, max-steps or content-filter.
        """
        return output

    def process_api_error(self, error: ModelError, request: ModelRequest,
                          ctx: ProcessorContext) -> Optional[ModelRequest]:
        """Return a changed request to try once, or None.

        Called when a provider refused, the transport's retries are spent and nothing was shown to anybody.
        """
        return None
