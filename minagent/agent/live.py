"""The live side of an agent's options: models, tools and system text for one request.

What is not here: recorded values (`options`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..llm.base import LanguageModel
    from ..tools import Tool


class Models:
    """Models by name, made once each, so that their connections are kept.

    Parameters:
        agent: Name of the agent, for errors.
    """

    def __init__(self, agent: str):
        self._agent = agent
        self._lock = threading.Lock()  # guards _made
        self._made: Dict[str, LanguageModel] = {}

    def of(self, model: Any, request_context: Mapping[str, Any]) -> List[LanguageModel]:
        """The models of a run, in the order in which they are tried.

        Raises:
            ConfigError: If there is none, or a name is unknown.
        """
        from ..llm.base import LanguageModel

        if callable(model) and not isinstance(model, LanguageModel):
            model = model(request_context)
        chosen = model if isinstance(model, (list, tuple)) else [model]
        if not chosen or None in chosen:
            raise ConfigError('agent %r has no model; pass model="openai/gpt-5-mini", another name or a LanguageModel'
                              % self._agent)
        return [item if isinstance(item, LanguageModel) else self._named(item) for item in chosen]

    def _named(self, name: Any) -> LanguageModel:
        from ..llm.resolve import resolve

        if not isinstance(name, str):
            return resolve(name)
        with self._lock:
            if name not in self._made:
                self._made[name] = resolve(name)
            return self._made[name]

    def close(self) -> None:
        """Close the connections of the models that were made here."""
        with self._lock:
            models, self._made = list(self._made.values()), {}
        for model in models:
            close = getattr(model, "close", None)
            if close is not None:
                close()


def system_text(values: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    """Instructions, and the call's addition to them."""
    instructions: Any = live.get("instructions", values.get("instructions"))
    if callable(instructions):
        instructions = instructions(values.get("request_context") or {})
    return "\n\n".join([text for text in (instructions, values.get("system")) if text])


def checked_tools(tools: Sequence[Any]) -> List[Tool]:
    """Tools of a list.

    Raises:
        ConfigError: If something is no tool, or two have one name.
    """
    from ..tools import as_tool
    from .prepare_stream.tools_step import add_tool

    if isinstance(tools, (str, Mapping)) or not hasattr(tools, "__iter__"):
        raise ConfigError("tools is %r; expected a list of functions and Tools, as in tools=[...]" % (tools,))
    toolset: Dict[str, Tool] = {}
    for item in tools:
        add_tool(toolset, as_tool(item))
    return list(toolset.values())


def tools_of(tools: Any, request_context: Mapping[str, Any]) -> List[Tool]:
    """The tools of one run: a list, or what a callable of the request's context returns."""
    return checked_tools(tools(request_context) if is_factory(tools) else tools or ())


def is_factory(tools: Any) -> bool:
    """Whether ``tools=`` is a callable of the request's context; a lone Tool can be called, too, and is none."""
    if not callable(tools):
        return False
    from ..tools import Tool

    return not isinstance(tools, Tool)
