"""The engine on drawn trees: stopped anywhere, resumed anyhow, always the same end.

Not here: signals (test_engine_signals), threads (test_engine_threads) and sizes (test_engine_sizes).
"""

import json

from _trees import TREES, Process, World, decide_all, drawn, finish
from hypothesis import given
from hypothesis import strategies as st


def undisturbed(tree):
    """Run a tree to its end with every suspension decided when it comes up; returns world and last process."""
    world = World()
    return world, finish(tree, world)


@drawn(60)
@given(TREES, st.booleans())
def test_a_run_stopped_at_any_append_ends_like_an_undisturbed_one(tree, after):
    """Killed before or after each of its appends and started again: same value, fold, records; no effect twice."""
    reference, last = undisturbed(tree)
    for stop in range(len(reference.kept)):
        world = World()
        left = stop
        process = Process(tree, world, die_at=left, after=after)
        while process.end == "suspended":
            left = stop - len(world.kept)
            process = Process(tree, world, decide_all(process.value), die_at=left, after=after)
        assert process.end == "killed" or after and stop == len(reference.kept) - 1

        end = finish(tree, world)

        assert end.outcome() == last.outcome()
        assert world.acts.keys() == reference.acts.keys()
        assert sum((world.acts - reference.acts).values()) <= 1, "more than the leaf in flight ran again"
        assert sum((world.entries - reference.entries).values()) <= 1


@drawn(60)
@given(TREES, st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30))
def test_a_run_stopped_again_and_again_ends_like_an_undisturbed_one(tree, stops):
    """Every process dies after a few appends, also while it records decisions, until one gets to the end."""
    reference, last = undisturbed(tree)
    world, decisions = World(), {}
    for die_at, after in stops:
        process = Process(tree, world, decisions, die_at=die_at, after=after)
        if process.end == "suspended":
            decisions = decide_all(process.value)

    process = Process(tree, world, decisions)
    if process.end == "suspended":
        process = finish(tree, world)

    assert process.outcome() == last.outcome()
    assert max(world.acts.values(), default=1) <= len(stops) + 1


@drawn(60)
@given(TREES, st.data())
def test_decisions_may_come_in_any_order_and_some_at_a_time(tree, data):
    """Starts with none, some or all of what is open decided end like a run that is decided at once."""
    reference, last = undisturbed(tree)
    world = World()

    def some(open):
        before = list(world.kept)
        chosen = data.draw(st.lists(st.sampled_from(open), unique_by=lambda item: item["id"]))
        if not chosen:  # a start without decisions tells the same and records nothing
            again = Process(tree, world)
            assert (again.end, again.value) == ("suspended", open)
            assert world.kept == before
            chosen = open
        return decide_all(chosen)

    end = finish(tree, world, some)

    assert end.outcome() == last.outcome()
    assert world.acts == reference.acts


@drawn(60)
@given(TREES, st.data())
def test_the_same_records_read_twice_tell_the_same(tree, data):
    """Two engines on the records of a waiting or finished run agree, write nothing and run nothing."""
    world = World()
    process = Process(tree, world)
    for _ in range(data.draw(st.integers(0, 3))):
        if process.end == "suspended":
            process = Process(tree, world, decide_all(process.value))
    kept, entries = list(world.kept), dict(world.entries)

    first, second = Process(tree, world), Process(tree, world)

    assert (first.end, first.outcome()) == (second.end, second.outcome())
    assert (first.end, first.value, first.state.to_dict()) == (process.end, process.value, process.state.to_dict())
    assert world.kept == kept
    assert dict(world.entries) == entries


@drawn(60)
@given(TREES, st.data())
def test_a_checkpoint_stands_for_all_records_before_it(tree, data):
    """Taken of records or in the middle of a run, alone or with later records, it leads to the same end."""
    reference, last = undisturbed(tree)
    expected = last.outcome()
    expected.pop("bound")  # what a loop has left behind is not bound again
    records = reference.records()
    point = data.draw(st.integers(0, len(records)))

    # Of records: the later ones may follow.
    whole = World()
    whole.kept = list(reference.kept)
    loaded = Process(["workflow", []], whole, records=records[:point]).journal.checkpoint()
    assert json.loads(json.dumps(loaded)) == loaded
    read = Process(tree, whole, records=[loaded, *records[point:]])
    assert (read.end, read.value, read.state.to_dict()) == ("done", last.value, last.state.to_dict())
    assert not whole.entries

    # In the middle of a run, taken by whoever listens; the run goes on from that alone.
    taken = {}

    def take(process, record):
        if record["seq"] == point:
            taken["checkpoint"] = json.loads(json.dumps(process.journal.checkpoint()))
            taken["acts"] = dict(world.acts)

    world = World()
    finish(tree, world, listener=take)
    if taken:
        del world.kept[point:]
        world.acts.clear()
        base = [taken["checkpoint"]]
        process = Process(tree, world, records=base)
        while process.end == "suspended":
            new = world.records()[point:]
            process = Process(tree, world, decide_all(process.value), records=[*base, *new])
        outcome = process.outcome()
        outcome.pop("bound")
        assert outcome == expected
        assert all(count + taken["acts"].get(path, 0) == reference.acts[path] for path, count in world.acts.items())


@drawn(30)
@given(TREES)
def test_a_checkpoint_does_not_change_when_the_run_goes_on(tree):
    """It is a picture, not a view: decisions and outputs that come later are not in it."""
    world, taken = World(), []

    def take(process, record):
        checkpoint = process.journal.checkpoint()
        taken.append((checkpoint, json.dumps(checkpoint)))

    finish(tree, world, listener=take)

    assert all(json.dumps(checkpoint) == then for checkpoint, then in taken)
