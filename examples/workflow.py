"""A durable workflow without any agent: an order that waits for a person and survives the end of its process.

    python examples/workflow.py start orders.jsonl     prices the order and stops to ask for approval
    python examples/workflow.py approve orders.jsonl   another process, another day: ships it
    python examples/workflow.py                        both, each in a process of its own

The file holds one JSON record a line.  Whatever it holds, running is the same call: what is recorded is not
done again.  Stop either process wherever you like and start it again.  (`minagent.runs` keeps journals with
locks, checksums and torn ends cut; this is the least that does it.)
"""

import json
import os
import subprocess
import sys
import tempfile

from minagent.workflow import (
    Branch,
    DoWhile,
    Engine,
    ForEach,
    Journal,
    NullLease,
    Step,
    Suspend,
    Workflow,
    always,
)

ORDER = {"customer": "ann", "items": [{"name": "bolt", "count": 2500}, {"name": "nut", "count": 1200}]}
BOX = 1000  # pieces in a box


class LinesLease(NullLease):
    """Keeps records as lines of a file, each on disk before the next thing happens."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.records = [json.loads(line) for line in file]

    def append(self, record):
        line = json.dumps(record)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


# Leaves: each takes the value that the one before handed on, and returns plain JSON.


def price(ctx, order):
    print("price: working out the price")
    return dict(order, price=sum(item["count"] for item in order["items"]) / 100)


def ask(ctx, order):
    """Stops here until somebody decides, and is run again from its top then."""
    decision = ctx.suspend({"customer": order["customer"], "price": order["price"]}, label="Approve this order?")
    print("ask: %s said %s" % (decision["by"], "yes" if decision["approved"] else "no"))
    return dict(order, approved=decision["approved"])


def refuse(ctx, order):
    print("refuse: telling %s" % order["customer"])
    return "refused"


def pack(ctx, left):
    """One lap of a loop: one box more, so many pieces less."""
    print("pack: a box for %s, %d pieces left" % (left["name"], left["count"]))
    return {"name": left["name"], "count": max(0, left["count"] - BOX), "boxes": left.get("boxes", 0) + 1}


def ship(ctx, packed):
    print("ship: sending it off")
    return "shipped %s" % ", ".join("%(boxes)d of %(name)s" % item for item in packed)


# The plan.  Conditions read the value that is handed to them.


def create_order_workflow():
    approval = Branch("approval")
    approval.door("large", lambda order, scope: order["price"] > 10, Step("ask", ask))
    approval.door("small", always)  # an empty door hands its input on

    # A door that answers answers for the workflow that it stands in: a refused order is not packed.
    verdict = Branch("verdict").door("refused", lambda order, scope: order.get("approved") is False,
                                     Step("refuse", refuse), answers=True)

    pack_item = DoWhile("pack-item", Step("box", pack), again=lambda left, scope: left["count"] > 0)
    return (Workflow("order")
            .then(Step("price", price))
            .then(approval)
            .then(verdict)
            .then(ForEach("pack", pack_item, items=lambda order: order["items"]))
            .then(Step("ship", ship)))


def run(path, decision=None):
    """Run the order as far as it gets; `decision` answers what it waits for."""
    engine = Engine(Journal(LinesLease(path)))
    try:
        return engine.run(create_order_workflow(), ORDER)
    except Suspend as suspend:
        if decision is None:
            return suspend
        engine.decide({item["id"]: decision for item in suspend.suspensions})
        return engine.run(create_order_workflow(), ORDER)


def main(arguments):
    if len(arguments) == 2 and arguments[0] in ("start", "approve", "refuse"):
        verb, path = arguments
        decision = None if verb == "start" else {"approved": verb == "approve", "by": "bob"}
        result = run(path, decision)
        if isinstance(result, Suspend):
            for item in result.suspensions:
                print("waiting: %(label)s %(payload)s" % item)
        else:
            print("done: %s" % result)
        return 0
    if arguments:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "orders.jsonl")
        for verb in ("start", "approve"):
            print("--- a process: %s" % verb, flush=True)
            subprocess.run([sys.executable, os.path.abspath(__file__), verb, path], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
