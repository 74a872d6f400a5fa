"""Stop conditions: small callables over the finished steps, composed by ``|`` and ``&``.

``max_steps`` and the budgets are no stop conditions: they are limits and live in `limits`.
"""

from __future__ import annotations

from typing import Callable, Sequence

from ..results import StepResult

Condition = Callable[[Sequence[StepResult]], bool]


class StopCondition:
    """Asked after each step that would go on; True ends the run with finish_reason "stop".

    Parameters:
        ask: ``ask(steps)`` with the finished steps, the last one included.
    """

    def __init__(self, ask: Condition):
        self._ask = ask

    def __call__(self, steps: Sequence[StepResult]) -> bool:
        return bool(self._ask(steps))

    def __or__(self, other: Condition) -> StopCondition:
        return StopCondition(lambda steps: self(steps) or bool(other(steps)))

    def __and__(self, other: Condition) -> StopCondition:
        return StopCondition(lambda steps: self(steps) and bool(other(steps)))


def has_tool_call(name: str) -> StopCondition:
    """Stop after a step in which the tool `name` was called (it has run by then)."""
    return StopCondition(lambda steps: bool(steps) and any(call.name == name for call in steps[-1].tool_calls))
