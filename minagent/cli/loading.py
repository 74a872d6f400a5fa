"""From the arguments to an agent: tools and models by ``module:attribute``, and the model where none is named."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import ConfigError, did_you_mean

#: Environment variable with a provider's key -> the model that is taken where none is named; the first that is
#: set decides.  Small, usual models: this is a default for trying things out.
DEFAULT_MODELS: Tuple[Tuple[str, str], ...] = (
    ("OPENAI_API_KEY", "openai/gpt-5-mini"),
    ("OPENROUTER_API_KEY", "openrouter/openai/gpt-5-mini"),
    ("MISTRAL_API_KEY", "mistral/mistral-small-latest"),
    ("DEEPSEEK_API_KEY", "deepseek/deepseek-chat"),
    ("GROQ_API_KEY", "groq/openai/gpt-oss-20b"),
    ("CEREBRAS_API_KEY", "cerebras/gpt-oss-120b"),
    ("TOGETHER_API_KEY", "together/openai/gpt-oss-120b"),
    ("FIREWORKS_API_KEY", "fireworks/accounts/fireworks/models/gpt-oss-120b"),
    ("XAI_API_KEY", "xai/grok-4"),
)
NO_KEY_MODEL = "local"


def default_model(environ: Mapping[str, str]) -> Tuple[str, Optional[str]]:
    """The model where none is named, and the variable that decided (None: no key is set)."""
    for variable, model in DEFAULT_MODELS:
        if environ.get(variable):
            return model, variable
    return NO_KEY_MODEL, None


def agent_of(args: Any, terminal: Any) -> Any:
    """The agent that `run` and `chat` were asked for.

    Raises:
        ConfigError: If a tool, the model or an option cannot be used.
    """
    from ..agent.agent import Agent

    options: Dict[str, Any] = {"tools": [loaded(name, "--tool") for name in args.tool],
                               "model": _model(args, terminal)}
    for name in ("instructions", "max_steps", "deadline"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.runs is not None:
        options["runs"] = _store(args.runs)
    return Agent("minagent", **options)


def _store(folder: str) -> Any:
    from ..runs.json_files import JsonFileRuns

    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError("--runs %s: the folder cannot be made: %s; expected a folder, or where one can be made"
                          % (folder, error.strerror or error)) from error
    return JsonFileRuns(folder)


def _model(args: Any, terminal: Any) -> Any:
    name = args.model
    if name is None:
        name, variable = default_model(os.environ)
        why = "%s is set" % variable if variable else "no provider key is set"
        if not args.quiet:
            terminal.note("model %s (%s; --model chooses another)" % (name, why))
    if ":" in name and "/" not in name:
        return loaded(name, "--model")
    return name


def loaded(name: str, option: str) -> Any:
    """What ``module:attribute`` names; modules of the current directory are found.

    Raises:
        ConfigError: If there is no such thing.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ConfigError("%s %r: expected MODULE:FUNCTION, such as examples.tools:add" % (option, name))
    value = _imported(module_name, "%s %s" % (option, name))
    for attribute in path.split("."):
        if not hasattr(value, attribute):
            raise ConfigError("%s %s: %s has no %r%s" % (option, name, module_name, attribute, did_you_mean(
                attribute, [known for known in dir(value) if not known.startswith("_")])))
        value = getattr(value, attribute)
    return value


def _imported(module_name: str, subject: str) -> Any:
    import importlib

    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise ConfigError("%s: there is no module %r, neither in %s nor installed"
                              % (subject, error.name, here)) from error
        raise ConfigError("%s: importing %s needs the module %r, which is not installed"
                          % (subject, module_name, error.name)) from error
    except Exception as error:
        raise ConfigError("%s: importing %s raised %s: %s (--debug shows where)"
                          % (subject, module_name, type(error).__name__, error)) from error
