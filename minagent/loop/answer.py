"""Assembles a model's parts into one answer, and takes an answer apart again.

The answer is made of what the stream hooks let through; a signed part that they changed loses its signature.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from ..llm.base import ModelResponse, StreamPart
from ..messages import FilePart, Message, Part, ReasoningPart, TextPart, ToolCallPart
from ..results import NO_USAGE, Usage

Json = Dict[str, Any]


class Answer:
    """One answer while it arrives.

    Attributes:
        edited: Ids of texts and calls that a hook has changed.
        end: Payload of the finish part, or None before it came.
    """

    def __init__(self) -> None:
        self.edited: Set[str] = set()
        self.end: Optional[Mapping[str, Any]] = None
        self._parts: Dict[Tuple[str, str], Json] = {}
        self._sources: List[Any] = []

    def feed(self, type: str, payload: Mapping[str, Any]) -> None:
        """Take one part."""
        if type == "text-delta" or type == "reasoning-delta":
            self._open(type[:-6], payload)["texts"].append(payload["text"])
        elif type == "text-end" or type == "reasoning-end":
            self._open(type[:-4], payload).update(
                {key: payload[key] for key in ("provider_metadata", "signature", "redacted") if payload.get(key)})
        elif type == "tool-call":
            call_id = self._unique(str(payload.get("call_id") or ""))
            self._parts["tool-call", call_id] = dict(payload, call_id=call_id)
        elif type == "finish":
            self.end = payload
        elif type == "source":
            self._sources.append(payload["value"])
        elif type == "file":
            self._parts["file", str(len(self._parts))] = dict(payload)

    def _open(self, kind: str, payload: Mapping[str, Any]) -> Json:
        key = (kind, str(payload.get("id", "")))
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = {"texts": []}
        return part

    def _unique(self, call_id: str) -> str:
        """Providers have sent empty ids and the same id twice."""
        wanted, number = call_id or "call", 1
        while not call_id or ("tool-call", call_id) in self._parts:
            number += 1
            call_id = "%s_%d" % (wanted, number)
        return call_id

    def message(self) -> Message:
        """The message so far; texts without text are left out unless they carry something."""
        made = [self._made(kind, id, part) for (kind, id), part in self._parts.items()]
        return Message("assistant", tuple([part for part in made if part is not None]))

    def _made(self, kind: str, id: str, part: Json) -> Optional[Part]:
        metadata = None if id in self.edited else part.get("provider_metadata")
        if kind == "tool-call":
            raw = part.get("raw_args") or ""
            if id in self.edited:
                raw = json.dumps(part.get("args"), ensure_ascii=False)
            return ToolCallPart(id, part["tool_name"], part.get("args"), raw, metadata,
                                bool(part.get("provider_executed")))
        if kind == "file":
            value = part["value"]
            return value if isinstance(value, FilePart) else FilePart.from_dict(value)
        text = "".join(part["texts"])
        if kind == "text":
            return TextPart(text, metadata) if text or metadata else None
        signature = None if id in self.edited else part.get("signature")
        redacted = None if id in self.edited else part.get("redacted")
        return ReasoningPart(text, signature, redacted, metadata) if text or signature or redacted or metadata else None

    def response(self, model: str) -> ModelResponse:
        """The whole answer; call it after the finish part came."""
        end = self.end or {}
        message = self.message()
        reason, warnings = end.get("finish_reason") or "stop", list(end.get("warnings") or ())
        if reason == "other":
            reason = "stop"
            warnings.append("the provider ended with %r, taken as stop" % (end.get("raw_finish_reason"),))
        if message.tool_calls:
            reason = "tool-calls"
        elif reason == "tool-calls":
            reason = "stop"
        usage, cost = end.get("usage") or Usage(), end.get("cost_usd")
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 <= cost < float("inf"):
            cost = None
        return ModelResponse(message, reason, Usage.from_dict(usage.to_dict()), str(end.get("model") or model), cost,
                             tuple(warnings), False, tuple(self._sources), end.get("response_id"))


def response_to_dict(response: ModelResponse) -> Json:
    """A response as the JSON that model-call records."""
    data: Json = {"message": response.message.to_dict(), "finish_reason": response.finish_reason,
                  "usage": response.usage.to_dict(), "model": response.model}
    if response.cost_usd is not None:
        data["cost_usd"] = response.cost_usd
    if response.warnings:
        data["warnings"] = list(response.warnings)
    if response.cached:
        data["cached"] = True
    if response.sources:
        data["sources"] = [source.to_dict() if hasattr(source, "to_dict") else source for source in response.sources]
    if response.response_id:
        data["response_id"] = response.response_id
    return data


def response_from_dict(data: Mapping[str, Any]) -> ModelResponse:
    """The response that `response_to_dict` wrote."""
    return ModelResponse(Message.from_dict(data["message"]), data["finish_reason"],
                         Usage.from_dict(data.get("usage", {})), data.get("model", ""), data.get("cost_usd"),
                         tuple(data.get("warnings", ())), bool(data.get("cached")), tuple(data.get("sources", ())),
                         data.get("response_id"))


def parts_of(response: ModelResponse) -> Iterator[StreamPart]:
    """A recorded response as the parts that a model would have sent; it used nothing."""
    for index, part in enumerate(response.message.parts):
        id = "cached-%d" % index
        if isinstance(part, (TextPart, ReasoningPart)):
            end = {key: value for key, value in part.to_dict().items() if key not in ("type", "text")}
            yield part.type + "-start", {"id": id}
            yield part.type + "-delta", {"id": id, "text": part.text}
            yield part.type + "-end", dict(end, id=id)
        elif isinstance(part, ToolCallPart):
            data = part.to_dict()
            yield "tool-call", {"call_id": part.call_id, "tool_name": part.name, "args": part.args,
                                "raw_args": part.raw_args, "provider_metadata": data.get("provider_metadata"),
                                "provider_executed": part.provider_executed}
        elif isinstance(part, FilePart):
            yield "file", {"value": part}
    for source in response.sources:
        yield "source", {"value": source}
    yield "finish", {"finish_reason": response.finish_reason, "usage": NO_USAGE, "model": response.model,
                     "warnings": list(response.warnings), "response_id": response.response_id}
