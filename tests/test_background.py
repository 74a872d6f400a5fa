"""Background tools: sent off with a placeholder, collected as a message, waited for or suspended at the end.

Not here: what a stop at each record does to them (test_loop_stops).
"""

import threading

import pytest
from _scripts import answers_of

from minagent import Agent, Answer, Approve, Decline, Tool, tool
from minagent.errors import AlreadyDecided
from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedModel, call, calls, says
from minagent.tools import ToolPolicy

DONE = says("Done.")


class Work:
    """A background tool that ends when it is let go."""

    def __init__(self, runs=None, effect="once", result=lambda job: "did " + job, **policy):
        self.runs = runs or MemoryRuns()
        self.go = threading.Event()
        self.begun = threading.Event()
        self.keys = []
        self.result = result

        @tool(background=True, effect=effect, **policy)
        def later(job: str, ctx) -> object:
            """Work."""
            self.keys.append(ctx.idempotency_key)
            self.begun.set()
            assert self.go.wait(30)
            return self.result(job)

        self.tool = later

    def agent(self, turns, **options):
        return Agent("a", model=ScriptedModel(turns, by_step=True), tools=[self.tool], runs=self.runs, **options)


@pytest.fixture
def work():
    made = Work()
    yield made
    made.go.set()


def threads_named(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_the_loop_goes_on_and_the_result_comes_as_a_message(work):
    """The call's one result is a placeholder; at the end the run waits; the history is not rewritten."""
    def turn(request):
        if answers_of(request) == 1:
            assert work.begun.wait(10)
            work.go.set()
        return [says("Off. ") + calls("later", job="it"), says("Waiting."), DONE][answers_of(request)]

    agent = work.agent(turn)
    with agent.stream("Go.") as stream:
        chunks = list(stream)
    output = stream.output

    assert output.text == "Done." and output.finish_reason == "stop"
    assert [message.role for message in output.messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert "started in the background" in output.messages[2].tool_results[0].output
    told = output.messages[4].text
    assert "later" in told and "call_1_1" in told and "did it" in told
    background = [(chunk.type, chunk.payload) for chunk in chunks if chunk.type.startswith("background")]
    named = {"call_id": "call_1_1", "tool_name": "later"}
    assert background == [("background-task-started", named),
                          ("background-task-completed", dict(named, output="did it"))]


def test_what_is_done_before_the_end_is_taken_in_between_steps(work):
    """A task that ends while the loop goes on is told at the end of that step."""
    @tool
    def wait_for_it() -> str:
        """Wait until the background has posted."""
        work.go.set()
        while not work.runs.inbox("run-1"):
            work.begun.wait(0.001)
        return "waited"

    model = ScriptedModel([calls(("later", {"job": "it"}), ("wait_for_it", {})), DONE], by_step=True)
    output = Agent("a", model=model, tools=[work.tool, wait_for_it], runs=work.runs).generate("Go.", run_id="run-1")
    assert [message.role for message in output.messages] == ["user", "assistant", "tool", "user", "assistant"]


def test_a_failing_task_is_told_with_its_reason(work):
    """An exception, and a result that is no JSON, are told as failed."""
    for result in (lambda job: 1 / 0, lambda job: {"a": object()}):
        failing = Work(result=result)
        failing.go.set()
        output = failing.agent([calls("later", job="it"), says("Waiting."), DONE, DONE]).generate("Go.")
        (told,) = [message.text for message in output.messages[1:] if message.role == "user"]
        assert "failed:" in told and ("ZeroDivisionError" in told or "$.a" in told)


def test_no_thread_is_left_when_the_tasks_are_done(work):
    """The threads of background work end with the run."""
    work.go.set()
    before = set(threads_named("minagent"))
    work.agent([calls(*[("later", {"job": "it"})] * 3), DONE, DONE, DONE, DONE]).generate("Go.")
    for thread in set(threads_named("minagent")) - before:
        thread.join(10)
        assert not thread.is_alive(), "%s is idle for ever" % thread.name


def test_the_run_may_be_suspended_while_tasks_are_open(work):
    """background_wait="suspend": the task is listed as a suspension, and its completion decides it."""
    agent = work.agent([calls("later", job="it"), says("Waiting."), DONE], background_wait="suspend")

    waiting = agent.generate("Go.")

    assert waiting.finish_reason == "suspended"
    (item,) = waiting.suspensions
    assert (item.kind, item.tool_name, item.args) == ("background", "later", {"job": "it"})
    assert agent.runs.status(waiting.run_id) == "waiting"
    output = agent.resume(waiting.run_id, Answer("done elsewhere"))
    assert output.text == "Done." and "done elsewhere" in output.messages[4].text


def test_work_that_goes_on_in_this_process_is_not_lost(work):
    """A resume before the task has ended waits again, and takes the result when it is there; the tool ran once."""
    agent = work.agent([calls("later", job="it"), says("Waiting."), DONE], background_wait="suspend")
    waiting = agent.generate("Go.")
    assert work.begun.wait(10)

    again = agent.resume(waiting.run_id)
    assert again.finish_reason == "suspended" and [item.id for item in again.suspensions] == [waiting.suspensions[0].id]

    work.go.set()
    while not work.runs.inbox(waiting.run_id):
        threading.Event().wait(0.001)
    output = agent.resume(waiting.run_id)
    assert output.text == "Done." and "did it" in output.messages[4].text and len(work.keys) == 1


@pytest.mark.parametrize("effect, told", [("once", "not known"), ("idempotent", "did it"), ("read", "did it")])
def test_work_that_was_lost_with_its_process_follows_its_effect(tmp_path, effect, told):
    """Once: the model is told that the outcome is unknown; the others run again with the same key."""
    lost = Work(JsonFileRuns(str(tmp_path)), effect)
    turns = [calls("later", job="it"), says("Waiting."), DONE]
    waiting = lost.agent(turns, background_wait="suspend").generate("Go.")
    assert lost.begun.wait(10)
    found = Work(JsonFileRuns(str(tmp_path)), effect)  # another process: it knows nothing of that thread
    found.go.set()

    output = _until_done(found.agent(turns), waiting.run_id)

    assert told in output.messages[4].text
    assert found.keys == ([] if effect == "once" else lost.keys)
    lost.go.set()


def _until_done(agent, run_id):
    output = agent.resume(run_id)
    while output.finish_reason == "suspended":
        while not agent.runs.inbox(run_id):
            threading.Event().wait(0.001)
        output = agent.resume(run_id)
    return output


def test_a_cancel_from_elsewhere_ends_the_waiting(work):
    """A run that waits for its tasks can be cancelled through its store."""
    agent = work.agent([calls("later", job="it"), says("Waiting."), DONE])
    came = []
    thread = threading.Thread(target=lambda: came.append(agent.generate("Go.", run_id="run-1")))
    thread.start()
    assert work.begun.wait(10)

    work.runs.cancel("run-1")

    thread.join(10)
    assert not thread.is_alive() and came[0].finish_reason == "cancelled"


def test_a_deadline_ends_the_waiting(work):
    """The deadline holds while tasks are waited for; the run can be resumed."""
    agent = work.agent([calls("later", job="it"), says("Waiting."), DONE])
    output = agent.generate("Go.", run_id="run-1", deadline=0.3)
    assert output.finish_reason == "tripwire" and output.tripwire.kind == "deadline"
    work.go.set()
    assert agent.resume("run-1", deadline=60).text == "Done."


def test_background_work_may_need_approval(work):
    """Approved arguments are what is sent off; edited ones that do not fit are not."""
    asking = Work(require_approval=True)
    asking.go.set()
    agent = asking.agent([calls("later", job="it"), DONE, DONE, DONE])
    waiting = agent.generate("Go.")
    assert waiting.suspensions[0].kind == "approval" and not asking.begun.is_set()

    output = agent.resume(waiting.run_id, Approve(args={"job": "that"}))

    assert any("did that" in message.text for message in output.messages)


def test_an_approved_call_whose_schema_has_changed_is_not_sent_off():
    """What was approved is checked again before it is sent off."""
    asking = Work(require_approval=True)
    waiting = asking.agent([calls("later", job="it"), DONE]).generate("Go.")
    ran = []

    @tool(name="later", background=True, require_approval=True)
    def other(number: int) -> str:
        ran.append(number)
        return "x"

    asking.tool = other

    output = asking.agent([calls("later", job="it"), DONE]).resume(waiting.run_id, Approve())

    assert output.tool_errors[0].kind == "invalid-args" and not ran


def test_tasks_of_one_name_in_several_steps_have_keys_of_their_own():
    """Keys go by the place and not by the call's id, which a server may use again in every step."""
    made = Work()
    made.go.set()
    turns = [calls(call("later", {"job": "1"}, call_id="call_0")), calls(call("later", {"job": "2"}, call_id="call_0")),
             DONE, DONE, DONE]
    made.agent(turns).generate("Go.")
    assert len(set(made.keys)) == 2


def test_a_large_result_of_a_task_is_cut_and_can_be_read():
    """Like that of any tool."""
    big = Work(result=lambda job: "x" * 200000 + "end")
    big.go.set()
    model = ScriptedModel(lambda request: [calls("later", job="it"), says("Waiting."),
                                           calls("read_tool_result", call_id="call_1_1", offset=190000), DONE, DONE][
        min(4, answers_of(request) + (answers_of(request) == 1 and "Background" in request.messages[-1].text))])
    output = Agent("a", model=model, tools=[big.tool], runs=big.runs).generate("Go.")
    (told,) = [message.text for message in output.messages[1:] if message.role == "user"]
    assert len(told) < 70000 and told.endswith("end") and "read_tool_result" in told
    assert output.tool_results[-1].output.startswith("x" * 100)


def test_a_task_that_changes_its_arguments_changes_no_record(work):
    """The task in the state keeps its own copy."""
    greedy = Tool(lambda items: items.clear(), name="greedy", parameters={"type": "object"},
                  policy=ToolPolicy(background=True))
    waiting = []
    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([calls("greedy", items=[1, 2]), says("Waiting."), DONE, DONE], by_step=True),
                  tools=[greedy], runs=runs, on_step=lambda step: waiting.append(step.tool_calls))
    output = agent.generate("Go.")
    assert output.tool_calls[0].args == waiting[0][0].args == {"items": [1, 2]}
    opened = [record["output"]["background"]["args"] for record in runs.read(output.run_id)
              if any(change["type"] == "background-opened" for change in record.get("changes", ()))]
    assert opened == [{"items": [1, 2]}]


def test_a_task_is_started_once_also_if_the_plan_is_gone_through_again(work):
    """A decision that comes while the run goes on lets it start over from its records."""
    @tool(require_approval=True)
    def refund() -> str:
        return "refunded"

    @tool
    def decide(ctx) -> str:
        """Decide what waits, and let the work end."""
        (asked,) = [record["output"]["id"] for record in work.runs.read(ctx.run_id) if record["status"] == "suspended"]
        work.runs.decide(ctx.run_id, asked, Approve())
        work.go.set()
        return "decided"

    model = ScriptedModel([calls(("later", {"job": "it"}), ("refund", {}), ("decide", {})), DONE, DONE, DONE])
    agent = Agent("a", model=model, tools=[work.tool, refund, decide], runs=work.runs, tool_concurrency=1)
    output = agent.generate("Go.")
    assert output.finish_reason == "stop" and len(work.keys) == 1
    assert [part.output for part in output.tool_results][1:] == ["refunded", "decided"]


def test_whoever_completes_first_counts(work):
    """A person's completion stands; the thread's own comes too late and is dropped."""
    agent = work.agent([calls("later", job="it"), says("Waiting."), DONE], background_wait="suspend")
    waiting = agent.generate("Go.")
    item = waiting.suspensions[0].id
    agent.runs.decide(waiting.run_id, item, Decline("called off"))
    work.go.set()
    with pytest.raises(AlreadyDecided):
        agent.runs.decide(waiting.run_id, item, Answer(1))
    assert "called off" in agent.resume(waiting.run_id).messages[4].text


def test_work_runs_in_a_given_executor():
    """background_executor takes the work; the run does not shut it down."""
    from concurrent.futures import ThreadPoolExecutor

    made = Work()
    made.go.set()
    with ThreadPoolExecutor(1, "mine") as executor:
        names = []
        made.result = lambda job: names.append(threading.current_thread().name) or "ok"
        agent = made.agent([calls("later", job="it"), DONE, DONE, DONE], background_executor=executor)
        agent.generate("Go.")
        assert executor.submit(lambda: 1).result(10) == 1
    assert names[0].startswith("mine")
