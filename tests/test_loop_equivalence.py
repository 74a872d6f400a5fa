"""generate, a consumed stream and a resume in a second process come to the same, script by script.

Not here: what a script comes to (test_agent_*, test_processors, test_doors), only that it is the same.
"""

import json

import pytest
from _scripts import (
    SCRIPTS,
    Stage,
    agent_of,
    come_to,
    differences,
    go_on,
    run_elsewhere,
    start,
    told,
    tripped,
    wire_model,
    without,
)

from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedServer

try:
    from minagent.llm.openai_chat import OpenAIChat
except ImportError:
    OpenAIChat = None

ENDS = ("stop", "length", "content-filter", "max-steps")


class Played:
    """One script, run to its end in every way that there is.

    Attributes:
        first, streamed: Output and error of generate and of stream.
        here: Outputs of going on in this process with what was streamed.
        elsewhere: The same of going on in a second process with what was generated, as JSON.
    """

    def __init__(self, root, name, kind):
        self.script = SCRIPTS[name]
        self.name = name
        self.servers = []
        self.stages = []
        self.kind = kind
        self.first = start(self.script, self.agent(JsonFileRuns(str(root / (name + "-" + kind)))))
        streaming = self.agent(MemoryRuns())
        self.streamed = start(self.script, streaming, streamed=True)
        again = self.agent(streaming.runs, again=True)
        self.here = go_on(self.script, again, self.streamed[0]) if not self.finished else []
        self.job = {"script": name, "folder": name + "-" + kind, "url": self.url(again=True),
                    "status": "finished" if self.finished else "open"}
        self.elsewhere = []

    @property
    def finished(self):
        return self.first[0].finish_reason in ENDS or tripped(self.first[0])

    def url(self, again):
        if self.kind == "scripted":
            return None
        server = ScriptedServer.openai_chat(*self.script.script(self.stages[-1], again), by_step=True)
        self.servers.append(server.__enter__())
        return server.url

    def agent(self, runs, again=False):
        self.stages.append(Stage())
        url = self.url(again)
        return agent_of(self.script, self.stages[-1], runs, wire_model(url) if url else None, again)

    def close(self):
        for stage in self.stages:
            stage.gate.set()
        for server in self.servers:
            server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """All scripts with both kinds of model, their resumes made in one second process."""
    root = tmp_path_factory.mktemp("runs")
    kinds = ["scripted"] + (["wire"] if OpenAIChat else [])
    scripts = {(name, kind): Played(root, name, kind) for name in SCRIPTS for kind in kinds}
    try:
        came = run_elsewhere(root, [item.job for item in scripts.values()])
    finally:
        for item in scripts.values():
            item.close()
    for item, outputs in zip(scripts.values(), came):
        item.elsewhere = outputs
    return scripts


WIRE = pytest.param("wire", marks=pytest.mark.skipif(OpenAIChat is None, reason="there is no OpenAIChat"))
every_script = pytest.mark.parametrize("name", list(SCRIPTS))
both_kinds = pytest.mark.parametrize("kind", ["scripted", WIRE])


@every_script
@both_kinds
def test_generate_and_a_consumed_stream_come_to_the_same(played, name, kind):
    """Output, or the error's type and output, do not depend on whether somebody watches."""
    script = played[name, kind]
    (generated, raised), (streamed, stream_raised) = script.first, script.streamed

    assert differences(told(generated), told(streamed)) == []
    assert type(raised) is type(stream_raised)
    assert str(raised) == str(stream_raised)


@every_script
@both_kinds
def test_a_resume_in_a_second_process_comes_to_the_same(played, name, kind):
    """Suspended, failed, cancelled and limited runs go on elsewhere as they go on here; finished ones are told."""
    script = played[name, kind]

    if script.finished:
        assert script.elsewhere == [told(script.first[0])]
    else:
        assert script.elsewhere == [told(output) for output in script.here]
        assert script.elsewhere[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("name", ["provider-error", "cancelled"])
@both_kinds
def test_after_an_error_or_a_cancel_a_resume_ends_like_an_undisturbed_run(played, name, kind):
    """Nothing is lost and nothing is done twice: text, messages and results are those of a run without trouble."""
    script, stage = played[name, kind], Stage()
    agent = agent_of(script.script, stage, again=True)
    if name == "cancelled":  # an agent that nobody listens to when it is cancelled
        stage.agent = type("Deaf", (), {"cancel": staticmethod(lambda run_id: None)})
    quiet, error = start(script.script, agent)
    assert error is None and quiet.finish_reason == "stop"

    ended = script.elsewhere[-1]

    assert comparable(ended) == comparable(quiet)


def comparable(output):
    data = come_to(output)
    for step in data["steps"]:
        step.pop("model", None)  # the wire's model has another name
    return data


@every_script
def test_a_script_comes_to_the_same_over_the_wire(played, name):
    """What a scripted model and a server that speaks bytes make of one script differs only in what is opaque."""
    if (name, "wire") not in played:
        pytest.skip("there is no OpenAIChat")
    wire, scripted = played[name, "wire"].first[0], played[name, "scripted"].first[0]

    assert differences(opaque_aside(wire), opaque_aside(scripted)) == []


def opaque_aside(output):
    data = without(told(output), ("provider_metadata", "error"))
    if name_twice(data):
        data = json.loads(json.dumps(data).replace("call_drawn", "call_1_2"))
    return data


def name_twice(data):
    """Whether two calls had one id, for which each kind of model makes another one."""
    return any(call["call_id"] == "x" for call in data.get("tool_calls", ()))


def test_every_output_is_json(played):
    """to_dict of every output passes through JSON unchanged."""
    for script in played.values():
        for output in (script.first[0], script.streamed[0], *script.here):
            data = output.to_dict()
            assert json.loads(json.dumps(data)) == data
