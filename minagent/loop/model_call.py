"""model-call: one attempt to get an answer, from the step's input to the held answer.

Order: process_input_step, process_llm_request, then the model (its transport retries first, then
process_api_error, then the next model of a fallback list; none of these once content was shown), every chunk
through process_output_stream, the answer recorded as held.  What is not here: whether it is accepted
(`review`) and its tools (`tool_call`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from ..errors import Abort, BadResponse, ConfigError, ModelError, Signal
from ..llm.base import LanguageModel, ModelCall, ModelRequest, ModelResponse, StreamPart
from ..messages import Message, ToolResultPart
from ..processors.base import StepInput
from ..workflow.nodes import Done, Step
from .answer import Answer, parts_of, response_to_dict
from .limits import check_model_call

#: Chunks that state a fact: watchers get them after the record that accepts the answer.
FACTS = ("tool-call",)


def create_model_call() -> Step:
    return Step("model-call", lambda ctx, value: _Attempt(ctx).run(), check=check_model_call)


class _Attempt:
    """One run of the leaf."""

    def __init__(self, ctx: Any):
        self.ctx = ctx
        self.scope = ctx.scope
        self.runner = ctx.scope.runner
        self.answer = Answer()
        self.shown = False
        self.called = False
        self.tries: List[Dict[str, Any]] = []  # failures that were got over
        self.abort: Optional[Abort] = None  # what a stream hook raised; the rest of the answer is taken unseen

    def run(self) -> Done:
        self.ctx.start([{"type": "attempt-started"}])
        try:
            return self._held(self._response(self._request()))
        except Abort as abort:
            return self._blocked(abort)
        except Signal as signal:
            signal.output = dict(signal.output or {}, **self._so_far())
            raise
        except ModelError as error:
            vars(error)["noted"] = self._so_far()
            raise

    def _so_far(self) -> Dict[str, Any]:
        """What is kept of an answer that did not come to its end."""
        message = self.answer.message()
        so_far: Dict[str, Any] = {"message": message.to_dict()} if message.parts else {}
        if self.tries:
            so_far["tries"] = self.tries
        return so_far

    # What goes out.

    def _request(self) -> Union[ModelRequest, ModelResponse]:
        scope = self.scope
        step_input = self.runner.process_input_step(StepInput(
            conversation(scope), scope.options.get("system_text", ""), scope.models[0], scope.active_tools(),
            tool_choice(scope), scope.settings()))
        self.models = self._models(step_input.model)
        frame = scope.frame(self.models[0].model, step_input.system, scope.specs(tuple(step_input.active_tools)),
                            step_input.tool_choice, step_input.settings)
        request: Union[ModelRequest, ModelResponse] = self.runner.process_llm_request(
            ModelRequest(frame, step_input.messages))
        return request

    def _models(self, chosen: Any) -> List[LanguageModel]:
        """The agent's models, or the one that a hook chose."""
        models: List[LanguageModel] = self.scope.models
        if chosen is models[0]:
            return models
        from ..llm.resolve import resolve

        return [resolve(chosen)]

    # What comes back.

    def _response(self, request: Union[ModelRequest, ModelResponse]) -> ModelResponse:
        if isinstance(request, ModelResponse):
            self._take_all([list(parts_of(request))])
            return self.answer.response(request.model).replace(cached=True)
        for position, model in enumerate(self.models):
            try:
                return self._recovered(model, request)
            except ModelError as error:
                if self.shown or position + 1 == len(self.models):
                    raise
                self._fall_back(model, self.models[position + 1], error)
        raise ConfigError("the agent has no model; pass model=")

    def _fall_back(self, model: LanguageModel, following: LanguageModel, error: ModelError) -> None:
        self.scope.logger.warning("model %s failed (%s); going on with %s", model.model, error, following.model)
        self._got_over(model, error)
        self.scope.emit("model-fallback", {"from_model": model.model, "to_model": following.model})

    def _recovered(self, model: LanguageModel, request: ModelRequest) -> ModelResponse:
        try:
            return self._once(model, request)
        except ModelError as error:
            changed = None if self.shown else self.runner.process_api_error(error, request)
            if changed is None:
                raise
            self._got_over(model, error)
            return self._once(model, changed)

    def _got_over(self, model: LanguageModel, error: Exception) -> None:
        """Remember a failure after which the attempt went on."""
        self.tries.append({"model": model.model, "error": "%s: %.500s" % (type(error).__name__, error)})

    def _once(self, model: LanguageModel, request: ModelRequest) -> ModelResponse:
        self.answer = Answer()
        self.called = True
        if request.frame.model != model.model:
            request = request.with_frame(model=model.model)
        self.frame = request.frame
        parts = model.do_stream(request, self._call(model))
        try:
            self._take_all(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        if self.answer.end is None:
            raise BadResponse("model %s ended its answer without a finish part" % model.model)
        if self.answer.end.get("finish_reason") == "error":
            raise BadResponse("model %s ended its answer with an error (%r)"
                              % (model.model, self.answer.end.get("raw_finish_reason")))
        return self.answer.response(model.model)

    def _call(self, model: LanguageModel) -> ModelCall:
        scope = self.scope
        return ModelCall(scope.sink.watched or model.must_stream, scope.options.get("retries", 2), scope.deadline,
                         scope.cancel, partial(self._on_retry, model), scope.request_context)

    def _on_retry(self, model: LanguageModel, attempt: int, seconds: float, error: Exception) -> None:
        self._got_over(model, error)
        self.scope.emit("retry", {"attempt": attempt, "wait_seconds": seconds, "error": str(error)})

    def _take_all(self, batches: Iterable[Sequence[StreamPart]]) -> None:
        """Take an answer; after an abort unseen to its end, for what it cost and for the model to see it whole."""
        try:
            for batch in batches:
                self._take(batch)
        except (ModelError, Signal):
            if self.abort is None:
                raise
        if self.abort is not None:
            raise self.abort

    def _take(self, batch: Sequence[StreamPart]) -> None:
        """Take what one network read brought."""
        watched, rewritten = self.scope.sink.watched, self.runner.rewrites_stream
        if self.abort is not None or not (watched or rewritten):
            for type, payload in batch:
                self.answer.feed(type, payload)
            return
        chunks = []
        for type, payload in batch:
            if type == "finish":
                self.answer.feed(type, payload)
                continue
            chunk = self.scope.chunk(type, payload)
            for let in self._let_through(chunk) if rewritten else (chunk,):
                self.answer.feed(let.type, let.payload)
                if let.type not in FACTS:
                    chunks.append(let)
        if watched and chunks:
            self.shown = True
            self.scope.sink.send(chunks)

    def _let_through(self, chunk: Any) -> Sequence[Any]:
        if self.abort is not None:
            self.answer.feed(chunk.type, chunk.payload)
            return ()
        try:
            let: Sequence[Any] = self.runner.process_output_stream(chunk)
        except Abort as abort:
            self.abort = abort
            return self._let_through(chunk)
        if len(let) != 1 or (let[0] is not chunk and let[0] != chunk):
            self.answer.edited.add(str(chunk.payload.get("call_id") or chunk.payload.get("id", "")))
        return let

    # What is recorded.

    def _held(self, response: ModelResponse) -> Done:
        output = response_to_dict(response)
        if self.tries:
            output["tries"] = self.tries
        self._name_frame(output)
        changes: List[Dict[str, Any]] = [{"type": "usage-added"}, {"type": "answer-held"}]
        if not self.runner.reviews:
            changes.append({"type": "answer-accepted"})
        return Done(output, changes + self.runner.state_changes())

    def _name_frame(self, output: Dict[str, Any]) -> None:
        """What the request was framed with, as a blob that is written once."""
        if self.called and self.scope.keeps:
            output["frame"] = self.scope.frame_blob(self.frame)

    def _blocked(self, abort: Abort) -> Done:
        """A hook blocked: review turns an answer down that may be asked for again, else the run is over."""
        used = self.answer.end.get("usage") if self.answer.end else None
        usage = used.to_dict() if used is not None else {} if self.called else {"input_tokens": 0, "output_tokens": 0}
        if abort.output.get("retry") and abort.output.get("hook") == "process_output_stream":
            message = self.answer.message().to_dict()
            return Done({"message": message, "finish_reason": "error", "usage": usage, "rejected_by": abort.output},
                        [{"type": "usage-added"}, {"type": "answer-held"}, *self.runner.state_changes()])
        abort.output = dict(abort.output, usage=usage)
        if self.called:
            abort.output["message"] = self.answer.message().to_dict()
        abort.changes = [{"type": "usage-added"}, *self.runner.state_changes(), *abort.changes]
        raise abort


def conversation(scope: Any) -> List[Message]:
    """The messages of a request: context, history, and this step's rejected answers with the reasons."""
    state = scope.state
    messages = [Message.from_dict(item) for item in scope.options.get("context") or ()]
    messages.extend(state.messages)
    for rejected in state.open.rejected if state.open is not None else ():
        messages.extend(_rejection(rejected))
    return messages


def _rejection(rejected: Dict[str, Any]) -> List[Message]:
    """A rejected answer as the model sees it: the answer, and why it was not taken."""
    answer = Message.from_dict(rejected["message"])
    reason = "Your last answer was rejected: %s" % rejected["reason"]
    if answer.tool_calls:
        results = [ToolResultPart(call.call_id, call.name, "not run: " + reason, True, "cancelled")
                   for call in answer.tool_calls]
        return [answer, Message.tool(results)]
    told = Message.user(reason + "\nAnswer again.")
    return [answer, told] if answer.parts else [told]


def tool_choice(scope: Any) -> Any:
    """The asked choice; "none" for the last answer after max_steps."""
    if scope.speaks_last:
        return "none"
    return scope.options.get("tool_choice") or "auto"


