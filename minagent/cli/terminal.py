"""The program's side of stdin, stdout and stderr: pipes, terminals and locales that know only ASCII.

Results are written to stdout as they are; notes are one line each on stderr.  What is not here: what is said
(`run`, `chat`, `doctor`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Optional

#: Control characters other than tab and newline.  A model's text must not command a terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: Characters written at once.  An unbuffered stream (PYTHONUNBUFFERED) forgets the rest of a write that was cut
#: short, so that only the next one tells that the reader has gone.
_PIECE = 8192


class Terminal:
    """The three standard streams.

    Attributes:
        interactive: Whether a person types at stdin.
    """

    def __init__(self) -> None:
        self.out = _speaking(sys.stdout)
        self.err = _speaking(sys.stderr)
        self.interactive = bool(sys.stdin and sys.stdin.isatty())
        self._shown = self.out.isatty()
        self._open_line = False

    def write(self, text: str) -> None:
        """Write a piece of a result, at once."""
        if text:
            self._open_line = not text.endswith("\n")
            shown = _CONTROL.sub("", text) if self._shown else text
            for start in range(0, len(shown), _PIECE):
                self.out.write(shown[start:start + _PIECE])
            self.out.flush()

    def end_line(self) -> None:
        """Begin a new line, unless there is one."""
        if self._open_line:
            self.write("\n")

    def write_json(self, value: Any) -> None:
        """Write one JSON value in ASCII, which no locale can spoil."""
        self.write(json.dumps(value, indent=2, default=str) + "\n")

    def note(self, text: str) -> None:
        """Tell whoever watches, in one line on stderr; nobody's result depends on it."""
        try:
            if self._shown:
                self.end_line()
            self.err.write("minagent: %s\n" % one_line(text))
            self.err.flush()
        except (OSError, ValueError):
            pass

    def echo(self, text: str) -> None:
        """Write a piece of text on stderr, for those who watch while the result is JSON."""
        self.err.write(_CONTROL.sub("", text))
        self.err.flush()

    def read_all(self) -> str:
        """All of stdin as text; bytes that are no UTF-8 are replaced."""
        if hasattr(sys.stdin, "buffer"):
            return sys.stdin.buffer.read().decode("utf-8", "replace")
        return sys.stdin.read()

    def ask(self, prompt: str, needed: bool = False) -> Optional[str]:
        """The next line of stdin, or None at its end.

        Parameters:
            prompt: Shown to a person who types; on stderr where stdout is not the terminal.
            needed: Say it on stderr to a pipe, too: what comes next depends on it.
        """
        if self.interactive and self._shown:
            return _typed(prompt)
        if self.interactive:
            self.echo(prompt)
        elif needed:
            self.note(prompt.rstrip(": "))
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    def flush(self) -> None:
        """Hand over what was written; a reader who is gone is noticed here at the latest."""
        self.out.flush()

    def abandon_output(self) -> None:
        """Nobody reads: let the interpreter's own flush at exit go nowhere."""
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())
        except (OSError, ValueError):
            pass


def _typed(prompt: str) -> Optional[str]:
    try:
        import readline  # noqa: F401  (line editing for input())
    except ImportError:
        pass
    try:
        return input(prompt)
    except EOFError:
        sys.stdout.write("\n")
        return None


def _speaking(stream: Any) -> Any:
    """The stream, made to take any text: ASCII locales get UTF-8, others an escape for what they lack."""
    if stream is None:
        return open(os.devnull, "w")
    if hasattr(stream, "reconfigure"):
        plain = (stream.encoding or "ascii").lower() in ("ascii", "us-ascii", "ansi_x3.4-1968", "646")
        stream.reconfigure(errors="backslashreplace", **({"encoding": "utf-8"} if plain else {}))
    return stream


def one_line(text: str) -> str:
    """A text without line breaks and control characters."""
    return _CONTROL.sub("", " ".join(text.split()))
