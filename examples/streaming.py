"""Streaming: watch a run while it happens.

    python examples/streaming.py "Tell me about teapots." [model]

The run goes on in a thread of its own; leaving the `with` block early cancels it.
"""

import sys

from minagent import Agent, tool


@tool(effect="read", examples=[{"city": "Oslo"}])
def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Name of the city.
    """
    return "rain in %s" % city


def main(prompt="What is the weather in Paris?", model="local"):
    with Agent("streaming", model=model, tools=[get_weather]) as agent, agent.stream(prompt) as stream:
        for chunk in stream:
            if chunk.type == "text-delta":
                print(chunk.payload["text"], end="", flush=True)
            elif chunk.type == "tool-call":
                print("[%s %s]" % (chunk.payload["tool_name"], chunk.payload["args"]))
            elif chunk.type == "tool-result":
                print("[= %s]" % chunk.payload["output"])
        out = stream.output

    print()
    print("(%s)" % out.finish_reason)
    return out


def first_words(prompt, model="local", characters=20):
    """Only the text, and no more of it than is wanted: leaving the block cancels the run."""
    shown = ""
    with Agent("streaming", model=model) as agent, agent.stream(prompt) as stream:
        for text in stream.text:
            shown += text
            if len(shown) >= characters:
                break
    return shown


if __name__ == "__main__":
    main(*sys.argv[1:3])
