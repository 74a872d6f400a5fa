"""Approval across two processes, the first one: ask, and leave when a person has to decide.

    python examples/approval/ask.py "Refund order 7, 24.50 EUR." [model]
    python examples/approval/decide.py

This process ends while the run waits.  Nothing of it stays in memory: what it was, and what it waits for, is in
the folder var/runs.
"""

import sys

from minagent import Agent, ToolContext, tool
from minagent.runs import JsonFileRuns

RUNS = "var/runs"


@tool(require_approval=True, examples=[{"order": 3, "amount": 5.0}])
def refund(order: int, amount: float, ctx: ToolContext) -> str:
    """Refund an order.

    Args:
        order: Order number.
        amount: EUR.
    """
    return "refunded %.2f EUR for order %d (key %s)" % (amount, order, ctx.idempotency_key)


def make_agent(model, folder=RUNS):
    """Both processes make the same agent: its tools are code, and code is not stored."""
    return Agent("refunds", model=model, tools=[refund], runs=JsonFileRuns(folder))


def main(prompt="Refund order 7, 24.50 EUR.", model="local", folder=RUNS):
    out = make_agent(model, folder).generate(prompt)

    if out.finish_reason != "suspended":
        print(out.text)
        return 0
    for suspension in out.suspensions:
        print("run %s waits: may %s run with %s?" % (out.run_id, suspension.tool_name, suspension.args))
    return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
