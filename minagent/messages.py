"""Messages: what is said between user, model and tools, as immutable values that travel as JSON.

What is not here: storage keys, threads, and how a provider spells a message on its wire (`llm`).
``provider_metadata`` on a part is an opaque bag ``{provider: {...}}``, echoed unchanged to the provider
that sent it and dropped for any other.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from .errors import ConfigError

ROLES = ("system", "user", "assistant", "tool")
Metadata = Optional[Mapping[str, Any]]


def _filled(**members: Any) -> Dict[str, Any]:
    """The members that say something: None, empty text and empty containers are left out."""
    return {name: value for name, value in members.items() if value is not None and value != "" and value != {}}


@dataclass(frozen=True)
class TextPart:
    """Text.

    Attributes:
        text: The text.
        provider_metadata: Opaque, see the module.
    """

    text: str
    provider_metadata: Metadata = None
    type: ClassVar[str] = "text"

    def to_dict(self) -> Dict[str, Any]:
        if not self.provider_metadata:
            return {"type": "text", "text": self.text}
        return {"type": "text", "text": self.text, "provider_metadata": self.provider_metadata}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TextPart:
        return cls(data.get("text", ""), data.get("provider_metadata"))


@dataclass(frozen=True)
class ReasoningPart:
    """What a model thought before it answered.

    Attributes:
        text: Readable reasoning, possibly a summary, possibly empty.
        signature: The provider's proof of it, echoed byte for byte, or None.
        redacted: Encrypted reasoning that only the provider can read, or None.
        provider_metadata: Opaque, see the module.
    """

    text: str = ""
    signature: Optional[str] = None
    redacted: Optional[str] = None
    provider_metadata: Metadata = None
    type: ClassVar[str] = "reasoning"

    def to_dict(self) -> Dict[str, Any]:
        return _filled(type=self.type, text=self.text, signature=self.signature, redacted=self.redacted,
                       provider_metadata=self.provider_metadata)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReasoningPart:
        return cls(data.get("text", ""), data.get("signature"), data.get("redacted"), data.get("provider_metadata"))


@dataclass(frozen=True)
class FilePart:
    """A file: an image, a PDF, audio; given as data or as a URL.

    Attributes:
        media_type: Such as ``image/png``.
        data: The bytes in base64, or None.
        url: Where the provider can fetch it, or None.
        filename: Name shown to the model, or None.
        provider_metadata: Opaque, see the module.
    """

    media_type: str
    data: Optional[str] = None
    url: Optional[str] = None
    filename: Optional[str] = None
    provider_metadata: Metadata = None
    type: ClassVar[str] = "file"

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise ConfigError("FilePart takes either data or url, got %s; give exactly one of them"
                              % ("neither" if self.data is None else "both"))

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, filename: Optional[str] = None) -> FilePart:
        return cls(media_type, data=base64.b64encode(data).decode("ascii"), filename=filename)

    @classmethod
    def from_path(cls, path: Any, media_type: Optional[str] = None) -> FilePart:
        """Read a file; the media type is guessed from its name if it is not given.

        Raises:
            ConfigError: If the media type cannot be guessed.
            OSError: If the file cannot be read.
        """
        import mimetypes
        import os

        name = os.path.basename(os.fspath(path))
        kind = media_type or mimetypes.guess_type(name)[0]
        if kind is None:
            raise ConfigError("FilePart.from_path(%r): cannot tell the media type from the name; pass media_type="
                              % (str(path),))
        with open(path, "rb") as file:
            return cls.from_bytes(file.read(), kind, name)

    def to_bytes(self) -> bytes:
        """Return the bytes of a file that was given as data."""
        return base64.b64decode(self.data or "")

    def to_dict(self) -> Dict[str, Any]:
        return _filled(type=self.type, media_type=self.media_type, data=self.data, url=self.url,
                       filename=self.filename, provider_metadata=self.provider_metadata)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FilePart:
        return cls(data.get("media_type", ""), data.get("data"), data.get("url"), data.get("filename"),
                   data.get("provider_metadata"))


@dataclass(frozen=True)
class ToolCallPart:
    """A call that the model asks for.

    Attributes:
        call_id: Unique within the message.
        name: Name of the tool.
        args: Parsed arguments, or None when `raw_args` is not a JSON object.
        raw_args: The text exactly as the model wrote it.
        provider_metadata: Opaque, see the module.
        provider_executed: True for a tool that the provider ran itself; we never run it.
    """

    call_id: str
    name: str
    args: Optional[Mapping[str, Any]] = None
    raw_args: str = ""
    provider_metadata: Metadata = None
    provider_executed: bool = False
    type: ClassVar[str] = "tool-call"

    def to_dict(self) -> Dict[str, Any]:
        data: Dict[str, Any] = {"type": "tool-call", "call_id": self.call_id, "name": self.name}
        if self.args is not None:
            data["args"] = self.args
        if self.raw_args:
            data["raw_args"] = self.raw_args
        if self.provider_metadata:
            data["provider_metadata"] = self.provider_metadata
        if self.provider_executed:
            data["provider_executed"] = True
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCallPart:
        return cls(data["call_id"], data["name"], data.get("args"), data.get("raw_args", ""),
                   data.get("provider_metadata"), bool(data.get("provider_executed", False)))


@dataclass(frozen=True)
class ToolResultPart:
    """The one result of one call.

    Attributes:
        call_id: The call that it answers.
        name: Name of the tool.
        output: Any JSON value; None is a result.  With `content`, a text for models that take only text.
        is_error: True if the call failed; `output` is then the message for the model.
        kind: Why it failed: exception, invalid-args, invalid-json, unknown-tool, timeout, declined, cancelled,
            unknown-outcome; or None.
        content: Text and file parts of a multimodal result, or empty.
        provider_metadata: Opaque, see the module.
    """

    call_id: str
    name: str
    output: Any = None
    is_error: bool = False
    kind: Optional[str] = None
    content: Tuple[Part, ...] = ()
    provider_metadata: Metadata = None
    type: ClassVar[str] = "tool-result"

    def to_dict(self) -> Dict[str, Any]:
        data: Dict[str, Any] = {"type": "tool-result", "call_id": self.call_id, "name": self.name,
                                "output": self.output}
        if self.is_error:
            data["is_error"] = True
        if self.kind:
            data["kind"] = self.kind
        if self.content:
            data["content"] = [part.to_dict() for part in self.content]
        if self.provider_metadata:
            data["provider_metadata"] = self.provider_metadata
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolResultPart:
        content = tuple(part_from_dict(item) for item in data.get("content", ()))
        return cls(data["call_id"], data.get("name", ""), data.get("output"), bool(data.get("is_error", False)),
                   data.get("kind"), content, data.get("provider_metadata"))


Part = Union[TextPart, ReasoningPart, FilePart, ToolCallPart, ToolResultPart]
PART_TYPES: Dict[str, Type[Any]] = {
    cls.type: cls for cls in (TextPart, ReasoningPart, FilePart, ToolCallPart, ToolResultPart)}


def part_from_dict(data: Mapping[str, Any]) -> Part:
    """Return the part that `data` describes.

    Raises:
        ConfigError: If its type is unknown.
    """
    cls = PART_TYPES.get(data.get("type", ""))
    if cls is None:
        raise ConfigError("a message part has the type %r; known types are %s"
                          % (data.get("type"), ", ".join(sorted(PART_TYPES))))
    part: Part = cls.from_dict(data)
    return part


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: system, user, assistant or tool.
        parts: Its parts, in order.
        id: Made when the message is recorded; empty before.
        created_at: Seconds since the epoch; 0 before it is recorded.
        metadata: Anything JSON-able of the caller's; never sent to a model.
    """

    role: str
    parts: Tuple[Part, ...] = ()
    id: str = ""
    created_at: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConfigError("a message has the role %r; expected one of %s" % (self.role, ", ".join(ROLES)))
        if not isinstance(self.parts, tuple):
            object.__setattr__(self, "parts", tuple(self.parts))

    @classmethod
    def user(cls, text: str = "", files: Sequence[FilePart] = (), **members: Any) -> Message:
        """A message of the user: text, then files."""
        return cls("user", (((TextPart(text),) if text else ()) + tuple(files)), **members)

    @classmethod
    def system(cls, text: str, **members: Any) -> Message:
        return cls("system", (TextPart(text),), **members)

    @classmethod
    def assistant(cls, text: str = "", calls: Sequence[ToolCallPart] = (), **members: Any) -> Message:
        return cls("assistant", (((TextPart(text),) if text else ()) + tuple(calls)), **members)

    @classmethod
    def tool(cls, results: Sequence[ToolResultPart], **members: Any) -> Message:
        """The results of the calls of one assistant message, in the order of the calls."""
        return cls("tool", tuple(results), **members)

    @property
    def text(self) -> str:
        """All text of the message, joined."""
        return "".join([part.text for part in self.parts if type(part) is TextPart])

    @property
    def reasoning(self) -> str:
        return "".join([part.text for part in self.parts if type(part) is ReasoningPart])

    @property
    def tool_calls(self) -> List[ToolCallPart]:
        """The calls that we are asked to run (not those the provider ran itself)."""
        return [part for part in self.parts if type(part) is ToolCallPart and not part.provider_executed]

    @property
    def tool_results(self) -> List[ToolResultPart]:
        return [part for part in self.parts if type(part) is ToolResultPart]

    def recorded(self, id: str, created_at: float) -> Message:
        """A copy with id and time, unless it has them already."""
        return replace(self, id=self.id or id, created_at=self.created_at or created_at)

    def to_dict(self) -> Dict[str, Any]:
        data: Dict[str, Any] = {"role": self.role, "parts": [part.to_dict() for part in self.parts]}
        if self.id:
            data["id"] = self.id
        if self.created_at:
            data["created_at"] = self.created_at
        if self.metadata:
            data["metadata"] = dict(self.metadata)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        return cls(data["role"], tuple([part_from_dict(part) for part in data.get("parts", ())]), data.get("id", ""),
                   data.get("created_at", 0.0), data.get("metadata", {}))
