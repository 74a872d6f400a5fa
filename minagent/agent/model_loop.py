"""ModelLoop: the private glue between the agent and the loop.

It wraps the language models and never calls one; the loop's model-call leaf does.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from ..errors import ConfigError
from ..llm.base import LanguageModel
from ..loop.loop import loop


class ModelLoop:
    """The loop over some models.

    Parameters:
        models: `LanguageModel`s, tried in order.
    """

    def __init__(self, models: Sequence[LanguageModel]):
        if not models:
            raise ConfigError('the agent has no model; pass model="openai/gpt-5-mini" or another one')
        self.models = list(models)

    def stream(self, scope: Any, value: Any, drive: Callable[[Any, Any], Any]) -> Any:
        """Drive the loop into the run's sink; returns what its last iteration handed on."""
        scope.models = self.models
        return loop(scope, value, drive)
