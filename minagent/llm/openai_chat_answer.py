"""OpenAI Chat Completions, incoming: answers and events as the parts of `base`.

A plain answer is read like a stream of one event.  Written for what servers of this API really send: calls
without index or id, one index for all, arguments as objects, reasoning under three names, usage anywhere.
Not here: HTTP, and what is asked (`openai_chat_request`).
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..errors import BadResponse
from ..results import Usage
from .base import StreamPart
from .wire import CallIds, parse_arguments, strict_arguments

Json = Mapping[str, Any]

#: The provider's finish word -> ours.  Calls make it "tool-calls" whatever the word is.
FINISH = {"stop": "stop", "eos": "stop", "end_turn": "stop", "stop_sequence": "stop", "length": "length",
          "max_tokens": "length", "model_length": "length", "content_filter": "content-filter",
          "tool_calls": "tool-calls", "function_call": "tool-calls", "error": "error"}


class ChatAnswer:
    """One answer while it arrives.

    Parameters:
        provider: Name under which what must be echoed is kept.
        model: Name of the model that was asked.

    Attributes:
        finish_word: The provider's finish word, or None before it came.
        started: Whether any choice was seen.
        warnings: Sentences.
    """

    def __init__(self, provider: str, model: str):
        self.finish_word: Optional[str] = None
        self.started = False
        self.warnings: List[str] = []
        self._provider = provider
        self._model = model
        self._response_id: Optional[str] = None
        self._usage: Json = {}
        self._open: Optional[str] = None  # Id of the text or reasoning that is being written.
        self._blocks = 0
        self._metadata: Dict[str, Any] = {}  # Of the open text or reasoning.
        self._details: List[Dict[str, Any]] = []
        self._calls = _Calls(provider)
        self._sources: Dict[str, Dict[str, Any]] = {}

    def feed(self, event: Json) -> List[StreamPart]:
        """Return the parts of an event.  Its errors have been looked for.

        Raises:
            BadResponse: If what should hold the answer is of another type.
        """
        # Cumulative where it comes more than once.
        self._usage = _object(event.get("usage")) or _object(_object(event.get("x_groq")).get("usage")) or self._usage
        if self._response_id is None:
            self._response_id = _text(event.get("id")) or None
            self._model = _text(event.get("model")) or self._model
        if "citations" in event or "search_results" in event:
            self._cite(event)
        parts: List[StreamPart] = []
        for choice in self._needed(event, "choices", list):
            if isinstance(choice, dict) and not choice.get("index"):
                self.started = True
                # Perplexity sends both, and a different one of them counts in a stream than outside.
                first, second = ("message", "delta") if self._calls.whole else ("delta", "message")
                self._take(self._needed(choice, first, dict) or self._needed(choice, second, dict), parts)
                self.finish_word = _text(choice.get("finish_reason")) or self.finish_word
        return parts

    def whole(self, data: Json) -> List[StreamPart]:
        """Return the parts of a plain answer.

        Raises:
            BadResponse: If there is no choice in it.
        """
        self._calls.whole = True
        parts = self.feed(data)
        if not self.started:
            raise self._strange("has no choices", data)
        return parts + self.end()

    def _take(self, delta: Json, parts: List[StreamPart]) -> None:
        content = delta.get("content")
        if type(content) is str and content and len(delta) == 1 and self._open == "text":
            parts.append(("text-delta", {"id": self._id(), "text": content}))
            return
        self._think(delta, parts)
        if isinstance(content, str):
            self._write("text", content, parts)
        else:
            self._mixed(self._needed(delta, "content", list), parts)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            self._write("text", delta["refusal"], parts)
            self._refused()
        for position, fragment in enumerate(self._needed(delta, "tool_calls", list)):
            if isinstance(fragment, dict):
                self._close(parts)
                self._calls.take(fragment, position, parts)
        for annotation in _items(delta.get("annotations")):
            citation = _object(_object(annotation).get("url_citation"))
            self._source(citation.get("url"), citation)

    def _needed(self, data: Json, key: str, kind: type) -> Any:
        """A member without which the answer would be another one; nothing, of whatever type, is an empty one.

        Raises:
            BadResponse: If it is of another type.
        """
        value = data.get(key) or kind()
        if not isinstance(value, kind):
            raise self._strange("has %s as its %s, expected %s" % (type(value).__name__, key, kind.__name__), data)
        return value

    def _strange(self, what: str, data: Json) -> BadResponse:
        return BadResponse("the answer of %s %s; check base_url" % (self._model, what), status=200,
                           body=json.dumps(data, ensure_ascii=False))

    def _think(self, delta: Json, parts: List[StreamPart]) -> None:
        """Reasoning; some servers send the same text under several names, and details beside it."""
        for field in ("reasoning_content", "reasoning"):
            text = delta.get(field)
            if isinstance(text, str) and text:
                self._write("reasoning", text, parts)
                self._metadata["field"] = field
                break
        for item in _items(delta.get("reasoning_details")):
            if isinstance(item, dict):
                _merge(self._details, item)

    def _mixed(self, content: List[Any], parts: List[StreamPart]) -> None:
        """Content as a list, as Mistral's reasoning models send it."""
        for item in content:
            if isinstance(item, str):
                self._write("text", item, parts)
            elif isinstance(item, dict) and item.get("type") == "thinking":
                inner = item.get("thinking")
                texts = [inner] if isinstance(inner, str) else [_text(_object(part).get("text"))
                                                                for part in _items(inner)]
                self._write("reasoning", "".join(texts), parts)
            elif isinstance(item, dict) and isinstance(item.get("text"), str):
                self._write("text", item["text"], parts)

    def _refused(self) -> None:
        if "refusal" not in self._metadata:
            self._metadata["refusal"] = True
            self.warnings.append("the model refused; its text says why")

    def _id(self) -> str:
        return "%s-%d" % (self._open, self._blocks)

    def _write(self, kind: str, text: str, parts: List[StreamPart]) -> None:
        if text:
            if self._open != kind:
                self._begin(kind, parts)
            parts.append((kind + "-delta", {"id": self._id(), "text": text}))

    def _begin(self, kind: str, parts: List[StreamPart]) -> None:
        self._close(parts)
        self._open, self._blocks = kind, self._blocks + 1
        parts.append((kind + "-start", {"id": self._id()}))

    def _close(self, parts: List[StreamPart]) -> None:
        if self._open is None:
            return
        payload: Dict[str, Any] = {"id": self._id()}
        if self._open == "reasoning" and self._details:
            self._metadata["reasoning_details"], self._details = self._details, []
        if self._metadata:
            payload["provider_metadata"] = {self._provider: self._metadata}
        parts.append((self._open + "-end", payload))
        self._open, self._metadata = None, {}

    def _cite(self, event: Json) -> None:
        """Sources beside the answer, as Perplexity sends them."""
        for item in _items(event.get("search_results")):
            self._source(_object(item).get("url"), _object(item))
        for url in _items(event.get("citations")):
            self._source(url, {})

    def _source(self, url: Any, about: Json) -> None:
        if isinstance(url, str) and url:
            source = self._sources.setdefault(url, {"type": "url", "url": url})
            if _text(about.get("title")):
                source["title"] = about["title"]

    def end(self) -> List[StreamPart]:
        """Return the last parts of a complete answer."""
        parts: List[StreamPart] = []
        if self._details and self._open != "reasoning":
            self._begin("reasoning", parts)  # Encrypted reasoning has no text.
        self._close(parts)
        parts.extend(self._calls.end())
        parts.extend([("source", {"value": source}) for source in self._sources.values()])
        usage, cost = self._usage, self._usage.get("cost")
        if isinstance(cost, dict):
            cost = cost.get("total_cost")
        parts.append(("finish", {
            "finish_reason": "tool-calls" if self._calls else self._finish_reason(),
            "raw_finish_reason": self.finish_word, "usage": read_usage(usage), "model": self._model,
            "response_id": self._response_id, "warnings": self.warnings,
            "cost_usd": _number(cost)}))
        return parts

    def _finish_reason(self) -> str:
        return "stop" if self.finish_word is None else FINISH.get(self.finish_word, "other")


def _merge(details: List[Dict[str, Any]], item: Dict[str, Any]) -> None:
    """Add a fragment of reasoning_details: texts of one index are joined, the rest is replaced."""
    for known in details:
        if item.get("index") is not None and known.get("index") == item["index"] and \
                known.get("type") == item.get("type"):
            for key, value in item.items():
                if key in ("text", "summary", "data") and isinstance(known.get(key), str) and isinstance(value, str):
                    known[key] += value
                elif value is not None:
                    known[key] = value
            return
    details.append(dict(item))


def read_usage(data: Json) -> Usage:
    """Return a usage object as ours: input with its cached part, output with its reasoning; unknown is None."""
    inputs, outputs = _object(data.get("prompt_tokens_details")), _object(data.get("completion_tokens_details"))
    reasoning = _first(outputs.get("reasoning_tokens"), data.get("reasoning_tokens"))
    output, total, input = [_count(data.get(name)) for name in ("completion_tokens", "total_tokens", "prompt_tokens")]
    if reasoning and output is not None and input is not None and total == input + output + reasoning:
        output += reasoning  # Only xAI counts them apart; its total tells.
    cached = _first(inputs.get("cached_tokens"), data.get("prompt_cache_hit_tokens"), data.get("cached_tokens"),
                    data.get("num_cached_tokens"))
    return Usage(input, output, reasoning, cached, _count(inputs.get("cache_write_tokens")))


def _first(*values: Any) -> Optional[int]:
    return next((count for count in map(_count, values) if count is not None), None)


def _count(value: Any) -> Optional[int]:
    """A number of tokens, or None for what cannot be one."""
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: Any) -> Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 2 ** 53 else None


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class _Call:
    """One call while it arrives."""

    def __init__(self, id: str, call_id: str):
        self.id = id  # As sent; "" if there was none.
        self.call_id = call_id
        self.name = ""
        self.texts: List[str] = []
        self.metadata: Dict[str, Any] = {}

    @property
    def raw_args(self) -> str:
        return "".join(self.texts)


class _Calls:
    """The calls of one answer.

    Attributes:
        whole: Whether every fragment is a call of its own.
    """

    def __init__(self, provider: str) -> None:
        self.whole = False
        self._provider = provider
        self._ids = CallIds()
        self._calls: List[_Call] = []
        self._slots: Dict[Any, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, fragment: Json, position: int, parts: List[StreamPart]) -> None:
        """Add a fragment to the call it belongs to, or begin one."""
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        name, id, index = _text(function.get("name")), fragment.get("id") or "", fragment.get("index")
        id = str(id) if isinstance(id, (str, int)) else ""
        index = index if isinstance(index, (str, int, float)) else None
        call = self._belongs_to(index, id, name)
        if call is None:
            call = self._begun(index, id)
            call.name = name
            parts.append(("tool-call-input-streaming-start", {"call_id": call.call_id, "tool_name": name}))
        elif name != call.name:
            call.name += name
        if fragment.get("extra_content"):
            call.metadata["extra_content"] = fragment["extra_content"]
        text = _arguments(function.get("arguments"))
        if text:
            call.texts.append(text)
            parts.append(("tool-call-delta", {"call_id": call.call_id, "tool_name": call.name, "args_text": text}))

    def _belongs_to(self, index: Any, id: str, name: str) -> Optional[_Call]:
        """The call that a fragment continues, or None for a new one.

        The index decides, if there is one and servers keep to it.  Some send all calls under one index: then
        another id begins a new one, and without ids, a name after arguments that are complete.
        """
        if self.whole or not self._calls:
            return None
        call = self._calls[-1] if index is None else self._slots.get(index)
        if call is None or (id and call.id and id != call.id):
            return None
        if index is None and id and not call.id:
            return None
        if name and not id and call.texts and strict_arguments(call.raw_args) is not None:
            return None
        return call

    def _begun(self, index: Any, id: str) -> _Call:
        call = _Call(id, self._ids.unique(id))
        self._calls.append(call)
        self._slots[index] = call
        return call

    def end(self) -> List[StreamPart]:
        parts: List[StreamPart] = []
        for call in self._calls:
            named = {"call_id": call.call_id, "tool_name": call.name}
            parts.append(("tool-call-input-streaming-end", named))
            payload: Dict[str, Any] = dict(named, raw_args=call.raw_args, args=parse_arguments(call.raw_args))
            if call.metadata:
                payload["provider_metadata"] = {self._provider: call.metadata}
            parts.append(("tool-call", payload))
        return parts


def _arguments(value: Any) -> str:
    """A fragment of arguments as text: some servers send an object instead."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
