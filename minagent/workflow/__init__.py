"""Durable workflows without agents: nodes, an engine that drives them, a journal that it lives from.

::

    from minagent.workflow import (
        Branch, DoWhile, Engine, ForEach, Journal, NullLease, Step, Suspend, Workflow)

    def ask(ctx, order):
        return dict(order, approved=ctx.suspend({"total": order["price"]}))

    order = Workflow("order", [
        Step("price", lambda ctx, order: dict(order, price=10 * order["amount"])),
        Branch("large").door("ask", lambda order, scope: order["price"] > 100, Step("ask", ask)),
        ForEach("ship", Step("box", lambda ctx, number: "box %d" % number),
                items=lambda order: range(order["amount"])),
        DoWhile("wait", Step("look", lambda ctx, boxes: boxes[1:]), again=lambda boxes, scope: bool(boxes)),
    ])
    records = []
    lease = NullLease()                    # a lease of `minagent.runs` keeps records on disk
    lease.append = records.append
    try:
        Engine(Journal(lease)).run(order, {"amount": 20})
    except Suspend as suspend:             # another process, another day:
        engine = Engine(Journal(NullLease(records=records)))
        engine.decide({suspend.suspensions[0]["id"]: True})
        engine.run(order, {"amount": 20})

Only leaves (`Step`) write records.  A leaf that recorded its output is never run again.  Running and resuming
are the same call.
"""

from ..errors import Abort, Cancelled, LimitReached, Signal, Suspend
from .engine import Engine, StepContext
from .entries import Entry
from .journal import Journal, NullLease, NullState
from .nodes import Branch, Done, DoWhile, ForEach, Mount, Node, Step, Workflow, always

__all__ = ["Abort", "Branch", "Cancelled", "DoWhile", "Done", "Engine", "Entry", "ForEach", "Journal",
           "LimitReached", "Mount", "Node", "NullLease", "NullState", "Signal", "Step", "StepContext",
           "Suspend", "Workflow", "always"]
