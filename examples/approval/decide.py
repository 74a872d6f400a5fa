"""Approval across two processes, the second one: show what waits, decide, go on.

    python examples/approval/decide.py                    what waits
    python examples/approval/decide.py yes [model]        let the one that was asked first run
    python examples/approval/decide.py "too much" [model] decline it, with the reason

A run may wait for several decisions; it goes on with those that are made.  A decision is recorded once.  Of two
people who decide at the same time one gets `AlreadyDecided`.
"""

import sys

from ask import RUNS, make_agent

from minagent import Approve, Decline
from minagent.errors import AlreadyDecided, RunBusy


def main(said="", model="local", folder=RUNS):
    agent = make_agent(model, folder)
    # The store lists the newest run first, but what one run asks in the order in which it was asked.
    waiting = sorted(agent.runs.suspensions(agent="refunds"), key=lambda item: item["created_at"])
    if not said or not waiting:
        for item in waiting:
            print("run %s: %s %s" % (item["run_id"], item["tool_name"], item["args"]))
        print("%d waiting" % len(waiting))
        return 0

    oldest = waiting[0]
    decision = Approve(by="ann") if said == "yes" else Decline(said, by="ann")
    try:
        out = agent.resume(oldest["run_id"], {oldest["id"]: decision})
    except AlreadyDecided as error:
        print("somebody was faster: %s" % error.decision)
        return 1
    except RunBusy:
        print("the decision is recorded; the process that owns the run goes on with it")
        return 75
    if out.finish_reason == "suspended":
        print("run %s still waits for %d more" % (out.run_id, len(out.suspensions)))
        return 3
    print(out.text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
