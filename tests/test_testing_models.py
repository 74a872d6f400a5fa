"""Scripted models, clocks and executors: the tools that other tests stand on."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minagent._util import CancelToken, Deadline
from minagent.errors import Cancelled, ConfigError, LimitReached, RateLimited
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.messages import Message
from minagent.results import Usage
from minagent.testing import FrozenClock, ScriptedModel, call, calls, fails, inline, says


def ask(model, *messages, **call_members):
    request = ModelRequest(Frame(), messages or (Message.user("hi"),))
    return list(model.do_stream(request, ModelCall(**call_members)))


def flat(lists):
    return [part for parts in lists for part in parts]


def text_of(parts):
    return "".join([payload["text"] for kind, payload in parts if kind == "text-delta"])


def test_a_plain_request_yields_one_list_that_ends_with_finish():
    """Without a watcher the whole turn comes at once, in the parts of a provider."""
    lists = ask(ScriptedModel([says("Hello there.", usage=Usage(7, 3))]))
    assert len(lists) == 1
    assert [kind for kind, _ in lists[0]] == ["text-start", "text-delta", "text-end", "finish"]
    assert lists[0][-1][1]["finish_reason"] == "stop" and lists[0][-1][1]["usage"] == Usage(7, 3)


def test_a_watched_request_yields_the_text_in_several_deltas():
    """Streaming cuts the text; joined it is the same."""
    lists = ask(ScriptedModel([says("Hello there.", reasoning="They greet me.")]), stream=True)
    parts = flat(lists)
    assert len(lists) > 3 and text_of(parts) == "Hello there."
    kinds = [kind for kind, _ in parts]
    assert kinds.index("reasoning-end") < kinds.index("text-start")


def test_calls_carry_parsed_and_raw_arguments():
    """A call has its text and, where that is a JSON object, its arguments."""
    model = ScriptedModel([says("Let me add.") + calls(("add", {"a": 1}), call("add", raw_args='{"a": '))])
    found = [payload for kind, payload in flat(ask(model)) if kind == "tool-call"]
    assert [item["args"] for item in found] == [{"a": 1}, None]
    assert found[1]["raw_args"] == '{"a": '
    assert flat(ask(ScriptedModel([calls("refund", order=7)])))[-1][1]["finish_reason"] == "tool-calls"


def test_ids_are_unique_within_an_answer_whatever_the_script_says():
    """The same id twice, no id and an empty id become three different ones, as with every adapter."""
    model = ScriptedModel([calls(call("a", call_id="x"), call("b", call_id="x"), call("c", call_id=""),
                                 call("d"))])
    ids = [payload["call_id"] for kind, payload in flat(ask(model)) if kind == "tool-call"]
    assert ids[0] == "x" and len(set(ids)) == 4 and all(ids)


def test_a_failing_turn_raises_what_it_was_given():
    """`fails` raises at once, or after some text that a watcher has seen."""
    with pytest.raises(RateLimited):
        ask(ScriptedModel([fails(RateLimited("slow down"))]))
    seen = []
    with pytest.raises(RateLimited):
        for parts in ScriptedModel([fails(RateLimited("slow"), after="Hel")]).do_stream(
                ModelRequest(Frame(), ()), ModelCall(stream=True)):
            seen += parts
    assert text_of(seen) == "Hel"


def test_a_script_that_is_used_up_says_so():
    """Asking for one turn too many is an error that names the numbers."""
    model = ScriptedModel([says("one")])
    ask(model)
    with pytest.raises(ConfigError, match="has 1 turns and was asked for turn 2"):
        ask(model)
    assert text_of(flat(ask(ScriptedModel(["a"], loop=True)))) == "a"


def test_a_script_by_step_serves_many_conversations_at_once():
    """The turn depends on the conversation, so threads do not take each other's turns."""
    model = ScriptedModel([says("first"), says("second")], by_step=True)

    def converse(_):
        first = text_of(flat(ask(model)))
        history = Message.user("hi"), Message.assistant(first), Message.user("on")
        return first, text_of(flat(ask(model, *history)))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(converse, range(40))) == {("first", "second")}
    assert len(model.requests) == 80


def test_a_script_may_be_a_function_of_the_request():
    """A function sees the request and answers with a turn or a text."""
    assert text_of(flat(ask(ScriptedModel(lambda request: request.messages[-1].text.upper())))) == "HI"


def test_a_turn_behind_a_gate_can_be_cancelled():
    """A model that never answers lets go when the run is cancelled, or when its deadline passes."""
    cancel, gate = CancelToken(), threading.Event()
    timer = threading.Timer(0.05, cancel.cancel)
    timer.start()
    with pytest.raises(Cancelled):
        ask(ScriptedModel([says("late", gate=gate)]), cancel=cancel)
    timer.join()
    with pytest.raises(LimitReached, match="deadline"):
        ask(ScriptedModel([says("late", gate=gate)]), deadline=Deadline(0.05))
    gate.set()
    assert text_of(flat(ask(ScriptedModel([says("late", gate=gate)])))) == "late"


@pytest.mark.parametrize("wrong", [lambda: calls("a", "b"), lambda: calls(a=1), lambda: calls(5),
                                   lambda: ScriptedModel("text"), lambda: ask(ScriptedModel([5]))])
def test_a_wrong_script_is_refused_with_what_was_expected(wrong):
    """Mistakes in a script are told where they are made."""
    with pytest.raises(ConfigError, match="expected|without a tool"):
        wrong()


def test_a_frozen_clock_moves_only_when_told():
    """Both readings move together, and never back."""
    clock = FrozenClock(100.0)
    deadline = Deadline(5, clock.monotonic)
    assert clock.time() == clock.time() == 100.0 and not deadline.passed()
    clock.sleep(2)
    clock.advance(3)
    assert (clock.time(), clock.monotonic(), deadline.passed()) == (105.0, 5.0, True)
    with pytest.raises(ValueError):
        clock.advance(-1)


def test_the_inline_executor_runs_in_the_callers_thread():
    """Work is done when submit returns; errors are in the future."""
    with inline() as executor:
        future = executor.submit(threading.get_ident)
        assert future.result() == threading.get_ident()
        failed = executor.submit(int, "x")
        assert isinstance(failed.exception(), ValueError)
        executor.abandon(failed)
