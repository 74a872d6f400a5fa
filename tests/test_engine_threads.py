"""A ForEach whose items run in threads: order, who is started, what takes precedence, who is abandoned.

Every wait has a time limit that only a fault reaches; nothing sleeps for luck, and every thread is joined.
"""

import contextvars
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from _trees import TREES, Process, World, decide_all, drawn, finish
from hypothesis import given
from hypothesis import strategies as st

from minagent._util import CancelToken, Deadline
from minagent.errors import OwnershipLost
from minagent.workflow import (
    Abort,
    Branch,
    Cancelled,
    DoWhile,
    Engine,
    ForEach,
    Journal,
    LimitReached,
    Mount,
    NullLease,
    Step,
    Suspend,
    Workflow,
)

PATIENCE = 10  # seconds that only a deadlock takes


@pytest.fixture
def pool():
    """A pool of four workers, joined at the end."""
    with ThreadPoolExecutor(4) as executor:
        yield executor


class Gate:
    """Items come in, say so, and wait until the test lets them go on."""

    def __init__(self):
        self._arrived = {}
        self._lock = threading.Lock()  # guards _arrived
        self._open = {}

    def _event(self, table, name):
        with self._lock:
            return table.setdefault(name, threading.Event())

    def come(self, name):
        self._event(self._arrived, name).set()
        assert self._event(self._open, name).wait(PATIENCE), "%s was never let through" % name

    def arrived(self, name):
        assert self._event(self._arrived, name).wait(PATIENCE), "%s never came" % name

    def open(self, *names):
        for name in names:
            self._event(self._open, name).set()


def engine(executor=None, records=(), foreign=True, **options):
    lease = NullLease(records=json.loads(json.dumps(list(records))))
    lease.append = lease.records.append
    return Engine(Journal(lease), executor=executor and (lambda: executor), foreign=foreign, **options)


def statuses(one):
    return sorted("%(status)s %(path)s" % record for record in one.journal.lease.records)


def each(body, **kwargs):
    return ForEach("each", Step("body", body, **kwargs))


# Drawn trees.


@drawn(25)
@given(TREES, st.integers(0, 25), st.booleans(), st.integers(1, 3), st.booleans())
def test_drawn_trees_in_threads_end_like_in_turn(tree, die_at, after, workers, foreign):
    """Stopped at any append and resumed, with few workers or many, nested or not: the same end as one by one."""
    reference = World()
    last = finish(tree, reference)
    world = World()
    with ThreadPoolExecutor(workers) as executor:
        options = {"executor": lambda: executor, "foreign": foreign}
        process = Process(tree, world, die_at=die_at, after=after, **options)
        end = process if process.end == "done" else finish(tree, world, **options)

    assert end.outcome() == last.outcome()
    assert world.acts.keys() == reference.acts.keys()
    assert max((world.acts - reference.acts).values(), default=0) <= 1


# Order and threads.


def test_outputs_come_in_the_order_of_the_items(pool):
    """Whatever the order in which items end."""
    gate = Gate()

    def run(ctx, name):
        gate.come(name)
        return name + "!"

    one = engine(pool)
    caller = threading.Thread(target=lambda: outputs.extend(one.run(each(run), ["a", "b", "c"])))
    outputs = []
    caller.start()
    for name in "cba":
        gate.arrived(name)
        gate.open(name)
    caller.join(PATIENCE)

    assert outputs == ["a!", "b!", "c!"]


def test_one_due_item_runs_in_the_callers_own_thread(pool):
    """Also when its siblings finished at an earlier start; and with no executor they all do."""
    threads = {}

    def run(ctx, name):
        threads[name] = threading.current_thread()
        if name == "b" and ctx.suspend("q") == "no":
            raise AssertionError
        return name

    first = engine(pool)
    with pytest.raises(Suspend) as caught:
        first.run(each(run), ["a", "b", "c"])
    again = engine(pool, first.journal.lease.records)
    again.decide({caught.value.suspensions[0]["id"]: "yes"})
    threads.clear()

    assert again.run(each(run), ["a", "b", "c"]) == ["a", "b", "c"]
    assert threads == {"b": threading.current_thread()}
    assert again._executor is None, "no executor is made for one item"
    assert engine(pool).run(each(lambda ctx, name: threading.current_thread()), ["a"]) == [threading.current_thread()]


def test_items_run_in_a_copy_of_the_callers_context(pool):
    """They see its context variables, and what they set stays theirs."""
    user = contextvars.ContextVar("user")
    user.set("ann")

    def run(ctx, name):
        seen = user.get()
        user.set(name)
        return seen

    assert engine(pool, foreign=False).run(each(run), ["b", "c"]) == ["ann", "ann"]
    assert user.get() == "ann"


def test_an_executor_is_made_once_and_only_when_needed(pool):
    """Two for-eachs share it."""
    made = []
    one = Engine(Journal(), executor=lambda: made.append(1) or pool)
    assert one.run(each(lambda ctx, name: name), ["a"]) == ["a"]
    assert made == []
    tree = Workflow("w", [each(lambda ctx, name: name), ForEach("more", Step("x", lambda ctx, name: name))])
    assert one.run(tree, ["a", "b"]) == ["a", "b"]
    assert made == [1]


def test_exclusive_leaves_run_one_at_a_time_record_included(pool):
    """The next one begins after the record of the one before, while other leaves run on."""
    log = []

    def run(ctx, name):
        log.append(name)
        return name

    one = engine(pool, foreign=False)
    append = one.journal.lease.append

    def slow(record):  # another leaf gets every chance to come in between
        threading.Event().wait(0.01)
        append(record)
        log.append(record["output"])

    one.journal.lease.append = slow
    one.run(each(run, exclusive=True), list("abcd"))
    assert log[0::2] == log[1::2]


# Few workers.


@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_nesting_in_a_small_executor_cannot_deadlock(workers, foreign):
    """The thread that waits does what no worker has taken up."""
    tree = ForEach("each", ForEach("each", ForEach("each", Step("leaf", lambda ctx, value: value + 1))))
    items = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    done = []
    with ThreadPoolExecutor(workers) as executor:
        one = engine(executor, foreign=foreign)
        caller = threading.Thread(target=lambda: done.append(one.run(tree, items)), daemon=True)
        caller.start()
        caller.join(PATIENCE)
        one.cancel.cancel()  # so that a deadlock is a failure and not a hung test
        assert done == [[[[2, 3], [4, 5]], [[6, 7], [8, 9]]]]


def test_an_executor_that_takes_nothing_more_is_helped_out():
    """Shut down by its owner, its share is done in the caller's thread."""
    executor = ThreadPoolExecutor(2)
    executor.shutdown()
    assert engine(executor).run(each(lambda ctx, name: name), ["a", "b", "c"]) == ["a", "b", "c"]


class Forgetful(ThreadPoolExecutor):
    """Cancels what it was given, as a shutdown may do."""

    def submit(self, *args, **kwargs):
        future = super().submit(threading.Event().wait, 0)
        future.result()
        given = type(future)()
        given.cancel()
        given.set_running_or_notify_cancel()
        return given


def test_an_item_that_the_executor_dropped_is_done_all_the_same():
    """No output is made up for an item that nobody did."""
    with Forgetful(1) as executor:
        assert engine(executor, foreign=False).run(each(lambda ctx, name: name), ["a", "b"]) == ["a", "b"]


class Twice(ThreadPoolExecutor):
    """Takes an item and then says that it could not."""

    def submit(self, *args, **kwargs):
        super().submit(*args, **kwargs)
        raise RuntimeError("can't start new thread")


def test_no_item_is_done_twice():
    """A refusal that comes after the item was queued does not make the item run in two threads."""
    runs = []
    with Twice(1) as executor:
        outputs = engine(executor, foreign=False).run(each(lambda ctx, name: runs.append(name)), ["a", "b"])
    assert outputs == [None, None]
    assert sorted(runs) == ["a", "b"]


# Signals.


SIGNALS = {
    "failure": lambda: ValueError("failure"), "cancel": lambda: Cancelled("cancel"),
    "abort": lambda: Abort("abort"), "limit": lambda: LimitReached("limit")}


def together(pool, raising, order):
    """Run items that raise in the given order after all have begun; returns engine and what was raised."""
    gate = Gate()

    def run(ctx, name):
        gate.come(name)
        if name == "suspend":
            ctx.suspend(name)
        raise raising[name]()

    one = engine(pool, foreign=False)
    caught = []

    def call():
        try:
            one.run(each(run), sorted(order))
        except BaseException as error:
            caught.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    for name in order:
        gate.arrived(name)
    for name in order:
        gate.open(name)
    caller.join(PATIENCE)
    return one, caught[0]


PRECEDENCE = ["failure", "cancel", "abort", "limit", "suspend"]


@pytest.mark.parametrize(("higher", "lower"), [
    (a, b) for place, a in enumerate(PRECEDENCE) for b in PRECEDENCE[place + 1:]])
@pytest.mark.parametrize("first", ["higher", "lower"])
def test_precedence_is_failure_cancel_abort_limit_suspend(pool, higher, lower, first):
    """Of two items that are left by different signals the higher one is raised; both are recorded."""
    order = [higher, lower] if first == "higher" else [lower, higher]
    one, error = together(pool, SIGNALS, order)
    assert str(error) == higher
    assert len(one.journal.lease.records) == 2


@pytest.mark.parametrize("name", sorted(SIGNALS))
def test_children_already_running_finish_and_are_recorded(pool, name):
    """A sibling's signal ends nobody who is at work; its record is there when the caller is told."""
    gate = Gate()

    def run(ctx, item):
        if item == "bad":
            gate.arrived("good")
            raise SIGNALS[name]()
        gate.come("good")
        return item

    one = engine(pool, foreign=False)
    append = one.journal.lease.append

    def appended(record):
        append(record)
        if record["path"] == "each/0":
            gate.open("good")

    one.journal.lease.append = appended
    with pytest.raises(type(SIGNALS[name]())):
        one.run(each(run), ["bad", "good"])
    assert [record["path"] for record in one.journal.lease.records] == ["each/0", "each/1"]
    assert one.journal.lease.records[1]["output"] == "good"


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("name", sorted(SIGNALS))
def test_none_is_started_after_a_signal(name, threads):
    """Items that wait for a worker, or for their turn, stay undone and unrecorded."""
    def run(ctx, item):
        if item == "bad":
            raise SIGNALS[name]()
        return item

    with ThreadPoolExecutor(1) as executor:
        one = engine(executor if threads else None, foreign=False)
        with pytest.raises(type(SIGNALS[name]())):
            one.run(each(run), ["good", "bad", "late", "later"])
    assert [path for path in statuses(one) if "each/0" not in path and "each/1" not in path] == []
    assert len(statuses(one)) == 2


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_all_suspensions_come_together_in_the_order_of_the_items(threads):
    """A Suspend keeps no sibling from running; nested and earlier ones are told with the new ones."""
    def run(ctx, item):
        return ctx.suspend(item)

    def asked(caught):
        return [item["payload"] for item in caught.value.suspensions]

    tree = ForEach("each", ForEach("each", Step("ask", run)))
    with ThreadPoolExecutor(threads or 1) as executor:
        one = engine(executor if threads else None)
        with pytest.raises(Suspend) as caught:
            one.run(tree, [["a", "b"], ["c"], ["d", "e"]])
        assert asked(caught) == ["a", "b", "c", "d", "e"]
        ids = {item["payload"]: item["id"] for item in caught.value.suspensions}
        one.decide({ids["b"]: "B", ids["d"]: "D", ids["e"]: "E"})
        with pytest.raises(Suspend) as caught:
            one.run(tree, [["a", "b"], ["c"], ["d", "e"]])
        assert asked(caught) == ["a", "c"]
        one.decide({ids["a"]: "A", ids["c"]: "C"})
        assert one.run(tree, [["a", "b"], ["c"], ["d", "e"]]) == [["A", "B"], ["C"], ["D", "E"]]


def test_a_failed_item_is_run_again_and_its_siblings_are_not():
    """The next start has one due item."""
    runs = []

    def run(ctx, item):
        runs.append(item)
        if runs == ["a", "b"]:
            raise ValueError
        return item

    one = engine()
    with pytest.raises(ValueError):
        one.run(each(run), ["a", "b", "c"])
    assert one.run(each(run), ["a", "b", "c"]) == ["a", "b", "c"]
    assert runs == ["a", "b", "b", "c"]


# Cancel and deadline.


class Stubborn:
    """Items of which "hung" does not listen until the test is over; the call runs in a thread of its own."""

    def __init__(self, workers=4, items=("quick", "hung"), **options):
        self.release = threading.Event()
        self.hung = threading.Event()
        self.executor = ThreadPoolExecutor(workers)
        self.abandoned = []
        self.executor.abandon = self.abandoned.append
        self.engine = engine(self.executor, foreign=False, **options)
        self.refused = []
        self._append, self.engine.journal.append = self.engine.journal.append, self._watched
        self.items = list(items)
        self.caught = []
        self.caller = threading.Thread(target=self._call)

    def _run(self, ctx, item):
        if item == "hung":
            self.hung.set()
            self.release.wait(PATIENCE)
        return item

    def _watched(self, *args):
        try:
            self._append(*args)
        except OwnershipLost as error:
            self.refused.append(str(error))
            raise

    def _call(self):
        try:
            self.caught.append(self.engine.run(each(self._run), self.items))
        except BaseException as error:
            self.caught.append(error)

    def __enter__(self):
        self.caller.start()
        assert self.hung.wait(PATIENCE)
        return self

    def __exit__(self, *args):
        self.release.set()
        self.executor.shutdown()
        self.caller.join(PATIENCE)


def test_a_hung_child_is_abandoned_after_the_grace_and_its_late_record_refused():
    """The call comes back although the child does not; once the journal is closed it can say nothing more."""
    with Stubborn(grace=0.05) as call:
        begun = time.monotonic()
        call.engine.cancel.cancel()
        call.caller.join(PATIENCE)
        assert time.monotonic() - begun < PATIENCE / 2
        assert isinstance(call.caught[0], Cancelled)
        assert len(call.abandoned) == 1
        call.engine.journal.close()
    assert call.abandoned[0].done()
    assert call.refused == ["run run is closed; a late record of 'each/1' was dropped"] * 2  # its end, its error
    assert statuses(call.engine) == ["done each/0", "noted each/1"]


def test_a_deadline_abandons_too_and_is_a_limit():
    """Nobody calls cancel: the deadline does, with its own reason, so that running children are told."""
    with Stubborn(grace=0.02, deadline=Deadline(0.05)) as call:
        call.caller.join(PATIENCE)
        assert isinstance(call.caught[0], LimitReached)
        assert call.caught[0].reason == "the deadline of 0.05 seconds has passed"
        assert call.engine.cancel.reason == "deadline"
        note = call.engine.journal.lease.records[-1]
        assert (note["path"], note["signal"], note["output"]) == (
            "each/1", "LimitReached", {"reason": "the deadline of 0.05 seconds has passed"})
        assert note["changes"] == [{"type": "ended-early"}]


def test_a_child_that_listens_is_recorded_within_the_grace(pool):
    """Cancelled while it runs, it ends by itself; its record is kept, nobody is abandoned, the items are whole."""
    token = CancelToken()
    begun = threading.Barrier(2)

    def run(ctx, item):
        begun.wait(PATIENCE)
        if item == "b":
            token.cancel()
        assert token.wait(PATIENCE)
        return ctx.cancelled

    one = engine(pool, foreign=False, cancel=token, grace=PATIENCE)
    assert one.run(each(run), ["a", "b"]) == [True, True]
    assert statuses(one) == ["done each/0", "done each/1"]


def test_items_that_a_cancel_kept_from_starting_are_not_taken_for_done():
    """One worker, three items, a cancel while the first runs: the caller gets Cancelled, not two made-up outputs."""
    token = CancelToken()

    def run(ctx, item):
        token.cancel()
        return item

    with ThreadPoolExecutor(1) as executor:
        one = engine(executor, foreign=False, cancel=token, grace=PATIENCE)
        with pytest.raises(Cancelled):
            one.run(each(run, check=lambda ctx: None), ["a", "b", "c"])
    assert statuses(one) == ["done each/0", "noted each/1"]
    assert engine(records=one.journal.lease.records).run(each(lambda ctx, item: item), ["a", "b", "c"]) == [
        "a", "b", "c"]


def test_a_cancel_takes_precedence_over_suspensions_of_siblings():
    """Items that were never started are cancelled even if the others only wait."""
    token = CancelToken()

    def run(ctx, item):
        token.cancel()
        ctx.suspend(item)

    with ThreadPoolExecutor(1) as executor:
        one = engine(executor, foreign=False, cancel=token, grace=PATIENCE)
        with pytest.raises(Cancelled):
            one.run(each(run, check=lambda ctx: None), ["a", "b", "c"])


def test_a_keyboard_interrupt_in_the_waiting_thread_gives_running_children_their_grace():
    """What runs is told and may finish; what waits is not started; then the interrupt is raised on."""
    running, interrupted = threading.Event(), threading.Event()

    def run(ctx, item):
        running.set()
        assert interrupted.wait(PATIENCE)
        return ctx.cancelled

    class InterruptedWait(Deadline):
        """A deadline that is read while waiting; here a Ctrl-C arrives."""

        def passed(self):
            if running.wait(PATIENCE) and not interrupted.is_set():
                one.cancel.on_cancel(interrupted.set)
                raise KeyboardInterrupt
            return super().passed()

    with ThreadPoolExecutor(1) as executor:
        one = engine(executor, foreign=False, deadline=InterruptedWait(), grace=PATIENCE)
        with pytest.raises(KeyboardInterrupt):
            one.run(each(run, check=lambda ctx: None), ["a", "b", "c"])
    assert [(record["path"], record["output"]) for record in one.journal.lease.records] == [("each/0", True)]


def test_a_keyboard_interrupt_in_an_item_tells_all_the_others(pool):
    """The item that the caller's thread does may be the one that gets the Ctrl-C."""
    begun = threading.Barrier(2)

    def run(ctx, item):
        begun.wait(PATIENCE)
        if item == "b":
            raise KeyboardInterrupt
        assert one.cancel.wait(PATIENCE)
        return item

    one = engine(pool, foreign=False, grace=PATIENCE)
    with pytest.raises(KeyboardInterrupt):
        one.run(each(run), ["a", "b"])
    assert statuses(one) == ["done each/0", "noted each/1"]


def test_a_failing_child_does_not_cancel_its_siblings(pool):
    """An ordinary exception stops what is not started, and the token stays unset."""
    one, error = together(pool, SIGNALS, ["failure", "limit"])
    assert not one.cancel


def test_a_loop_in_an_item_keeps_its_place_when_a_sibling_waits(pool):
    """Items are visited twice at a resume, once to see whether they are due: nothing is lost or asked twice."""
    asked = []

    def again(value, scope):
        asked.append(value)
        return value < 3

    def step(ctx, value):
        return value + (ctx.suspend("q") if value == 1 else 1)

    tree = ForEach("each", DoWhile("loop", Step("body", step), again))
    one = engine(pool, foreign=False)
    with pytest.raises(Suspend) as caught:
        one.run(tree, [0, 0])
    again_engine = engine(pool, one.journal.lease.records, foreign=False)
    asked.clear()
    again_engine.decide(decide_all(caught.value.suspensions))
    assert all(value > 3 for value in again_engine.run(tree, [0, 0]))
    assert 1 not in asked, "the condition after the first iteration was settled"


def fresh(rest):
    """A tree of two items, and records in which each has done the first of its leaves."""
    tree = ForEach("each", Workflow("item", [Step("first", lambda ctx, value: value), rest]))
    lease = NullLease()
    journal = Journal(lease)
    records = []
    lease.append = records.append
    for item in "01":
        journal.append(journal.root.at("each/%s/first" % item), "done", int(item))
    return tree, records


def test_a_condition_at_the_frontier_of_an_item_is_asked_once_at_each_start(pool):
    """Finding out what is due asks nothing and enters nothing."""
    asked, entered = [], []

    def when(value, scope):
        asked.append(value)
        return True

    def enter(scope, value, drive):
        entered.append(value)
        return drive(Step("leaf", lambda ctx, value: value), value)

    tree, records = fresh(Workflow("rest", [Mount("mount", enter)]))
    assert engine(pool, records).run(tree, [0, 1]) == [0, 1]
    assert sorted(entered) == [0, 1]

    tree, records = fresh(Branch("rest").door("d", when, Step("leaf", lambda ctx, value: value)))
    assert engine(pool, records).run(tree, [0, 1]) == [0, 1]
    assert sorted(asked) == [0, 1]


def test_items_that_are_resumed_in_their_middle_run_in_parallel(pool):
    """Also when what is due stands in a for-each of their own: nothing is run while it is found out."""
    meeting = threading.Barrier(2)
    inner = ForEach("rest", Workflow("w", [Step("meet", lambda ctx, value: meeting.wait(PATIENCE) and 0)]),
                    items=lambda value: [value])
    tree, records = fresh(inner)
    one = engine(pool, records, foreign=False)
    for item in "01":  # known to be there, so that it is looked into
        one.journal.append(one.journal.root.at("each/%s/rest/0/meet" % item), "noted")
    assert one.run(tree, [0, 1]) == [[0], [0]]
