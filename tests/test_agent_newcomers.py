"""Mistakes that newcomers made, and what they were told."""

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from minagent import Agent, Processor, tool
from minagent.errors import ConfigError, UnknownOutcome
from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedModel, calls, says


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
