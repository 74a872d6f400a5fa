"""The smallest agent: a question, an answer, and what it took.

    python examples/quickstart.py                            on the local model
    python examples/quickstart.py openai-chat/gpt-5-mini     on another one
"""

import sys

from minagent import Agent


def main(model="local"):
    with Agent("quickstart", model=model, instructions="Answer in one short sentence.") as agent:
        out = agent.generate("What is the capital of France?")

    print(out.text)
    print("(%s after %d step, %s tokens)" % (out.finish_reason, len(out.steps), out.usage.total_tokens))
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
