"""Scripts: what a model says, the tools and processors round it, and how such a run is driven to its end.

A script is built anew for every run, in this process or in a second one (this file is also a program that
resumes runs).  Not here: expectations; the tests have those.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter

from minagent import Agent, Answer, Approve, Decline, Processor, tool
from minagent.errors import MinagentError, Overloaded, RunFinished
from minagent.runs import JsonFileRuns
from minagent.testing import ScriptedModel, call, calls, fails, says

TIMES = ("created_at", "started_at", "finished_at", "expires_at", "snapshot")
DRAWN = re.compile("call_[0-9a-f]{24}")


def told(output):
    """What an output says, ids made from the run's id included; times, drawn ids and the snapshot left out."""
    return without(output.to_dict(), TIMES)


def without(value, names):
    """A JSON value without the members of those names, and with drawn ids made equal."""
    if isinstance(value, dict):
        return {key: without(item, names) for key, item in value.items() if key not in names}
    if isinstance(value, str):
        return DRAWN.sub("call_drawn", value)
    return [without(item, names) for item in value] if isinstance(value, list) else value


def come_to(output):
    """What an output says of the conversation, without what model calls that were cut off have cost."""
    data = told(output) if not isinstance(output, dict) else without(output, TIMES)
    for each in [data, *data["steps"]]:
        for name in ("attempts", "usage", "cost_usd"):
            each.pop(name, None)
    return data


def differences(left, right, path="$"):
    """Where two JSON values differ: lines with the place and both values."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [line for key in sorted(set(left) | set(right))
                for line in differences(left.get(key), right.get(key), "%s.%s" % (path, key))]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [line for index, (one, other) in enumerate(zip(left, right))
                for line in differences(one, other, "%s[%d]" % (path, index))]
    return [] if left == right else ["%s: %.300r != %.300r" % (path, left, right)]


def answers_of(request):
    """How often the model has answered in a request, an object or the JSON of the wire."""
    messages = request["messages"] if isinstance(request, dict) else request.messages
    return sum((item["role"] if isinstance(item, dict) else item.role) == "assistant" for item in messages)


class Stage:
    """What the tools of one run share with the test: the agent, a gate, and how often each tool has run."""

    def __init__(self):
        self.agent = None
        self.gate = threading.Event()
        self.ran = Counter()


def tools_of(stage):
    """The tools of all scripts."""

    def ran(name):
        stage.ran[name] += 1

    @tool(effect="read")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        ran("add")
        return a + b

    @tool
    def charge(amount: int, note: str = "") -> dict:
        """Charge an amount."""
        ran("charge")
        return {"charged": amount, "note": note}

    @tool
    def broken(how: str = "loudly") -> str:
        """Fail."""
        ran("broken")
        raise RuntimeError("it broke %s" % how)

    @tool(require_approval=True)
    def refund(order: int, amount: float = 1.5) -> str:
        """Refund an order."""
        ran("refund")
        return "refunded %g of order %d" % (amount, order)

    @tool
    def interview(topic: str, ctx) -> str:
        """Ask a person two questions."""
        ran("interview begins")
        name = ctx.suspend({"question": "name", "topic": topic}, {"type": "string"}, "name")
        age = ctx.suspend({"question": "age"}, {"type": "integer"})
        ran("interview")
        return "%s is %d" % (name, age)

    @tool
    def stop(ctx) -> str:
        """Cancel the run that runs this."""
        ran("stop")
        stage.agent.cancel(ctx.run_id)
        return "asked"

    @tool(effect="read")
    def linger(ctx) -> str:
        """Stay until told to go."""
        ran("linger")
        while not ctx.cancelled:
            stage.gate.wait(0.005)
        return "left"

    @tool(background=True)
    def later(job: str) -> str:
        """Work in the background."""
        ran("later")
        assert stage.gate.wait(30)
        return "did %s" % job

    return [add, charge, broken, refund, interview, stop, linger, later]


# Processors.


class Aborting(Processor):
    """Aborts from one hook, at the answer that says so."""

    id = "guard"

    def __init__(self, hook, retry=False):
        setattr(self, hook, getattr(self, "_" + hook))
        self.retry = retry

    def _stop(self, ctx):
        ctx.abort("not allowed", retry=self.retry, metadata={"rule": 7})

    def _process_input(self, messages, ctx):
        self._stop(ctx)

    def _process_input_step(self, step_input, ctx):
        return self._stop(ctx) if ctx.step == 2 else step_input

    def _process_llm_request(self, request, ctx):
        return self._stop(ctx) if ctx.step == 2 else request

    def _process_output_stream(self, chunk, ctx):
        return self._stop(ctx) if "§" in chunk.payload.get("text", "") else chunk

    def _process_llm_response(self, response, ctx):
        return self._stop(ctx) if "§" in response.message.text else response

    def _process_tool_result(self, result, ctx):
        return self._stop(ctx) if result.name == "charge" else result

    def _process_output(self, output, ctx):
        return self._stop(ctx) if "§" in output.text else output

    def _process_api_error(self, error, request, ctx):
        self._stop(ctx)


class Counting(Processor):
    """Counts in its state what it saw, and says so to the model."""

    id = "counter"

    def process_input_step(self, step_input, ctx):
        ctx.state["steps"] = ctx.state.get("steps", 0) + 1
        return step_input.replace(system="seen %d results" % ctx.state.get("results", 0))

    def process_tool_result(self, result, ctx):
        ctx.state["results"] = ctx.state.get("results", 0) + 1
        return result


# Scripts.


class Script:
    """One run.

    Attributes:
        turns: ``turns(stage)``: the turns by step, or a function of the request.
        options: ``options()``: fresh options of generate.
        later: ``later()``: fresh options of every resume; by default the live ones of `options`.
        decide: ``decide(suspension)``: the decision.
        healed: Turns that the model says once the run was left early; default: the same.
    """

    def __init__(self, turns, prompt="Do it.", options=dict, decide=None, healed=None, later=None):
        self.turns = turns if callable(turns) else (lambda stage: turns)
        self.prompt = prompt
        self.options = options
        self.later = later or self._live
        self.decide = decide
        self.healed = healed

    def _live(self):
        return {name: value for name, value in self.options().items() if name in ("processors", "deps", "tools")}

    def model(self, stage, again=False):
        return ScriptedModel(*self.script(stage, again), by_step=True)

    def script(self, stage, again=False):
        """Arguments of a ScriptedModel or of a scripted server."""
        return (self.healed if again and self.healed is not None else self.turns(stage),)


def by_kind(suspension):
    """What is decided about a suspension."""
    if suspension.kind == "approval":
        return Approve(by="ann")
    if suspension.kind == "background":
        return Answer("did it elsewhere")
    return Answer("Eve" if suspension.label == "name" else 41)


def _releasing(*turns):
    """Turns of which the second lets the background go on."""

    def made(stage):
        def turn(request):
            if answers_of(request) == 1:
                stage.gate.set()
            return turns[answers_of(request)]

        return turn

    return made


DONE = says("Done.")
SECRET = says("The code is §42.")
ONE = [calls("add", a=1, b=2), DONE]
CHARGED = [says("One moment. ") + calls(("add", {"a": 1, "b": 2}), ("charge", {"amount": 5})), DONE]
BUSY = Overloaded("busy", status=503)


def _guard(hook, retry=False, **options):
    return lambda: dict(options, processors=[Aborting(hook, retry)])


SCRIPTS = {
    "text": Script([says("Hello there.", reasoning="A greeting.")]),
    "length": Script([says("Hello th", finish_reason="length")]),
    "content-filter": Script([says("", finish_reason="content-filter")]),
    "one-tool": Script(ONE),
    "parallel-tools": Script([calls(("add", {"a": 1, "b": 2}), ("charge", {"amount": 3}), ("add", {"a": 3, "b": 4})),
                              DONE]),
    "calls-with-stop": Script([says("", finish_reason="stop", calls=[("add", {"a": 1, "b": 2})]), DONE]),
    "raising-tool": Script([calls(("broken", {}), ("add", {"a": 1, "b": 1})), DONE]),
    "unknown-tool": Script([calls("nosuch", x=1), DONE]),
    "invalid-arguments": Script([calls("add", a="one", b=2), DONE]),
    "invalid-json": Script([calls(call("add", raw_args='{"a": 1, ')), DONE]),
    "same-id-twice": Script([calls(call("add", {"a": 1, "b": 1}, call_id="x"),
                                   call("add", {"a": 2, "b": 2}, call_id="x")), DONE]),
    "max-steps": Script(lambda stage: lambda request: calls("add", a=answers_of(request), b=1),
                        options=lambda: {"max_steps": 3}),
    "final-answer": Script([calls("add", a=1, b=1), calls("add", a=2, b=1), DONE],
                           options=lambda: {"max_steps": 2, "final_answer_at_max_steps": True}),
    "approved": Script([calls(("add", {"a": 1, "b": 1}), ("refund", {"order": 7})), DONE], decide=by_kind),
    "declined": Script([calls("refund", order=7), DONE], decide=lambda suspension: Decline("too much", by="bob")),
    "edited": Script([calls("refund", order=7), DONE],
                     decide=lambda suspension: Approve(args={"order": 8, "amount": 2})),
    "answered": Script([calls("refund", order=7), DONE], decide=lambda suspension: Answer("refunded by hand")),
    "two-suspends": Script([calls(("interview", {"topic": "age"}), ("charge", {"amount": 1})), DONE], decide=by_kind),
    "trip-input": Script([SECRET], options=_guard("process_input")),
    "trip-input-step": Script(ONE, options=_guard("process_input_step")),
    "trip-request": Script(ONE, options=_guard("process_llm_request")),
    "trip-stream": Script([says("I say: ") + SECRET + calls("charge", amount=1)],
                          options=_guard("process_output_stream")),
    "trip-response": Script([calls("add", a=1, b=2), SECRET + calls("charge", amount=1)],
                            options=_guard("process_llm_response")),
    "trip-result": Script(CHARGED, options=_guard("process_tool_result")),
    "trip-output": Script([SECRET], options=_guard("process_output")),
    "trip-error": Script([fails(BUSY)], options=_guard("process_api_error", retries=0)),
    "retry-stream": Script([SECRET, DONE], options=_guard("process_output_stream", True)),
    "retry-response": Script([SECRET + calls("charge", amount=1), DONE], options=_guard("process_llm_response", True)),
    "retry-spent": Script([SECRET, SECRET, SECRET], options=_guard("process_llm_response", True)),
    "retry-result": Script(CHARGED, options=_guard("process_tool_result", True)),
    "provider-error": Script([calls("charge", amount=1), fails(BUSY)], options=lambda: {"retries": 0},
                             healed=[calls("charge", amount=1), DONE]),
    "cancelled": Script([calls(("stop", {}), ("charge", {"amount": 1})), DONE],
                        options=lambda: {"tool_concurrency": 1}),
    "deadline": Script([calls("linger"), DONE], options=lambda: {"deadline": 0.5}, later=lambda: {"deadline": 60.0}),
    "background-wait": Script(_releasing(calls("later", job="it"), says("Waiting."), DONE)),
    "background-suspend": Script([calls("later", job="it"), says("Waiting."), DONE],
                                 options=lambda: {"background_wait": "suspend"}, decide=by_kind),
    "processor-state": Script([calls(("add", {"a": 1, "b": 1}), ("refund", {"order": 7})), DONE], decide=by_kind,
                              options=lambda: {"processors": [Counting()]}),
}


def agent_of(script, stage, runs=None, model=None, again=False):
    """The agent of a script; its name is the same in every process."""
    stage.agent = Agent("tester", model=model or script.model(stage, again), tools=tools_of(stage), runs=runs)
    return stage.agent


def start(script, agent, streamed=False, run_id="run-1"):
    """Run a script's first call; returns (output, error)."""
    try:
        if streamed:
            with agent.stream(script.prompt, run_id=run_id, **script.options()) as stream:
                return stream.output, None
        return agent.generate(script.prompt, run_id=run_id, **script.options()), None
    except MinagentError as error:
        return error.output, error


def go_on(script, agent, output):
    """Decide and resume until the run has finished; returns every output on the way."""
    outputs = []
    while output.finish_reason not in ("stop", "length", "content-filter", "max-steps") and not tripped(output):
        decisions = {item.id: script.decide(item) for item in output.suspensions}
        try:
            output = agent.resume(output.run_id, decisions, **script.later())
        except RunFinished as error:
            output = error.output
        outputs.append(output)
        assert len(outputs) < 10
    return outputs


def tripped(output):
    return output.tripwire is not None and output.tripwire.kind == "processor"


# The second process.


def run_elsewhere(root, jobs):
    """Resume runs in a second process; returns what it was told.

    Parameters:
        root: Folder of the runs' stores.
        jobs: Dicts with script, folder below `root`, and url of a model server or None.
    """
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    done = subprocess.run([sys.executable, os.path.abspath(__file__), str(root)], input=json.dumps(jobs), env=env,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def resume_job(root, job):
    """Go on with one run, as `run_elsewhere` asks; returns the outputs on the way, as JSON."""
    script, stage = SCRIPTS[job["script"]], Stage()
    stage.gate.set()
    model = wire_model(job["url"]) if job["url"] else None
    agent = agent_of(script, stage, JsonFileRuns(os.path.join(root, job["folder"])), model, again=True)
    if job["status"] == "finished":
        try:
            agent.resume("run-1", **script.later())
        except RunFinished as error:
            return [told(error.output)]
        raise AssertionError("a finished run was resumed")
    return [told(output) for output in go_on(script, agent, first_output(agent, script))]


def first_output(agent, script):
    """Output of a run that waits or was interrupted, without going on with it: the call is made again."""
    from minagent.agent.output import full_output
    from minagent.agent.run import folded

    return full_output(folded("run-1", agent.runs.read("run-1")))


def wire_model(url):
    """A model on a scripted server."""
    from minagent import OpenAIChat

    return OpenAIChat("scripted", base_url=url + "/v1", api_key="none")


def main():
    root = sys.argv[1]
    print(json.dumps([resume_job(root, job) for job in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
