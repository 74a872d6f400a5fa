"""The doors of a tool call: check, gate, run; what is executed, and what the model gets as the one result.

Not here: background tools (test_background) and threads (test_agent_threads).
"""

import json
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pytest
from _scripts import answers_of

from minagent import Agent, Answer, Approve, Decline, FilePart, Limits, TextPart, Tool, ToolError, tool
from minagent.errors import (
    AlreadyDecided,
    ConfigError,
    InvalidDecision,
    MinagentError,
    RunFinished,
    SchemaError,
    UnknownSuspension,
)
from minagent.runs import MemoryRuns
from minagent.testing import ScriptedModel, ScriptedServer, call, calls, says
from minagent.tools import ToolPolicy

try:
    from minagent.llm.openai_chat import OpenAIChat
except ImportError:
    OpenAIChat = None

DONE = says("Done.")


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def result_of(made, *tools, **options):
    """The one result that a call gets, as the model sees it."""
    model = ScriptedModel([calls(made), DONE])
    output = Agent("a", model=model, tools=tools or [add]).generate("Go.", **options)
    assert output.text == "Done."
    (message,) = [item for item in model.requests[1].messages if item.role == "tool"]
    (part,) = message.tool_results
    assert part == (output.tool_results + output.tool_errors)[0]
    return part


# check


def test_an_unknown_tool_is_told_the_names_of_the_tools():
    """The result names what was called and what there is; read_tool_result is not among it."""
    part = result_of(call("nosuch", {"x": 1}))
    assert (part.kind, part.output) == ("unknown-tool", "there is no tool 'nosuch'; the tools are: add")


def test_a_tool_that_is_not_active_is_unknown():
    """A call of a tool that the model was not told of is not made."""
    ran = []
    part = result_of(call("hidden"), add, tool(name="hidden")(lambda: ran.append(1)), active_tools=["add"])
    assert part.kind == "unknown-tool" and not ran


@pytest.mark.parametrize("args, place", [({"a": "one", "b": 2}, "$.a"), ({"a": 1}, "$"),
                                         ({"a": 1, "b": 2, "c": 3}, "$"), ({"a": 1.5, "b": 2}, "$.a"),
                                         ({"a": None, "b": 2}, "$.a"), ({"a": True, "b": 2}, "$.a")])
def test_arguments_of_the_wrong_type_are_told_with_place_and_reason(args, place):
    """The tool is not run; the result has the path."""
    part = result_of(call("add", args))
    assert part.kind == "invalid-args" and part.output.startswith("invalid arguments for add: %s" % place), part.output


@pytest.mark.parametrize("raw", ['{"a": 1, ', "[1, 2]", "3", '"text"', "{'a': 1}", "NaN"])
def test_arguments_that_are_no_json_object_are_told_with_the_text(raw):
    """The kind is invalid-json and the model sees what it wrote."""
    part = result_of(call("add", raw_args=raw))
    assert part.kind == "invalid-json" and raw in part.output


@pytest.mark.parametrize("raw", ["", "null", "{}", " ", '"{}"'])
def test_a_tool_without_arguments_runs_whatever_stands_for_none(raw):
    """Empty text and null are no arguments."""
    part = result_of(call("hello", raw_args=raw), tool(name="hello")(lambda: "hi"))
    assert part.output == "hi" and not part.is_error


@pytest.mark.parametrize("ids", [("x", "x"), ("", ""), ("x", "x", ""), (None, "call_1_1")])
def test_calls_with_the_same_id_or_none_are_all_made(ids):
    """Each call gets an id of its own, one result, and keeps its place."""
    turn = calls(*[call("add", {"a": index, "b": 0}, call_id=id) for index, id in enumerate(ids)])
    model = ScriptedModel([turn, DONE])

    output = Agent("a", model=model, tools=[add]).generate("Go.")

    assert [part.output for part in output.tool_results] == list(range(len(ids)))
    made = [part.call_id for part in output.tool_calls]
    assert len(set(made)) == len(ids) and all(made)
    assert [part.call_id for part in model.requests[1].messages[-1].tool_results] == made


def test_ids_are_made_unique_even_if_the_model_object_does_not():
    """An adapter that passes on empty and double ids loses no call."""
    class Careless(ScriptedModel):
        def do_stream(self, request, call):
            for parts in super().do_stream(request, call):
                yield [(type, dict(payload, call_id="") if "call_id" in payload else payload)
                       for type, payload in parts]

    model = Careless([calls(("add", {"a": 1, "b": 0}), ("add", {"a": 2, "b": 0})), DONE])
    output = Agent("a", model=model, tools=[add]).generate("Go.")
    assert [part.output for part in output.tool_results] == [1, 2]
    assert len({part.call_id for part in output.tool_calls}) == 2


@pytest.mark.skipif(OpenAIChat is None, reason="there is no OpenAIChat")
def test_hostile_calls_are_answered_over_the_wire():
    """Same id twice, no id, invalid JSON, wrong types, unknown name: one result for each call, in order."""
    turn = calls(call("add", {"a": 1, "b": 1}, call_id="x"), call("add", {"a": 2, "b": 2}, call_id="x"),
                 call("add", {"a": 3, "b": 3}, call_id=""), call("add", raw_args='{"a": 1'),
                 call("add", {"a": "x", "b": 1}), call("nosuch", {}))
    with ScriptedServer.openai_chat([turn, DONE]) as server:
        model = OpenAIChat("m", base_url=server.url + "/v1", api_key="k")
        output = Agent("a", model=model, tools=[add]).generate("Go.")

    assert output.text == "Done." and [part.output for part in output.tool_results] == [2, 4, 6]
    assert [part.kind for part in output.tool_errors] == ["invalid-json", "invalid-args", "unknown-tool"]
    messages = server.requests[1].json["messages"]
    asked = [item["id"] for item in messages[-7]["tool_calls"]]
    assert [item["tool_call_id"] for item in messages[-6:]] == asked and len(set(asked)) == 6


# run: results


@dataclass
class Point:
    x: int
    when: date


@pytest.mark.parametrize("value, output", [
    (None, None), ("text", "text"), (0, 0), (False, False), ([], []), ({"a": (1, 2)}, {"a": [1, 2]}),
    (Point(1, date(2024, 5, 6)), {"x": 1, "when": "2024-05-06"}), (Decimal("1.50"), "1.50"), (b"ab", "YWI=")])
def test_any_json_able_value_is_a_result(value, output):
    """None is a result; dataclasses, dates, decimals and bytes have fixed encodings."""
    part = result_of(call("give"), tool(name="give")(lambda: value))
    assert part.output == output and not part.is_error


def test_a_result_that_is_no_json_is_that_calls_error_and_names_the_place():
    """The path inside the value is in the message; the tool is not run again for it."""
    ran = []

    @tool(retries=3)
    def give() -> dict:
        """Give what cannot be written."""
        ran.append(1)
        return {"items": [{"owner": object()}]}

    part = result_of(call("give"), give)
    assert part.kind == "exception" and "$.items[0].owner" in part.output and len(ran) == 1


def test_a_raising_tool_leaves_its_siblings_alone():
    """Three results: the failed one has type and message; ToolError gives exactly its message."""
    def fail(message: str) -> str:
        """Fail."""
        raise ConnectionError(message)

    def refuse() -> str:
        """Refuse."""
        raise ToolError("Ask the office.")

    model = ScriptedModel([calls(("add", {"a": 1, "b": 1}), ("fail", {"message": "down"}), ("refuse", {}),
                                 ("add", {"a": 2, "b": 2})), DONE])
    output = Agent("a", model=model, tools=[add, fail, refuse]).generate("Go.")
    assert [part.output for part in model.requests[1].messages[-1].tool_results] == [
        2, "ConnectionError: down", "Ask the office.", 4]
    assert [part.kind for part in output.tool_errors] == ["exception", "exception"]


def test_a_raising_tool_runs_again_as_often_as_it_allows():
    """retries=2 makes three runs, told apart by ctx.attempt, with one idempotency key."""
    seen = []

    def made(effect):
        @tool(name="flaky", retries=2, effect=effect)
        def flaky(ctx) -> str:
            seen.append((ctx.attempt, ctx.idempotency_key))
            if len(seen) < 3:
                raise RuntimeError("not yet")
            return "at last"

        return flaky

    for effect in ("once", "read", "idempotent"):
        del seen[:]
        assert result_of(call("flaky"), made(effect)).output == "at last"
        assert [attempt for attempt, _ in seen] == [1, 2, 3] and len({key for _, key in seen}) == 1


def test_a_tool_that_changes_its_arguments_changes_nothing_else():
    """Neither the message, nor the record, nor a second run sees the change."""
    seen = []

    def take(items):
        seen.append(list(items))
        del items[:]
        if len(seen) == 1:
            raise RuntimeError("dropped them")
        return "took"

    greedy = Tool(take, name="greedy", parameters={"type": "object"}, policy=ToolPolicy(retries=1))
    output = Agent("a", model=ScriptedModel([calls("greedy", items=[1, 2]), DONE]), tools=[greedy]).generate("Go.")
    assert output.tool_calls[0].args == {"items": [1, 2]} and seen == [[1, 2], [1, 2]]


def test_a_result_is_taken_when_the_tool_returns():
    """What the tool does to the object afterwards is not in the history."""
    kept = []

    @tool
    def give() -> list:
        """Give a list that grows."""
        kept.append("grown")
        return kept

    model = ScriptedModel([calls("give"), calls("give"), DONE])
    output = Agent("a", model=model, tools=[give]).generate("Go.")
    assert [part.output for part in output.tool_results] == [["grown"], ["grown", "grown"]]


def test_a_result_may_have_files():
    """A FilePart, or a list of parts, is a multimodal result with a text for models that take no files."""
    image = FilePart.from_bytes(b"png", "image/png")
    part = result_of(call("look"), tool(name="look")(lambda: [TextPart("A cat."), image]))
    assert part.content == (TextPart("A cat."), image) and part.output == "A cat."
    assert result_of(call("look"), tool(name="look")(lambda: image)).content == (image,)


def test_a_large_result_is_cut_and_can_be_read_on():
    """5 MB: head and tail for the model, the whole in the run's blobs; read_tool_result is offered only then."""
    text = "".join("%07d\n" % number for number in range(5 * 1024 * 1024 // 8))

    @tool(effect="read")
    def big() -> str:
        """Give much."""
        return text

    model = ScriptedModel([calls("big"), calls("read_tool_result", call_id="call_1_1", offset=24 * 1024),
                           calls("read_tool_result", call_id="nosuch"), DONE])
    runs = MemoryRuns()
    output = Agent("a", model=model, tools=[big], runs=runs).generate("Go.")

    offered = [[spec.name for spec in request.frame.tools] for request in model.requests]
    assert offered == [["big"]] + [["big", "read_tool_result"]] * 3
    shown = output.tool_results[0].output
    assert len(shown) < 64 * 1024 and shown.startswith(text[:1000]) and shown.endswith(text[-1000:])
    assert "characters cut; read_tool_result(call_id='call_1_1'" in shown
    assert output.tool_results[1].output.startswith(text[24 * 1024:25 * 1024])
    assert "no result of call 'nosuch' was cut" in output.tool_errors[0].output
    size = sum(len(json.dumps(record)) for record in runs.read(output.run_id))
    assert size < 400 * 1024, "the whole result is in the journal"


def test_a_large_value_that_is_no_text_and_a_large_error_are_cut_too():
    """Lists are cut as the JSON that the model gets, error messages like results."""
    part = result_of(call("big"), tool(name="big")(lambda: list(range(50000))))
    assert part.output.startswith("[0, 1, 2") and len(part.output) < 64 * 1024

    def fail() -> str:
        """Fail at length."""
        raise RuntimeError("x" * 200000)

    part = result_of(call("fail"), fail)
    assert part.is_error and len(part.output) < 64 * 1024


def test_read_tool_result_cannot_be_called_before_something_was_cut():
    """It is unknown until then."""
    assert result_of(call("read_tool_result", {"call_id": "x"})).kind == "unknown-tool"


# gate


class Asking:
    """A tool that needs approval, in a store; counts its runs and the answers of the model."""

    def __init__(self, require_approval=True, runs=None, **policy):
        self.ran = []

        @tool(require_approval=require_approval, **policy)
        def refund(order: int, amount: float = 1.5) -> str:
            """Refund an order."""
            self.ran.append((order, amount))
            return "refunded %d" % order

        self.tool = refund
        self.model = ScriptedModel([calls("refund", order=7), DONE], by_step=True)
        self.runs = runs or MemoryRuns()

    def agent(self, **options):
        return Agent("a", model=self.model, tools=[self.tool, add], runs=self.runs, **options)


def test_an_approval_says_what_is_to_be_decided():
    """The suspension has the call, its arguments and the schema that edited ones must fit."""
    asking = Asking()

    output = asking.agent().generate("Go.")

    (item,) = output.suspensions
    assert output.finish_reason == "suspended" and not asking.ran and output.text == ""
    assert (item.kind, item.call_id, item.tool_name, item.args) == ("approval", "call_1_1", "refund", {"order": 7})
    assert item.resume_schema["properties"]["order"]["type"] == "integer" and item.agent_path == ("a",)
    assert output.usage.total_tokens == 15 and output.steps[-1].finish_reason is None


@pytest.mark.parametrize("decision, ran, result", [
    (Approve(), [(7, 1.5)], "refunded 7"), (Approve(args={"order": 8, "amount": 2}), [(8, 2.0)], "refunded 8"),
    (Decline("too much"), [], "declined: too much"), (Answer({"by": "hand"}), [], {"by": "hand"}),
    (Answer(None), [], None), ({"type": "approve"}, [(7, 1.5)], "refunded 7")])
def test_each_decision_does_what_it_says(decision, ran, result):
    """Approved: run with the approved arguments; declined: told; answered: the value is the result."""
    asking = Asking()
    waiting = asking.agent().generate("Go.")

    output = asking.agent().resume(waiting.run_id, decision)

    assert output.text == "Done." and asking.ran == ran and len(asking.model.requests) == 2
    assert output.messages[2].tool_results[0].output == result
    assert output.messages[1].tool_calls[0].args == {"order": 7}, "history is never rewritten"


def test_the_stored_call_is_executed_and_the_model_is_not_asked_again():
    """A model that would now say something else is not asked between the approval and the call."""
    asking = Asking()
    waiting = asking.agent().generate("Go.")
    asking.model = ScriptedModel([calls("refund", order=99), DONE], by_step=True)

    asking.agent().resume(waiting.run_id, Approve())

    assert asking.ran == [(7, 1.5)]
    assert [answers_of(request) for request in asking.model.requests] == [1]


@pytest.mark.parametrize("args", [{"order": "x"}, {}, {"order": 1, "odd": 2}])
def test_edited_arguments_that_do_not_fit_leave_the_question_open(args):
    """It is the decider's error, with the place; a fitting decision is taken afterwards."""
    asking = Asking()
    waiting = asking.agent().generate("Go.")
    with pytest.raises(InvalidDecision) as raised:
        asking.agent().resume(waiting.run_id, Approve(args=args))
    assert raised.value.problems and asking.runs.status(waiting.run_id) == "waiting"

    assert asking.agent().resume(waiting.run_id, Approve(args={"order": 5})).text == "Done."
    assert asking.ran == [(5, 1.5)]


def test_arguments_that_can_never_fit_are_not_asked_about():
    """Nobody is asked to approve an invalid call."""
    asking = Asking()
    asking.model = ScriptedModel([calls("refund", order="x"), DONE])
    output = asking.agent().generate("Go.")
    assert output.text == "Done." and output.tool_errors[0].kind == "invalid-args"


def test_a_decision_is_single_use():
    """A second one is AlreadyDecided with the first, before and after the run has ended."""
    asking = Asking()
    waiting = asking.agent().generate("Go.")
    item = waiting.suspensions[0].id
    asking.runs.decide(waiting.run_id, item, Decline("no"))
    with pytest.raises(AlreadyDecided) as raised:
        asking.agent().resume(waiting.run_id, {item: Approve()})
    assert raised.value.decision["type"] == "decline" and raised.value.output is None and not asking.ran

    output = asking.agent().resume(waiting.run_id)
    with pytest.raises(AlreadyDecided) as raised:
        asking.agent().resume(waiting.run_id, {item: Approve()})
    assert raised.value.output.to_dict() == output.to_dict() and not asking.ran
    with pytest.raises(RunFinished) as finished:
        asking.agent().resume(waiting.run_id)
    assert finished.value.output.to_dict() == output.to_dict()


def test_several_open_suspensions_need_ids():
    """One bare decision for two questions is an error that lists both; ids decide one at a time."""
    asking = Asking()
    asking.model = ScriptedModel([calls(("refund", {"order": 1}), ("add", {"a": 1, "b": 1}), ("refund", {"order": 2})),
                                  DONE], by_step=True)
    waiting = asking.agent().generate("Go.")
    first, second = waiting.suspensions
    assert [item.args["order"] for item in waiting.suspensions] == [1, 2]
    assert [part.output for part in waiting.tool_results] == [2]
    with pytest.raises(InvalidDecision, match="%s.*%s" % (first.id, second.id)):
        asking.agent().resume(waiting.run_id, Approve())
    with pytest.raises(UnknownSuspension, match=first.id):
        asking.agent().resume(waiting.run_id, {"sdeadbeef": Approve()})

    one = asking.agent().resume(waiting.run_id, {second.id: Approve()})
    assert one.finish_reason == "suspended" and [item.id for item in one.suspensions] == [first.id]
    assert asking.ran == [(2, 1.5)]
    output = asking.agent().resume(waiting.run_id, Decline())
    assert output.text == "Done." and asking.ran == [(2, 1.5)]
    results = [part.output for part in output.messages[2].tool_results]
    assert results == ["declined: no reason given", 2, "refunded 2"]


@pytest.mark.parametrize("policy, asked", [
    (lambda args, ctx: args["order"] > 5, True), (lambda args, ctx: args["order"] > 50, False),
    (lambda args, ctx: 1 / 0, True), (lambda args, ctx: ctx.deps["careful"], True), (False, False)])
def test_a_predicate_decides_and_one_that_raises_means_yes(policy, asked):
    """require_approval takes a predicate of arguments and context."""
    asking = Asking(policy)
    output = asking.agent().generate("Go.", deps={"careful": True})
    assert (output.finish_reason == "suspended") == asked


@pytest.mark.parametrize("policy", [True, lambda args, ctx: True])
def test_the_agent_or_the_call_may_ask_for_all_tools(policy):
    """require_tool_approval adds to what the tools ask for."""
    for options in ({"agent": policy}, {"call": policy}):
        asking = Asking(False)
        agent = asking.agent(require_tool_approval=options["agent"]) if "agent" in options else asking.agent()
        given = {"require_tool_approval": options["call"]} if "call" in options else {}
        assert agent.generate("Go.", **given).finish_reason == "suspended"


def test_what_was_asked_for_at_the_start_stays_asked_for():
    """require_tool_approval=True of the call outlives a resume by an agent that would not ask."""
    asking = Asking(False)
    asking.model = ScriptedModel([calls("refund", order=1), calls("refund", order=2), DONE], by_step=True)
    lenient = asking.agent(require_tool_approval=lambda args, ctx: False)
    waiting = lenient.generate("Go.", require_tool_approval=True)

    again = lenient.resume(waiting.run_id, Approve())

    assert again.finish_reason == "suspended" and asking.ran == [(1, 1.5)]
    assert lenient.resume(waiting.run_id, Approve(), require_tool_approval=False).text == "Done."


def test_an_approval_of_another_schema_is_asked_for_again():
    """Who approved did not know what the tool does now; the second approval is of what it is."""
    asking = Asking()
    waiting = asking.agent().generate("Go.")
    ran = []

    @tool(name="refund", require_approval=True)
    def other(order: int, amount: float = 1.0, currency: str = "USD") -> str:
        ran.append(currency)
        return "ok"

    asking.tool = other
    again = asking.agent().resume(waiting.run_id, Approve())

    assert again.finish_reason == "suspended" and not ran
    assert again.suspensions[0].id != waiting.suspensions[0].id
    assert "currency" in again.suspensions[0].resume_schema["properties"]
    assert asking.agent().resume(waiting.run_id, Approve()).text == "Done." and ran == ["USD"]


def test_a_tool_that_is_gone_is_unknown_and_a_changed_schema_is_checked_again():
    """The approved call of a tool that no longer takes it becomes an error result, and the run goes on."""
    for change in ("gone", "other"):
        asking = Asking()
        waiting = asking.agent().generate("Go.")

        @tool(name="refund", require_approval=True)
        def other(order: str, reason: str) -> str:
            raise AssertionError("run")

        asking.tool = other if change == "other" else tool(name="something")(lambda: 1)

        output = asking.agent().resume(waiting.run_id, Approve())

        assert output.text == "Done."
        assert output.tool_errors[0].kind == ("unknown-tool" if change == "gone" else "invalid-args")


# run: suspending tools


def test_a_tool_may_suspend_itself_and_declines_are_results():
    """Payload and schema are in the suspension; an unfitting answer leaves it open; a decline ends the call."""
    @tool
    def ask(ctx) -> str:
        """Ask."""
        try:
            return "got %r" % ctx.suspend({"q": 1}, {"type": "integer"}, label="how many")
        except Exception:
            raise AssertionError("a tool's own except must not see it") from None

    def agent():
        return Agent("a", model=ScriptedModel([calls("ask"), DONE], by_step=True), tools=[ask], runs=runs)

    runs = MemoryRuns()
    for decision, result in ((Answer(3), "got 3"), (Decline("never"), "declined: never")):
        waiting = agent().generate("Go.")
        (item,) = waiting.suspensions
        assert (item.kind, item.payload, item.label, item.resume_schema) == (
            "tool", {"q": 1}, "how many", {"type": "integer"})
        for wrong in (Answer("three"), Approve()):
            with pytest.raises(InvalidDecision):
                agent().resume(waiting.run_id, wrong)
        output = agent().resume(waiting.run_id, decision)
        assert output.messages[2].tool_results[0].output == result


def test_a_tool_with_a_timeout_may_suspend():
    """The suspension passes from the tool's own thread."""
    @tool(timeout=30)
    def ask(ctx) -> str:
        """Ask."""
        return "got %s" % ctx.suspend("?")

    agent = Agent("a", model=ScriptedModel([calls("ask"), DONE], by_step=True), tools=[ask], runs=MemoryRuns())
    waiting = agent.generate("Go.")
    assert agent.resume(waiting.run_id, Answer("it")).tool_results[0].output == "got it"


def test_a_schema_that_is_none_is_the_tools_error():
    """A tool that suspends with an invalid schema gets an exception at once."""
    @tool
    def ask(ctx) -> str:
        """Ask."""
        return ctx.suspend("?", {"type": "nosuch"})

    part = result_of(call("ask"), ask)
    assert part.kind == "exception" and "SchemaError" in part.output


# run: calls whose outcome nobody knows


class Crash(BaseException):
    """The process ends here."""


def crashed(policy="tell-model", times=1, asks=False):
    """A run in which `charge` took effect and the process ended before that was recorded."""
    did, crashes = Counter(), []

    @tool(on_unknown_outcome=policy)
    def charge(ctx) -> str:
        """Charge."""
        if asks:
            assert ctx.suspend("sure?") == "yes"
        did["charge"] += 1
        if len(crashes) < times:
            crashes.append(1)
            raise Crash
        return "charged"

    agent = Agent("a", model=ScriptedModel([calls("charge"), DONE], by_step=True), tools=[charge], runs=MemoryRuns())
    with pytest.raises(Crash):
        output = agent.generate("Go.", run_id="run-1")
        assert asks and output.finish_reason == "suspended"
        agent.resume("run-1", Answer("yes"))
    return agent, did


def test_a_once_call_that_started_never_runs_again_by_itself():
    """By default the model is told that the outcome is not known."""
    agent, did = crashed()
    output = agent.resume("run-1")
    assert output.text == "Done." and did["charge"] == 1
    assert output.tool_errors[0].kind == "unknown-outcome" and "check whether" in output.tool_errors[0].output


def test_a_once_call_may_stop_the_run_instead():
    """on_unknown_outcome="fail" raises at every resume."""
    agent, did = crashed("fail")
    for _ in range(2):
        with pytest.raises(MinagentError, match="how it ended is not known"):
            agent.resume("run-1")
    assert did["charge"] == 1


@pytest.mark.parametrize("asks", [False, True], ids=["", "suspended-before"])
@pytest.mark.parametrize("decision, runs, result", [
    (Answer("it was charged"), 1, "it was charged"), (Decline("give up"), 1, "declined: give up"),
    (Approve(), 2, "charged")])
def test_a_person_may_say_how_it_ended(decision, runs, result, asks):
    """Answer is the result, Decline ends it, Approve runs it again; the tool's own questions are another matter."""
    agent, did = crashed("suspend", asks=asks)
    waiting = agent.resume("run-1")
    assert [item.kind for item in waiting.suspensions] == ["unknown-outcome"]
    assert did["charge"] == 1

    output = agent.resume("run-1", decision)

    assert output.text == "Done." and did["charge"] == runs
    assert output.messages[2].tool_results[0].output == result


@pytest.mark.parametrize("asks", [False, True], ids=["", "suspended-before"])
def test_every_crash_is_asked_about_anew(asks):
    """An Approve is for one run; after a second crash the question is another one."""
    agent, did = crashed("suspend", times=2, asks=asks)
    first = agent.resume("run-1").suspensions[0]
    with pytest.raises(Crash):
        agent.resume("run-1", Approve())

    second = agent.resume("run-1").suspensions[0]

    assert second.kind == "unknown-outcome" and second.id != first.id and did["charge"] == 2
    assert agent.resume("run-1", Answer("twice, sorry")).text == "Done." and did["charge"] == 2


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_calls_that_may_run_again_do(effect):
    """With the same idempotency key."""
    keys = []

    @tool(effect=effect)
    def charge(ctx) -> str:
        """Charge."""
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            raise Crash
        return "charged"

    agent = Agent("a", model=ScriptedModel([calls("charge"), DONE], by_step=True), tools=[charge], runs=MemoryRuns())
    with pytest.raises(Crash):
        agent.generate("Go.", run_id="run-1")
    assert agent.resume("run-1").tool_results[0].output == "charged"
    assert len(keys) == 2 and len(set(keys)) == 1


# Limits of calls


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_limit_of_calls_is_kept_by_parallel_calls_and_can_be_raised(concurrency):
    """Of five calls two run; a resume with a higher limit runs the other three, and no call twice."""
    ran = []
    third = threading.Event()

    @tool
    def charge(n: int) -> int:
        """Charge; where there are threads, stay at work long enough for a third call to begin."""
        ran.append(n)
        if len(ran) > 2:
            third.set()
        elif concurrency > 1:
            third.wait(0.3)
        return n

    agent = Agent("a", model=ScriptedModel([calls(*[("charge", {"n": n}) for n in range(5)]), DONE], by_step=True),
                  tools=[charge], runs=MemoryRuns(), tool_concurrency=concurrency)

    output = agent.generate("Go.", limits=Limits(max_tool_calls=2))

    assert output.finish_reason == "tripwire" and output.tripwire.kind == "tool-calls" and len(ran) == 2
    assert "the limit is 2" in output.tripwire.reason
    output = agent.resume(output.run_id, limits=Limits(max_tool_calls=5))
    assert output.text == "Done." and sorted(ran) == [0, 1, 2, 3, 4]
    assert [part.output for part in output.tool_results] == [0, 1, 2, 3, 4]


# Tools that are none


def test_two_tools_of_one_name_are_refused_before_anything_is_done():
    """By the agent and by the call, in the caller's thread also for stream()."""
    other = tool(name="add")(lambda: 1)
    runs, model = MemoryRuns(), ScriptedModel([DONE])
    with pytest.raises(ConfigError, match="two tools are named 'add'"):
        Agent("a", model=model, tools=[add, other])
    agent = Agent("a", model=model, tools=[add], runs=runs)
    for start in (agent.generate, agent.stream):
        with pytest.raises(ConfigError, match="two tools are named 'add'"):
            start("Go.", tools=[add, other])
    assert not runs.list() and not model.requests


async def later() -> str:
    """A coroutine."""
    return "x"


def generating():
    """A generator."""
    yield 1


@pytest.mark.parametrize("wrong", [[later], [generating], [5], [None], "text", {"a": add}, 5])
def test_what_is_no_tool_is_refused(wrong):
    """Coroutines, generators and things that cannot be called are told at once, for the agent and for a call."""
    model = ScriptedModel([DONE])
    with pytest.raises((ConfigError, SchemaError)):
        Agent("a", model=model, tools=wrong)
    with pytest.raises((ConfigError, SchemaError)):
        Agent("a", model=model).generate("Go.", tools=wrong)
    assert not model.requests


def test_no_tools_may_be_said_as_none():
    """tools=None and processors=None are no tools and no processors."""
    agent = Agent("a", model=ScriptedModel([DONE], loop=True), tools=None, processors=None)
    assert agent.generate("Go.", tools=None, processors=None).text == "Done."


@pytest.mark.parametrize("policy", [{"isolation": "process"}, {"exclusive": True}, {"max_calls": 3},
                                    {"effect": "transactional"}])
def test_a_policy_that_cannot_be_kept_is_refused(policy):
    """What this version cannot do is not passed over in silence."""
    with pytest.raises(ConfigError):
        Agent("a", model=ScriptedModel([DONE]), tools=[tool(name="t", **policy)(lambda: 1)])
