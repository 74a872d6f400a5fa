"""Turns: what a scripted model says, as values.

The same turns drive `ScriptedModel` (no network) and `ScriptedServer` (real bytes).  Not here: how either of
them spells a turn.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ..errors import ConfigError
from ..results import Usage

#: What a turn costs unless it says otherwise.
TURN_USAGE = Usage(10, 5)


@dataclass(frozen=True)
class ScriptedCall:
    """A tool call of a turn.

    Attributes:
        name: The tool.
        raw_args: The arguments as the model writes them; any text, JSON or not.
        call_id: None for one that is made from the place in the conversation; anything else is taken as it
            is, "" and an id that another call has too.
    """

    name: str
    raw_args: str = "{}"
    call_id: Optional[str] = None


@dataclass(frozen=True)
class Turn:
    """One answer of a model.  Two turns can be added: texts and calls are joined, else the right one wins.

    Attributes:
        text: The answer's text.
        calls: The tools it calls.
        finish_reason: As in `ModelResponse`; None stands for tool-calls where there are calls, else stop.
        usage: Tokens of this answer.
        reasoning: Thoughts before the text.
        error: Raised, after `text` if there is any, instead of finishing.
        gate: Awaited before the first part, or None.
    """

    text: str = ""
    calls: Tuple[ScriptedCall, ...] = ()
    finish_reason: Optional[str] = None
    usage: Usage = TURN_USAGE
    reasoning: str = ""
    error: Optional[BaseException] = None
    gate: Optional[threading.Event] = None

    @property
    def finish(self) -> str:
        return self.finish_reason or ("tool-calls" if self.calls else "stop")

    def __add__(self, other: Turn) -> Turn:
        return replace(other, text=self.text + other.text, calls=self.calls + other.calls,
                       reasoning=self.reasoning + other.reasoning, gate=other.gate or self.gate)


CallLike = Union[ScriptedCall, str, Tuple[str, Mapping[str, Any]]]


def says(text: str, *, finish_reason: Optional[str] = None, usage: Usage = TURN_USAGE, reasoning: str = "",
         calls: Sequence[CallLike] = (), gate: Optional[threading.Event] = None) -> Turn:
    """A turn of text, with thoughts and calls if they are given.

    Parameters:
        text: The answer.
        finish_reason: See `Turn`.
        usage: Tokens of this answer.
        reasoning: Thoughts before the text.
        calls: Calls beside the text: a name, (name, arguments) or `call(...)` each.
        gate: The turn waits for it before its first part.
    """
    return Turn(text, tuple([_as_call(item) for item in calls]), finish_reason, usage, reasoning, None, gate)


def calls(*items: Any, **arguments: Any) -> Turn:
    """A turn that calls tools.

    ``calls("refund", order=7)`` calls one tool; ``calls(("add", {"a": 1}), ("add", {"a": 2}))`` calls several
    in parallel; each may also be a `call(...)`.  To add text: ``says("One moment.") + calls(...)``.

    Raises:
        ConfigError: If the items are neither.
    """
    if items and isinstance(items[0], str):
        rest = [item for item in items[1:] if isinstance(item, Mapping)]
        if len(rest) != len(items) - 1 or len(rest) > 1:
            raise ConfigError("calls(%s): expected a tool's name and its arguments; to call several tools "
                              "write calls((name, arguments), (name, arguments))"
                              % ", ".join(map(repr, items)))
        return Turn(calls=(call(items[0], dict(*rest, **arguments)),))
    if arguments:
        raise ConfigError("calls() got arguments %s without a tool's name before them"
                          % ", ".join(sorted(arguments)))
    return Turn(calls=tuple([_as_call(item) for item in items]))


def call(name: str, args: Optional[Mapping[str, Any]] = None, *, raw_args: Optional[str] = None,
         call_id: Optional[str] = None) -> ScriptedCall:
    """One call of a turn, with everything that may be odd about it.

    Parameters:
        name: The tool.
        args: Its arguments.
        raw_args: The text of the arguments instead of `args`: for JSON that is broken or no object.
        call_id: See `ScriptedCall`.
    """
    written = json.dumps(args or {}, ensure_ascii=False) if raw_args is None else raw_args
    return ScriptedCall(name, written, call_id)


def fails(error: BaseException, *, after: str = "", gate: Optional[threading.Event] = None) -> Turn:
    """A turn that raises `error`, after some text if `after` is given."""
    return Turn(after, error=error, gate=gate)


def _as_call(item: Any) -> ScriptedCall:
    if isinstance(item, ScriptedCall):
        return item
    if isinstance(item, str):
        return call(item)
    if isinstance(item, (tuple, list)) and 1 <= len(item) <= 2 and isinstance(item[0], str):
        return call(*item)
    raise ConfigError("a scripted call is %r; expected a tool's name, (name, arguments) or call(...)"
                      % (item,))


def pieces(text: str, count: int = 3) -> List[str]:
    """Cut a text into at most `count` pieces of about the same length, none of them empty."""
    size = -(-len(text) // count) or 1
    return [text[start:start + size] for start in range(0, len(text), size)]


class Script:
    """Which turn comes next.

    Parameters:
        turns: Turns in order (a string is `says`), or a function of the request that returns the turn.
        loop: Start again after the last turn.
        by_step: Go by the number of answers in the conversation instead of the number of requests.

    Raises:
        ConfigError: If the script is neither.
    """

    def __init__(self, turns: Any, loop: bool = False, by_step: bool = False):
        if isinstance(turns, (str, Turn)) or not (callable(turns) or isinstance(turns, Iterable)):
            raise ConfigError("a script is %r; expected a list of turns, such as [says('Hello.')], or a "
                              "function" % (turns,))
        self._turns = turns if callable(turns) else tuple(turns)
        self._loop = loop
        self._by_step = by_step

    def turn(self, request: Any, index: int, answers: int) -> Turn:
        """Return the turn for a request.

        Parameters:
            request: Handed to a script that is a function.
            index: Requests before this one.
            answers: Assistant messages in the request.

        Raises:
            ConfigError: If there is no turn left, or it is none.
        """
        if callable(self._turns):
            return _as_turn(self._turns(request))
        wanted = answers if self._by_step else index
        if wanted >= len(self._turns) and not (self._loop and self._turns):
            raise ConfigError("the script has %d turns and was asked for turn %d; add turns, or pass "
                              "loop=True or by_step=True" % (len(self._turns), wanted + 1))
        return _as_turn(self._turns[wanted % len(self._turns)])


def _as_turn(turn: Any) -> Turn:
    if isinstance(turn, Turn):
        return turn
    if isinstance(turn, str):
        return says(turn)
    raise ConfigError("a turn of the script is %r; expected says(...), calls(...), fails(...) or a string"
                      % (turn,))
