"""What a language model is: one verb, the request it takes and the parts it yields.

What is not here: HTTP (`transport`), any provider's spelling (`openai_chat` and its neighbours), and the
choice of a model by name (`resolve`).

The parts are pairs ``(type, payload)``; types and payloads are those of `chunks` for text, reasoning, calls,
sources and files, and besides:

* ``tool-call``: call_id, tool_name, raw_args (the model's text), args (a dict, or None if raw_args is not a
  JSON object), provider_metadata (optional), provider_executed (optional);
* ``text-end`` and ``reasoning-end``: id, provider_metadata (optional); reasoning-end also signature and
  redacted;
* ``finish``, exactly once and last: finish_reason (stop, length, content-filter, tool-calls, pause, other,
  error), raw_finish_reason, usage (`Usage`), model, response_id, warnings (list of sentences), cost_usd (or
  None).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .._util import CancelToken, Deadline
from ..errors import Cancelled, LimitReached
from ..messages import Message, ToolCallPart
from ..results import NO_USAGE, Usage
from ..tools import ToolSpec

StreamPart = Tuple[str, Dict[str, Any]]
ToolChoice = Union[str, Mapping[str, str]]

#: Keys of `Frame.settings` that every wire understands or leaves out with a warning.
SETTINGS = ("temperature", "top_p", "max_output_tokens", "stop_sequences", "seed", "reasoning_effort",
            "provider_options")

#: Members of provider_options that are for one request and are never recorded: they may hold a key.
LIVE_OPTIONS = ("api_key", "headers")


@dataclass(frozen=True, eq=False)
class Frame:
    """The part of a request that stays the same over many steps.  The same object is the same bytes.

    Attributes:
        model: Name of the model as the provider spells it.
        system: System text, or "".
        tools: What the model may call.
        tool_choice: "auto", "none", "required" or ``{"name": ...}``.
        settings: Some of `SETTINGS`.
    """

    model: str = ""
    system: str = ""
    tools: Tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> Dict[str, Any]:
        """What may be recorded of it: `LIVE_OPTIONS` are left out."""
        settings = dict(self.settings)
        if settings.get("provider_options"):
            settings["provider_options"] = {key: value for key, value in settings["provider_options"].items()
                                            if key not in LIVE_OPTIONS}
        return {"model": self.model, "system": self.system, "tools": [spec.to_dict() for spec in self.tools],
                "tool_choice": self.tool_choice, "settings": settings}


@dataclass(frozen=True)
class ModelRequest:
    """Exactly what goes out.

    Attributes:
        frame: What seldom changes.
        messages: The conversation.
        response_format: ``{"name": ..., "schema": {...}, "strict": bool}`` for an answer in JSON, or None.
    """

    frame: Frame
    messages: Sequence[Message]
    response_format: Optional[Mapping[str, Any]] = None

    def with_frame(self, **members: Any) -> ModelRequest:
        """Return a copy in which members of the frame are replaced."""
        return replace(self, frame=replace(self.frame, **members))

    def replace(self, **members: Any) -> ModelRequest:
        """Return a copy in which members are replaced."""
        return replace(self, **members)


@dataclass(frozen=True)
class ModelResponse:
    """A whole answer.

    Attributes:
        message: The assistant's message.
        finish_reason: stop, length, content-filter, tool-calls, pause, other or error.
        usage: Of this call.
        model: Which model answered.
        cost_usd: In US dollars, or None if unknown.
        warnings: Sentences.
        cached: True if a cache answered and no model was called.
        sources: Citations.
        response_id: The provider's id of the answer, or None.
    """

    message: Message
    finish_reason: str = "stop"
    usage: Usage = NO_USAGE
    model: str = ""
    cost_usd: Optional[float] = None
    warnings: Tuple[str, ...] = ()
    cached: bool = False
    sources: Tuple[Any, ...] = ()
    response_id: Optional[str] = None

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def tool_calls(self) -> List[ToolCallPart]:
        return self.message.tool_calls

    def replace(self, **members: Any) -> ModelResponse:
        """Return a copy in which members are replaced."""
        return replace(self, **members)


@dataclass
class ModelCall:
    """How one call is made; live, never stored.

    Attributes:
        stream: Whether somebody watches; without it the plain request is made.
        retries: How often a retryable failure is tried again before the first byte.
        deadline: The run's.
        cancel: The run's token; a transport shuts its socket down when it is set.
        on_retry: Told (attempt from 1, seconds it will wait, error) before each wait, or None.
        request_context: The run's, for models whose key or URL depends on it.
    """

    stream: bool = False
    retries: int = 2
    deadline: Deadline = field(default_factory=Deadline)
    cancel: CancelToken = field(default_factory=CancelToken)
    on_retry: Optional[Callable[[int, float, Exception], None]] = None
    request_context: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Leave if the run has to.

        Raises:
            Cancelled: If `cancel` was set.
            LimitReached: If `deadline` has passed.
        """
        if self.deadline.passed() or self.cancel.reason == "deadline":
            raise LimitReached("the run's deadline of %g s has passed" % (self.deadline.seconds or 0))
        if self.cancel:
            raise Cancelled(self.cancel.reason)


class LanguageModel:
    """Something that answers a conversation.  One model object may be used by any number of threads.

    Attributes:
        provider: Name under which provider_metadata is kept, such as "openai-chat".
        model: Name of the model as the provider spells it.
        must_stream: True if there is no plain request.
    """

    provider = ""
    model = ""
    must_stream = False

    def do_stream(self, request: ModelRequest, call: ModelCall) -> Iterator[List[StreamPart]]:
        """Send the request and yield lists of parts, one list for each network read.

        The plain request yields the same parts in one list.  The generator must be closed or exhausted by the
        thread that iterates it; closing it ends the connection.

        Raises:
            ModelError: If the provider refuses or fails; its subclasses say how.
            Cancelled: If `call.cancel` was set.
            LimitReached: If `call.deadline` has passed.
        """
        raise NotImplementedError

    def describe(self) -> Dict[str, Any]:
        """What may be shown and recorded of it: no key."""
        return {"provider": self.provider, "model": self.model}
