"""How a leaf is left and what is recorded of it: suspensions, signals, errors, refusals.

Not here: drawn trees (test_engine) and what parallel items do to each other (test_engine_threads).
"""

import json

import pytest
from _trees import DyingLease, Killed, Process, Scope, SumState, World

from minagent._util import CancelToken, Deadline
from minagent.errors import ConfigError, OwnershipLost, ResumeMismatch
from minagent.workflow import (
    Abort,
    Branch,
    Cancelled,
    Done,
    DoWhile,
    Engine,
    ForEach,
    Journal,
    LimitReached,
    Mount,
    Node,
    NullLease,
    Signal,
    Step,
    Suspend,
    Workflow,
    always,
)


class Keeping(NullLease):
    """Keeps records as they would be on disk, and the order of what was asked of it."""

    def __init__(self, records=()):
        super().__init__(records=json.loads(json.dumps(list(records))))
        self.log = []

    def append(self, record):
        self.records.append(json.loads(json.dumps(record)))
        self.log.append("%(status)s %(path)s" % record)

    def sync(self):
        self.log.append("sync")


def engine(records=(), scope=None, **options):
    return Engine(Journal(Keeping(records)), scope, **options)


def kept(engine):
    return engine.journal.lease.records


def statuses(engine):
    return ["%(status)s %(path)s" % record for record in kept(engine)]


def fail(error):
    """A leaf's body that raises."""
    def run(ctx, value):
        raise error
    return run


def ignore(ctx):
    """A check that lets everything through."""


# Leaving by a signal.


class Paused(Signal):
    """A signal of the user's own, with a status of its own."""

    status = "done"


@pytest.mark.parametrize(("signal", "status"), [
    (Abort("blocked", {"kind": "processor"}, [{"type": "tripped"}]), "done"),
    (LimitReached("tokens", {"kind": "tokens"}, [{"type": "ended-early"}]), "noted"),
    (Cancelled("cancelled", {"by": "ann"}, [{"type": "ended-early"}]), "noted"),
    (Paused("later", {"until": 7}, [{"type": "paused"}]), "done"),
], ids=lambda item: type(item).__name__ if isinstance(item, Signal) else "")
def test_a_signal_is_recorded_at_its_leaf_and_raised_on(signal, status):
    """The record has the signal's own status, output and changes; the caller gets the very signal."""
    output, changes = dict(signal.output), list(signal.changes)
    one = engine()

    with pytest.raises(type(signal)) as caught:
        one.run(Workflow("w", [Step("a", lambda ctx, value: 1), Step("b", fail(signal)), Step("c", fail(Killed()))]))

    assert caught.value is signal
    assert statuses(one) == ["done w/a", "%s w/b" % status]
    record = kept(one)[-1]
    assert (record["status"], record["signal"], record["changes"]) == (status, type(signal).__name__, changes)
    assert {name: record["output"][name] for name in output} == output


def test_a_suspension_is_on_disk_before_anyone_is_told():
    """Its record is kept and synced when the listener and the caller hear of it."""
    told = []
    one = engine()
    one.journal.listener = lambda record: told.append(list(one.journal.lease.log))

    with pytest.raises(Suspend) as caught:
        one.run(Step("ask", lambda ctx, value: ctx.suspend({"q": 1}, {"type": "boolean"}, "why", kind="tool")))

    assert told == [["suspended ask", "sync"]]
    suspension = kept(one)[0]["output"]
    assert caught.value.suspensions == [suspension]
    assert {name: suspension[name] for name in ("payload", "resume_schema", "label", "kind")} == {
        "payload": {"q": 1}, "resume_schema": {"type": "boolean"}, "label": "why", "kind": "tool"}
    assert kept(one)[0]["changes"] == [{"type": "suspension-opened"}]


def test_records_are_synced_when_the_leaf_says_so():
    """A start or an end that asks for it is on disk before the next thing happens."""
    def run(ctx, value):
        ctx.start(sync=True)
        ctx.note("half")
        return Done(1, sync=True)

    one = engine()
    one.run(Workflow("w", [Step("a", run), Step("b", lambda ctx, value: 2)]))

    assert one.journal.lease.log == ["started w/a", "sync", "noted w/a", "done w/a", "sync", "done w/b"]


class Tripped(Abort):
    """A user's own kind of abort."""


@pytest.mark.parametrize(("signal", "reason"), [
    (Abort("blocked"), "blocked"), (Tripped("blocked", {"reason": "words", "kind": "x"}), "words"),
    (Abort("", []), "aborted")])
def test_a_recorded_abort_is_raised_again_before_anything_is_visited(signal, reason):
    """On resume no condition is asked, nothing is bound or run; reason and output are what was recorded."""
    first = engine()
    with pytest.raises(Abort):
        first.run(Workflow("w", [Step("a", fail(signal))]))

    def never(*args):
        raise AssertionError("visited")

    def tree():
        return Workflow("w", [Step("a", never, bind=never), Branch("b").door("d", never), Mount("m", never)])

    from_records = engine(kept(first))
    from_checkpoint = engine([json.loads(json.dumps(from_records.journal.checkpoint()))])
    for again in (from_records, from_checkpoint):
        with pytest.raises(Abort) as caught:
            again.run(tree())
        assert (caught.value.reason, caught.value.output) == (reason, kept(first)[0]["output"])
        assert not again.journal.lease.log


def test_an_ordinary_exception_is_noted_and_does_not_end_the_leaf():
    """The record names it, the caller gets it, and the next start runs the leaf again."""
    error = ValueError("no luck")
    first = engine()
    with pytest.raises(ValueError) as caught:
        first.run(Step("a", fail(error)))

    assert caught.value is error
    assert statuses(first) == ["noted a"]
    assert kept(first)[0]["output"] == {"error": {"type": "ValueError", "message": "no luck"}}
    assert engine(kept(first)).run(Step("a", lambda ctx, value: "luck")) == "luck"


def test_an_output_that_cannot_be_recorded_is_noted_as_the_leafs_failure():
    """The lease refuses it and keeps nothing; the journal goes on, and so does the next start."""
    one = engine()
    with pytest.raises(TypeError, match="JSON"):
        one.run(Step("a", lambda ctx, value: object()))

    assert statuses(one) == ["noted a"]
    assert one.run(Step("a", lambda ctx, value: 1)) == 1
    assert [record["seq"] for record in kept(one)] == [1, 2]


class Full(Keeping):
    """Keeps nothing any more."""

    def append(self, record):
        raise OSError("no space left")


@pytest.mark.parametrize("error", [ValueError("no luck"), Cancelled("cancelled"), KeyboardInterrupt()])
def test_an_error_while_recording_a_failure_does_not_hide_it(error):
    """What went wrong first is what the caller gets."""
    with pytest.raises(type(error)) as caught:
        Engine(Journal(Full())).run(Step("a", fail(error)))
    assert caught.value is error


@pytest.mark.parametrize("run", [lambda ctx, value: ctx.suspend(), fail(Abort("blocked"))])
def test_a_suspension_or_abort_that_is_not_on_record_is_not_told(run):
    """A caller must not act on what the next start will not know."""
    with pytest.raises(OSError, match="no space left"):
        Engine(Journal(Full())).run(Step("a", run))


def test_nothing_follows_an_append_that_was_interrupted():
    """After a Ctrl-C inside the lease it is unknown what was kept, so a second record of that seq never comes."""
    class Interrupted(Keeping):
        def append(self, record):
            super().append(record)
            raise KeyboardInterrupt

    one = Engine(Journal(Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        one.run(Step("a", lambda ctx, value: 1))

    assert statuses(one) == ["done a"]
    with pytest.raises(OwnershipLost):
        one.journal.append_run("completed")
    assert engine(kept(one)).run(Step("a", fail(Killed()))) == 1


def test_a_listener_that_fails_does_not_undo_a_record():
    """The leaf's end stands; the error is noted and raised, and the next start goes on behind the leaf."""
    one = engine()
    one.journal.listener = lambda record: record["status"] == "done" and 1 / 0
    with pytest.raises(ZeroDivisionError):
        one.run(Workflow("w", [Step("a", lambda ctx, value: 1)]))

    assert statuses(one) == ["done w/a", "noted w/a"]
    assert engine(kept(one)).run(Workflow("w", [Step("a", fail(Killed()))])) == 1


def test_a_listener_may_use_the_journal():
    """It is told after the journal's lock was released."""
    one = engine()
    one.journal.listener = lambda record: record["seq"] == 1 and one.journal.append_run("cancel-asked")
    one.run(Step("a", lambda ctx, value: 1))
    assert statuses(one) == ["done a", "cancel-asked "]


# Being told to stop.


def test_a_cancelled_engine_starts_no_further_leaf():
    """The token that was handed in is the one that counts, also if it was not set at that time."""
    token = CancelToken()
    one = engine(cancel=token)
    with pytest.raises(Cancelled, match="cancelled"):
        one.run(Workflow("w", [Step("a", lambda ctx, value: token.cancel()), Step("b", fail(Killed()))]))
    assert statuses(one) == ["done w/a", "noted w/b"]
    assert one.cancel is token


def test_a_leaf_sees_that_it_is_cancelled():
    """`ctx.cancelled` follows the token while the leaf runs."""
    token = CancelToken()
    seen = []

    def run(ctx, value):
        seen.append(ctx.cancelled)
        token.cancel()
        seen.append(ctx.cancelled)

    engine(cancel=token).run(Step("a", run))
    assert seen == [False, True]


def test_a_passed_deadline_starts_no_further_leaf():
    """It is a limit, not a cancel, and the token tells everybody else."""
    one = engine(deadline=Deadline(0))
    with pytest.raises(LimitReached, match="deadline"):
        one.run(Step("a", fail(Killed())))
    assert statuses(one) == ["noted a"]
    assert one.cancel.reason == "deadline"


def test_a_leaf_with_a_check_of_its_own_decides_for_itself():
    """Such a leaf runs under cancel and deadline if its check lets it."""
    token = CancelToken()
    token.cancel()
    assert engine(cancel=token, deadline=Deadline(0)).run(Step("a", lambda ctx, value: 1, check=ignore)) == 1


def test_a_check_is_asked_before_the_leaf_starts_and_never_after_it_ended():
    """Its signal is recorded at the leaf; neither a done nor a waiting leaf is checked."""
    asked = []

    def refuse(ctx):
        asked.append(ctx.path)
        raise LimitReached("tokens")

    def tree(check):
        return Workflow("w", [Step("a", lambda ctx, value: 1, check=check),
                              Step("b", lambda ctx, value: ctx.suspend(), check=check)])

    one = engine()
    with pytest.raises(LimitReached):
        one.run(tree(refuse))
    assert statuses(one) == ["noted w/a"]
    with pytest.raises(Suspend):
        one.run(tree(ignore))
    with pytest.raises(Suspend):
        one.run(tree(refuse))
    assert asked == ["w/a"]


# Suspending.


def test_the_kth_suspend_of_a_body_gets_the_kth_decision():
    """The body runs from its top after each decision, whatever the decisions are; none is asked twice."""
    runs = []

    def run(ctx, value):
        runs.append(len(runs))
        return [ctx.suspend(question) for question in "abc"]

    records, payloads = [], []
    for decision in (None, False, 0):
        one = engine(records)
        with pytest.raises(Suspend) as caught:
            one.run(Step("ask", run))
        payloads += [item["payload"] for item in caught.value.suspensions]
        assert one.decide({caught.value.suspensions[0]["id"]: decision, "unknown": 1}) == [
            caught.value.suspensions[0]["id"]]
        assert one.decide({caught.value.suspensions[0]["id"]: "second"}) == []
        records = kept(one)

    assert engine(records).run(Step("ask", run)) == [None, False, 0]
    assert payloads == ["a", "b", "c"]
    assert len(runs) == 4


def test_suspension_ids_are_of_run_place_number_and_value():
    """Any of the four makes another id; the same four make the same, and any value has one."""
    def ask(name, value, run_id="run", skip=0):
        journal = Journal(NullLease(run_id))
        one = Engine(journal)
        for _ in range(skip):
            with pytest.raises(Suspend) as caught:
                one.run(Step(name, lambda ctx, value: [ctx.suspend() for _ in range(3)]), value)
            one.decide({caught.value.suspensions[0]["id"]: 1})
        with pytest.raises(Suspend) as caught:
            one.run(Step(name, lambda ctx, value: [ctx.suspend() for _ in range(3)]), value)
        return caught.value.suspensions[0]["id"]

    ids = [ask("a", 1), ask("a", 2), ask("b", 1), ask("a", 1, "other"), ask("a", 1, skip=1), ask("a", {1: 1, "x": 2})]
    assert len(set(ids)) == len(ids)
    assert ids == [ask("a", 1), ask("a", 2), ask("b", 1), ask("a", 1, "other"), ask("a", 1, skip=1),
                   ask("a", {1: 1, "x": 2})]


def test_what_a_suspend_tells_does_not_change_afterwards():
    """The caller's suspensions are copies: a later decision does not appear in them."""
    one = engine()
    for _ in range(2):  # told by the leaf, then by its record
        with pytest.raises(Suspend) as caught:
            one.run(Step("ask", lambda ctx, value: ctx.suspend("q")))
    one.decide({caught.value.suspensions[0]["id"]: "yes"})
    assert "decision" not in caught.value.suspensions[0]


def test_a_leaf_knows_how_often_it_was_started():
    """`unfinished` is a start without an end; a recorded suspension is an end."""
    seen = []

    def run(ctx, value):
        seen.append((ctx.unfinished, ctx.run_number))
        ctx.start()
        if len(seen) == 1:
            raise ValueError
        return ctx.suspend()

    one = engine()
    with pytest.raises(ValueError):
        one.run(Step("a", run))
    with pytest.raises(Suspend) as caught:
        one.run(Step("a", run))
    one.decide({caught.value.suspensions[0]["id"]: "yes"})
    assert one.run(Step("a", run)) == "yes"
    assert seen == [(False, 1), (True, 2), (False, 3)]


# Checkpoints and what stands in them.


@pytest.mark.parametrize("output", [0, "", False, [], {}, None, 1.5, {"a": [None]}])
def test_every_output_survives_a_checkpoint(output):
    """Also the ones that are false."""
    one = engine()
    one.run(Step("a", lambda ctx, value: output))
    again = engine([json.loads(json.dumps(one.journal.checkpoint()))])
    assert again.run(Step("a", fail(Killed()))) == output
    assert type(again.run(Step("a", fail(Killed())))) is type(output)


def test_a_checkpoint_is_not_changed_by_a_later_decision():
    """It was taken before; who keeps it as an object keeps what was then."""
    one = engine()
    with pytest.raises(Suspend) as caught:
        one.run(Step("ask", lambda ctx, value: ctx.suspend("q")))
    checkpoint = one.journal.checkpoint()
    then = json.dumps(checkpoint)
    one.decide({caught.value.suspensions[0]["id"]: "yes"})
    assert json.dumps(checkpoint) == then


def test_a_checkpoint_holds_what_was_folded_while_it_was_taken():
    """A loop may fold an iteration in another thread: it is in the checkpoint, wherever the reader stands."""
    journal = Journal()

    class FoldsWhenRead(dict):
        def items(self):
            found = list(super().items())
            place.fold(1, "one")
            return found

    place = journal.root.child("loop")
    journal.append(place.child("1").child("a"), "done", "one")
    place.children = FoldsWhenRead(place.children)
    data = journal.checkpoint()["output"]["entries"]["children"]["loop"]
    assert data["last"] == [1, "one"]


def test_a_checkpoint_may_be_taken_while_places_are_made():
    """Visits in other threads make entries without a lock; reading them meanwhile is no error."""
    journal = Journal()

    class Growing(type(journal.root)):
        def to_dict(self):
            place.child("new")
            return super().to_dict()

    place = journal.root.child("w")
    for name in "ab":
        place.children[name] = Growing(name, place)
        journal.append(place.children[name], "done", 1)
    assert sorted(journal.checkpoint()["output"]["entries"]["children"]["w"]["children"]) == ["a", "b"]


# Doors, and nodes that nothing was recorded of.


def test_a_door_that_answers_answers_for_one_workflow_only():
    """Also when two answering doors stand behind each other: the outer workflow goes on."""
    inner = Branch("inner").door("in", always, Step("leaf", lambda ctx, value: "answer"), answers=True)
    outer = Branch("outer").door("out", always, inner, answers=True)
    one = engine()
    tree = Workflow("w", [Workflow("answered", [outer, Step("skipped", fail(Killed()))]),
                          Step("after", lambda ctx, value: [value])])
    assert one.run(tree) == ["answer"]
    assert engine(kept(one)).run(tree) == ["answer"]


def test_what_an_empty_answering_door_skipped_stays_skipped():
    """Nodes that were never reached hand their input on when they are settled: none is entered or made."""
    def never(*args):
        raise AssertionError("entered")

    def tree(answers):
        skipped = [ForEach("each", Step("item", never), items=never), Mount("mount", never),
                   Branch("branch").door("d", never), DoWhile("loop", Step("lap", never), never), Step("leaf", never)]
        return Workflow("w", [
            Workflow("answered", [Step("a", lambda ctx, value: 7), Branch("b").door("d", answers, answers=True),
                                  *skipped]),
            Step("after", lambda ctx, value: [value])])

    one = engine()
    assert one.run(tree(always)) == [7]
    assert engine(kept(one)).run(tree(never)) == [7]


def test_a_node_that_records_nothing_hands_its_input_on():
    """So that running and resuming agree, a for-each or a mount whose subtree wrote nothing hands on its input."""
    nothing = Workflow("nothing")
    one = engine()
    tree = Workflow("w", [ForEach("each", nothing, items=lambda value: [1, 2]),
                          Mount("mount", lambda scope, value, drive: [drive(nothing, value)]),
                          Step("end", lambda ctx, value: value)])
    assert one.run(tree, "x") == "x"
    assert engine(kept(one)).run(tree, "x") == "x"


def test_a_recorded_door_that_is_gone_is_an_error():
    """A run is not led past what stood behind a door that somebody renamed."""
    one = engine()
    one.run(Branch("b").door("old", always, Step("a", lambda ctx, value: 1)))
    with pytest.raises(ResumeMismatch, match="'b/old'.*only .*'new'") as caught:
        engine(kept(one)).run(Branch("b").door("new", always, Step("a", lambda ctx, value: 1)))
    assert caught.value.run_id == "run"


def test_subclasses_of_nodes_are_nodes_and_nothing_else_is():
    """A user's own Step is a Step; a thing that is no node is refused with a sentence."""
    class Greeting(Step):
        def __init__(self):
            super().__init__("hi", lambda ctx, value: "hi " + value)

    assert engine().run(Workflow("w", [Greeting(), Step("b", lambda ctx, value: value + "!")]), "ann") == "hi ann!"
    with pytest.raises(ConfigError, match="expected a Step"):
        engine().run(Workflow("w", [Node("bare")]))


@pytest.mark.parametrize("make", [
    lambda: Step("", ignore), lambda: Step("a/b", ignore), lambda: Branch("b").door("a/b", always),
    lambda: Branch("b").door("d", always).door("d", always),
    lambda: Workflow("w", [Step("a", ignore), Step("a", ignore)])])
def test_names_that_would_make_one_path_of_two_places_are_refused(make):
    """Empty names, names with a slash, and two of one name."""
    with pytest.raises(ConfigError):
        make()


def test_a_node_of_every_kind_in_a_mount_has_the_mounts_place():
    """Names in paths: the mount's own name, not its node's; iterations from 1, items from 0, doors by name."""
    leaf = Step("leaf", lambda ctx, value: value)
    tree = Workflow("w", [
        Mount("m", lambda scope, value, drive: drive(Workflow("inner", [leaf]), value)),
        DoWhile("loop", leaf, lambda value, scope: False),
        ForEach("each", Workflow("body", [leaf]), items=lambda value: [1, 2]),
        Branch("b").door("d", always, leaf)])
    one = engine()
    one.run(tree, 1)
    assert statuses(one) == ["done w/m/leaf", "done w/loop/1", "done w/each/0/leaf", "done w/each/1/leaf",
                             "done w/b/d"]


def test_items_may_be_anything_that_can_be_gone_through():
    """A generator or a view of a dict is as good as a list."""
    double = Step("double", lambda ctx, value: 2 * value)
    assert engine().run(ForEach("each", double, items=lambda value: (item for item in value)), [1, 2]) == [2, 4]
    assert engine().run(ForEach("each", double, items=lambda value: value.values()), {"a": 3}) == [6]


# Live conditions at the frontier.


@pytest.mark.parametrize("after", [False, True])
def test_only_the_frontier_of_a_loop_reads_live_state(after):
    """Stopped anywhere and started under a smaller limit, a loop ends where it stands; what is settled stays."""
    def tree(asked):
        def again(value, scope):
            asked.append(value)
            return value < scope.bound

        lap = Workflow("body", [Step("a", lambda ctx, value: value), Step("b", lambda ctx, value: value + 1)])
        return Workflow("w", [DoWhile("loop", lap, again), Step("end", lambda ctx, value: value)])

    for stop in range(11):
        world = World()
        scope = Scope()
        scope.bound = 5
        with pytest.raises(Killed):
            Engine(Journal(DyingLease(world, stop, after)), scope).run(tree([]), 0)
        scope.bound = 2
        laps = [int(record["path"].split("/")[2]) for record in world.records() if "loop" in record["path"]]
        settled = any(record["path"] == "w/end" for record in world.records())
        stands = max(laps, default=1)

        asked = []
        value = Engine(Journal(DyingLease(world)), scope).run(tree(asked), 0)

        assert value == max(stands, 2)
        assert asked == ([] if settled else list(range(stands, value + 1)))


def test_a_settled_iteration_is_not_asked_again_at_its_end():
    """An empty branch at the end of a loop's body left no record, but the next iteration did."""
    asked = []

    def when(value, scope):
        asked.append(value)
        return False

    body = Workflow("body", [Step("add", lambda ctx, value: value + 1), Branch("b").door("d", when)])
    one = engine()
    assert one.run(DoWhile("loop", body, lambda value, scope: value < 3), 0) == 3
    assert asked == [1, 2, 3]
    asked.clear()
    assert engine(kept(one)).run(DoWhile("loop", body, lambda value, scope: value < 3), 0) == 3
    assert asked == [3], "only the frontier is asked"


# An engine in a leaf of another one.


def nested(inner_kept, run):
    """A leaf that drives an engine of its own on records of its own."""
    def leaf(ctx, value):
        inner = Engine(Journal(Keeping(inner_kept)))
        try:
            return inner.run(Workflow("inner", [Step("a", lambda ctx, value: 1), Step("b", run)]))
        finally:
            inner_kept[:] = kept(inner)
    return leaf


def test_an_inner_engine_that_suspends_leaves_the_outer_leaf_open():
    """The suspension is recorded once, where it was made; after its decision the same outer run goes on."""
    inner_kept = []
    tree = Workflow("outer", [Step("leaf", nested(inner_kept, lambda ctx, value: ctx.suspend("q")))])
    first = engine()
    with pytest.raises(Suspend) as caught:
        first.run(tree)
    assert statuses(first) == ["noted outer/leaf"]
    assert "changes" not in kept(first)[0]

    with pytest.raises(Suspend) as again:
        engine(kept(first)).run(tree)
    assert again.value.suspensions == caught.value.suspensions

    inner = engine(inner_kept)
    inner.decide({caught.value.suspensions[0]["id"]: "yes"})
    inner_kept[:] = kept(inner)
    assert engine(kept(first)).run(tree) == "yes"
    assert [record["status"] for record in inner_kept] == ["done", "suspended", "decided", "done"]


def test_a_signal_of_an_inner_engine_brings_its_changes_once():
    """They are in the inner journal; the outer one records the signal without them."""
    inner_kept = []
    one = engine()
    with pytest.raises(Abort):
        one.run(Step("leaf", nested(inner_kept, fail(Abort("blocked", {"kind": "x"}, [{"type": "tripped"}])))))
    assert inner_kept[-1]["changes"] == [{"type": "tripped"}]
    assert "changes" not in kept(one)[-1]
    assert kept(one)[-1]["output"] == {"kind": "x"}


def test_a_suspend_that_names_nothing_does_not_spoil_the_journal():
    """Raised by hand it is noted: the leaf waits for something outside, and the records can be read again."""
    one = engine()
    with pytest.raises(Suspend):
        one.run(Step("a", fail(Suspend([{"id": "elsewhere"}]))))
    assert statuses(one) == ["noted a"]
    assert engine(kept(one)).run(Step("a", lambda ctx, value: 1)) == 1


# What is made live.


def test_bind_is_called_at_every_start_with_what_was_recorded():
    """After the run, or instead of it; and `join` makes what is handed on both times."""
    def tree():
        return Workflow("w", [
            Step("a", lambda ctx, value: "made", bind=lambda scope, output: scope.append(output),
                 join=lambda value, output: [value, output]),
            Step("b", lambda ctx, value: ctx.scope + value)])

    live = []
    one = engine(scope=live)
    assert one.run(tree(), "in") == ["made", "in", "made"]
    live = []
    assert engine(kept(one), scope=live).run(tree(), "in") == ["made", "in", "made"]
    assert live == ["made"]
    assert kept(one)[0]["output"] == "made"


def test_a_closed_journal_takes_no_late_record():
    """What an abandoned thread has to say afterwards is refused, and nothing of it is folded."""
    journal = Journal(Keeping(), SumState())
    entry = journal.root.child("a")
    journal.close()
    with pytest.raises(OwnershipLost, match="late record of 'a'"):
        journal.append(entry, "done", 1, [{"type": "counted"}])
    assert (entry.status, journal.state.total, journal.lease.records) == (None, 0, [])


def test_a_process_of_the_drawn_trees_is_watched():
    """The watch that the drawn trees rely on notices a condition that is asked behind its back."""
    world = World()
    tree = ["workflow", [["leaf", 0, []], ["branch", [[1, ["leaf", 0, []], False]]], ["leaf", 0, []]]]
    process = Process(tree, world)
    process.engine._here.behind = ["root/root1"]
    with pytest.raises(AssertionError, match="asked again"):
        world.asked()
