"""`ScriptedModel`: a language model that says what a script tells it to.

It is a real `LanguageModel` without a network: it yields the parts that a provider's adapter yields.  Not
here: bytes on a wire (`server` speaks the same turns over HTTP).
"""

from __future__ import annotations

import threading
from typing import Any, Iterator, List, Optional

from ..llm.base import LanguageModel, ModelCall, ModelRequest, StreamPart
from ..llm.wire import CallIds, parse_arguments
from .turns import Script, Turn, pieces


class ScriptedModel(LanguageModel):
    """A model that follows a script.  Safe to share between threads.

    Parameters:
        script: Turns in order (a string is `says`), or a function of the request that returns the turn.
        provider: Name of the provider it passes for.
        model: Name of the model it passes for.
        loop: Start again after the last turn instead of failing.
        by_step: Choose the turn by the number of assistant messages in the request, instead of by the number
            of requests so far.  Then any number of conversations can share the script.

    Attributes:
        requests: What it was asked, in order.
        streamed: For each of the requests, whether somebody watched.
    """

    def __init__(self, script: Any, provider: str = "scripted", model: str = "scripted", *,
                 loop: bool = False, by_step: bool = False):
        self.provider = provider
        self.model = model
        self.requests: List[ModelRequest] = []
        self.streamed: List[bool] = []
        self._script = Script(script, loop, by_step)
        self._lock = threading.Lock()  # guards requests and streamed

    def do_stream(self, request: ModelRequest, call: ModelCall) -> Iterator[List[StreamPart]]:
        """See `LanguageModel`.

        Raises:
            ConfigError: If the script has no turn left.
            BaseException: What the turn `fails` with.
        """
        call.check()
        turn = self._next_turn(request, call)
        _await(turn.gate, call)
        if call.stream:
            for parts in _streamed(turn, self.model, request):
                call.check()
                yield parts
        else:
            if turn.error is not None:
                raise turn.error
            yield [part for parts in _streamed(turn, self.model, request, count=1) for part in parts]

    def _next_turn(self, request: ModelRequest, call: ModelCall) -> Turn:
        with self._lock:
            self.requests.append(request)
            self.streamed.append(call.stream)
            index = len(self.requests) - 1
        return self._script.turn(request, index, _answers(request))


def _answers(request: ModelRequest) -> int:
    return sum([message.role == "assistant" for message in request.messages])


def _await(gate: Optional[threading.Event], call: ModelCall) -> None:
    while gate is not None and not gate.wait(0.01):
        call.check()


def _streamed(turn: Turn, model: str, request: ModelRequest, count: int = 3) -> Iterator[List[StreamPart]]:
    """The parts of a turn, one list for each read that a network would make of it."""
    if turn.reasoning:
        yield from _texts("reasoning", "reasoning-0", pieces(turn.reasoning, count))
    if turn.text:
        yield from _texts("text", "text-0", pieces(turn.text, count))
    if turn.error is not None:
        raise turn.error
    step = _answers(request) + 1
    ids = CallIds(lambda index: "call_%d_%d" % (step, index + 1))
    for scripted in turn.calls:
        yield from _call(ids.unique(scripted.call_id), scripted.name, scripted.raw_args, count)
    yield [("finish", {"finish_reason": turn.finish, "raw_finish_reason": turn.finish, "usage": turn.usage,
                       "model": model, "response_id": None, "warnings": [], "cost_usd": None})]


def _texts(kind: str, id: str, texts: List[str]) -> Iterator[List[StreamPart]]:
    parts: List[StreamPart] = [(kind + "-start", {"id": id})]
    for text in texts:
        yield [*parts, (kind + "-delta", {"id": id, "text": text})]
        parts = []
    yield [*parts, (kind + "-end", {"id": id})]


def _call(call_id: str, name: str, raw_args: str, count: int) -> Iterator[List[StreamPart]]:
    named = {"call_id": call_id, "tool_name": name}
    parts: List[StreamPart] = [("tool-call-input-streaming-start", dict(named))]
    for text in pieces(raw_args, count):
        yield [*parts, ("tool-call-delta", dict(named, args_text=text))]
        parts = []
    yield [*parts, ("tool-call-input-streaming-end", dict(named)),
           ("tool-call", dict(named, raw_args=raw_args, args=parse_arguments(raw_args)))]
