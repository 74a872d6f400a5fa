"""How the program ends: what an outcome, an error or a signal is as an exit code.

::

    0    done                       3    the run waits for a human      124  the deadline has passed
    1    failed                     75   busy or overloaded: try later  130  SIGINT (Ctrl-C)
    2    the call was wrong         141  nobody reads the output        143  SIGTERM
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NoReturn

from ..errors import ConfigError, MinagentError, RunBusy
from ..results import FullOutput
from .terminal import Terminal

DONE, FAILED, USAGE, WAITING, LATER, DEADLINE = 0, 1, 2, 3, 75, 124
INTERRUPTED, UNREAD, TERMINATED = 130, 141, 143


def code_of_output(output: FullOutput[Any]) -> int:
    """The exit code for what a run has come to."""
    if output.finish_reason == "suspended":
        return WAITING
    if output.finish_reason == "tripwire":
        return DEADLINE if output.tripwire is not None and output.tripwire.kind == "deadline" else FAILED
    return FAILED if output.finish_reason in ("cancelled", "error") else DONE


def code_of_error(error: BaseException) -> int:
    """The exit code for what was raised."""
    if isinstance(error, ConfigError):
        return USAGE
    return LATER if isinstance(error, RunBusy) or getattr(error, "retryable", False) else FAILED


def guarded(parse: Callable[[], Any], terminal: Terminal) -> int:
    """Parse the arguments and call the command; errors become one line each, signals their code."""
    debug = False
    try:
        with _sigterm():
            args = parse()
            debug = args.debug
            code: int = args.call(args, terminal)
            terminal.flush()
            return code
    except BrokenPipeError:
        terminal.abandon_output()
        return UNREAD
    except KeyboardInterrupt:
        terminal.note("interrupted")
        return INTERRUPTED
    except SystemExit as ended:  # of argparse, of SIGTERM, of a tool
        return _exit_code(ended.code, terminal)
    except Exception as error:
        expected = isinstance(error, (MinagentError, OSError))
        return _told(error, terminal, debug, "" if expected else "%s: " % type(error).__name__)


def _exit_code(code: Any, terminal: Terminal) -> int:
    if isinstance(code, str):
        terminal.note(code)
    return code if isinstance(code, int) else DONE if code is None else FAILED


def _told(error: BaseException, terminal: Terminal, debug: bool, prefix: str = "") -> int:
    if debug:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
    terminal.note(prefix + (str(error) or type(error).__name__))
    return code_of_error(error)


@contextmanager
def _sigterm() -> Iterator[None]:
    """SIGTERM leaves like Ctrl-C: what has run is recorded.  Only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _leave(number: int, frame: Any) -> NoReturn:
    sys.exit(TERMINATED)
