"""Cron: one run for each item, and never a second one for the same item.

    python examples/cron.py tickets/*.txt
    python examples/cron.py --model openai-chat/gpt-5-mini tickets/*.txt

Exit codes: 0 all items are done, 1 some failed, 2 wrong call, 3 some wait for a person, 75 some are worked on
elsewhere or must be tried later, 124 a deadline passed, 130 and 143 signals.

The id of a run is made of the item.  So a second start, whether after a crash, at the same time, or tomorrow, does
not do anything twice: a finished run gives its output at once, an interrupted one goes on where it stood, and
one that another process works on is left to that one.
"""

import argparse
import hashlib
import signal
import sys
from pathlib import Path

from minagent import Agent
from minagent.errors import MinagentError, RunBusy
from minagent.runs import JsonFileRuns

DONE, FAILED, WAITING, LATER, DEADLINE, INTERRUPTED, TERMINATED = 0, 1, 3, 75, 124, 130, 143


def run_id_of(job, item, text):
    """The same for the same item with the same text; a changed text is a new item."""
    return "%s-%s" % (job, hashlib.sha256(("%s\0%s" % (item, text)).encode()).hexdigest()[:24])


def work(agent, path):
    """Summarise one file; returns (exit code, what to print)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        return FAILED, "cannot be read: %s" % error
    try:
        out = agent.generate("Summarise this ticket in one sentence:\n" + text, deadline=300,
                             run_id=run_id_of("tickets", path.name, text))
    except RunBusy:
        return LATER, "is worked on by another process"
    except MinagentError as error:
        return LATER if getattr(error, "retryable", False) else FAILED, "%s: %s" % (type(error).__name__, error)
    if out.finish_reason == "suspended":
        return WAITING, "waits for a person"
    if out.tripwire is not None:
        return DEADLINE if out.tripwire.kind == "deadline" else FAILED, out.tripwire.reason
    return DONE, out.text


def main(arguments, model=None):
    parser = argparse.ArgumentParser(description="Summarise tickets, each once.")
    parser.add_argument("--model", default="local")
    parser.add_argument("--runs", default="var/runs")
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args(arguments)

    codes = []
    with Agent("tickets", model=model or args.model, runs=JsonFileRuns(args.runs)) as agent:
        for path in args.files:
            code, told = work(agent, path)
            codes.append(code)
            print("%s: %s" % (path.name, told), file=sys.stdout if code == DONE else sys.stderr, flush=True)
    return next((code for code in (FAILED, WAITING, DEADLINE, LATER) if code in codes), DONE)


if __name__ == "__main__":
    # A script may say what a signal means; a library may not.  Either way the run is recorded as it stands and goes
    # on at the next start.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
