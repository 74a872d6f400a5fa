"""OpenAI Chat Completions, outgoing: a `ModelRequest` as the bytes of a body.

Every message and every frame is encoded once per dialect and keeps its bytes; the joined bytes of the last
request are kept too, so that a step costs what is new in it.  Not here: what comes back
(`openai_chat_answer`).

Source: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
import threading
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..errors import ConfigError
from ..messages import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from .base import LIVE_OPTIONS, Frame, ModelRequest
from .wire import encode

#: Joined messages are kept for the next request up to that many bytes a thread.
KEPT_BYTES = 4 * 1024 * 1024
#: How we name a setting, and how the wire does; max_output_tokens is named by the dialect.
SETTING_NAMES = {"temperature": "temperature", "top_p": "top_p", "stop_sequences": "stop", "seed": "seed",
                 "reasoning_effort": "reasoning_effort"}


@dataclass(frozen=True)
class Dialect:
    """Where servers of this API differ in what they accept.

    Attributes:
        max_tokens_key: Name of the limit: OpenAI's reasoning models refuse "max_tokens", many others know
            no other.
        no_text: Content of a message of calls without text: None is refused by some, "" by nobody recorded.
        must_reason: Messages with calls carry reasoning_content even where there was none.
        short_call_ids: Ids of calls are nine letters and digits; others are replaced by their hash.
    """

    max_tokens_key: str = "max_tokens"
    no_text: Optional[str] = ""
    must_reason: bool = False
    short_call_ids: bool = False


class BodyWriter:
    """Writes bodies for one model object.  Any number of threads may share it.

    Parameters:
        provider: Whose provider_metadata is echoed.
        model: Name of the model.
        dialect: See `Dialect`.
        defaults: Settings where a request has none.
        parallel_tool_calls: Sent beside tools unless None.
    """

    def __init__(self, provider: str, model: str, dialect: Dialect, defaults: Mapping[str, Any],
                 parallel_tool_calls: Optional[bool]):
        self._items = _Items(provider, dialect)
        self._provider = provider
        self._model = model
        self._dialect = dialect
        self._defaults = defaults
        self._parallel_tool_calls = parallel_tool_calls
        self._last = threading.local()

    def body(self, request: ModelRequest, stream: bool) -> bytes:
        """Return the body of a request."""
        head, system, own_keys = self._frame(request.frame, stream)
        leading = _leading_system(request.messages)
        if leading:
            # Some chat templates take one system message only.
            texts = [request.frame.system, *[message.text for message in request.messages[:leading]]]
            system = encode({"role": "system", "content": "\n\n".join([text for text in texts if text])})
        items = self._joined(request.messages[leading:] if leading else request.messages)
        messages = b",".join([part for part in (system, items) if part])
        tail = b""
        if request.response_format is not None and "response_format" not in own_keys:
            tail = b',"response_format":' + encode(_response_format(request.response_format))
        return b"".join([head, b',"messages":[', messages, b"]", tail, b"}"])

    def _joined(self, messages: Sequence[Message]) -> bytes:
        """The messages as items; those that the last request had too are taken from it."""
        known, joined = getattr(self._last, "joined", ((), b""))
        if len(known) > len(messages) or not all(map(operator.is_, known, messages)):
            known, joined = (), b""
        if len(known) < len(messages):
            new = [self._items.of(message) for message in messages[len(known):]]
            joined = b",".join([item for item in (joined, *new) if item])
        self._last.joined = (tuple(messages), joined) if len(joined) <= KEPT_BYTES else ((), b"")
        return joined

    def _frame(self, frame: Frame, stream: bool) -> Tuple[bytes, bytes, Mapping[str, Any]]:
        """(the body up to its messages, the system message, the caller's own keys); kept on the frame."""
        kept = frame.__dict__.get("_wire")
        if kept is None:
            kept = {}
            object.__setattr__(frame, "_wire", kept)
        made: Optional[Tuple[bytes, bytes, Mapping[str, Any]]] = kept.get((self, stream))
        if made is None:
            own_keys = own_options(self._provider, self._defaults, frame.settings)
            own_keys = {key: value for key, value in own_keys.items() if key not in LIVE_OPTIONS}
            fields = dict(self._fields(frame, stream), **own_keys)
            system = encode({"role": "system", "content": frame.system}) if frame.system else b""
            made = kept[self, stream] = (encode(fields)[:-1], system, own_keys)
        return made

    def _fields(self, frame: Frame, stream: bool) -> Dict[str, Any]:
        fields: Dict[str, Any] = {"model": self._model}
        settings = dict(self._defaults, **{key: value for key, value in frame.settings.items() if value is not None})
        for ours, theirs in SETTING_NAMES.items():
            if settings.get(ours) is not None:
                fields[theirs] = settings[ours]
        if settings.get("max_output_tokens") is not None:
            fields[self._dialect.max_tokens_key] = settings["max_output_tokens"]
        if frame.tools:
            fields["tools"] = [{"type": "function", "function": _function(spec)} for spec in frame.tools]
            if frame.tool_choice != "auto":
                fields["tool_choice"] = _tool_choice(frame.tool_choice)
            if self._parallel_tool_calls is not None:
                fields["parallel_tool_calls"] = self._parallel_tool_calls
        if stream:
            fields.update(stream=True, stream_options={"include_usage": True})
        return fields


def own_options(provider: str, *settings: Mapping[str, Any]) -> Dict[str, Any]:
    """The provider_options of some settings, later ones winning; those under the provider's name count as well."""
    options: Dict[str, Any] = {}
    for item in settings:
        given = dict(item.get("provider_options") or {})
        named = given.pop(provider, {})
        options.update(given)
        options.update(named if isinstance(named, Mapping) else {provider: named})
    return options


def _leading_system(messages: Sequence[Message]) -> int:
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    return count


def _function(spec: Any) -> Dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping):
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _response_format(wanted: Mapping[str, Any]) -> Dict[str, Any]:
    schema = {key: wanted[key] for key in ("name", "description", "schema", "strict") if wanted.get(key) is not None}
    schema.setdefault("name", "answer")
    return {"type": "json_schema", "json_schema": schema}


class _Items:
    """Messages as items of the body's list."""

    def __init__(self, provider: str, dialect: Dialect):
        self._provider = provider
        self._dialect = dialect
        #: Messages encoded for one of these are the same bytes for another.
        self._family = "openai-chat %s %r" % (provider, dialect)

    def of(self, message: Message) -> bytes:
        """Return one or more items, joined by commas; kept on the message."""
        kept = message.__dict__.get("_wire")
        if kept is None:
            kept = {}
            object.__setattr__(message, "_wire", kept)
        data: Optional[bytes] = kept.get(self._family)
        if data is None:
            data = kept[self._family] = b",".join([encode(item) for item in self._written(message)])
        return data

    def _written(self, message: Message) -> List[Dict[str, Any]]:
        if message.role == "assistant":
            return [self._assistant(message)]
        if message.role == "tool":
            return self._results(message.tool_results)
        if message.role == "system":
            return [{"role": "system", "content": message.text}]
        files = [part for part in message.parts if isinstance(part, FilePart)]
        return [{"role": "user", "content": _content(message) if files else message.text}]

    def _assistant(self, message: Message) -> Dict[str, Any]:
        calls = [self._call(part) for part in message.tool_calls]
        item: Dict[str, Any] = {"role": "assistant", "content": message.text}
        if calls:
            item["content"] = message.text or self._dialect.no_text
            item["tool_calls"] = calls
        if calls and self._dialect.must_reason:
            item["reasoning_content"] = ""
        for part in message.parts:
            if isinstance(part, ReasoningPart):
                self._add_reasoning(part, item)
        return item

    def _add_reasoning(self, part: ReasoningPart, item: Dict[str, Any]) -> None:
        """Reasoning goes back in the fields in which it came, to the provider that it came from."""
        own = (part.provider_metadata or {}).get(self._provider) or {}
        if own.get("reasoning_details"):
            item.setdefault("reasoning_details", []).extend(own["reasoning_details"])
        if own.get("field") == "reasoning_content":
            item["reasoning_content"] = item.get("reasoning_content", "") + part.text

    def _call(self, part: ToolCallPart) -> Dict[str, Any]:
        arguments = part.raw_args or json.dumps(part.args or {}, ensure_ascii=False)
        own = (part.provider_metadata or {}).get(self._provider) or {}
        return dict({"id": self._call_id(part.call_id), "type": "function",
                     "function": {"name": part.name, "arguments": arguments}}, **own)

    def _call_id(self, call_id: str) -> str:
        if self._dialect.short_call_ids and not re.match(r"[A-Za-z0-9]{9}\Z", call_id):
            return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]
        return call_id

    def _results(self, results: Sequence[ToolResultPart]) -> List[Dict[str, Any]]:
        """A message for each result, then one with all their files, which a tool message cannot hold."""
        items: List[Dict[str, Any]] = []
        files: List[Dict[str, Any]] = []
        for result in results:
            items.append({"role": "tool", "tool_call_id": self._call_id(result.call_id),
                          "content": _result_text(result)})
            attached = [_file(part) for part in result.content if isinstance(part, FilePart)]
            if attached:
                files.append({"type": "text", "text": "Files in the result of %s (call %s):"
                              % (result.name, self._call_id(result.call_id))})
                files.extend(attached)
        return [*items, {"role": "user", "content": files}] if files else items


def _result_text(result: ToolResultPart) -> str:
    output = result.output
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, separators=(",", ":"))
    # The wire has no flag for it.
    return "Error: " + text if result.is_error else text


def _content(message: Message) -> List[Dict[str, Any]]:
    parts: List[Dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, FilePart):
            parts.append(_file(part))
        elif isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
    return parts


def _file(part: FilePart) -> Dict[str, Any]:
    """A file as a content part.

    Raises:
        ConfigError: If the API takes no such file.
    """
    data_url = "data:%s;base64,%s" % (part.media_type, part.data)
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url or data_url}}
    if part.data is None:
        raise ConfigError("a file of type %r was given by its URL; this API takes URLs of images only, pass the data"
                          % part.media_type)
    if part.media_type.startswith("audio/"):
        name = part.media_type[len("audio/"):]
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": AUDIO.get(name, name)}}
    return {"type": "file", "file": {"filename": part.filename or "file." + part.media_type.rpartition("/")[2],
                                     "file_data": data_url}}


#: Media type -> the API's name of the format, where they differ.
AUDIO = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
