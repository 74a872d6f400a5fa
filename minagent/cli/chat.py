"""``minagent chat``: one line a turn, until stdin ends.

The history is the messages of the last answer that was finished; a turn that failed or was cancelled leaves no
trace in it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional

from ..errors import InvalidDecision, MinagentError
from ..messages import Message
from ..results import Answer, Approve, Decision, Decline, FullOutput, Suspension
from .exits import DONE, FAILED, WAITING, code_of_output
from .loading import agent_of
from .run import question, show, tell_end
from .terminal import Terminal


def chat(args: Any, terminal: Terminal) -> int:
    """Talk until stdin ends; returns the exit code."""
    with agent_of(args, terminal) as agent:
        if terminal.interactive and not args.quiet:
            terminal.note("Ctrl-D ends, Ctrl-C cancels an answer")
        return _Chat(agent, args, terminal).run()


class _Chat:
    """One conversation."""

    def __init__(self, agent: Any, args: Any, terminal: Terminal):
        self.agent = agent
        self.args = args
        self.terminal = terminal
        self.history: List[Message] = []
        self.code = DONE

    def run(self) -> int:
        while True:
            try:
                line = self.terminal.ask("> ")
                if line is None:
                    return DONE if self.terminal.interactive else self.code
                if line.strip():
                    self.turn(line)
            except KeyboardInterrupt:
                self.terminal.note("cancelled" if not self.terminal.interactive else "cancelled; Ctrl-D ends")

    def turn(self, line: str) -> None:
        """Ask, and keep what was said if it came to an end."""
        try:
            output: Optional[FullOutput[Any]] = self.watched(
                self.agent.stream([*self.history, Message.user(line)]))
            while output is not None and output.finish_reason == "suspended":
                output = self.decided(output)
        except MinagentError as error:
            self.terminal.end_line()
            self.terminal.note(str(error))
            self.code = FAILED
            return
        if output is None:
            self.code = WAITING
            return
        code = code_of_output(output)
        tell_end(output, self.terminal, code, self.args.runs)
        if code == DONE:
            self.history = list(output.messages)
        else:
            self.code = code

    def watched(self, stream: Any) -> FullOutput[Any]:
        """Show an answer as it comes; leaving early cancels it."""
        with stream:
            for chunk in stream:
                show(chunk, self.terminal, self.terminal.write, self.args.quiet)
            output: FullOutput[Any] = stream.output
            return output

    def decided(self, output: FullOutput[Any]) -> Optional[FullOutput[Any]]:
        """Ask about everything that the run waits for and go on; None if stdin ended."""
        decisions: Dict[str, Decision] = {}
        for suspension in output.suspensions:
            decision = self.decision(suspension)
            if decision is None:
                return None
            decisions[suspension.id] = decision
        run = output.run_id if output.snapshot is None else output.snapshot
        try:
            return self.watched(self.agent.resume_stream(run, decisions))
        except InvalidDecision as error:
            self.terminal.note(str(error))
            return output

    def decision(self, suspension: Suspension) -> Optional[Decision]:
        self.terminal.note(question(suspension))
        if suspension.kind == "approval":
            return self.approved()
        line = self.terminal.ask("answer: ", needed=True)
        return None if line is None else Answer(value_of(line))

    def approved(self) -> Optional[Decision]:
        """Ask until the answer is clear; None if stdin ended."""
        while True:
            line = self.terminal.ask("y, n, or n and the reason: ", needed=True)
            decision = None if line is None else approval(line)
            if line is None or decision is not None:
                return decision


def approval(line: str) -> Optional[Decision]:
    """Yes, no, or no with what follows it as the reason; None for anything else, a decision is final."""
    said = re.match(r"(y|yes|n|no)\b[\s,;:.!-]*(.*)", line.strip(), re.IGNORECASE)
    if said is None:
        return None
    if said.group(1).lower() in ("n", "no"):
        return Decline(said.group(2))
    return None if said.group(2) else Approve()


def value_of(line: str) -> Any:
    """The line as JSON if it is some, else as text."""
    try:
        return json.loads(line)
    except ValueError:
        return line
