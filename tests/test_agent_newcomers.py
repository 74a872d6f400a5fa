"""Mistakes that newcomers made, and what they were told."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from minagent import (
    Agent,
    Approve,
    Decline,
    LanguageModel,
    Message,
    Processor,
    ToolResultPart,
    Usage,
    tool,
)
from minagent.errors import (
    AlreadyDecided,
    ConfigError,
    InvalidDecision,
    Overloaded,
    RunFinished,
    RunTooNew,
    TruncatedStream,
    UnknownOutcome,
    UnknownSuspension,
)
from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedModel, calls, fails, says


@tool
def lookup(order: int) -> str:
    """Look an order up."""
    return "shipped"


def test_a_misspelt_hook_is_refused():
    """A guardrail whose hook has a typing error would let everything through."""

    class Redact(Processor):
        def process_llm_respnse(self, response, ctx):
            return response

    with pytest.raises(ConfigError, match="process_llm_respnse.*did you mean 'process_llm_response'"):
        Agent("a", model=ScriptedModel([]), processors=[Redact()])


def test_a_method_that_only_begins_like_a_hook_is_let_be():
    """A helper of the processor's own may be called process_something."""

    class Sort(Processor):
        def process_pile(self):
            return 1

    Agent("a", model=ScriptedModel([]), processors=[Sort()])


@pytest.mark.parametrize("options, message", [
    ({"runs": "var/x"}, r"runs is 'var/x'; expected a store such as JsonFileRuns\('var/x'\)"),
    ({"tools": lookup}, r"tools is Tool\(lookup\); expected a list"),
])
def test_a_wrong_kind_of_argument_is_named_at_once(options, message):
    """The agent is not made, and the message shows what to write."""
    with pytest.raises(ConfigError, match=message):
        Agent("a", model=ScriptedModel([]), **options)


def test_approval_must_be_a_flag_or_a_predicate():
    """A text that happens to be true is no policy."""
    with pytest.raises(ConfigError, match="require_approval is 'yes'; expected True, False or a predicate"):
        tool(require_approval="yes")(lookup.function)


def test_a_snapshot_that_is_none_is_named():
    """An output of an agent with a store has no snapshot; passing it on is told, not taken for messages."""
    agent = Agent("a", model=ScriptedModel([says("Hi.")]), runs=MemoryRuns())
    out = agent.generate("hello")

    with pytest.raises(ConfigError, match="resume got None; expected a run id"):
        agent.resume(out.snapshot)
    with pytest.raises(ConfigError, match="resume got a FullOutput; expected a run id"):
        agent.resume(out)


def test_the_built_in_tool_is_not_offered_as_a_choice():
    """A wrong name in active_tools lists the agent's own tools only."""
    agent = Agent("a", model=ScriptedModel([says("Hi.")]), tools=[lookup])

    with pytest.raises(ConfigError, match="active_tools names 'nope'; the tools are: lookup$"):
        agent.generate("hello", active_tools=["nope"])


def test_suspensions_of_a_store_have_all_their_members():
    """A template can show a suspension's label without knowing which members were said."""
    agent = Agent("a", model=ScriptedModel([calls("lookup", order=7)]), tools=[lookup], runs=MemoryRuns(),
                  require_tool_approval=True)
    out = agent.generate("Where is order 7?")

    waiting = agent.runs.suspensions()[0]
    assert waiting["run_id"] == out.run_id and waiting["label"] == "" and waiting["expires_at"] is None
    assert waiting["args"] == {"order": 7} and waiting["tool_name"] == "lookup"


PROGRAM = textwrap.dedent("""
    import json, os, sys, time
    from minagent import Agent, tool
    from minagent.runs import JsonFileRuns
    from minagent.testing import ScriptedModel, calls, says

    @tool(background=True, effect=sys.argv[2])
    def report(month: str) -> str:
        "Make a report."
        if sys.argv[3] == "hang":
            time.sleep(600)
        return "report of " + month

    model = ScriptedModel([calls("report", month="May"), says("It is being made."), says("Here it is.")], by_step=True)
    agent = Agent("reports", model=model, tools=[report], runs=JsonFileRuns(sys.argv[1]), background_wait="suspend")
    out = agent.generate("Make the report of May", run_id="may")
    print(json.dumps([out.finish_reason, out.messages[-1].text, [m.text for m in out.messages if m.role == "user"]]),
          flush=True)
    if "stay" in sys.argv:
        sys.stdin.read()
    os._exit(0)
""")


def start(tmp_path, effect, *how):
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "runs"), effect, *how], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))


def came(process):
    output, _ = process.communicate(timeout=60)
    return json.loads(output)


def test_a_run_whose_background_work_died_goes_on_at_the_next_start(tmp_path):
    """A cron job that asks for the same run again is not told for ever to wait for a process that is gone."""
    assert came(start(tmp_path, "once", "hang"))[0] == "suspended"

    reason, text, said = came(start(tmp_path, "once", "hang"))

    assert (reason, text) == ("stop", "Here it is.")
    assert "not known" in said[-1]


def test_background_work_that_may_run_again_is_done_by_the_next_process(tmp_path):
    """A read tool that died with its process is started again by whoever takes the run up."""
    assert came(start(tmp_path, "read", "hang"))[0] == "suspended"
    agent = Agent("reports", model=ScriptedModel([says("Here it is.")]), runs=JsonFileRuns(tmp_path / "runs"),
                  tools=[tool(name="report", background=True, effect="read")(lambda month: "report of " + month)])

    (out,) = agent.recover()

    assert out.finish_reason == "suspended"  # as it was asked to; the work goes on in this process
    until = time.monotonic() + 30
    while not agent.runs.inbox("may"):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert agent.resume("may").text == "Here it is."


def test_background_work_of_a_living_process_is_left_to_it(tmp_path):
    """Another process that takes the run up does not take a task for lost while the first one is at it."""
    first = start(tmp_path, "once", "hang", "stay")
    try:
        assert json.loads(first.stdout.readline())[0] == "suspended"
        assert came(start(tmp_path, "once", "hang"))[0] == "suspended"
    finally:
        first.kill()
        first.communicate()
    assert came(start(tmp_path, "once", "hang"))[:2] == ["stop", "Here it is."]


def test_an_unknown_outcome_that_must_not_be_guessed_has_its_own_error(tmp_path):
    """on_unknown_outcome="fail" raises UnknownOutcome, which can be caught."""

    class Killed(BaseException):
        pass

    def vanish(order: int) -> str:
        raise Killed()

    runs = MemoryRuns()
    model = ScriptedModel([calls("pay", order=7), says("Done.")], by_step=True)
    agent = Agent("a", model=model, tools=[tool(name="pay")(vanish)], runs=runs, on_unknown_outcome="fail")
    with pytest.raises(Killed):
        agent.generate("Pay order 7", run_id="pay-7")

    with pytest.raises(UnknownOutcome, match="started before"):
        agent.resume("pay-7")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a file system in which nobody can make folders")
def test_a_store_whose_folder_cannot_be_made_says_so():
    """It is not taken for a run that was deleted."""
    agent = Agent("a", model=ScriptedModel([says("Hi.")]), runs=JsonFileRuns("/proc/x"))

    with pytest.raises(ConfigError, match="the folder /proc/x of this store cannot be made"):
        agent.generate("hello")


# What a breaker found.


@tool(require_approval=True)
def pay(n: int) -> int:
    """Pay."""
    return n


def paying(*turns, **options):
    script = list(turns) or [calls(("pay", {"n": 1}), ("pay", {"n": 2})), says("Paid.")]
    return Agent("till", model=ScriptedModel(script, by_step=True), tools=[pay], runs=MemoryRuns(), **options)


def test_a_conversation_that_goes_on_past_open_calls_has_a_result_for_each():
    """A provider refuses a call without a result; the model is told that it has not ended."""
    waiting = paying().generate("Pay both.")
    partly = waiting.messages + [Message.tool([ToolResultPart("call_1_1", "pay", 1)])]

    for history, count in ((waiting.messages, 2), (partly, 1)):
        other = ScriptedModel([says("Hm.")])
        Agent("other", model=other, tools=[pay]).generate(history + [Message.user("And now?")])

        sent = other.requests[0].messages
        results = [part for message in sent for part in message.tool_results]
        assert sorted(part.call_id for part in results) == ["call_1_1", "call_1_2"]
        assert [part.kind for part in results if part.is_error] == ["cancelled"] * count
        assert [message.role for message in sent][-2:] == ["tool", "user"]


def test_a_late_bare_decision_is_told_who_was_first():
    """On a finished run that is RunFinished with its output; on a decided suspension AlreadyDecided with the first."""
    till = paying(calls("pay", n=1), says("Paid."))
    out = till.generate("Pay.", run_id="one")
    till.runs.decide("one", out.suspensions[0].id, Decline("no"))
    with pytest.raises(AlreadyDecided) as caught:
        till.resume("one", Approve())
    assert caught.value.decision["type"] == "decline" and caught.value.output is None

    assert till.resume("one").text == "Paid."
    with pytest.raises(RunFinished) as finished:
        till.resume("one", Approve())
    assert finished.value.output.text == "Paid."


def test_a_bare_decision_answers_the_only_question_that_is_left():
    """With two questions, one of them answered, it is clear which one is meant."""
    till = paying()
    first, second = till.generate("Pay both.", run_id="two").suspensions
    till.runs.decide("two", first.id, Approve())

    assert till.resume("two", Approve()).text == "Paid."


@pytest.mark.parametrize("stored", [True, False])
def test_of_several_decisions_none_is_taken_if_one_does_not_fit(stored):
    """The corrected call works; nothing of the first one was recorded."""
    till = paying() if stored else Agent("till", tools=[pay], model=ScriptedModel(
        [calls(("pay", {"n": 1}), ("pay", {"n": 2})), says("Paid.")], by_step=True))
    out = till.generate("Pay both.")
    first, second = [item.id for item in out.suspensions]
    run = out.run_id if stored else out.snapshot

    with pytest.raises(InvalidDecision):
        till.resume(run, {first: Approve(), second: Approve(args={"n": "bad"})})
    with pytest.raises(UnknownSuspension):
        till.resume(run, {first: Approve(), "s-none": Approve()})

    assert till.resume(run, {first: Approve(), second: Approve(args={"n": 5})}).text == "Paid."


@pytest.mark.parametrize("damage, error", [
    (lambda snapshot: snapshot.pop("output"), ConfigError),
    (lambda snapshot: snapshot["output"].pop("state"), ConfigError),
    (lambda snapshot: snapshot["output"]["state"].update(messages=[5]), ConfigError),
    (lambda snapshot: snapshot["output"].update(schema=99), RunTooNew),
])
def test_a_damaged_snapshot_is_refused_with_a_sentence(damage, error):
    """And one of a newer version by that name."""
    till = Agent("till", model=ScriptedModel([calls("pay", n=1)]), tools=[pay])
    snapshot = json.loads(json.dumps(till.generate("Pay.").snapshot))
    damage(snapshot)

    with pytest.raises(error):
        till.resume(snapshot, Approve())


def test_the_partial_text_of_a_failed_answer_is_kept():
    """Whoever reads error.output sees what a stream had shown."""

    class Breaking(LanguageModel):
        model = "breaking"

        def do_stream(self, request, call):
            yield [("text-delta", {"id": "0", "text": "Half an "})]
            raise TruncatedStream("the stream ended early")

    with pytest.raises(TruncatedStream) as caught:
        Agent("a", model=Breaking()).generate("hi")
    assert caught.value.output.text == "Half an "


def test_failures_that_were_got_over_are_attempts():
    """A fallback and a provider's retries are in the output, with and without watchers."""
    first = ScriptedModel([fails(Overloaded("overloaded"))], model="first")
    out = Agent("a", model=[first, ScriptedModel([says("Hi.")], model="second")]).generate("hi")

    assert [(each["model"], each["step"], each["error"]) for each in out.attempts] == [
        ("first", 1, "Overloaded: overloaded")]
    assert out.steps[0].model == "second"


@pytest.mark.parametrize("leaves", [asyncio.CancelledError, SystemExit])
def test_what_ends_a_thread_or_a_loop_is_the_call_s_own_failure(leaves):
    """asyncio's CancelledError, and sys.exit() in a thread of ours, are error results of their calls."""

    @tool
    def odd(n: int) -> str:
        if n == 1:
            raise leaves("stop")
        return "fine"

    model = ScriptedModel([calls(("odd", {"n": 1}), ("odd", {"n": 2})), says("Done.")])
    out = Agent("a", model=model, tools=[odd]).generate("go")

    assert out.text == "Done."
    assert [result.output for result in out.tool_results] == ["fine"]
    assert out.tool_errors[0].kind == "exception" and leaves.__name__ in out.tool_errors[0].output


def test_sys_exit_in_the_caller_s_own_thread_ends_the_program():
    """A lone call runs there, and the run can be resumed."""
    runs = MemoryRuns()
    model = ScriptedModel([calls("leave"), says("Done.")], by_step=True)
    agent = Agent("a", model=model, tools=[tool(name="leave")(lambda: sys.exit(3))], runs=runs)

    with pytest.raises(SystemExit):
        agent.generate("go", run_id="gone")
    assert runs.status("gone") == "interrupted"


def test_a_quiet_stream_has_heartbeats():
    """None comes while nothing happens, so that a server can write something and notice who has left."""
    gate = threading.Event()
    model = ScriptedModel([calls("lookup", order=1), says("Done.")])
    slow = tool(name="lookup")(lambda order: gate.wait(30))

    beats = 0
    with Agent("a", model=model, tools=[slow]).stream("go") as stream:
        for chunk in stream.with_heartbeats(0.01):
            beats += chunk is None
            if beats == 3:
                gate.set()
    assert beats >= 3 and stream.output.text == "Done."


@pytest.mark.parametrize("used", ["3", [1], {}, True, -3.5, float("nan"), None])
def test_numbers_of_tokens_that_are_none_are_unknown(used):
    """No provider's odd answer can spoil a run's sums, or its journal."""

    class Odd(LanguageModel):
        model = "odd"

        def do_stream(self, request, call):
            yield [("text-delta", {"id": "0", "text": "Hi."}),
                   ("finish", {"finish_reason": "stop", "usage": Usage(used, 5), "cost_usd": used})]

    runs = MemoryRuns()
    out = Agent("a", model=Odd(), runs=runs).generate("hi")

    assert out.text == "Hi." and out.usage.output_tokens == 5 and out.usage.partial
    assert out.cost_usd is None


def test_no_context_is_fine():
    """A computed list of context messages may be empty."""
    assert Agent("a", model=ScriptedModel([says("Hi.")])).generate("hi", context=[]).text == "Hi."
