"""Decisions: whether one fits the suspension that it answers.

What is not here: keeping them (each store), and acting on them (the loop).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..errors import EncodeError, InvalidDecision
from ..results import DECISIONS, decision_to_dict

# Which decisions each kind of suspension takes; another kind takes all of them.
_FITTING: Dict[str, Tuple[str, ...]] = {
    "tool": ("answer", "decline"),
    "elicitation": ("answer", "decline"),
    "background": ("answer", "decline"),
}
_WRITTEN = {"approve": "Approve()", "decline": "Decline(reason)", "answer": "Answer(value)"}


def plain(decision: Any, run_id: Optional[str] = None) -> Dict[str, Any]:
    """Return a decision as a fresh JSON dict.

    Raises:
        InvalidDecision: If it is no decision, has members that no decision has, or a value that is no JSON.
    """
    from ..schema.encode import encode

    try:
        data: Dict[str, Any] = encode(decision_to_dict(decision))
    except EncodeError as error:
        problems = [(error.path, str(error))]
        raise InvalidDecision("the decision cannot be kept: %s" % error, run_id, problems) from error
    known = {"type"} | {item.name for item in fields(DECISIONS[data["type"]])}
    odd = sorted(set(data) - known)
    if odd:
        raise InvalidDecision("the decision %r has %s; a decision of this type has %s"
                              % (data["type"], ", ".join(map(repr, odd)), ", ".join(sorted(known))), run_id)
    if data.get("args") is not None and not isinstance(data["args"], dict):
        raise InvalidDecision("Approve.args is %r; expected a dict of arguments by name" % (data["args"],),
                              run_id)
    return data


def check(suspension: Mapping[str, Any], decision: Mapping[str, Any], run_id: str, now: float) -> None:
    """See whether a decision fits an open suspension.

    Raises:
        InvalidDecision: If its type, its value or its arguments do not fit, or if it comes too late.
    """
    kind = suspension.get("kind", "tool")
    fitting = _FITTING.get(kind, tuple(DECISIONS))
    if decision["type"] not in fitting:
        words = " or ".join(_WRITTEN[name] for name in fitting)
        raise InvalidDecision("suspension %s is of kind %r and cannot take %s; use %s"
                              % (suspension["id"], kind, _WRITTEN[decision["type"]], words), run_id)
    if expired(suspension, now) and decision["type"] != "decline":
        raise InvalidDecision("suspension %s has expired and counts as declined; resume the run to let "
                              "it go on" % suspension["id"], run_id)
    problems = _problems(suspension.get("resume_schema"), kind, decision)
    if problems:
        words = "; ".join("%s: %s" % problem for problem in problems[:5])
        raise InvalidDecision("the decision does not fit suspension %s: %s; it is still open, decide again"
                              % (suspension["id"], words), run_id, problems)


def expired(suspension: Mapping[str, Any], now: float) -> bool:
    """Whether a suspension counts as declined by now (seconds since the epoch)."""
    expires_at = suspension.get("expires_at")
    return expires_at is not None and expires_at <= now


def _problems(schema: Any, kind: str, decision: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """What does not fit the schema: of an approval that is edited arguments, otherwise the answer's value."""
    if kind == "approval":
        checked = decision["type"] == "approve" and decision.get("args") is not None
        value = decision.get("args")
    else:
        checked, value = decision["type"] == "answer", decision.get("value")
    if schema is None or not checked:
        return []
    from ..schema import Validator

    return list(Validator(schema).problems(value))
