"""Tools: functions with types and a docstring, worked examples, errors, a context, and one that needs a yes.

    python examples/tools.py                                 on the local model
    python examples/tools.py openai-chat/gpt-5-mini          on another one
    minagent run "Add 17 and 25." --tool examples.tools:add
"""

import sys

from minagent import Agent, ToolContext, tool
from minagent.errors import ToolError

ORDERS = {7: {"item": "teapot", "price": 24.5, "days": 12}, 8: {"item": "kettle", "price": 39.0, "days": 40}}


@tool(effect="read", examples=[{"a": 2, "b": 3}])
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


@tool(effect="read", examples=[{"order": 3}])
def lookup_order(order: int) -> dict:
    """Look up what was ordered.

    Args:
        order: Order number.
    """
    if order not in ORDERS:
        # The model gets exactly this sentence, and can correct itself.
        raise ToolError("there is no order %d; orders are: %s" % (order, ", ".join(map(str, ORDERS))))
    return ORDERS[order]


def is_large(args, ctx):
    """Whether a person must say yes.  If this raises, the answer is yes."""
    return args["amount"] > ctx.deps["free_up_to"]


@tool(require_approval=is_large, timeout=10, examples=[{"order": 3, "amount": 5.0}])
def refund(order: int, amount: float, ctx: ToolContext) -> str:
    """Refund an order.

    Args:
        order: Order number.
        amount: EUR.
    """
    # Effects are "once" unless the tool says otherwise: after a crash this never silently runs again.  The key is
    # the same for every run of this call; the bank can use it to see that it was asked before.
    ctx.emit("asking the bank")
    ctx.deps["bank"].append((ctx.idempotency_key, order, amount))
    return "refunded %.2f EUR for order %d" % (amount, order)


def make_agent(model):
    """An agent may be made once, at module level, and shared by all threads."""
    return Agent("shop", model=model, tools=[add, lookup_order, refund], instructions="You work for a shop.")


def main(model="local"):
    with make_agent(model) as agent:
        # `active_tools` chooses among the tools for one call: a small model does better with few.
        out = agent.generate("Add 17 and 25.", active_tools=["add"], deps={"bank": [], "free_up_to": 10})

    print(out.text)
    for call, result in zip(out.tool_calls, out.tool_results):
        print("  %s(%s) = %r" % (call.name, call.args, result.output))
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
