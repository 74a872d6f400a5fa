"""The command line: `run`, `chat` and `doctor`.

``main`` reads the arguments, calls one of them and turns what comes of it into an exit code (`exits`).  Results
go to stdout, everything else to stderr.  What is not here: managing recorded runs.
"""

from __future__ import annotations

from typing import Optional, Sequence


def main(argv: Optional[Sequence[str]] = None, prog: str = "minagent") -> int:
    """Do what the arguments say.

    Parameters:
        argv: Arguments without the program's name; None takes the process's own.
        prog: How the program was called, for its own texts.

    Returns:
        The exit code; see `exits`.
    """
    from .arguments import parse
    from .exits import guarded
    from .terminal import Terminal

    return guarded(lambda: parse(argv, prog), Terminal())
