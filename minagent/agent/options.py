"""Options: what a call may say, checked and merged once, in the caller's thread.

Values travel as JSON and are recorded; live options are objects of the caller's and are given again to a
resume.  What is not here: what the options do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict

from ..errors import ConfigError, EncodeError, UnknownOption, did_you_mean

if TYPE_CHECKING:
    from ..loop.limits import Limits
    from ..messages import Message

DEFAULT_MAX_STEPS = 20


class GenerateOptions(TypedDict, total=False):
    """Options of generate and stream, and defaults of an agent; for editors and type checkers.

    Attributes:
        model: A `LanguageModel`, "provider/model", a list of them (fallbacks), or a callable of the request context.
        instructions: System text, or a callable of the request context.
        system: Added to the system text for one call.
        context: Messages put before the history and never stored in it.
        tools: Tools, functions, methods; or a callable of the request context that returns them.
        active_tools: Names of the tools that the model is told of (default: all).
        tool_choice: "auto" (default), "none", "required" or ``{"name": ...}``.
        max_steps: Steps at most, 1 or more (default 20); reaching it ends with finish_reason "max-steps".
        final_answer_at_max_steps: Ask for one last answer without tools then (default False).
        stop_when: Condition over the finished steps; ends with finish_reason "stop".
        limits: `Limits`, or None.
        deadline: Seconds from each start, or None.
        temperature, top_p, max_output_tokens, stop_sequences, seed, reasoning_effort: Sampling settings.
        provider_options: Members merged into the provider's request body; api_key and headers hold for these requests
            only, are never recorded, and are given again to a resume.
        retries: Tries of a failed model call before its first byte, 0 or more (default 2).
        thread_id: Memory thread.
        resource_id: Its owner.
        run_id: Id of the run; given twice it is the same run.
        request_context: JSON dict of the request, recorded.
        deps: Any object, handed to tools and hooks as ``ctx.deps``, never stored.
        processors: Processors; those of a call are added to the agent's.
        max_processor_retries: Rejected answers of one step that are asked for again (default 2).
        require_tool_approval: True, False (default) or a predicate (args, ctx), for all tools.
        tool_concurrency: Calls that run at once, 1 or more (default 8).
        tool_timeout: Seconds for each tool call, or None.
        background_wait: "wait" (default) or "suspend" while background tasks are open at the end.
        on_step: Called with each finished StepResult.
        on_chunk: Called with each chunk.
        metadata: JSON dict, kept with the run.
    """

    model: Any
    instructions: Any
    system: str
    context: Sequence[Any]
    tools: Any
    active_tools: Sequence[str]
    tool_choice: Any
    max_steps: int
    final_answer_at_max_steps: bool
    stop_when: Callable[[Sequence[Any]], bool]
    limits: Optional[Limits]
    deadline: Optional[float]
    temperature: float
    top_p: float
    max_output_tokens: int
    stop_sequences: Sequence[str]
    seed: int
    reasoning_effort: str
    provider_options: Mapping[str, Any]
    retries: int
    thread_id: str
    resource_id: str
    run_id: str
    request_context: Mapping[str, Any]
    deps: Any
    processors: Sequence[Any]
    max_processor_retries: int
    require_tool_approval: Any
    tool_concurrency: int
    tool_timeout: Optional[float]
    background_wait: str
    on_step: Callable[[Any], Any]
    on_chunk: Callable[[Any], Any]
    metadata: Mapping[str, Any]


#: Names that other SDKs use -> what to use here.
HINTS = {
    "max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "max_turns": "max_steps",
    "max_iterations": "max_steps", "recursion_limit": "max_steps", "max_rounds": "max_steps", "timeout": "deadline",
    "prompt": "messages", "input": "messages", "user_prompt": "messages", "message_history": "messages",
    "system_prompt": "instructions", "context_variables": "deps", "dependencies": "deps", "session_id": "thread_id",
    "thread": "thread_id", "resource": "resource_id", "user_id": "resource_id", "max_retries": "retries",
    "stop": "stop_sequences", "callbacks": "on_step and on_chunk", "functions": "tools", "toolsets": "tools",
    "hooks": "processors", "middleware": "processors", "guardrails": "processors",
    "abort_signal": "agent.cancel(run_id)",
    "stream": "agent.stream(...)", "parallel_tool_calls": "an option of the model object", "top_k": "provider_options",
    "model_settings": "temperature, top_p, max_output_tokens and their neighbours", "handoffs": "tools",
}

#: Options that are objects of the caller's.  (instructions and require_tool_approval are values unless callable.)
LIVE = ("model", "tools", "stop_when", "deps", "processors", "on_step", "on_chunk")

#: Those whose loss a resume must not pass over in silence.
GIVEN_AGAIN = ("model", "tools", "stop_when", "deps", "processors", "require_tool_approval", "provider_options")


#: Value options that a resume may replace.
REPLACED = ("limits", "max_steps", "deadline", "request_context")

#: Live options that are called.
CALLABLES = ("stop_when", "on_step", "on_chunk")


def checked(name: str, value: Any) -> Any:
    """A value option as JSON; None stays None.

    Raises:
        ConfigError: If it is not allowed.
    """
    return None if value is None else CHECKS[name](name, value)


def check_names(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse an option that does not exist.

    Raises:
        UnknownOption: With the nearest name, or what this SDK calls it.
    """
    for name in given:
        if name not in known:
            hint = "; use %s" % HINTS[name] if name in HINTS else did_you_mean(name, known)
            raise UnknownOption("unknown option %r for %s%s" % (name, where, hint))


def merged(defaults: Mapping[str, Any], call: Mapping[str, Any]) -> Dict[str, Any]:
    """The call over the agent's defaults; processors are added."""
    options = {**defaults, **call}
    options["processors"] = [*(defaults.get("processors") or ()), *_listed(call.get("processors"))]
    return options


def _listed(processors: Any) -> Sequence[Any]:
    if isinstance(processors, str) or not (processors is None or hasattr(processors, "__iter__")):
        raise ConfigError("processors is %r; expected a list of objects with hooks" % (processors,))
    return list(processors or ())


def to_be_given_again(given: Mapping[str, Any]) -> List[str]:
    """Names of the live options that a call gave and that a resume must give again."""
    return sorted(name for name in GIVEN_AGAIN if _is_live(name, given.get(name)))


def _is_live(name: str, value: Any) -> bool:
    """Whether an option is an object of the caller's that a resume would lack; empty lists are none."""
    if value is None or name in ("tools", "processors") and not callable(value) and not list(value):
        return False
    if name == "provider_options":
        return bool(_keys_of(value))
    return name in LIVE or callable(value)


def _keys_of(provider_options: Any) -> Dict[str, Any]:
    """The members that hold for one request and must not be written down: a key, headers."""
    from ..llm.base import LIVE_OPTIONS

    if not isinstance(provider_options, Mapping):
        return {}
    return {name: provider_options[name] for name in LIVE_OPTIONS if provider_options.get(name) is not None}


def split(options: Mapping[str, Any], defaults: bool = True) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Options as (values as JSON, live ones), the values with this SDK's defaults.

    Raises:
        ConfigError: If a value is not allowed.
    """
    values: Dict[str, Any] = {}
    live: Dict[str, Any] = {}
    for name, value in options.items():
        if name in LIVE or (name in ("instructions", "require_tool_approval") and callable(value)):
            live[name] = value if name not in CALLABLES or value is None else _callable(name, value)
        elif value is not None:
            values[name] = CHECKS[name](name, value)
            if name == "provider_options":
                live[name] = _keys_of(value)
    if defaults:
        values.setdefault("max_steps", DEFAULT_MAX_STEPS)
    return values, live


# Checks: each returns the value as JSON, or refuses it.


def _refuse(name: str, value: Any, expected: str) -> ConfigError:
    return ConfigError("option %s is %r; expected %s" % (name, value, expected))


def _whole(least: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _refuse(name, value, "a whole number of %d or more" % least)
        return value

    return check


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise _refuse(name, value, "a function, or None")
    return value


def _between(least: float, most: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise _refuse(name, value, "a number from %g to %g" % (least, most))
        return value

    return check


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise _refuse(name, value, "seconds above 0, or None")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse(name, value, "text")
    return value


def _texts(name: str, value: Any) -> List[str]:
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in value):
        raise _refuse(name, value, "a list of texts")
    return list(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")
    return value


def _json_dict(name: str, value: Any) -> Dict[str, Any]:
    from ..schema import encode

    try:
        data = encode(value)
    except EncodeError as error:
        raise ConfigError("option %s is no JSON: %s" % (name, error)) from error
    if not isinstance(data, dict):
        raise _refuse(name, value, "a dict")
    return data


def _provider_options(name: str, value: Any) -> Dict[str, Any]:
    from ..llm.base import LIVE_OPTIONS

    if not isinstance(value, Mapping):
        raise _refuse(name, value, "a dict")
    return _json_dict(name, {key: item for key, item in value.items() if key not in LIVE_OPTIONS})


def _choice(*allowed: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise _refuse(name, value, "one of " + ", ".join(map(repr, allowed)))
        return str(value)

    return check


def _tool_choice(name: str, value: Any) -> Any:
    if value in ("auto", "none", "required"):
        return value
    if isinstance(value, Mapping) and set(value) == {"name"} and isinstance(value["name"], str):
        return dict(value)
    raise _refuse(name, value, "'auto', 'none', 'required' or {'name': a tool's name}")


def _limits(name: str, value: Any) -> Dict[str, Any]:
    from ..loop.limits import Limits

    try:
        return (value if isinstance(value, Limits) else Limits.from_dict(value)).to_dict()
    except (TypeError, AttributeError):  # no mapping, or with other names
        raise _refuse(name, value, "Limits(max_total_tokens=, max_cost_usd=, max_tool_calls=)") from None


def _messages(name: str, value: Any) -> List[Dict[str, Any]]:
    return [message.to_dict() for message in to_messages(value, "option context")] if value else []


CHECKS: Dict[str, Callable[[str, Any], Any]] = {
    "instructions": _text, "system": _text, "context": _messages, "active_tools": _texts, "tool_choice": _tool_choice,
    "max_steps": _whole(1), "final_answer_at_max_steps": _flag, "limits": _limits, "deadline": _seconds,
    "temperature": _between(0, 10), "top_p": _between(0, 1), "max_output_tokens": _whole(1), "stop_sequences": _texts,
    "seed": _whole(0), "reasoning_effort": _text, "provider_options": _provider_options, "retries": _whole(0),
    "thread_id": _text, "max_iterations": _whole(1), "max_recoveries": _whole(0),
    "resource_id": _text, "run_id": _text, "request_context": _json_dict, "max_processor_retries": _whole(0),
    "require_tool_approval": _flag, "tool_concurrency": _whole(1), "tool_timeout": _seconds,
    "background_wait": _choice("wait", "suspend"), "metadata": _json_dict,
}


# Messages.


def to_messages(messages: Any, where: str = "messages") -> List[Message]:
    """Messages from what a caller may give: a string, strings, `Message`s, or dicts in OpenAI's form.

    Raises:
        ConfigError: If nothing is said, or something is none of these.
    """
    from ..messages import Message

    items = [messages] if isinstance(messages, (str, Message, Mapping)) else messages
    if isinstance(items, (bytes, type(None))) or not hasattr(items, "__iter__"):
        raise ConfigError("%s is %r; expected a text, a list of texts, Messages, or dicts with role and content"
                          % (where, messages))
    made = [_to_message(item, where) for item in items]
    if not any(part for message in made for part in message.parts if getattr(part, "text", "x").strip()):
        raise ConfigError("%s says nothing; expected a text that is not empty" % where)
    return made


def _to_message(item: Any, where: str) -> Message:
    from ..messages import Message

    if isinstance(item, Message):
        return item
    if isinstance(item, str):
        return Message.user(item)
    if not isinstance(item, Mapping) or "role" not in item:
        raise ConfigError("%s holds %r; expected a text, a Message, or a dict with role and content" % (where, item))
    from .openai_messages import from_openai

    try:
        return Message.from_dict(item) if "parts" in item else from_openai(item)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError("%s holds %r, which is no message: %s: %s"
                          % (where, item, type(error).__name__, error)) from error
