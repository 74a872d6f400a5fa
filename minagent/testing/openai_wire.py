"""Turns in the spelling of OpenAI's Chat Completions, for `ScriptedServer.openai_chat`.

Not here: the adapter that reads them (`llm.openai_chat`); this file is written from the API's description
alone, so that the two check each other.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type

from ..errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
    ContentFiltered,
    ContextLengthExceeded,
    ModelError,
    ModelUnreachable,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    TruncatedStream,
)
from ..results import Usage
from .replies import Reply, ServedRequest
from .turns import Script, Turn, pieces

#: Error -> (status, code) of the answer that leads to it; the first class that fits decides.
REFUSALS: Tuple[Tuple[Type[ModelError], int, Optional[str]], ...] = (
    (AuthenticationFailed, 401, "invalid_api_key"),
    (ContextLengthExceeded, 400, "context_length_exceeded"),
    (ContentFiltered, 400, "content_filter"),
    (BadRequest, 400, "invalid_request_error"),
    (QuotaExhausted, 429, "insufficient_quota"),
    (RateLimited, 429, "rate_limit_exceeded"),
    (Overloaded, 503, "server_error"),
)


class ChatScript:
    """Answers Chat Completions requests by a script; what `ScriptedServer` takes as its replies."""

    def __init__(self, turns: Any, loop: bool = False, by_step: bool = False):
        self._script = Script(turns, loop, by_step)
        self._lock = threading.Lock()  # guards _count
        self._count = 0

    def __call__(self, request: ServedRequest) -> Reply:
        body = request.json if isinstance(request.json, dict) else {}
        with self._lock:
            index, self._count = self._count, self._count + 1
        answers = sum([item.get("role") == "assistant" for item in body.get("messages", ())])
        try:
            turn = self._script.turn(body, index, answers)
        except ConfigError as error:
            return Reply.json({"error": {"message": str(error)}}, 599)
        return replace(chat_reply(turn, body, answers + 1), before=turn.gate)


def chat_reply(turn: Turn, body: Dict[str, Any], step: int = 1) -> Reply:
    """Return the answer that says a turn, streamed if the request asks for it.

    Parameters:
        turn: What to say.
        body: The request.
        step: Goes into the ids of calls.
    """
    if turn.error is not None and not (turn.text and body.get("stream")):
        return _refusal(turn.error)
    model = body.get("model", "scripted")
    if not body.get("stream"):
        return Reply.json(_answer(turn, model, step))
    events = list(_chunks(turn, model, step, bool((body.get("stream_options") or {}).get("include_usage"))))
    if isinstance(turn.error, (TruncatedStream, ModelUnreachable)):
        return Reply.sse(events, done=False, end="disconnect")
    return Reply.sse(events, done=turn.error is None)


def _refusal(error: BaseException) -> Reply:
    if isinstance(error, (TruncatedStream, ModelUnreachable)):
        return Reply(end="reset")
    if not isinstance(error, ModelError) or _usual(error) == (0, None):
        return Reply.json({"error": {"message": "a server cannot fail with %r" % (error,)}}, 599)
    headers = {} if error.retry_after is None else {"retry-after": "%g" % error.retry_after}
    return Reply.json(_error(error), _usual(error)[0], headers=headers)


def _usual(error: BaseException) -> Tuple[int, Optional[str]]:
    """The status and code of an error: its own, or those of its class."""
    status, code = getattr(error, "status", None), getattr(error, "code", None)
    for kind, usual_status, usual_code in REFUSALS:
        if isinstance(error, kind):
            return status or usual_status, code or usual_code
    return status or 0, code


def _error(error: BaseException) -> Dict[str, Any]:
    return {"error": {"message": str(error), "type": "scripted", "param": None, "code": _usual(error)[1]}}


def _answer(turn: Turn, model: str, step: int) -> Dict[str, Any]:
    message: Dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [_call(turn, index, step) for index in range(len(turn.calls))]
    return {"id": "chatcmpl-%d" % step, "object": "chat.completion", "created": 0, "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(turn)}],
            "usage": _usage(turn.usage)}


def _call(turn: Turn, index: int, step: int) -> Dict[str, Any]:
    made = turn.calls[index]
    call_id = "call_%d_%d" % (step, index + 1) if made.call_id is None else made.call_id
    return {"id": call_id, "type": "function", "function": {"name": made.name, "arguments": made.raw_args}}


def _finish(turn: Turn) -> str:
    return turn.finish.replace("-", "_")


def _usage(usage: Usage) -> Dict[str, Any]:
    data: Dict[str, Any] = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
                            "total_tokens": usage.total_tokens}
    if usage.cached_input_tokens is not None:
        data["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        data["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return data


def _chunks(turn: Turn, model: str, step: int, with_usage: bool) -> Iterator[Dict[str, Any]]:
    def chunk(choices: List[Any], **members: Any) -> Dict[str, Any]:
        return dict({"id": "chatcmpl-%d" % step, "object": "chat.completion.chunk", "created": 0,
                     "model": model, "choices": choices}, **members)

    for delta in _deltas(turn, step):
        yield chunk([{"index": 0, "delta": delta, "finish_reason": None}])
    if turn.error is not None:
        if not isinstance(turn.error, (TruncatedStream, ModelUnreachable)):
            yield _error(turn.error)
        return
    yield chunk([{"index": 0, "delta": {}, "finish_reason": _finish(turn)}])
    if with_usage:
        yield chunk([], usage=_usage(turn.usage))


def _deltas(turn: Turn, step: int) -> Iterator[Dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for text in pieces(turn.reasoning):
        yield {"reasoning_content": text}
    for text in pieces(turn.text):
        yield {"content": text}
    for index in range(len(turn.calls)):
        made = _call(turn, index, step)
        raw_args = made["function"].pop("arguments")
        made["function"]["arguments"] = ""
        yield {"tool_calls": [dict(made, index=index)]}
        for text in pieces(raw_args):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
