"""Streams: which chunks come in which order, and what becomes of a stream that nobody reads to its end.

Not here: that a consumed stream comes to what generate comes to (test_loop_equivalence).
"""

import gc
import json
import threading

import pytest
from _scripts import SCRIPTS, Stage, agent_of, go_on, start, tripped

from minagent import Agent, Approve, tool
from minagent.agent import output
from minagent.chunks import CHUNK_TYPES, LAST_TYPES
from minagent.errors import Overloaded
from minagent.loop.stream import QueueSink
from minagent.runs import MemoryRuns
from minagent.testing import ScriptedModel, calls, fails, says

DONE = says("Done.")


@tool(effect="read")
def double(n: int) -> int:
    """Double."""
    return 2 * n


def types(chunks):
    return [chunk.type for chunk in chunks]


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("minagent")]


def assert_ended(before):
    for thread in threads():
        if thread not in before:
            thread.join(10)
            assert not thread.is_alive(), "%s is left" % thread.name


# What comes.


def test_the_chunks_of_a_run_with_a_tool():
    """Starts, deltas and progress as they come; facts after their record; the last one is finish."""
    @tool
    def work(n: int, ctx) -> int:
        """Work."""
        ctx.emit({"percent": 50})
        return n

    model = ScriptedModel([says("Well.", reasoning="Hm.") + calls("work", n=1), says("Done.")])
    with Agent("a", model=model, tools=[work]).stream("Go.") as stream:
        chunks = list(stream)

    assert types(chunks) == [
        "start", "step-start", "reasoning-start", "reasoning-delta", "reasoning-delta", "reasoning-delta",
        "reasoning-end", "text-start", "text-delta", "text-delta", "text-delta", "text-end",
        "tool-call-input-streaming-start", "tool-call-delta", "tool-call-delta", "tool-call-delta",
        "tool-call-input-streaming-end", "tool-call", "tool-output", "tool-result", "step-finish",
        "step-start", "text-start", "text-delta", "text-delta", "text-delta", "text-end", "step-finish", "finish"]
    by_type = {chunk.type: chunk for chunk in chunks}
    assert by_type["start"].payload == {"resumed": False}
    assert by_type["tool-call"].payload == {"call_id": "call_1_1", "tool_name": "work", "args": {"n": 1}}
    assert by_type["tool-output"].payload["output"] == {"percent": 50}
    assert by_type["tool-result"].payload == {"call_id": "call_1_1", "tool_name": "work", "output": 1}
    assert by_type["step-finish"].payload["step"] == stream.output.steps[1]
    assert by_type["finish"].payload["output"] is stream.output
    assert [chunk.step for chunk in chunks if chunk.type == "step-start"] == [1, 2]
    assert [chunk.seq for chunk in chunks] == sorted(chunk.seq for chunk in chunks)
    assert {chunk.run_id for chunk in chunks} == {stream.run_id}


def watched(name):
    """All chunks of a script, first call and resumes; a list for each."""
    script, runs, lists = SCRIPTS[name], MemoryRuns(), []
    stage = Stage()
    agent = agent_of(script, stage, runs)
    lists.append([])
    options, script_options = script.options, script.later
    script = type(script)(script.turns, script.prompt, lambda: dict(options(), on_chunk=lists[0].append), script.decide,
                          script.healed, lambda: dict(script_options(), on_chunk=lists[-1].append))
    first, _ = start(script, agent)
    if first.finish_reason in ("suspended", "cancelled", "error", "tripwire") and not tripped(first):
        again = agent_of(script, stage, runs, again=True)
        lists.append([])
        go_on(script, again, first)
    stage.gate.set()
    return lists


@pytest.mark.parametrize("name", list(SCRIPTS))
def test_every_chunk_is_of_a_known_form_and_every_stream_ends(name):
    """Types and payload keys are those of the list; one start, one end; JSON passes through to_dict."""
    for chunks in watched(name):
        ends = 0
        for index, chunk in enumerate(chunks):
            assert set(chunk.payload) == set(CHUNK_TYPES[chunk.type].split()), chunk
            data = chunk.to_dict()
            assert json.loads(json.dumps(data)) == data
            assert (chunk.type == "start") == (index == 0 or ends > 0 and chunks[index - 1].type in LAST_TYPES)
            ends += chunk.type in LAST_TYPES
        assert chunks[-1].type in LAST_TYPES
        assert ends == types(chunks).count("start")


def test_a_fact_is_shown_after_its_record():
    """Whoever reads the store when a chunk comes finds the record that it stands for."""
    runs = MemoryRuns()

    def on_chunk(chunk):
        kept = runs.read("run-1")
        assert chunk.seq == kept[-1]["seq"]
        changes = [change["type"] for record in kept for change in record.get("changes", ())]
        fact = {"tool-call": "answer-accepted", "tool-result": "result-added", "step-finish": "step-finished",
                "tool-call-approval": "suspension-opened", "finish": "finished"}.get(chunk.type)
        if fact and not (chunk.type == "finish" and chunk.payload["output"].finish_reason == "suspended"):
            seen.append(chunk.type)
            assert fact in changes, chunk

    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    seen = []
    agent = Agent("a", model=ScriptedModel([calls("refund"), DONE], by_step=True), tools=[refund], runs=runs)
    agent.generate("Go.", run_id="run-1", on_chunk=_raising_on(on_chunk))
    agent.resume("run-1", Approve(), on_chunk=_raising_on(on_chunk))
    assert not FAILED and seen == ["tool-call", "tool-call-approval", "tool-result", "step-finish", "step-finish",
                                   "finish"]


FAILED = []


def _raising_on(check):
    """An exception in on_chunk is logged and changes nothing; here it is kept."""
    def on_chunk(chunk):
        try:
            check(chunk)
        except AssertionError as error:
            FAILED.append(error)

    return on_chunk


def test_a_resumed_stream_shows_what_happens_now():
    """start says resumed; what was shown before is not shown again."""
    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    agent = Agent("a", model=ScriptedModel([says("Well. ") + calls(("refund", {}), ("double", {"n": 1})), DONE],
                                           by_step=True), tools=[refund, double], runs=MemoryRuns())
    with agent.stream("Go.", run_id="run-1") as stream:
        first = list(stream)
    assert types(first)[-1] == "finish" and stream.output.finish_reason == "suspended"
    assert "tool-call-approval" in types(first)

    with agent.resume_stream("run-1", Approve()) as stream:
        chunks = list(stream)

    assert chunks[0].payload == {"resumed": True}
    assert [kind for kind in types(chunks) if not kind.startswith("text")] == [
        "start", "tool-result", "step-finish", "step-start", "step-finish", "finish"]
    assert [chunk.payload["tool_name"] for chunk in chunks if chunk.type == "tool-result"] == ["refund"]


def test_on_chunk_sees_what_the_stream_sees():
    """Both at once, the same chunks."""
    told = []
    with Agent("a", model=ScriptedModel([DONE])).stream("Go.", on_chunk=told.append) as stream:
        chunks = list(stream)
    assert told == chunks


def test_somebody_who_watches_makes_the_model_stream():
    """generate asks for the plain answer unless somebody watches."""
    def ignore(what):
        """Look away."""

    for options, streamed in (({}, False), ({"on_chunk": ignore}, True), ({"on_step": ignore}, False)):
        model = ScriptedModel([DONE])
        Agent("a", model=model).generate("Go.", **options)
        assert model.streamed == [streamed]
    model = ScriptedModel([DONE])
    assert "".join(Agent("a", model=model).stream("Go.").text) == "Done." and model.streamed == [True]


# Reading.


def test_a_stream_can_be_read_in_several_goes():
    """Leaving an iteration loses nothing: the next one goes on where it stood."""
    model = ScriptedModel([says("Well. ", reasoning="Hm.") + calls("double", n=1), DONE])
    with Agent("a", model=model, tools=[double]).stream("Go.") as stream:
        whole = list(stream)

    model = ScriptedModel([says("Well. ", reasoning="Hm.") + calls("double", n=1), DONE])
    pieces = []
    with Agent("a", model=model, tools=[double]).stream("Go.") as stream:
        while not pieces or pieces[-1].type != "finish":
            for chunk in stream:
                pieces.append(chunk)
                break

    assert types(pieces) == types(whole) and types(whole).count("reasoning-delta") == 3


def test_output_reads_what_is_left_and_can_be_asked_for_again():
    """After some chunks, after all, and twice."""
    with Agent("a", model=ScriptedModel([DONE])).stream("Go.") as stream:
        next(iter(stream))
        assert stream.output.text == "Done." and stream.output is stream.output
        assert list(stream) == []
    assert stream.output.text == "Done."


def test_an_error_is_shown_and_then_raised_wherever_it_is_read():
    """The error chunk has the exception that iteration, text and output raise; its output is set."""
    agent = Agent("a", model=ScriptedModel([fails(Overloaded("busy"), after="Half")], loop=True), retries=0)
    stream = agent.stream("Go.")
    chunks = []
    with pytest.raises(Overloaded) as raised:
        chunks.extend(iter(_kept(stream, chunks)))
    assert types(chunks)[-1] == "error" and chunks[-1].payload["error"] is raised.value
    assert raised.value.output.finish_reason == "error" and raised.value.run_id == stream.run_id
    with pytest.raises(Overloaded) as again:
        assert stream.output
    assert again.value is raised.value
    texts = []
    with pytest.raises(Overloaded):
        for text in agent.stream("Go.").text:
            texts.append(text)
    assert "".join(texts) == "Half"


def _kept(stream, chunks):
    for chunk in stream:
        chunks.append(chunk)
    return ()


# Leaving.


class Endless:
    """An agent whose model goes on until it is cancelled."""

    def __init__(self, pieces=10 ** 6):
        self.made = 0
        self.before = threads()
        self.closed = threading.Event()
        self.agent = Agent("a", model=self._model(pieces), runs=MemoryRuns())

    def _model(self, pieces):
        outer = self

        class Model(ScriptedModel):
            def do_stream(self, request, call):
                try:
                    for _ in range(pieces):
                        call.check()
                        outer.made += 1
                        yield [("text-delta", {"id": "t", "text": "x"})]
                    yield [("finish", {"finish_reason": "stop", "usage": DONE.usage, "warnings": []})]
                finally:
                    outer.closed.set()

        return Model([])

    def assert_cancelled(self):
        assert self.closed.wait(10), "the model's stream is still open"
        assert_ended(self.before)
        (head,) = self.agent.runs.list()
        assert head["status"] == "interrupted"
        assert any(record.get("signal") == "Cancelled" for record in self.agent.runs.read(head["run_id"]))


def test_leaving_a_stream_early_cancels_its_run():
    """The model's stream is closed, the thread ends, the run is interrupted and can be resumed."""
    endless = Endless()
    with endless.agent.stream("Go.") as stream:
        for chunk in stream:
            if chunk.type == "text-delta":
                break
    endless.assert_cancelled()
    assert stream.output.finish_reason == "cancelled" and list(stream) == []


def test_an_exception_of_the_reader_cancels_the_run():
    """Also a GeneratorExit or a KeyboardInterrupt in the reader's loop."""
    for error in (ValueError, KeyboardInterrupt, GeneratorExit):
        endless = Endless()
        with pytest.raises(error), endless.agent.stream("Go.") as stream:
            for chunk in stream:
                if chunk.type == "text-delta":
                    raise error
        endless.assert_cancelled()


def test_dropping_a_stream_cancels_its_run():
    """Without a with statement, and without reading at all."""
    for read in (True, False):
        endless = Endless()
        stream = endless.agent.stream("Go.")
        if read:
            next(iter(stream))
        del stream
        gc.collect()
        endless.assert_cancelled()


def test_a_slow_reader_holds_the_run_back():
    """The queue is bounded: the model is not read ahead of the reader without end."""
    endless = Endless(500)
    with endless.agent.stream("Go.") as stream:
        reading = iter(stream)
        for _ in range(20):
            next(reading)
        before = -1
        while endless.made != before:  # wait until the run waits for the reader
            before = endless.made
            endless.closed.wait(0.05)
        assert endless.made < 120
        assert stream.output.text == "x" * 500


def test_a_queue_that_was_left_lets_everybody_go():
    """Any number of threads that wait to send go on when the reader leaves."""
    sink = QueueSink(2)
    senders = [threading.Thread(target=sink.send, args=(["chunk"],), daemon=True) for _ in range(100)]
    for thread in senders:
        thread.start()
    while sum(thread.is_alive() for thread in senders) > 98:
        threading.Event().wait(0.001)
    sink.leave()
    for thread in senders:
        thread.join(10)
        assert not thread.is_alive()


def test_closing_does_not_wait_for_a_tool_that_hangs(monkeypatch):
    """A tool that heeds nothing is waited for a moment; the run is marked as cancelled when it ends."""
    monkeypatch.setattr(output, "CLOSE_SECONDS", 0.1)
    go, begun, before = threading.Event(), threading.Event(), threads()

    @tool
    def hang() -> str:
        """Hang."""
        begun.set()
        assert go.wait(30)
        return "late"

    agent = Agent("a", model=ScriptedModel([calls("hang"), DONE]), tools=[hang], runs=MemoryRuns())
    stream = agent.stream("Go.", run_id="run-1")
    assert begun.wait(10)
    stream.close()
    go.set()
    assert_ended(before)
    assert agent.runs.status("run-1") == "interrupted"


def test_no_thread_is_left_after_a_stream():
    """Read to its end, or left."""
    before = threads()
    with Agent("a", model=ScriptedModel([DONE])).stream("Go.") as stream:
        list(stream)
    assert_ended(before)
