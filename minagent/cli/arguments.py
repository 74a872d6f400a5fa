"""The arguments of each command, and how a wrong one is refused: one line, exit code 2."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn, Optional, Sequence

from .exits import USAGE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, "minagent: %s (%s --help tells more)\n" % (message, self.prog))


def parse(argv: Optional[Sequence[str]], prog: str) -> Any:
    """The parsed arguments; `call` of them is the function of the command.

    Raises:
        SystemExit: After --help, --version, or a wrong argument.
    """
    parser = _Parser(prog=prog, description="Agents for synchronous Python programs.")
    parser.add_argument("--version", action="version", version="minagent " + _version())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=_Parser)
    commands.required = True
    _add_run(commands)
    _add_chat(commands)
    _add_doctor(commands)
    return parser.parse_args(argv)


def _version() -> str:
    from .. import __version__

    return __version__


def _add_run(commands: Any) -> None:
    command = _command(commands, "run", _run, "answer one prompt",
                       "Answer one prompt.  Exit code: 0 done, 1 failed, 2 wrong call, 3 the run waits for a human, "
                       "75 try later, 124 deadline, 130 and 143 signals.")
    command.add_argument("prompt", help="the prompt; - reads it from stdin")
    _add_agent(command)
    command.add_argument("--stream", action="store_true", help="show the text as it comes")
    command.add_argument("--json", action="store_true",
                         help="print the whole result as one JSON object; what --stream shows goes to stderr then")


def _add_chat(commands: Any) -> None:
    command = _command(commands, "chat", _chat, "talk, one line a turn",
                       "Talk, one line a turn, until stdin ends (Ctrl-D).  Ctrl-C cancels an answer.")
    _add_agent(command)


def _add_doctor(commands: Any) -> None:
    command = _command(commands, "doctor", _doctor, "tell what is installed and set",
                       "Tell what is installed, which provider keys are set (never their values), and whether a "
                       "store can be written.  Exit code 1 if something must be mended.")
    command.add_argument("--runs", metavar="DIR", help="also examine this folder as a store of runs")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _command(commands: Any, name: str, call: Any, help: str, description: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    command.set_defaults(call=call)
    return command


def _add_agent(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", metavar="NAME",
                         help="provider/model, 'local', or module:attribute for a LanguageModel of your own; default: "
                              "by the provider key that is set, without one 'local'")
    command.add_argument("--tool", metavar="MODULE:FUNCTION", action="append", default=[],
                         help="a tool; may be given several times")
    command.add_argument("--instructions", metavar="TEXT", help="the agent's system text")
    command.add_argument("--runs", metavar="DIR", help="keep the run in this folder")
    command.add_argument("--max-steps", metavar="N", type=_whole, help="steps at most (default 20)")
    command.add_argument("--deadline", metavar="SECONDS", type=_seconds, help="seconds at most")
    command.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _whole(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("%r is not a whole number of 1 or more" % text)
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("%r is not a number of seconds above 0" % text)
    return seconds


# The commands are loaded when they are called.


def _run(args: Any, terminal: Any) -> int:
    from .run import run

    return run(args, terminal)


def _chat(args: Any, terminal: Any) -> int:
    from .chat import chat

    return chat(args, terminal)


def _doctor(args: Any, terminal: Any) -> int:
    from .doctor import doctor

    return doctor(args, terminal)
