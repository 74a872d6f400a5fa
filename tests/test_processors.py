"""Processors: where and how often each hook is called, and what abort, retry, edits and exceptions do.

Not here: that generate, stream and resume agree about it (test_loop_equivalence).
"""

import json
import threading
from dataclasses import replace

import pytest
from _scripts import SECRET, Aborting, answers_of

from minagent import (
    Agent,
    Approve,
    Message,
    ModelResponse,
    Processor,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Tripwire,
    tool,
)
from minagent.agent.run import folded
from minagent.errors import BadRequest, ConfigError, EncodeError, Overloaded, ProcessorError, RunFinished
from minagent.processors import HOOKS, StepInput
from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedModel, call, calls, fails, says
from minagent.testing.turns import TURN_USAGE as TURN

DONE = says("Done.")


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Ran:
    """A tool that counts how often it ran."""

    def __init__(self):
        self.count = 0

    def charge(self, amount: int) -> str:
        """Charge."""
        self.count += 1
        return "charged %d" % amount


class Logging(Processor):
    """Logs every call of every hook, with step and attempt."""

    def __init__(self, id, log):
        self.id = id
        self.log = log

    def _note(self, ctx):
        assert ctx.id == self.id
        self.log.append("%s.%s %d/%d" % (self.id, ctx.hook, ctx.step, ctx.attempt))

    def tools(self, ctx):
        self._note(ctx)
        return ()

    def process_input(self, messages, ctx):
        self._note(ctx)
        return messages

    def process_input_step(self, step_input, ctx):
        self._note(ctx)
        return step_input

    def process_llm_request(self, request, ctx):
        self._note(ctx)
        return request

    def process_output_stream(self, chunk, ctx):
        if chunk.type in ("text-start", "tool-call"):
            self._note(ctx)
        assert chunk.step == ctx.step
        return chunk

    def process_llm_response(self, response, ctx):
        self._note(ctx)
        return response

    def process_tool_result(self, result, ctx):
        self._note(ctx)
        return result

    def process_output(self, output, ctx):
        self._note(ctx)
        return output

    def process_api_error(self, error, request, ctx):
        self._note(ctx)


def run(agent, streamed, prompt="Go.", **options):
    """Generate, or consume a stream; returns the output and the chunks."""
    chunks = []
    if not streamed:
        return agent.generate(prompt, **options), chunks
    with agent.stream(prompt, **options) as stream:
        chunks.extend(stream)
        return stream.output, chunks


both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["generate", "stream"])


# Where, in which order, how often.


@both_ways
def test_hooks_are_called_where_the_contract_says(streamed):
    """Input hooks in order, output hooks in reverse; once, per attempt, per chunk and per result."""
    log = []
    model = ScriptedModel([calls(("add", {"a": 1, "b": 1}), ("nosuch", {})), says("Hi.")])
    agent = Agent("a", model=model, tools=[add], processors=[Logging("p", log), Logging("q", log)], tool_concurrency=1)

    output, _ = run(agent, streamed)

    assert output.text == "Hi."
    assert log == [
        "p.tools 0/0", "q.tools 0/0", "p.process_input 0/0", "q.process_input 0/0",
        "p.process_input_step 1/1", "q.process_input_step 1/1",
        "p.process_llm_request 1/1", "q.process_llm_request 1/1",
        "q.process_output_stream 1/1", "p.process_output_stream 1/1",
        "q.process_output_stream 1/1", "p.process_output_stream 1/1",
        "q.process_llm_response 1/1", "p.process_llm_response 1/1",
        "q.process_tool_result 1/1", "p.process_tool_result 1/1",
        "q.process_tool_result 1/1", "p.process_tool_result 1/1",
        "p.process_input_step 2/1", "q.process_input_step 2/1",
        "p.process_llm_request 2/1", "q.process_llm_request 2/1",
        "q.process_output_stream 2/1", "p.process_output_stream 2/1",
        "q.process_llm_response 2/1", "p.process_llm_response 2/1",
        "q.process_output 2/0", "p.process_output 2/0"]


@both_ways
def test_every_hook_of_an_attempt_knows_its_number(streamed):
    """Step and attempt are the same in all hooks of an attempt, also of the second one."""
    log = []
    agent = Agent("a", model=ScriptedModel([SECRET, DONE]),
                  processors=[Logging("p", log), Aborting("process_llm_response", True)])

    output, _ = run(agent, streamed)

    assert output.text == "Done." and output.steps[0].attempts == 2
    assert [line for line in log if "step" in line or "response" in line or "stream" in line] == [
        "p.process_input_step 1/1", "p.process_output_stream 1/1",
        "p.process_input_step 1/2", "p.process_output_stream 1/2", "p.process_llm_response 1/2"]


def test_the_attempt_is_counted_by_rejections_and_not_by_calls_that_were_cut_off():
    """A model call that failed and is made again on resume is still the first attempt, at two model calls."""
    log = []
    agent = Agent("a", model=ScriptedModel([fails(Overloaded("busy")), DONE]), processors=[Logging("p", log)],
                  runs=MemoryRuns(), retries=0)
    with pytest.raises(Overloaded) as raised:
        agent.generate("Go.")

    output = agent.resume(raised.value.run_id)

    assert [line for line in log if "step" in line] == ["p.process_input_step 1/1"] * 2
    assert output.steps[0].attempts == 2


def test_once_per_run_hooks_are_not_called_again_on_resume():
    """process_input is recorded; tools() is called at every start."""
    log = []

    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    agent = Agent("a", model=ScriptedModel([calls("refund"), DONE]), tools=[refund], runs=MemoryRuns(),
                  processors=[Logging("p", log)])
    output = agent.generate("Go.")
    output = agent.resume(output.run_id, Approve())

    assert output.text == "Done."
    assert [log.count("p.%s 0/0" % hook) for hook in ("process_input", "tools")] == [1, 1]
    assert sum(".tools" in line for line in log) == 2
    assert sum("process_output " in line for line in log) == 1


def test_hooks_of_one_run_are_never_called_concurrently():
    """Eight results that come at once are shown to the processors one by one."""
    inside, most = [], []

    class Watching(Processor):
        def process_tool_result(self, result, ctx):
            inside.append(1)
            most.append(len(inside))
            ctx.state["seen"] = ctx.state.get("seen", 0) + 1
            threading.Event().wait(0.002)
            inside.pop()
            return result

    barrier = threading.Barrier(8)

    def meet() -> str:
        """Return together with the seven others."""
        barrier.wait(10)
        return "met"

    watching = Watching()
    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([calls(*[("meet", {})] * 8), DONE]), tools=[meet], processors=[watching],
                  runs=runs)

    output = agent.generate("Go.")

    assert len(output.tool_results) == 8
    assert set(most) == {1} and len(most) == 8
    states = [change["value"] for record in runs.read(output.run_id) for change in record.get("changes", ())
              if change["type"] == "processor-state"]
    assert states == [{"seen": count} for count in range(1, 9)]


def test_a_hook_that_nobody_overrides_costs_no_record():
    """Without processors, and with one that overrides nothing, the records are the same."""
    def records(*processors):
        runs = MemoryRuns()
        output = Agent("a", model=ScriptedModel([calls("add", a=1, b=1), DONE]), tools=[add], runs=runs,
                       processors=processors).generate("Go.")
        return [(record["status"], record["path"]) for record in runs.read(output.run_id)]

    assert records() == records(Processor())
    assert not [path for _, path in records() if "processors" in path or "review" in path or "process-result" in path]


# Abort.


#: Model requests that were made when the hook is called for the first time.
ASKED = {"tools": 0, "process_input": 0, "process_input_step": 0, "process_llm_request": 0, "process_output_stream": 1,
         "process_llm_response": 1, "process_tool_result": 1, "process_output": 2, "process_api_error": 1}


class AbortingAt(Processor):
    """Aborts from one hook whenever it is called."""

    id = "guard"

    def __init__(self, hook, retry=False):
        def stop(*args):
            self.calls += 1
            args[-1].abort("not allowed", retry=retry, metadata={"rule": 7})

        self.calls = 0
        setattr(self, hook, stop)


@both_ways
@pytest.mark.parametrize("retry", [False, True], ids=["", "retry"])
@pytest.mark.parametrize("hook", HOOKS)
def test_an_abort_means_the_same_from_every_hook(hook, retry, streamed):
    """Nothing more runs, the blocked call is not made, the text is empty, usage is filled, the stream finishes."""
    ran, guard = Ran(), AbortingAt(hook, retry)
    first = says("Let me see. ") + calls("charge", amount=1)
    first = fails(Overloaded("busy")) if hook == "process_api_error" else first
    model = ScriptedModel([first, says("Secret words."), DONE, DONE, DONE])
    agent = Agent("a", model=model, tools=[ran.charge], processors=[guard], retries=0, max_processor_retries=0)

    output, chunks = run(agent, streamed)

    if hook == "process_tool_result" and retry:
        assert output.text == "Secret words." and output.tool_errors[0].output == "not allowed"
        return
    asked = ASKED[hook]
    assert output.finish_reason == "tripwire" and output.text == ""
    assert output.tripwire == Tripwire("processor", "not allowed", "guard", hook, retry, {"rule": 7})
    assert len(model.requests) == asked and guard.calls == 1
    assert ran.count == (1 if hook in ("process_tool_result", "process_output") else 0)
    assert output.usage.total_tokens == (0 if hook == "process_api_error" else 15 * asked)
    assert not output.usage.partial or hook == "process_api_error"
    said = json.dumps(output.to_dict())
    assert "Secret" not in said
    if hook in ("process_output_stream", "process_llm_response"):
        assert "Let me see" not in said and "charge" not in said
    if streamed:
        assert [chunk.type for chunk in chunks[-2:]] == ["tripwire", "finish"]
        assert chunks[-1].payload["output"].to_dict() == output.to_dict()


@both_ways
def test_a_call_that_is_not_blocked_is_made(streamed):
    """The counterpart: the same run without an abort runs the tool."""
    ran = Ran()
    model = ScriptedModel([says("Let me see. ") + calls("charge", amount=1), DONE])
    agent = Agent("a", model=model, tools=[ran.charge], processors=[Processor()])

    output, _ = run(agent, streamed)

    assert ran.count == 1 and output.text == "Done."


@both_ways
def test_an_abort_at_a_later_step_keeps_the_steps_before(streamed):
    """Finished steps, their calls and results stay; only the text is empty."""
    agent = Agent("a", model=ScriptedModel([calls("add", a=1, b=2), DONE]), tools=[add],
                  processors=[Aborting("process_input_step")])

    output, _ = run(agent, streamed)

    assert output.text == "" and output.tripwire.hook == "process_input_step"
    assert [result.output for result in output.tool_results] == [3]
    assert [message.role for message in output.messages] == ["user", "assistant", "tool"]
    assert output.steps[0].finish_reason == "tool-calls"


def test_an_abort_of_one_of_several_results_leaves_one_result_for_each_call():
    """Siblings that are at work end; later ones are void; there is one tool message; the first abort counts."""
    barrier = threading.Barrier(3)
    ran = []

    def meet(name: str) -> str:
        """Return together with the others."""
        barrier.wait(10)
        ran.append(name)
        return "met " + name

    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([calls(*[("meet", {"name": name}) for name in "abc"]), DONE]), tools=[meet],
                  processors=[AbortingAt("process_tool_result")], runs=runs)

    output = agent.generate("Go.")

    assert output.finish_reason == "tripwire" and sorted(ran) == ["a", "b", "c"]
    assert [message.role for message in output.messages] == ["user", "assistant", "tool"]
    results = output.messages[-1].tool_results
    assert [part.call_id for part in results] == [part.call_id for part in output.messages[1].tool_calls]
    assert [part.to_dict() for part in output.steps[-1].tool_results] == [part.to_dict() for part in results]
    assert sum(change["type"] == "tripped" for record in runs.read(output.run_id)
               for change in record.get("changes", ())) == 1


def test_an_abort_at_the_end_withdraws_the_last_words_and_keeps_the_calls():
    """A blocked output is in no message, also where the last answer is one with calls."""
    agent = Agent("a", model=ScriptedModel([says("Secret. ") + calls("add", a=1, b=1)]), tools=[add], max_steps=1,
                  processors=[AbortingAt("process_output")])

    output = agent.generate("Go.")

    assert "Secret" not in json.dumps(output.to_dict())
    assert [message.role for message in output.messages] == ["user", "assistant", "tool"]
    assert [part.name for part in output.messages[1].tool_calls] == ["add"]


def test_an_abort_after_an_edit_leaves_no_text():
    """What one processor made of the text is withdrawn when the next one blocks it."""
    class Editing(Processor):
        def process_output(self, output, ctx):
            return replace(output, text="Edited secret.")

    agent = Agent("a", model=ScriptedModel([DONE]), processors=[AbortingAt("process_output"), Editing()])

    output = agent.generate("Go.")

    assert output.text == "" and "secret" not in json.dumps(output.to_dict())


def test_under_an_abort_open_questions_are_void():
    """A call that waited for approval gets a result that says so; nobody can decide it any more."""
    ran, runs = Ran(), MemoryRuns()

    @tool(require_approval=True)
    def refund() -> str:
        raise AssertionError("run")

    model = ScriptedModel([calls(("refund", {}), ("charge", {"amount": 1})), DONE])
    agent = Agent("a", model=model, tools=[refund, ran.charge], processors=[Aborting("process_tool_result")], runs=runs)

    output = agent.generate("Go.", run_id="run-1")

    assert output.finish_reason == "tripwire" and not output.suspensions and ran.count == 1
    assert [part.kind for part in output.messages[-1].tool_results] == ["cancelled", "cancelled"]
    assert not folded("run-1", runs.read("run-1")).suspensions and not runs.suspensions()
    (asked,) = [record["output"]["id"] for record in runs.read("run-1") if record["status"] == "suspended"]
    with pytest.raises(RunFinished):
        runs.decide("run-1", asked, Approve())


@pytest.mark.parametrize("aborts", [False, True], ids=["exception", "abort"])
def test_tools_may_fail_or_abort_at_a_resume_too(aborts):
    """The hook is called at every start; what it does at a later one is recorded like at the first."""
    class Late(Processor):
        id = "late"

        def tools(self, ctx):
            if starts and aborts:
                ctx.abort("not today")
            if starts:
                raise ValueError("oh")
            starts.append(1)
            return ()

    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    starts, runs = [], MemoryRuns()
    agent = Agent("a", model=ScriptedModel([calls("refund"), DONE], by_step=True), tools=[refund], runs=runs,
                  processors=[Late()])
    agent.generate("Go.", run_id="run-1")

    if aborts:
        output = agent.resume("run-1", Approve())
        assert (output.finish_reason, output.tripwire.reason) == ("tripwire", "not today")
        assert runs.status("run-1") == "finished"
        assert agent.generate("Go.", run_id="run-1").to_dict() == output.to_dict()
    else:
        with pytest.raises(ProcessorError) as raised:
            agent.resume("run-1", Approve())
        assert raised.value.output.error["type"] == "ProcessorError" and raised.value.output.finish_reason == "error"
        assert runs.status("run-1") == "interrupted"


# Retry.


@both_ways
@pytest.mark.parametrize("hook", ["process_output_stream", "process_llm_response"])
def test_a_rejected_answer_is_asked_for_again_with_the_reason(hook, streamed):
    """The model sees what it said and why that was not taken; usage counts both; nothing of it is in the output."""
    ran = Ran()
    model = ScriptedModel([SECRET + calls("charge", amount=1), DONE])
    agent = Agent("a", model=model, tools=[ran.charge], processors=[Aborting(hook, True)])

    output, chunks = run(agent, streamed)

    assert output.finish_reason == "stop" and output.text == "Done." and ran.count == 0
    asked = model.requests[1].messages
    assert [message.role for message in asked] == ["user", "assistant", "tool"]
    assert asked[1].text == SECRET.text
    assert "not allowed" in asked[2].tool_results[0].output
    assert (output.usage.input_tokens, output.usage.output_tokens) == (20, 10)
    assert output.steps[0].attempts == 2 and len(output.attempts) == 1
    assert (output.attempts[0]["reason"], output.attempts[0]["hook"]) == ("not allowed", hook)
    assert SECRET.text not in json.dumps(output.to_dict(), ensure_ascii=False)
    if streamed:
        trips = [chunk.payload["tripwire"] for chunk in chunks if chunk.type == "tripwire"]
        assert [trip.retry for trip in trips] == [True]
        starts = [chunk.payload["attempt"] for chunk in chunks if chunk.type == "step-start"]
        assert starts == [1, 2]


@pytest.mark.parametrize("budget", [0, 1, 2, 3])
def test_the_budget_of_retries_is_kept(budget):
    """max_processor_retries answers are asked for again; then the run trips, with retry on its tripwire."""
    model = ScriptedModel([SECRET], loop=True)
    agent = Agent("a", model=model, processors=[Aborting("process_llm_response", True)], max_processor_retries=budget)

    output = agent.generate("Go.")

    assert output.finish_reason == "tripwire" and output.tripwire.retry and output.text == ""
    assert len(model.requests) == budget + 1
    assert output.usage.total_tokens == 15 * (budget + 1)
    assert "§" not in json.dumps(output.to_dict(), ensure_ascii=False)


def test_the_default_budget_is_two():
    """Without an option two answers are asked for again."""
    model = ScriptedModel([SECRET], loop=True)
    Agent("a", model=model, processors=[Aborting("process_llm_response", True)]).generate("Go.")
    assert len(model.requests) == 3


def test_a_retry_where_there_is_no_answer_trips():
    """From process_llm_request there is nothing to reject: the run trips and says that a retry was wanted."""
    model = ScriptedModel([calls("add", a=1, b=1), DONE])
    output = Agent("a", model=model, tools=[add], processors=[Aborting("process_llm_request", True)]).generate("Go.")
    assert output.tripwire.retry and len(model.requests) == 1


def test_the_text_of_an_answer_without_words_that_is_rejected_is_not_sent():
    """An empty rejected answer leaves no empty assistant message in the request."""
    class Picky(Processor):
        def process_llm_response(self, response, ctx):
            return response if response.message.text else ctx.abort("say something", retry=True)

    model = ScriptedModel([says(""), DONE])

    output = Agent("a", model=model, processors=[Picky()]).generate("Go.")

    assert output.text == "Done."
    assert [message.role for message in model.requests[1].messages] == ["user", "user"]


# Exceptions and wrong returns.


def raising(hook, error):
    def fail(*args):
        raise error

    processor = Processor()
    processor.id = "bad"
    setattr(processor, hook, fail)
    return processor


@both_ways
@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_stops_the_run_and_keeps_its_cause(hook, streamed):
    """Guardrails fail closed in every hook: ProcessorError names processor and hook; the tool is not run."""
    ran, cause = Ran(), ValueError("oh")
    first = fails(Overloaded("busy")) if hook == "process_api_error" else calls("charge", amount=1)
    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([first, DONE, DONE]), tools=[ran.charge], processors=[raising(hook, cause)],
                  retries=0, runs=runs)

    with pytest.raises(ProcessorError) as raised:
        run(agent, streamed)

    error = raised.value
    assert (error.processor, error.hook, error.__cause__) == ("bad", hook, cause)
    assert "bad" in str(error) and hook in str(error) and "ValueError: oh" in str(error)
    assert error.output.finish_reason == "error" and error.output.error["type"] == "ProcessorError"
    assert runs.status(error.run_id) == "interrupted"
    assert ran.count == (1 if hook in ("process_tool_result", "process_output") else 0)


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "process_api_error"])
def test_a_failed_run_goes_on_when_its_processor_works_again(hook):
    """After an exception in any hook the run can be resumed, and no tool runs twice."""
    ran, runs = Ran(), MemoryRuns()
    model = ScriptedModel([calls("charge", amount=1), DONE], by_step=True)
    bad = raising(hook, ValueError("oh"))
    agent = Agent("a", model=model, tools=[ran.charge], processors=[bad], runs=runs)
    with pytest.raises(ProcessorError) as raised:
        agent.generate("Go.")
    delattr(bad, hook)

    output = agent.resume(raised.value.run_id)

    assert output.text == "Done." and ran.count == 1


class Reviewing(Processor):
    """Looks at answers and results, and may be told to fail at either."""

    id = "reviewing"

    def __init__(self, failing=""):
        self.failing = failing
        self.answers = []

    def process_llm_response(self, response, ctx):
        self.answers.append(response.message.text)
        if self.failing == "answer":
            raise ValueError("oh")
        return response

    def process_tool_result(self, result, ctx):
        if self.failing == "result":
            raise ValueError("oh")
        return result


@pytest.mark.parametrize("before, after", [
    ([Reviewing("answer")], []), ([Reviewing("result")], []), ([Reviewing("answer")], [Reviewing()]),
    ([raising("process_output", ValueError("oh"))], [Reviewing()])])
def test_a_run_goes_on_with_other_processors_than_it_began_with(before, after):
    """Whatever was deployed meanwhile: no answer and no result is lost, none is there twice."""
    ran, runs = Ran(), MemoryRuns()
    model = ScriptedModel([says("Well. ") + calls(("charge", {"amount": 1}), ("nosuch", {})), DONE], by_step=True)
    with pytest.raises(ProcessorError) as raised:
        Agent("a", model=model, tools=[ran.charge], processors=before, runs=runs).generate("Go.")

    output = Agent("a", model=model, tools=[ran.charge], processors=after, runs=runs).resume(raised.value.run_id)

    assert output.text == "Done." and ran.count == 1
    assert [message.role for message in output.messages] == ["user", "assistant", "tool", "assistant"]
    assert [part.is_error for part in output.messages[2].tool_results] == [False, True]


def test_an_answer_that_was_accepted_is_not_accepted_again_for_a_new_processor():
    """A processor that is new since the answer was recorded does not make it a second message."""
    runs, reviewing = MemoryRuns(), Reviewing()
    bad = Ran().charge

    @tool(name="charge", require_approval=True)
    def refused(amount: int) -> str:
        return "ok"

    model = ScriptedModel([says("Well. ") + calls("charge", amount=1), DONE], by_step=True)
    agent = Agent("a", model=model, tools=[refused], runs=runs)
    run_id = "run-1"

    class Gone(BaseException):
        pass

    class Dying(Processor):
        def tools(self, ctx):
            ctx._scope.journal.listener = self.listen
            return ()

        def listen(self, record):
            if any(change["type"] == "answer-accepted" for change in record.get("changes", ())):
                raise Gone

    with pytest.raises(Gone):
        agent.generate("Go.", run_id=run_id, processors=[Dying()])
    output = Agent("a", model=model, tools=[bad], runs=runs, processors=[reviewing]).resume(run_id, processors=[])

    assert output.text == "Done."
    assert [message.role for message in output.messages] == ["user", "assistant", "tool", "assistant"]
    assert reviewing.answers == ["Done."]


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "tools"])
def test_fail_open_lets_the_input_through(hook, caplog):
    """With fail_open an exception is logged and the run goes on as if the hook were not there."""
    ran, bad = Ran(), raising(hook, ValueError("oh"))
    bad.fail_open = True
    first = [fails(BadRequest("no"))] if hook == "process_api_error" else []
    agent = Agent("a", model=ScriptedModel([*first, calls("charge", amount=1), DONE]), tools=[ran.charge],
                  processors=[bad], retries=0)

    if hook == "process_api_error":
        with pytest.raises(BadRequest):
            agent.generate("Go.")
    else:
        assert agent.generate("Go.").text == "Done." and ran.count == 1
    assert "'bad' failed in %s" % hook in caplog.text


WRONG = {
    "tools": ["text", 5], "process_input": [None, "text", ["text"], 5], "process_input_step": [None, {}],
    "process_llm_request": [None, "text"], "process_output_stream": ["text", 5, ["text"], {}],
    "process_llm_response": [None, "text"], "process_tool_result": [None, "text"], "process_output": [None, "text"],
    "process_api_error": ["text", True],
}


@pytest.mark.parametrize("hook, value", [(hook, value) for hook in HOOKS for value in WRONG[hook]])
def test_a_wrong_return_value_is_the_processors_error(hook, value):
    """The error names processor, hook, what came and what was expected."""
    processor = Processor()
    processor.id = "odd"
    setattr(processor, hook, lambda *args: value)
    first = fails(Overloaded("busy")) if hook == "process_api_error" else calls("add", a=1, b=1)
    agent = Agent("a", model=ScriptedModel([first, DONE]), tools=[add], processors=[processor], retries=0)

    with pytest.raises(ProcessorError, match="odd.*%s|%s" % (hook, hook)) as raised:
        agent.generate("Go.")

    assert (raised.value.processor, raised.value.hook) == ("odd", hook)


def test_two_processors_of_one_id_are_refused_before_anything_is_done():
    """By the agent, and by a call that adds one; no run is made."""
    runs, model = MemoryRuns(), ScriptedModel([DONE])
    with pytest.raises(ConfigError, match="two processors have the id 'Processor'"):
        Agent("a", model=model, processors=[Processor(), Processor()])
    agent = Agent("a", model=model, processors=[Processor()], runs=runs)
    for start in (agent.generate, agent.stream):
        with pytest.raises(ConfigError, match="two processors have the id 'Processor'"):
            start("Go.", processors=[Processor()])
    assert not runs.list() and not model.requests


@pytest.mark.parametrize("wrong", [[Processor], ["text"], [None], [5], "text", 5])
def test_what_is_no_processor_is_refused(wrong):
    """A class, a text or a number among the processors is told at once."""
    with pytest.raises(ConfigError, match="processors"):
        Agent("a", model="scripted", processors=wrong)


def test_an_id_with_a_slash_is_refused():
    """Ids are names in paths."""
    processor = Processor()
    processor.id = "a/b"
    with pytest.raises(ConfigError, match="'a/b'.*without '/'"):
        Agent("a", model="scripted", processors=[processor])


# State.


class Remembering(Processor):
    """Counts its calls in its state, hook by hook."""

    id = "memory"

    def _count(self, ctx):
        ctx.state[ctx.hook] = ctx.state.get(ctx.hook, 0) + 1

    def process_input(self, messages, ctx):
        self._count(ctx)
        return messages

    def process_input_step(self, step_input, ctx):
        self._count(ctx)
        return step_input.replace(system="state: %s" % json.dumps(ctx.state, sort_keys=True))

    def process_llm_response(self, response, ctx):
        self._count(ctx)
        return response

    def process_tool_result(self, result, ctx):
        self._count(ctx)
        return result

    def process_output(self, output, ctx):
        self._count(ctx)
        return replace(output, metadata={"state": dict(ctx.state)})


def test_state_survives_suspend_and_resume_in_another_agent(tmp_path):
    """What a hook kept in ctx.state is there when another process goes on; every hook's count is exact."""
    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    def agent():
        return Agent("a", model=ScriptedModel([calls("refund"), DONE], by_step=True), tools=[refund],
                     runs=JsonFileRuns(str(tmp_path)), processors=[Remembering()])

    waiting = agent().generate("Go.")

    output = agent().resume(waiting.run_id, Approve())

    assert output.metadata == {"state": {"process_input": 1, "process_input_step": 2, "process_llm_response": 2,
                                         "process_tool_result": 1, "process_output": 1}}


def test_state_that_is_no_json_is_the_processors_error():
    """The error names the processor; nothing is recorded of it."""
    class Odd(Processor):
        def process_input(self, messages, ctx):
            ctx.state["when"] = object()
            return messages

    with pytest.raises(ProcessorError, match="'Odd'.*no JSON") as raised:
        Agent("a", model=ScriptedModel([DONE]), processors=[Odd()]).generate("Go.")

    assert isinstance(raised.value.__cause__, EncodeError)


# Edits.


@both_ways
def test_what_is_shown_recorded_and_sent_back_is_one_text(streamed):
    """Text changed in the stream hook is what the viewer, the output, the history and the next request have."""
    class Masking(Processor):
        def process_output_stream(self, chunk, ctx):
            if chunk.type == "text-delta":
                return chunk._replace(payload=dict(chunk.payload, text=chunk.payload["text"].replace("§", "*")))
            return chunk

    model = ScriptedModel([SECRET + calls("add", a=1, b=1), says("§ again.")])
    agent = Agent("a", model=model, tools=[add], processors=[Masking()])

    output, chunks = run(agent, streamed)

    assert output.text == "* again."
    assert model.requests[1].messages[1].text == "The code is *42."
    assert "§" not in json.dumps(output.to_dict(), ensure_ascii=False)
    if streamed:
        shown = "".join(chunk.payload["text"] for chunk in chunks if chunk.type == "text-delta")
        assert shown == "The code is *42.* again."


@both_ways
def test_dropping_a_tool_call_chunk_means_that_the_call_is_not_made(streamed):
    """The dropped call is in no message; the other one is made."""
    class Dropping(Processor):
        def process_output_stream(self, chunk, ctx):
            return None if chunk.type == "tool-call" and chunk.payload["tool_name"] == "charge" else chunk

    ran = Ran()
    agent = Agent("a", model=ScriptedModel([calls(("charge", {"amount": 1}), ("add", {"a": 1, "b": 2})), DONE]),
                  tools=[add, ran.charge], processors=[Dropping()])

    output, chunks = run(agent, streamed)

    assert ran.count == 0 and [part.name for part in output.tool_calls] == ["add"]
    assert [chunk.payload["tool_name"] for chunk in chunks if chunk.type == "tool-call"] == ["add"] * streamed


def test_dropping_the_only_call_ends_the_loop():
    """An answer whose calls were all dropped is an answer without calls."""
    class Dropping(Processor):
        def process_output_stream(self, chunk, ctx):
            return None if chunk.type == "tool-call" else chunk

    output = Agent("a", model=ScriptedModel([says("Hm. ") + calls("add", a=1, b=2)]), tools=[add],
                   processors=[Dropping()]).generate("Go.")

    assert output.finish_reason == "stop" and output.text == "Hm. "


def test_a_response_may_be_edited_and_its_calls_dropped():
    """process_llm_response returns the answer that is kept, before its tools run."""
    class Editing(Processor):
        def process_llm_response(self, response, ctx):
            return response.replace(message=Message.assistant("Edited."))

    ran = Ran()
    output = Agent("a", model=ScriptedModel([says("Raw.") + calls("charge", amount=1)]), tools=[ran.charge],
                   processors=[Editing()]).generate("Go.")

    assert (output.text, output.finish_reason, ran.count) == ("Edited.", "stop", 0)
    assert output.messages[-1].text == "Edited." and output.steps[0].tool_calls == ()


def test_a_chunk_may_become_several():
    """A list of chunks takes the place of one."""
    class Doubling(Processor):
        def process_output_stream(self, chunk, ctx):
            return [chunk, chunk] if chunk.type == "text-delta" else chunk

    output = Agent("a", model=ScriptedModel([says("ab")]), processors=[Doubling()]).generate("Go.")

    assert output.text == "aabb" or output.text == "abab"


class Signing(ScriptedModel):
    """Thinks with a signature, and signs its text."""

    def do_stream(self, request, call):
        self.requests.append(request)
        yield [("reasoning-start", {"id": "r"}), ("reasoning-delta", {"id": "r", "text": "Thought."}),
               ("reasoning-end", {"id": "r", "signature": "sig"}),
               ("text-start", {"id": "t"}), ("text-delta", {"id": "t", "text": "Words."}),
               ("text-end", {"id": "t", "provider_metadata": {"scripted": {"sign": "text-sig"}}}),
               ("tool-call", {"call_id": "c", "tool_name": "add", "args": {"a": 1, "b": 1},
                              "raw_args": '{"a":1, "b":1}', "provider_metadata": {"scripted": {"thought": "x"}}}),
               ("finish", {"finish_reason": "tool-calls", "usage": TURN, "warnings": []})]


@pytest.mark.parametrize("changed", ["reasoning-delta", "text-delta", "tool-call", None])
def test_changing_a_signed_part_drops_its_signature(changed):
    """Only the changed part loses what the provider signed; the others are kept to the byte."""
    class Changing(Processor):
        def process_output_stream(self, chunk, ctx):
            if chunk.type != changed:
                return chunk
            payload = dict(chunk.payload)
            if "args" in payload:
                payload["args"] = {"a": 2, "b": 2}
            else:
                payload["text"] = payload["text"].upper()
            return chunk._replace(payload=payload)

    output = Agent("a", model=Signing([DONE]), tools=[add], processors=[Changing()], max_steps=1).generate("Go.")

    reasoning, text, made = output.messages[1].parts
    assert (reasoning.signature, reasoning.text) == ((None, "THOUGHT.") if changed == "reasoning-delta"
                                                     else ("sig", "Thought."))
    assert bool(text.provider_metadata) == (changed != "text-delta")
    assert bool(made.provider_metadata) == (changed != "tool-call")
    assert made.raw_args == ('{"a": 2, "b": 2}' if changed == "tool-call" else '{"a":1, "b":1}')
    assert output.tool_results[0].output == (4 if changed == "tool-call" else 2)


def test_a_result_may_be_edited_before_it_enters_the_history():
    """What process_tool_result returns is what the model and the output get, for errors, too."""
    class Editing(Processor):
        def process_tool_result(self, result, ctx):
            return replace(result, output="%s, edited" % (result.output,), is_error=False, kind=None)

    model = ScriptedModel([calls(("add", {"a": 1, "b": 2}), ("nosuch", {})), DONE])

    output = Agent("a", model=model, tools=[add], processors=[Editing()]).generate("Go.")

    assert [part.output[-6:] for part in output.tool_results] == ["edited", "edited"] and not output.tool_errors
    assert [part.output for part in model.requests[1].messages[-1].tool_results] == [
        part.output for part in output.tool_results]


def test_the_input_may_be_edited_once():
    """Messages that process_input returns are the run's input from then on, with ids."""
    class Editing(Processor):
        def process_input(self, messages, ctx):
            return [Message.system("Be brief."), *messages, Message.user("Now.")]

    model = ScriptedModel([calls("add", a=1, b=1), DONE])

    output = Agent("a", model=model, tools=[add], processors=[Editing()]).generate("Go.")

    assert [message.text for message in model.requests[1].messages[:3]] == ["Be brief.", "Go.", "Now."]
    assert [message.role for message in output.response_messages] == ["assistant", "tool", "assistant"]
    assert len({message.id for message in output.messages}) == 6 and all(message.id for message in output.messages)


def test_the_output_may_be_edited_and_that_is_recorded():
    """Text, object and metadata of process_output are in the output, and in that of the finished run."""
    class Editing(Processor):
        def process_output(self, output, ctx):
            return replace(output, text=output.text.upper(), object={"n": 1}, metadata={"k": "v"})

    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([DONE]), processors=[Editing()], runs=runs)

    output = agent.generate("Go.", run_id="run-1")

    assert (output.text, output.object, output.metadata) == ("DONE.", {"n": 1}, {"k": "v"})
    assert agent.generate("Go.", run_id="run-1").to_dict() == output.to_dict()


def test_a_step_may_have_other_messages_system_tools_choice_settings_and_model():
    """Everything in StepInput is what goes out; the conversation itself is unchanged."""
    other = ScriptedModel([DONE], model="other")

    class Changing(Processor):
        def process_input_step(self, step_input, ctx):
            assert isinstance(step_input, StepInput)
            messages = [*step_input.messages, Message.user("Hurry.")]
            return step_input.replace(messages=messages, system="Sys.", model=other, active_tools=(),
                                      tool_choice="none", settings={"temperature": 0.5})

    first = ScriptedModel([DONE])

    output = Agent("a", model=first, tools=[add], processors=[Changing()]).generate("Go.")

    request = other.requests[0]
    assert not first.requests
    assert [message.text for message in request.messages] == ["Go.", "Hurry."]
    frame = request.frame
    assert (frame.system, frame.tools, frame.tool_choice, frame.settings, frame.model) == (
        "Sys.", (), "none", {"temperature": 0.5}, "other")
    assert [message.text for message in output.messages] == ["Go.", "Done."]


def test_an_active_tool_that_does_not_exist_is_an_error_that_names_it():
    """A hook that chooses a tool that is not there is told the names of those that are."""
    class Choosing(Processor):
        def process_input_step(self, step_input, ctx):
            return step_input.replace(active_tools=("ad",))

    with pytest.raises(ConfigError, match="'ad'.*add"):
        Agent("a", model=ScriptedModel([DONE]), tools=[add], processors=[Choosing()]).generate("Go.")


# Skipping the model.


CACHED = ModelResponse(Message("assistant", (TextPart("From the cache."),)), "stop", TURN, "cached-model",
                       sources=({"url": "https://example.com"},))


@both_ways
def test_a_recorded_response_skips_the_model(streamed):
    """No model call, zero usage, cached on the step; the stream is replayed through the stream hooks."""
    seen = []

    class Cache(Processor):
        def process_llm_request(self, request, ctx):
            return CACHED

        def process_output_stream(self, chunk, ctx):
            seen.append(chunk.type)
            return chunk

    model = ScriptedModel([DONE])

    output, chunks = run(Agent("a", model=model, processors=[Cache()]), streamed)

    assert (output.text, output.finish_reason, output.usage.total_tokens) == ("From the cache.", "stop", 0)
    assert not model.requests and output.steps[0].cached and not output.usage.partial
    assert output.steps[0].model == "cached-model" and list(output.sources) == [{"url": "https://example.com"}]
    assert [type for type in seen if type.startswith("text")] == ["text-start", "text-delta", "text-end"]
    if streamed:
        assert "".join(chunk.payload["text"] for chunk in chunks if chunk.type == "text-delta") == output.text


def test_a_recorded_response_with_calls_runs_them():
    """Calls of a recorded response are made like those of a model; provider-run ones are not."""
    class Cache(Processor):
        def process_llm_request(self, request, ctx):
            if answers_of(request):
                return request
            parts = (ToolCallPart("c1", "charge", {"amount": 1}, '{"amount": 1}'),
                     ToolCallPart("c2", "search", {}, "{}", provider_executed=True))
            return ModelResponse(Message("assistant", parts), "tool-calls")

    ran = Ran()

    output = Agent("a", model=ScriptedModel([DONE]), tools=[ran.charge], processors=[Cache()]).generate("Go.")

    assert (ran.count, output.text) == (1, "Done.")
    assert [part.provider_executed for part in output.messages[1].parts] == [False, True]
    assert not output.tool_errors


# Errors of a provider.


def test_a_changed_request_is_tried_once():
    """process_api_error may change the request; if that fails, too, its error is raised."""
    tried = []

    class Recovering(Processor):
        def process_api_error(self, error, request, ctx):
            tried.append(type(error).__name__)
            return request.replace(messages=request.messages[-1:])

    model = ScriptedModel([fails(BadRequest("too long")), DONE])
    messages = [Message.user("Long."), Message.user("Short.")]
    output = Agent("a", model=model, processors=[Recovering()], retries=0).generate(messages)
    assert output.text == "Done." and tried == ["BadRequest"]
    assert [len(request.messages) for request in model.requests] == [2, 1]

    model = ScriptedModel([fails(BadRequest("one")), fails(BadRequest("two"))])
    with pytest.raises(BadRequest, match="two"):
        Agent("a", model=model, processors=[Recovering()], retries=0).generate(messages)
    assert len(model.requests) == 2


def test_the_first_processor_that_changes_the_request_decides():
    """Output-side order: the last registered one is asked first."""
    asked = []

    class Asked(Processor):
        def __init__(self, id, answers):
            self.id, self.answers = id, answers

        def process_api_error(self, error, request, ctx):
            asked.append(self.id)
            return request if self.answers else None

    model = ScriptedModel([fails(BadRequest("no")), DONE])
    processors = [Asked("p", True), Asked("q", True), Asked("r", False)]
    Agent("a", model=model, processors=processors, retries=0).generate("Go.")
    assert asked == ["r", "q"]


def test_the_next_model_of_a_list_is_asked_when_one_fails():
    """Order: the model, process_api_error, the next model; the answer names the model that gave it."""
    log = []
    first, second = ScriptedModel([fails(Overloaded("busy"))], model="one"), ScriptedModel([DONE], model="two")
    agent = Agent("a", model=[first, second], processors=[Logging("p", log)], retries=0)

    with agent.stream("Go.") as stream:
        chunks = list(stream)

    assert stream.output.text == "Done." and stream.output.steps[0].model == "two"
    assert "p.process_api_error 1/1" in log
    changes = [chunk.payload for chunk in chunks if chunk.type == "model-fallback"]
    assert [(change["from_model"], change["to_model"]) for change in changes] == [("one", "two")]
    assert all(set(change) == {"from_model", "to_model"} for change in changes)


def test_after_something_was_shown_nothing_else_is_tried():
    """A stream that broke off is neither repaired nor asked of another model."""
    class Recovering(Processor):
        def process_api_error(self, error, request, ctx):
            raise AssertionError("asked")

    first = ScriptedModel([fails(Overloaded("broke"), after="Some text")], model="one")
    second = ScriptedModel([DONE])
    agent = Agent("a", model=[first, second], processors=[Recovering()], retries=0)

    with agent.stream("Go.") as stream, pytest.raises(Overloaded):
        list(stream)

    assert not second.requests


def test_what_is_recorded_names_the_request_that_was_answered(tmp_path):
    """The frame in the record is that of the model that answered, changed requests included."""
    runs = MemoryRuns()
    first, second = ScriptedModel([fails(Overloaded("busy"))], model="one"), ScriptedModel([DONE], model="two")

    output = Agent("a", model=[first, second], retries=0, runs=runs).generate("Go.")

    record = next(item for item in runs.read(output.run_id) if item["path"].endswith("model-call")
                  and item["status"] == "done")
    assert json.loads(runs.get_blob(output.run_id, record["output"]["frame"]))["model"] == "two"


# Tools of processors, and what ctx has.


def test_a_processor_may_contribute_tools():
    """They are offered and run like the agent's; a name that is taken is an error."""
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    class Contributing(Processor):
        def tools(self, ctx):
            return [shout]

    model = ScriptedModel([calls("shout", text="hey"), DONE])
    output = Agent("a", model=model, tools=[add], processors=[Contributing()]).generate("Go.")
    assert output.tool_results[0].output == "HEY"
    assert [spec.name for spec in model.requests[0].frame.tools] == ["add", "shout"]

    with pytest.raises(ConfigError, match="two tools are named 'shout'"):
        Agent("a", model=ScriptedModel([DONE]), tools=[shout], processors=[Contributing()]).generate("Go.")


def test_a_context_has_what_the_contract_lists():
    """Run, agent, step, deps, request context, thread, messages, usage, time left, logger, emit."""
    seen = {}

    class Looking(Processor):
        def process_llm_response(self, response, ctx):
            seen.update(run_id=ctx.run_id, agent=ctx.agent, deps=ctx.deps, request=ctx.request_context,
                        thread=ctx.thread_id, resource=ctx.resource_id, messages=len(ctx.messages),
                        usage=ctx.usage.total_tokens, remaining=ctx.remaining(), logger=ctx.logger.name)
            ctx.emit("data-note", {"n": 1})
            return response

    chunks = []
    deps = object()
    Agent("helper", model=ScriptedModel([DONE]), processors=[Looking()]).generate(
        "Go.", run_id="run-1", deps=deps, request_context={"k": 1}, thread_id="t", resource_id="r", deadline=60,
        on_chunk=chunks.append)

    remaining, logger = seen.pop("remaining"), seen.pop("logger")
    assert 0 < remaining <= 60 and logger.split(".")[0] == Agent.__module__.split(".")[0]
    assert seen == {"run_id": "run-1", "agent": "helper", "deps": deps, "request": {"k": 1}, "thread": "t",
                    "resource": "r", "messages": 1, "usage": 15}
    assert [chunk.payload for chunk in chunks if chunk.type == "data-note"] == [{"value": {"n": 1}}]


def test_a_hook_emits_only_data_chunks():
    """Another chunk type is the processor's error."""
    class Emitting(Processor):
        def process_input(self, messages, ctx):
            ctx.emit("text-delta", "x")

    with pytest.raises(ProcessorError, match="data-"):
        Agent("a", model=ScriptedModel([DONE]), processors=[Emitting()]).generate("Go.")


def test_a_result_part_keeps_its_call_whatever_a_hook_returns():
    """A result for another call would leave this one without: the call's id and name stay."""
    class Mixing(Processor):
        def process_tool_result(self, result, ctx):
            return ToolResultPart("other", "other", "mixed")

    model = ScriptedModel([calls(call("add", {"a": 1, "b": 1}, call_id="mine")), DONE])

    Agent("a", model=model, tools=[add], processors=[Mixing()]).generate("Go.")

    result = model.requests[1].messages[-1].tool_results[0]
    assert (result.call_id, result.name, result.output) == ("mine", "add", "mixed")
