"""Messages in OpenAI's Chat Completions form, as callers keep them: dicts with role and content.

Source: OpenAI API reference, "Create chat completion", messages.
"""

from __future__ import annotations

import json
from typing import Any, List, Mapping

from ..errors import ConfigError
from ..messages import FilePart, Message, Part, TextPart, ToolCallPart, ToolResultPart

ROLES = {"developer": "system"}


def from_openai(item: Mapping[str, Any]) -> Message:
    """The message that a dict describes.

    Raises:
        ConfigError: If its role or content is of no known form.
    """
    role, content = ROLES.get(item["role"], item["role"]), item.get("content")
    if role == "tool":
        return Message.tool([ToolResultPart(str(item.get("tool_call_id", "")), str(item.get("name", "")), content)])
    parts: List[Part] = _parts(content)
    for call in item.get("tool_calls") or ():
        parts.append(_call(call))
    return Message(role, tuple(parts))


def _parts(content: Any) -> List[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    if not isinstance(content, (list, tuple)):
        raise ConfigError("a message has the content %r; expected a text or a list of parts" % (content,))
    return [_part(part) for part in content]


def _part(part: Any) -> Part:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in ("text", "input_text", "output_text"):
        return TextPart(part["text"])
    if kind == "image_url":
        value = part["image_url"]
        return _file(value["url"] if isinstance(value, Mapping) else value, "image/*")
    if kind == "file" and "file_data" in part.get("file", {}):
        return _file(part["file"]["file_data"], "application/octet-stream", part["file"].get("filename"))
    if kind == "input_audio":
        audio = part["input_audio"]
        return FilePart("audio/" + audio["format"], data=audio["data"])
    raise ConfigError("a message has a content part of type %r; expected text, image_url, file or input_audio; or use "
                      "Message.user(text, files=[FilePart.from_path(...)])" % (kind,))


def _file(url: str, media_type: str, filename: Any = None) -> FilePart:
    if not url.startswith("data:"):
        return FilePart(media_type, url=url, filename=filename)
    head, _, data = url.partition(",")
    return FilePart(head[5:].split(";")[0] or media_type, data=data, filename=filename)


def _call(call: Mapping[str, Any]) -> ToolCallPart:
    function = call["function"]
    raw = function.get("arguments") or "{}"
    try:
        args = json.loads(raw)
    except ValueError:
        args = None
    return ToolCallPart(call["id"], function["name"], args if isinstance(args, dict) else None, raw)
