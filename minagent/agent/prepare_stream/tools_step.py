"""prepare-tools: the tools that a run has, by name.

Agent tools, tools of processors and the built-in tools.  What is recorded is only what a resume compares: a
digest of each schema.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

from ...errors import ConfigError
from ...loop.scope import READ_TOOL
from ...loop.tool_result import create_read_tool
from ...tools import Tool, as_tool
from ...workflow.nodes import Done, Step


def create_tools_step() -> Step:
    return Step("prepare-tools", prepare_tools, bind=bind_tools, join=lambda value, output: value)


def prepare_tools(ctx: Any, value: Any) -> Done:
    toolset = make_toolset(ctx.scope)
    digests = {name: tool.digest for name, tool in toolset.items() if name != READ_TOOL}
    return Done({"tools": digests}, [{"type": "tools-set"}, *ctx.scope.runner.state_changes()])


def bind_tools(scope: Any, output: Any) -> None:
    """Make the live tools, unless this start has."""
    if not scope.toolset:
        make_toolset(scope)


def make_toolset(scope: Any) -> Dict[str, Tool]:
    """The run's tools by name.

    Raises:
        ConfigError: If two have one name, a tool cannot be run, or a chosen tool does not exist.
    """
    toolset: Dict[str, Tool] = {}
    for item in [*scope.make_tools(), *scope.runner.tools(), create_read_tool(scope)]:
        add_tool(toolset, as_tool(item))
    check_names("active_tools", scope.options.get("active_tools") or (), toolset)
    choice = scope.options.get("tool_choice")
    check_names("tool_choice", [choice["name"]] if isinstance(choice, dict) else (), toolset)
    scope.toolset = toolset
    return toolset


def check_names(option: str, names: Sequence[str], toolset: Mapping[str, Tool]) -> None:
    for name in names:
        if name not in toolset:
            there = ", ".join(known for known in toolset if known != READ_TOOL) or "none"
            raise ConfigError("%s names %r; the tools are: %s" % (option, name, there))


def add_tool(toolset: Dict[str, Tool], tool: Tool) -> None:
    """Add a tool to a toolset.

    Raises:
        ConfigError: If its name is taken, or its policy asks for what is not there.
    """
    if tool.name in toolset:
        raise ConfigError("two tools are named %r; rename one with @tool(name=...)" % tool.name)
    if tool.policy.effect == "transactional":
        raise ConfigError("tool %s has effect='transactional'; that needs a store that shares its database with the "
                          "tool, which none of the stores here does; use 'idempotent' or 'once'" % tool.name)
    for name, usual in (("isolation", "thread"), ("exclusive", False), ("max_calls", None)):
        if getattr(tool.policy, name) != usual:
            raise ConfigError("tool %s asks for %s=%r, which this version cannot do yet; leave it out"
                              % (tool.name, name, getattr(tool.policy, name)))
    toolset[tool.name] = tool
