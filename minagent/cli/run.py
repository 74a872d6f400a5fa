"""``minagent run``: one prompt, one answer."""

from __future__ import annotations

import json
from typing import Any

from ..chunks import Chunk
from ..errors import ConfigError, MinagentError
from ..results import FullOutput, StepResult, Suspension
from .exits import WAITING, code_of_output
from .loading import agent_of
from .terminal import Terminal


def run(args: Any, terminal: Terminal) -> int:
    """Answer the prompt; returns the exit code.

    Raises:
        MinagentError: What failed; with --json what the run had come to is printed all the same.
    """
    prompt = terminal.read_all() if args.prompt == "-" else readable(args.prompt)
    if not prompt.strip():
        raise ConfigError("the prompt is empty; expected a text%s" % (" on stdin" if args.prompt == "-" else ""))
    with agent_of(args, terminal) as agent:
        try:
            output = _streamed(agent, prompt, args, terminal) if args.stream else agent.generate(
                prompt, on_step=None if args.quiet else lambda step: tell_step(step, terminal))
        except MinagentError as error:
            if args.json and error.output is not None:
                terminal.write_json(error.output.to_dict())
            raise
    return _ended(output, args, terminal)


def readable(text: str) -> str:
    """An argument's text; bytes that the locale could not read are read as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _streamed(agent: Any, prompt: str, args: Any, terminal: Terminal) -> FullOutput[Any]:
    with agent.stream(prompt) as stream:
        for chunk in stream:
            show(chunk, terminal, terminal.echo if args.json else terminal.write, args.quiet)
        output: FullOutput[Any] = stream.output
    return output


def _ended(output: FullOutput[Any], args: Any, terminal: Terminal) -> int:
    if args.json:
        terminal.write_json(output.to_dict())
    elif not args.stream:
        terminal.write(output.text)
        terminal.end_line()
    code = code_of_output(output)
    tell_end(output, terminal, code, args.runs)
    return code


# What is told on stderr, for chat as well.


def show(chunk: Chunk, terminal: Terminal, write: Any, quiet: bool = False) -> None:
    """Show a chunk: text as it comes, what happens beside it as notes."""
    payload = chunk.payload
    if chunk.type == "text-delta":
        write(payload["text"])
    elif chunk.type == "step-finish":
        if payload["step"].text and not payload["step"].text.endswith("\n"):
            write("\n")
        if not quiet:
            tell_step(payload["step"], terminal)
    elif chunk.type == "retry" and not quiet:
        terminal.note("trying again in %.1f s: %s" % (payload["wait_seconds"], payload["error"]))
    elif chunk.type == "tripwire" and payload["tripwire"].retry:
        terminal.note("the answer above was rejected (%s)" % payload["tripwire"].reason)


def tell_step(step: StepResult, terminal: Terminal) -> None:
    """A note for each tool call of a step."""
    results = {result.call_id: result for result in step.tool_results}
    for call in step.tool_calls:
        result = results.get(call.call_id)
        what = "" if result is None else "%s%s" % ("error: " if result.is_error else "", short(result.output))
        terminal.note("%s -> %s" % (called(call.name, call.args or {}), what))


def called(name: str, args: Any) -> str:
    """A call as it would be written in Python."""
    return "%s(%s)" % (name, ", ".join(["%s=%s" % (key, short(value)) for key, value in args.items()]))


def short(value: Any) -> str:
    """A JSON value in at most 200 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:197] + "..."


def tell_end(output: FullOutput[Any], terminal: Terminal, code: int, runs: Any) -> None:
    """A note on how the run ended, unless it ended well."""
    reason = output.finish_reason
    if code == WAITING:
        for suspension in output.suspensions:
            terminal.note(question(suspension))
        kept = "run %s in %s" % (output.run_id, runs) if runs else (
            "nothing was kept; give --runs DIR to keep a run that may have to wait, or take the snapshot of --json")
        terminal.note("the run waits for a decision: %s" % kept)
        if runs:
            terminal.note("go on in Python: " + _resuming(output, runs))
    elif output.tripwire is not None:
        terminal.note("stopped: %s" % output.tripwire.reason)
    elif reason != "stop":
        terminal.note("ended with finish_reason %r" % reason)


def _resuming(output: FullOutput[Any], runs: str) -> str:
    """How to go on with a run that waits, as the line of Python that does it."""
    decisions = ", ".join(["%r: %s" % (item.id, "Approve()" if item.kind == "approval" else "Answer(...)")
                           for item in output.suspensions])
    return ("Agent('minagent', model=..., tools=[...], runs=JsonFileRuns(%r)).resume(%r, {%s})"
            % (runs, output.run_id, decisions))


def question(suspension: Suspension) -> str:
    """A suspension as a question."""
    call = called(suspension.tool_name, suspension.args or {})
    if suspension.kind == "approval":
        return "may %s run?" % call
    return "%s asks: %s" % (call, suspension.label or short(suspension.payload))
