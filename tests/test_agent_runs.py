"""Runs by their id: made once, found again, owned by one, gone on with, refused.

Not here: stores (test_runs_*) and stops at each record (test_loop_stops).
"""

import json
import threading

import pytest

from minagent import Agent, Answer, Approve, Decline, Limits, Processor, has_tool_call, tool
from minagent.errors import (
    ConfigError,
    Overloaded,
    ResumeMismatch,
    RunBusy,
    RunConflict,
    RunFinished,
    RunNotFound,
    RunPoisoned,
)
from minagent.results import Usage
from minagent.runs import MemoryRuns
from minagent.testing import ScriptedModel, calls, fails, says

DONE = says("Done.")


class Shop:
    """An agent with a tool that needs approval and one that does not, in one store."""

    def __init__(self, turns, **options):
        self.runs = MemoryRuns()
        self.ran = []
        self.model = ScriptedModel(turns, by_step=True)
        self.options = options

        @tool(require_approval=True)
        def refund(order: int = 1) -> str:
            """Refund."""
            self.ran.append("refund")
            return "refunded"

        @tool(effect="read")
        def look(n: int = 0) -> int:
            """Look."""
            self.ran.append("look")
            return n

        self.tools = [refund, look]

    def agent(self, name="shop", **options):
        given = {"model": self.model, "tools": self.tools, "runs": self.runs}
        return Agent(name, **dict(given, **self.options, **options))


REFUND = [calls("refund"), DONE]
LOOKS = [calls("look", n=1), calls("look", n=2), calls("look", n=3), DONE]


# run_id given twice.


def test_the_same_id_and_input_give_the_same_run():
    """Finished: its output, without a model call; for stream, too, as a stream of its end."""
    shop = Shop([DONE])
    first = shop.agent().generate("Go.", run_id="run-1")

    again = shop.agent().generate("Go.", run_id="run-1")
    with shop.agent().stream("Go.", run_id="run-1") as stream:
        chunks = list(stream)

    assert again.to_dict() == first.to_dict() == stream.output.to_dict()
    assert [chunk.type for chunk in chunks] == ["finish"] and len(shop.model.requests) == 1


def test_a_run_that_waits_gives_its_suspended_output_and_goes_on_once_decided():
    """create-or-get: nothing is asked twice; a posted decision lets the same call go on."""
    shop = Shop(REFUND)
    first = shop.agent().generate("Go.", run_id="run-1")
    again = shop.agent().generate("Go.", run_id="run-1")
    assert again.to_dict() == first.to_dict() and len(shop.model.requests) == 1

    shop.runs.decide("run-1", first.suspensions[0].id, Approve())

    assert shop.agent().generate("Go.", run_id="run-1").text == "Done." and shop.ran == ["refund"]


def test_an_interrupted_run_goes_on():
    """The same call again after an error."""
    shop = Shop([fails(Overloaded("busy"))], retries=0)
    with pytest.raises(Overloaded) as raised:
        shop.agent().generate("Go.", run_id="run-1")
    assert raised.value.run_id == "run-1" and raised.value.output.finish_reason == "error"
    shop.model = ScriptedModel([DONE])
    assert shop.agent().generate("Go.", run_id="run-1").text == "Done."


def test_other_input_or_another_agent_is_a_conflict():
    """The id is taken; the message says by what."""
    shop = Shop([DONE])
    shop.agent().generate("Go.", run_id="run-1")
    with pytest.raises(RunConflict, match="other input"):
        shop.agent().generate("Come.", run_id="run-1")
    with pytest.raises(RunConflict, match="agent 'shop'"):
        shop.agent("other").generate("Go.", run_id="run-1")


def test_a_run_that_goes_on_is_busy():
    """For generate and for resume, in another thread; a decision that came along is kept."""
    shop = Shop([])
    gate, begun = threading.Event(), threading.Event()

    @tool
    def wait_here() -> str:
        """Wait."""
        begun.set()
        assert gate.wait(30)
        return "waited"

    shop.tools = [*shop.tools, wait_here]
    shop.model = ScriptedModel([calls(("refund", {}), ("wait_here", {})), DONE], by_step=True)
    came, agent = [], shop.agent(tool_concurrency=1)
    thread = threading.Thread(target=lambda: came.append(agent.generate("Go.", run_id="run-1")))
    thread.start()
    assert begun.wait(10)
    try:
        with pytest.raises(RunBusy):
            shop.agent().generate("Go.", run_id="run-1")
        with pytest.raises(RunBusy):
            shop.agent().resume("run-1")
        item = next(record["output"]["id"] for record in shop.runs.read("run-1") if record["status"] == "suspended")
        with pytest.raises(RunBusy):
            shop.agent().resume("run-1", {item: Decline("no")})
    finally:
        gate.set()
        thread.join(10)

    assert came[0].text == "Done.", "the decision was taken up when the run would have waited"
    assert came[0].tool_errors[0].output == "declined: no"


def test_of_several_who_resume_at_once_one_goes_on():
    """The others get RunBusy, or RunFinished with the output."""
    shop = Shop(REFUND)
    waiting = shop.agent().generate("Go.", run_id="run-1")
    shop.runs.decide("run-1", waiting.suspensions[0].id, Approve())
    came, barrier = [], threading.Barrier(6)

    def resume():
        barrier.wait(10)
        try:
            came.append(shop.agent().resume("run-1"))
        except (RunBusy, RunFinished) as error:
            came.append(error)

    threads = [threading.Thread(target=resume) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(came) == 6 and shop.ran == ["refund"]
    assert sum(not isinstance(item, Exception) for item in came) == 1
    assert all(item.output.text == "Done." for item in came if isinstance(item, RunFinished))


# What resume refuses.


def test_a_run_of_another_agent_is_refused_and_nothing_is_posted():
    """The decision that came along is not kept: it was not for this agent to take."""
    shop = Shop(REFUND)
    waiting = shop.agent().generate("Go.", run_id="run-1")
    with pytest.raises(ResumeMismatch, match="belongs to agent 'shop', not to 'other'"):
        shop.agent("other").resume("run-1", Approve())
    assert not shop.runs.inbox("run-1") and shop.agent().resume("run-1", Approve()).text == "Done."
    assert waiting.finish_reason == "suspended"


class Null(Processor):
    """Sees tool results and changes nothing."""

    id = "null"

    def process_tool_result(self, result, ctx):
        return result


class Odd:
    """Something whose truth cannot be told, as of an array."""

    def __bool__(self):
        raise ValueError("ambiguous")


@pytest.mark.parametrize("name, value", [
    ("deps", {"db": 1}), ("deps", {}), ("deps", 0), ("deps", Odd()), ("processors", [Null()]),
    ("stop_when", has_tool_call("nosuch")), ("require_tool_approval", lambda args, ctx: False)])
def test_what_is_live_and_was_given_at_the_start_must_be_given_again(name, value):
    """ResumeMismatch names it, and leaves decision and run untouched; with it the run goes on."""
    shop = Shop(REFUND)
    shop.agent().generate("Go.", run_id="run-1", **{name: value})
    with pytest.raises(ResumeMismatch, match="started with %s=" % name):
        shop.agent().resume("run-1", Approve())
    assert not shop.runs.inbox("run-1")

    assert shop.agent().resume("run-1", Approve(), **{name: value}).text == "Done."


def test_tools_and_model_of_the_call_must_be_given_again():
    """The agent's own tools are other ones; a model may be the agent's."""
    shop = Shop(REFUND)
    bare = Agent("shop", runs=shop.runs)
    bare.generate("Go.", run_id="run-1", tools=shop.tools, model=shop.model)
    with pytest.raises(ResumeMismatch, match="model=.*tools=|tools=.*model="):
        bare.resume("run-1", Approve())
    with pytest.raises(ResumeMismatch, match="tools="):
        shop.agent().resume("run-1", Approve())
    assert bare.resume("run-1", Approve(), tools=shop.tools, model=shop.model).text == "Done."


@pytest.mark.parametrize("options", [{"processors": []}, {"deps": None}, {"stop_when": None}])
def test_what_was_not_really_given_need_not_be_given_again(options):
    """None and empty lists are nothing."""
    shop = Shop(REFUND)
    shop.agent().generate("Go.", run_id="run-1", **options)
    assert shop.agent().resume("run-1", Approve()).text == "Done."


def test_instructions_that_are_callable_are_recorded_as_text():
    """They were asked once and need not be given again."""
    shop = Shop(REFUND)
    shop.agent().generate("Go.", run_id="run-1", instructions=lambda context: "Be brief.")
    assert shop.agent().resume("run-1", Approve()).text == "Done."
    assert shop.model.requests[-1].frame.system == "Be brief."


def test_without_a_store_an_id_cannot_be_resumed_but_a_snapshot_can():
    """The error says what to pass; the snapshot is JSON and is not used up."""
    shop = Shop(REFUND)
    shop.runs = None
    waiting = shop.agent().generate("Go.")
    with pytest.raises(RunNotFound, match="no store"):
        shop.agent().resume(waiting.run_id)
    with pytest.raises(ConfigError, match="no snapshot"):
        shop.agent().resume({"some": "dict"})
    with pytest.raises(ConfigError):
        shop.agent().resume(None)
    snapshot = json.loads(json.dumps(waiting.snapshot))
    before = json.dumps(snapshot)

    assert shop.agent().resume(snapshot, Approve()).text == "Done."
    assert shop.agent().resume(snapshot, Decline("no")).tool_errors[0].output == "declined: no"
    assert json.dumps(snapshot) == before and shop.ran == ["refund"]
    with pytest.raises(ResumeMismatch):
        shop.agent("other").resume(snapshot, Approve())
    with pytest.raises(RunNotFound):
        shop.agent().resume("run-none")


def test_a_finished_output_has_no_snapshot_and_a_stored_run_neither():
    """A snapshot is for what can go on, where there is no store."""
    shop = Shop(REFUND)
    assert shop.agent().generate("Go.").snapshot is None
    shop.runs = None
    assert shop.agent().generate("Go.").snapshot is not None
    shop.model = ScriptedModel([DONE])
    assert shop.agent().generate("Go.").snapshot is None


# How far a resume goes.


def test_max_iterations_leaves_the_run_interrupted_after_so_many_steps():
    """For queue workers: each start takes a step; the end is that of an undisturbed run."""
    shop = Shop(LOOKS)
    with pytest.raises(_Gone):
        shop.agent().generate("Go.", run_id="run-1", processors=[_Failing()])
    reasons = []
    output = None
    for _ in range(10):
        output = shop.agent().resume("run-1", max_iterations=1, processors=[Null()])
        reasons.append((output.finish_reason, len(output.steps), shop.runs.status("run-1")))
        if output.finish_reason == "stop":
            break
    assert reasons == [("cancelled", count, "interrupted") for count in (1, 2, 3)] + [("stop", 4, "finished")]
    assert output.text == "Done." and [part.output for part in output.tool_results] == [1, 2, 3]


class _Failing(Processor):
    """Ends the process at the first step."""

    def process_input_step(self, step_input, ctx):
        raise _Gone


class _Gone(BaseException):
    """The process ended here."""


def test_a_run_that_never_gets_further_is_refused_until_asked_for():
    """After max_recoveries fruitless starts it is poisoned; a higher number, or progress, lets it go on."""
    shop = Shop([fails(Overloaded("busy"))], retries=0, max_recoveries=3)
    with pytest.raises(Overloaded):
        shop.agent().generate("Go.", run_id="run-1")
    for _ in range(4):
        with pytest.raises(Overloaded):
            shop.agent().resume("run-1")
    with pytest.raises(RunPoisoned, match="max_recoveries") as raised:
        shop.agent().resume("run-1")
    assert raised.value.run_id == "run-1"
    with pytest.raises(Overloaded):
        shop.agent().resume("run-1", max_recoveries=10)
    shop.model = ScriptedModel([DONE])
    assert shop.agent().resume("run-1", max_recoveries=10).text == "Done."


def test_looking_whether_somebody_has_answered_is_no_failed_start():
    """A run that waits may be resumed any number of times without a decision."""
    shop = Shop(REFUND)
    shop.agent().generate("Go.", run_id="run-1")
    for _ in range(12):
        assert shop.agent().resume("run-1").finish_reason == "suspended"
    assert shop.agent().resume("run-1", Approve()).text == "Done."


def test_recover_resumes_what_was_interrupted():
    """Outputs, and errors of those that failed again; runs that wait are left alone."""
    shop = Shop([fails(Overloaded("busy"))], retries=0)
    for run_id in ("run-1", "run-2"):
        with pytest.raises(Overloaded):
            shop.agent().generate("Go.", run_id=run_id)
    shop.model = ScriptedModel(REFUND, by_step=True)
    shop.agent().generate("Go.", run_id="run-3")
    shop.model = ScriptedModel([DONE, fails(Overloaded("busy"))])

    came = shop.agent().recover()

    assert sorted(type(item).__name__ for item in came) == ["FullOutput", "Overloaded"]
    assert shop.runs.status("run-3") == "waiting"


# New values at a resume.


def test_a_new_request_context_replaces_the_recorded_one_from_here_on():
    """Tools and hooks see it, at this resume and at later ones."""
    seen = []

    @tool
    def look(ctx) -> str:
        """Look."""
        seen.append(ctx.request_context)
        return ctx.suspend("?")

    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([calls("look"), DONE], by_step=True), tools=[look], runs=runs)
    agent.generate("Go.", run_id="run-1", request_context={"user": 1})
    runs.decide("run-1", runs.suspensions()[0]["id"], Answer("x"))
    agent.resume("run-1", request_context={"user": 2})
    assert seen == [{"user": 1}, {"user": 2}]


def test_tokens_are_a_limit_that_interrupts_and_can_be_raised():
    """Checked before the next model call; a resume with the same limit stops at once, with a higher one goes on."""
    shop = Shop(LOOKS)

    output = shop.agent().generate("Go.", run_id="run-1", limits=Limits(max_total_tokens=30))

    assert output.finish_reason == "tripwire" and output.tripwire.kind == "tokens" and output.text == ""
    assert "30 tokens used, the limit is 30" in output.tripwire.reason and len(shop.model.requests) == 2
    assert shop.runs.status("run-1") == "interrupted" and output.steps[-1].finish_reason == "tool-calls"
    assert shop.agent().resume("run-1").finish_reason == "tripwire" and len(shop.model.requests) == 2
    output = shop.agent().resume("run-1", limits=Limits(max_total_tokens=1000))
    assert output.text == "Done." and output.tripwire is None and len(shop.model.requests) == 4


def test_cost_is_a_limit():
    """Where the provider tells what a call costs."""
    class Costing(ScriptedModel):
        def do_stream(self, request, call):
            for parts in super().do_stream(request, call):
                yield [(type, dict(payload, cost_usd=0.4) if type == "finish" else payload) for type, payload in parts]

    shop = Shop([])
    shop.model = Costing(LOOKS, by_step=True)
    output = shop.agent().generate("Go.", run_id="run-1", limits=Limits(max_cost_usd=1.0))
    assert output.tripwire.kind == "cost" and output.cost_usd == pytest.approx(1.2)
    assert shop.agent().resume("run-1", limits=Limits(max_cost_usd=9.0)).cost_usd == pytest.approx(1.6)


def test_max_steps_may_be_raised_at_a_resume():
    """A run that was cancelled before its limit goes on to the new one."""
    shop = Shop(LOOKS)
    with pytest.raises(_Gone):
        shop.agent().generate("Go.", run_id="run-1", processors=[_Failing()], max_steps=2)
    output = shop.agent().resume("run-1", max_steps=3, processors=[Null()])
    assert output.finish_reason == "max-steps" and len(output.steps) == 3


def test_usage_that_is_unknown_makes_the_sum_partial():
    """A call whose usage nobody told counts as unknown, not as nothing."""
    shop = Shop([says("Done.", usage=Usage())])
    output = shop.agent().generate("Go.")
    assert output.usage.partial and output.steps[0].usage.total_tokens in (None, 0)


# Ends.


@pytest.mark.parametrize("turns, options, reason", [
    ([DONE], {}, "stop"), ([says("x", finish_reason="length")], {}, "length"),
    ([says("", finish_reason="content-filter")], {}, "content-filter"),
    (LOOKS, {"max_steps": 2}, "max-steps"), (LOOKS, {"stop_when": has_tool_call("look")}, "stop"),
    (LOOKS, {"stop_when": has_tool_call("nosuch") | (lambda steps: len(steps) == 2)}, "stop"),
    ([says("x", finish_reason="other")], {}, "stop"), ([says("x", finish_reason="tool-calls")], {}, "stop")])
def test_how_a_run_ends(turns, options, reason):
    """The finish word of the last answer, the step limit, or a stop condition."""
    shop = Shop(turns)
    output = shop.agent().generate("Go.", run_id="run-1", **options)
    assert output.finish_reason == reason and shop.runs.status("run-1") == "finished"
    assert output.raise_unless_finished() is output
    with pytest.raises(RunFinished):
        shop.agent().resume("run-1", **{name: value for name, value in options.items() if name == "stop_when"})


@pytest.mark.parametrize("word", ["stop", "length", "other", "content-filter"])
def test_calls_go_on_whatever_the_finish_word(word):
    """And an answer without calls ends the loop."""
    shop = Shop([says("", finish_reason=word, calls=[("look", {"n": 4})]), DONE])
    output = shop.agent().generate("Go.")
    assert output.text == "Done." and output.steps[0].finish_reason == "tool-calls" and shop.ran == ["look"]


def test_a_pause_is_called_again():
    """Providers that pause a long turn are asked to go on."""
    shop = Shop([says("One, ", finish_reason="pause"), says("two.")])
    output = shop.agent().generate("Go.")
    assert len(shop.model.requests) == 2 and output.text == "two." and output.transcript == "One, \n\ntwo."


def test_a_last_answer_may_be_asked_for_at_the_limit():
    """final_answer_at_max_steps: one more step with tool_choice none; its text is the output's."""
    shop = Shop([calls("look", n=1), calls("look", n=2), says("Enough.")])
    output = shop.agent().generate("Go.", max_steps=2, final_answer_at_max_steps=True)
    assert (output.finish_reason, output.text, len(output.steps)) == ("max-steps", "Enough.", 3)
    assert [request.frame.tool_choice for request in shop.model.requests] == ["auto", "auto", "none"]


def test_a_last_answer_that_calls_all_the_same_runs_nothing():
    """A model that calls a tool although it was told not to gets no further."""
    shop = Shop([calls("look", n=1), calls("look", n=2), calls("look", n=3)])
    output = shop.agent().generate("Go.", max_steps=2, final_answer_at_max_steps=True)
    assert output.finish_reason == "max-steps" and shop.ran == ["look", "look"]
    assert len(output.messages[-1].tool_results) == 1 and output.messages[-1].tool_results[0].is_error


# Callbacks.


def test_callbacks_that_raise_change_nothing(caplog):
    """on_step, on_chunk and on_suspend are logged."""
    def fail(*args):
        raise ValueError("oh")

    shop = Shop(REFUND)
    waiting = shop.agent(on_suspend=fail).generate("Go.", run_id="run-1", on_step=fail, on_chunk=fail)
    assert waiting.finish_reason == "suspended"
    assert shop.agent().resume("run-1", Approve(), on_step=fail, on_chunk=fail).text == "Done."
    for name in ("on_step", "on_chunk", "on_suspend"):
        assert name in caplog.text


def test_on_step_gets_each_finished_step_and_on_suspend_the_waiting_output():
    """In the order in which they come."""
    told = []
    shop = Shop([calls("look", n=1), calls("refund"), DONE])
    agent = shop.agent(on_suspend=lambda output: told.append(output.finish_reason))
    agent.generate("Go.", run_id="run-1", on_step=lambda step: told.append(step.index))
    agent.resume("run-1", Approve(), on_step=lambda step: told.append(step.index))
    assert told == [1, "suspended", 2, 3]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["agent.cancel", "runs.cancel"])
def test_a_run_can_be_cancelled_from_outside_and_goes_on(elsewhere):
    """In this process and through the store: the same end, nothing lost."""
    shop = Shop([says("Well. ") + calls("stop"), DONE])

    @tool
    def stop(ctx) -> str:
        """Stop."""
        (shop.runs.cancel if elsewhere else agent.cancel)(ctx.run_id)
        return "asked"

    shop.tools = [stop]
    agent = shop.agent()
    output = agent.generate("Go.", run_id="run-1")
    assert output.finish_reason == "cancelled" and output.tool_results[0].output == "asked"
    assert output.steps[0].finish_reason == "tool-calls" and output.text == "Well. "
    assert agent.resume("run-1").text == "Done."
    with pytest.raises(RunNotFound):
        Shop([DONE]).agent().cancel("run-none")


def test_partial_text_is_kept_when_a_stream_is_cancelled():
    """What was shown of the open answer is the output's text; the resume asks again."""
    shop = Shop([])

    class Slow(ScriptedModel):
        def do_stream(self, request, call):
            yield [("text-start", {"id": "t"}), ("text-delta", {"id": "t", "text": "Half an ans"})]
            call.cancel.wait(10)
            call.check()

    shop.model = Slow([DONE])
    with shop.agent().stream("Go.", run_id="run-1") as stream:
        for chunk in stream:
            if chunk.type == "text-delta":
                stream.cancel()
        output = stream.output
    assert (output.finish_reason, output.text) == ("cancelled", "Half an ans")
    assert output.steps[-1].finish_reason is None
    assert [message.role for message in output.messages] == ["user"]
    shop.model = ScriptedModel([DONE])
    assert shop.agent().resume("run-1").text == "Done."
