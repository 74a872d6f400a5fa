"""Limits: what a run may use up, checked before money is spent.

They count over the run's whole life, as sums in the state; a deadline counts from each start.  Reaching one
ends the call with finish_reason "tripwire"; a resume with a higher limit goes on.  ``max_steps`` is not here:
it finishes a run (`agentic_loop`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, NoReturn, Optional

from ..errors import Cancelled, ConfigError, LimitReached
from ..results import Tripwire


@dataclass(frozen=True)
class Limits:
    """Budgets of one run.

    Attributes:
        max_total_tokens: Input plus output tokens, or None.
        max_cost_usd: US dollars, as far as providers report cost, or None.
        max_tool_calls: Calls, or None.
    """

    max_total_tokens: Optional[int] = None
    max_cost_usd: Optional[float] = None
    max_tool_calls: Optional[int] = None

    def __post_init__(self) -> None:
        for name in ("max_total_tokens", "max_tool_calls"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError("Limits(%s=%r): expected a whole number of 1 or more, or None" % (name, value))
        cost = self.max_cost_usd
        if cost is not None and (isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 < cost < 1e300):
            raise ConfigError("Limits(max_cost_usd=%r): expected US dollars above 0, or None" % (self.max_cost_usd,))

    def to_dict(self) -> Dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limits:
        return cls(**data)


def reached(kind: str, reason: str) -> LimitReached:
    """The signal for a limit of that kind: tokens, cost, tool-calls or deadline."""
    return LimitReached(reason, Tripwire(kind, reason).to_dict())


def stop(scope: Any) -> NoReturn:
    """Leave because the run's token is set or its deadline has passed."""
    if scope.cancel.reason in ("", "deadline"):
        raise reached("deadline", "the deadline of %g seconds has passed" % (scope.deadline.seconds or 0))
    raise Cancelled(scope.cancel.reason)


def check_running(ctx: Any) -> None:
    """Raise if the run was cancelled or its deadline has passed."""
    scope = ctx.scope
    if scope.cancel or scope.deadline.passed():
        stop(scope)
    if scope.lease.cancel_asked():
        scope.cancel.cancel()
        stop(scope)


def check_model_call(ctx: Any) -> None:
    """Raise if another model call must not be made."""
    check_running(ctx)
    scope = ctx.scope
    if scope.max_iterations is not None and scope.iterations >= scope.max_iterations and scope.state.open is None:
        raise Cancelled("max_iterations=%d reached" % scope.max_iterations)
    limits: Limits = scope.limits
    tokens, cost = scope.state.usage.total_tokens or 0, scope.state.cost_usd or 0.0
    if limits.max_total_tokens is not None and tokens >= limits.max_total_tokens:
        raise reached("tokens", "%d tokens used, the limit is %d" % (tokens, limits.max_total_tokens))
    if limits.max_cost_usd is not None and cost >= limits.max_cost_usd:
        raise reached("cost", "%.4f US dollars spent, the limit is %.4f" % (cost, limits.max_cost_usd))


def claim_tool_call(ctx: Any, call: Mapping[str, Any]) -> None:
    """Raise if another tool must not be run; calls that are at work count as made."""
    scope = ctx.scope
    with scope.counting:
        at_work = scope.claimed - set(scope.state.open.results) - {call["call_id"]}
        made, most = scope.state.tool_calls + len(at_work), scope.limits.max_tool_calls
        if most is not None and made >= most:
            raise reached("tool-calls", "%d tool calls made, the limit is %d" % (made, most))
        scope.claimed.add(call["call_id"])
