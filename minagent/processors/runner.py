"""Calls the hooks of a run's processors: in order, one at a time, with one meaning of abort and exceptions.

The overridden hooks are listed once per run; a hook that nobody overrides costs nothing.  What is not here:
what an abort does to the run (the leaves of `loop` and `agent` decide that).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ..chunks import Chunk
from ..errors import Abort, ConfigError, EncodeError, ModelError, ProcessorError, did_you_mean
from ..llm.base import ModelRequest, ModelResponse
from ..messages import Message, ToolResultPart
from ..results import FullOutput
from .base import HOOKS, OUTPUT_HOOKS, Processor, ProcessorContext, StepInput

Hook = Tuple[Any, ProcessorContext]


def processor_id(processor: Any) -> str:
    """The processor's id, by default the name of its class."""
    return getattr(processor, "id", "") or type(processor).__name__


def checked(processors: Sequence[Any]) -> List[Any]:
    """Return the processors as a list.

    Raises:
        ConfigError: If two have one id, or something is not a processor.
    """
    if isinstance(processors, str) or not isinstance(processors, Iterable):
        raise ConfigError("processors is %r; expected a list of objects with hooks" % (processors,))
    seen: Dict[str, Any] = {}
    for processor in processors:
        if isinstance(processor, type) or not any(hasattr(processor, hook) for hook in HOOKS):
            raise ConfigError("processors=[...] holds %r; expected objects with hooks such as process_input "
                              "(an instance, not a class)" % (processor,))
        _refuse_misspelt(processor)
        name = processor_id(processor)
        if "/" in name:
            raise ConfigError("a processor has the id %r; expected text without '/'" % name)
        if name in seen:
            raise ConfigError("two processors have the id %r: %r and %r; set another id on one of them"
                              % (name, seen[name], processor))
        seen[name] = processor
    return list(processors)


def _refuse_misspelt(processor: Any) -> None:
    """A guardrail whose hook is misspelt would let everything through."""
    for name in dir(type(processor)):
        if name.startswith("process_") and name not in HOOKS:
            near = did_you_mean(name, HOOKS, 0.85)
            if near:
                raise ConfigError("%s has the method %r, which is no hook%s" % (type(processor).__name__, name, near))


def overrides(processor: Any, hook: str) -> bool:
    """Whether a processor has a hook of its own."""
    found = getattr(processor, hook, None)
    return found is not None and getattr(found, "__func__", found) is not getattr(Processor, hook)


class Runner:
    """The processors of one run.

    Attributes:
        rewrites_stream: Whether some processor sees the chunks.
        reviews: Whether some processor may reject an answer.
        sees_results: Whether some processor sees tool results.
    """

    def __init__(self, processors: Sequence[Any], scope: Any):
        self.contexts = {processor_id(item): ProcessorContext(processor_id(item), scope) for item in processors}
        hooked: Dict[str, List[Hook]] = {hook: [] for hook in HOOKS}
        for processor in processors:
            for hook in HOOKS:
                if overrides(processor, hook):
                    hooked[hook].append((processor, self.contexts[processor_id(processor)]))
        for hook in OUTPUT_HOOKS:
            hooked[hook].reverse()
        self._hooked = hooked
        self._stream = hooked["process_output_stream"]
        self.rewrites_stream = bool(self._stream)
        self.reviews = bool(hooked["process_llm_response"] or self._stream)
        self.sees_results = bool(hooked["process_tool_result"])
        self._recorded: Dict[str, str] = {}
        self._fail_open = {processor_id(item) for item in processors if getattr(item, "fail_open", False)}

    def ids(self, hook: str) -> List[str]:
        """Ids of the processors that override a hook, in the order of their calls."""
        return [ctx.id for _, ctx in self._hooked[hook]]

    # The hooks, by name.

    def tools(self) -> List[Any]:
        found: List[Any] = []
        for processor, ctx in self._hooked["tools"]:
            found.extend(self._list("tools", processor.tools, ctx, (), object))
        return found

    def process_input(self, id: str, messages: List[Message]) -> List[Message]:
        processor, ctx = self._find("process_input", id)
        return self._list("process_input", processor.process_input, ctx, (messages,), Message)

    def process_input_step(self, step_input: StepInput) -> StepInput:
        for processor, ctx in self._hooked["process_input_step"]:
            step_input = self._call("process_input_step", processor.process_input_step, ctx, (step_input,), StepInput)
        return step_input

    def process_llm_request(self, request: ModelRequest) -> Union[ModelRequest, ModelResponse]:
        for processor, ctx in self._hooked["process_llm_request"]:
            answer = self._call("process_llm_request", processor.process_llm_request, ctx, (request,),
                                (ModelRequest, ModelResponse))
            if isinstance(answer, ModelResponse):
                return replace(answer, cached=True)
            request = answer
        return request

    def process_output_stream(self, chunk: Chunk) -> List[Chunk]:
        chunks = [chunk]
        for processor, ctx in self._stream:
            passed: List[Chunk] = []
            for item in chunks:
                let = self._call("process_output_stream", processor.process_output_stream, ctx, (item,),
                                 (Chunk, list, type(None)))
                if type(let) is list:
                    self._check_items("process_output_stream", ctx, let, Chunk)
                passed.extend(let if type(let) is list else () if let is None else (let,))
            chunks = passed
        return chunks

    def process_llm_response(self, response: ModelResponse) -> ModelResponse:
        for processor, ctx in self._hooked["process_llm_response"]:
            response = self._call("process_llm_response", processor.process_llm_response, ctx, (response,),
                                  ModelResponse)
        return response

    def process_tool_result(self, result: ToolResultPart) -> ToolResultPart:
        for processor, ctx in self._hooked["process_tool_result"]:
            try:
                result = self._call("process_tool_result", processor.process_tool_result, ctx, (result,),
                                    ToolResultPart)
            except Abort as abort:
                if not abort.output.get("retry"):
                    raise
                result = replace(result, output=abort.reason, is_error=True, kind="exception", content=())
        return result

    def process_output(self, id: str, output: FullOutput[Any]) -> FullOutput[Any]:
        processor, ctx = self._find("process_output", id)
        edited: FullOutput[Any] = self._call("process_output", processor.process_output, ctx, (output,), FullOutput)
        return edited

    def process_api_error(self, error: ModelError, request: ModelRequest) -> Optional[ModelRequest]:
        for processor, ctx in self._hooked["process_api_error"]:
            changed = self._call("process_api_error", processor.process_api_error, ctx, (error, request),
                                 (ModelRequest, type(None)))
            if changed is not None:
                request = changed
                return request
        return None

    def state_changes(self) -> List[Dict[str, Any]]:
        """Changes for the states that hooks have touched since the last call.

        Raises:
            ProcessorError: If a state is no JSON.
        """
        changes = []
        for id, ctx in self.contexts.items():
            if ctx._state is not None:
                text = self._encoded(id, ctx)
                if text != self._recorded.get(id, "{}"):
                    self._recorded[id] = text
                    changes.append({"type": "processor-state", "id": id, "value": json.loads(text)})
        return changes

    @staticmethod
    def _encoded(id: str, ctx: ProcessorContext) -> str:
        try:
            return json.dumps(ctx._state, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ProcessorError("ctx.state of processor %r holds what is no JSON: %s; keep only JSON values there"
                                 % (id, error), id, ctx.hook) from EncodeError(str(error))

    def _find(self, hook: str, id: str) -> Hook:
        return next(item for item in self._hooked[hook] if item[1].id == id)

    def _call(self, hook: str, method: Callable[..., Any], ctx: ProcessorContext, given: Tuple[Any, ...],
              expected: Any) -> Any:
        ctx.hook = hook
        try:
            answer = method(*given, ctx)
        except Exception as error:
            if ctx.id in self._fail_open and given:
                ctx.logger.exception("processor %r failed in %s; its input is let through", ctx.id, hook)
                return None if hook == "process_api_error" else given[0]
            raise ProcessorError("processor %r failed in %s: %s: %s"
                                 % (ctx.id, hook, type(error).__name__, error), ctx.id, hook) from error
        if not isinstance(answer, expected):
            raise _wrong(ctx, hook, type(answer).__name__, _names(expected))
        return answer

    def _list(self, hook: str, method: Callable[..., Any], ctx: ProcessorContext, given: Tuple[Any, ...],
              kind: Any) -> List[Any]:
        answer = self._call(hook, method, ctx, given, (list, tuple))
        self._check_items(hook, ctx, answer, kind)
        return list(answer)

    @staticmethod
    def _check_items(hook: str, ctx: ProcessorContext, items: Sequence[Any], kind: Any) -> None:
        for item in items:
            if not isinstance(item, kind):
                raise _wrong(ctx, hook, "%s in a list" % type(item).__name__, "a list of " + kind.__name__)


def _wrong(ctx: ProcessorContext, hook: str, found: str, expected: str) -> ProcessorError:
    return ProcessorError("processor %r returned %r from %s; expected %s; return the argument to change nothing"
                          % (ctx.id, found, hook, expected), ctx.id, hook)


def _names(expected: Any) -> str:
    kinds = expected if isinstance(expected, tuple) else (expected,)
    return " or ".join("None" if kind is type(None) else getattr(kind, "__name__", str(kind)) for kind in kinds)
