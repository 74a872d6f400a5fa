"""Deep trees and long loops: the engine's own work and memory, counted, not timed."""

import gc
import json
import sys

import pytest
from _trees import SumState

from minagent.workflow import Done, DoWhile, Engine, Entry, ForEach, Journal, NullLease, Step, Suspend, Workflow


def engine(records=()):
    lease = NullLease(records=json.loads(json.dumps(list(records))))
    lease.append = lease.records.append
    return Engine(Journal(lease, SumState()))


def kept(one):
    return one.journal.lease.records


def calls(function):
    """How many functions, of Python or not, are called meanwhile."""
    count = [0]

    def profile(frame, event, arg):
        count[0] += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count[0]


def counter(laps, run=None):
    """A loop that counts to `laps`, one record each."""
    def step(ctx, value):
        if run is not None:
            run(value)
        return Done(value + 1, [{"type": "counted"}])

    body = Workflow("body", [Step("add", step)])
    return Workflow("w", [DoWhile("loop", body, lambda value, scope: value < laps)])


def test_a_hundred_workflows_in_each_other_run_suspend_and_resume():
    """Depth costs a few frames a level: neither visiting nor a checkpoint reaches the recursion limit."""
    node = Step("ask", lambda ctx, value: [value, ctx.suspend("q")])
    for depth in range(100):
        node = Workflow("w%d" % depth, [Step("before", lambda ctx, value: value + 1), node])
    one = engine()
    with pytest.raises(Suspend) as caught:
        one.run(node, 0)
    checkpoint = one.journal.checkpoint()
    assert json.loads(json.dumps(checkpoint)) == checkpoint

    for records in (kept(one), [checkpoint]):
        again = engine(records)
        again.decide({caught.value.suspensions[0]["id"]: "yes"})
        assert again.run(node, 0) == [100, "yes"]


def test_a_loop_of_5000_iterations_keeps_two_of_them():
    """Entries are forgotten when their iteration is folded, so memory does not grow; nor does the checkpoint."""
    seen = []

    def measure(value):
        if value % 1000 == 999:
            gc.collect()
            entries = sum(type(thing) is Entry for thing in gc.get_objects())
            seen.append((entries, len(json.dumps(one.journal.checkpoint()["output"]["entries"]))))

    gc.collect()
    before = sum(type(thing) is Entry for thing in gc.get_objects())
    one = engine()
    assert one.run(counter(5000, measure), 0) == 5000
    assert len(seen) == 5
    assert max(entries for entries, _ in seen) - before <= 10
    assert max(size for _, size in seen) <= 300


def test_a_long_loop_and_its_resume_cost_the_same_for_each_iteration():
    """Five times the iterations are at most five and a half times the calls, at the first run and at the next."""
    run, load, resume = {}, {}, {}
    for laps in (200, 1000):
        one = engine()
        run[laps] = calls(lambda one=one, laps=laps: one.run(counter(laps), 0))
        records = kept(one)[:-1]
        again = []
        load[laps] = calls(lambda again=again, records=records: again.append(engine(records)))
        resume[laps] = calls(lambda again=again, laps=laps: again[0].run(counter(laps), 0))
        assert again[0].journal.root.to_dict() == one.journal.root.to_dict()
        assert again[0].journal.state.to_dict() == one.journal.state.to_dict()
    assert run[1000] <= 5.5 * run[200]
    assert load[1000] <= 5.5 * load[200]
    assert resume[1000] <= 5.5 * resume[200]


def test_a_loop_of_5000_iterations_resumes_without_running_one():
    """From records, and from the checkpoint in which it is one number."""
    one = engine()
    one.run(counter(5000), 0)

    def never(value):
        raise AssertionError("ran again")

    assert engine(kept(one)).run(counter(5000, never), 0) == 5000
    checkpoint = one.journal.checkpoint()
    assert len(json.dumps(checkpoint)) < 500
    again = engine([checkpoint])
    assert again.run(counter(5000, never), 0) == 5000
    assert again.run(counter(5001), 0) == 5001
    assert kept(again)[-1]["seq"] == 5001


def test_many_items_cost_the_same_for_each():
    """Five times the items are at most five and a half times the calls, run and resumed."""
    tree = ForEach("each", Workflow("body", [Step("a", lambda ctx, value: value)]))
    run, resume = {}, {}
    for count in (100, 500):
        one = engine()
        run[count] = calls(lambda one=one, count=count: one.run(tree, list(range(count))))
        again = engine(kept(one)[:-1])
        resume[count] = calls(lambda again=again, count=count: again.run(tree, list(range(count))))
    assert run[500] <= 5.5 * run[100]
    assert resume[500] <= 5.5 * resume[100]
