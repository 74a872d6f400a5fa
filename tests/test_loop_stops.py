"""The whole loop, stopped before and after every record, goes on to the same end.

The script has all there is: parallel tools, an approval, two suspends in one body, a background tool, an answer
that is rejected, processors with state.  Not here: real processes that are killed (they are the stores' tests).
"""

import json
import threading
from collections import Counter
from dataclasses import replace

import pytest
from _scripts import Counting, answers_of, by_kind, come_to, differences

from minagent import Agent, Processor, Suspension, tool
from minagent.agent.run import folded, snapshot_of
from minagent.errors import OwnershipLost, RunFinished
from minagent.loop.state import CHANGES, RunState
from minagent.runs import MemoryRuns
from minagent.runs.null import NullRuns
from minagent.testing import ScriptedModel, calls, says


class Stopped(BaseException):
    """The process ended here."""


class StoppingRuns(MemoryRuns):
    """A store whose leases die at an append: before the record is kept or right after.

    Attributes:
        countdown: Appends that the next process makes before it dies; None for a process that lives on.
        after: Whether it dies right after its last record instead of before the next one.
        checked: Whether the fold is checked at every append.
    """

    def __init__(self):
        super().__init__()
        self.countdown = None
        self.after = False
        self.checked = False
        self.changes = set()

    def create(self, run_id, record):
        dying = self._dies()
        if dying and not self.after:
            raise Stopped
        lease = self._watched(super().create(run_id, record))
        self.changes.update(change["type"] for change in record["changes"])
        if dying:
            lease.release()
            raise Stopped
        return lease

    def acquire(self, run_id):
        return self._watched(super().acquire(run_id))

    def _dies(self):
        if self.countdown is None:
            return False
        self.countdown -= 1
        return self.countdown < 0

    def _watched(self, lease):
        keep, post = lease.append, lease.post
        lease.dead, lease.run = False, None

        def append(record):
            assert json.loads(json.dumps(record)) == record
            if self.checked and lease.run is not None:
                self.check_fold(lease.run)
            dying = self._dies()
            if lease.dead or dying and not self.after:
                lease.dead = True
                raise Stopped
            keep(record)
            self.changes.update(change["type"] for change in record.get("changes", ()))
            if dying:
                lease.dead = True
                raise Stopped

        def post_alive(suspension_id, decision):
            if lease.dead:  # a thread of a process that is no more
                raise Stopped
            post(suspension_id, decision)

        lease.append, lease.post = append, post_alive
        return lease

    def check_fold(self, run):
        """What was folded as it came is what folding the kept records gives, also from a checkpoint in between."""
        records = self.read(run.id)
        live = run.state.to_dict()
        assert folded(run.id, records).to_dict() == live
        assert json.loads(json.dumps(live)) == live
        half = len(records) // 2
        state = folded(run.id, records[:half])
        restored = RunState(run.id)
        restored.restore(json.loads(json.dumps(state.to_dict())))
        for record in records[half:]:
            restored.apply(record)
        assert restored.to_dict() == live


class Checking(Processor):
    """Rejects the first answer of the last step."""

    id = "checking"

    def process_llm_response(self, response, ctx):
        if "draft" in response.message.text:
            ctx.state["rejected"] = ctx.state.get("rejected", 0) + 1
            ctx.abort("no drafts", retry=True)
        return response

    def process_output(self, output, ctx):
        return output if output.text.endswith("!") else replace(output, text=output.text + "!")



class World:
    """What outlives processes: the store, what the tools did, what the model was asked."""

    def __init__(self, concurrency=1):
        self.runs = StoppingRuns()
        self.did = Counter()  # effects by tool and key
        self.requests = []
        self.concurrency = concurrency
        self.gate = None
        self.last = None  # the Run that was driven last

    # One process.

    def agent(self, runs=None):
        gate = self.gate = threading.Event()
        if runs is None and self.answered() > 3:
            gate.set()
        did = self.did

        @tool(effect="read")
        def look(what: str) -> str:
            """Look at something."""
            return "seen " + what

        @tool
        def charge(amount: int, ctx) -> str:
            """Charge an amount."""
            did["charge", ctx.idempotency_key] += 1
            return "charged %d" % amount

        @tool(require_approval=True, effect="idempotent")
        def refund(order: int, ctx) -> str:
            """Refund an order."""
            did["refund", ctx.idempotency_key] += 1
            return "refunded %d" % order

        @tool
        def interview(topic: str, ctx) -> str:
            """Ask two questions."""
            answers = [ctx.suspend(topic, label="name"), ctx.suspend(topic)]
            did["interview", ctx.idempotency_key] += 1
            return "%s is %d" % tuple(answers)

        @tool(background=True, effect="idempotent")
        def later(job: str, ctx) -> str:
            """Work in the background."""
            assert gate.wait(30)
            return "did " + job

        return Agent("rich", model=ScriptedModel(self.turn), tools=[look, charge, refund, interview, later],
                     runs=runs or self.runs, processors=[Counting(), Checking()], max_recoveries=10 ** 6,
                     tool_concurrency=self.concurrency)

    def turn(self, request):
        self.requests.append(request)
        check_history(request.messages)
        if "was rejected" in request.messages[-1].text:
            self.gate.set()  # from here on the background may be done: it is waited for at the end of this step
            return says("Waiting.")
        return [calls(("look", {"what": "it"}), ("refund", {"order": 7}), ("interview", {"topic": "age"}),
                      ("later", {"job": "it"}), ("nosuch", {}), ("charge", {"amount": 5})),
                calls("look", what="more"), says("A draft."), says("Done.")][answers_of(request)]

    def process(self, stop=None, after=False, snapshot=None):
        """Run until it waits, ends or dies; returns the output, or None if it died."""
        self.runs.countdown, self.runs.after = stop, after
        agent = self.agent(None)
        try:
            if "run-1" in self.runs._runs:
                run, live = agent._execute(None, {}, "run-1", self.decisions())
            else:
                run, live = agent._execute("Do it.", {"run_id": "run-1"})
            self.last = run
            run.lease.run = run
            return agent._drive(run, live)
        except (Stopped, OwnershipLost):  # a sibling may find the journal closed
            return None
        except RunFinished as error:  # it died between the last record of the loop and that of the run's end
            return error.output
        finally:
            if self.last is not None:
                self.last.lease.dead = True  # the process ends, and its threads with it
            self.gate.set()

    def decisions(self):
        state = folded("run-1", self.records())
        return {id: by_kind(item) for id, item in state.suspensions.items() if id not in self.runs.inbox("run-1")}

    def records(self):
        return self.runs.read("run-1") if "run-1" in self.runs._runs else []

    def answered(self):
        return sum(record["status"] == "done" and record["path"].endswith("model-call") for record in self.records())

    def finish(self):
        """Start processes until the run has ended; returns its output."""
        output = self.process()
        while output.finish_reason == "suspended":
            output = self.process()
        assert output.finish_reason == "stop"
        return output

    # What must hold.

    def check(self):
        """No effect of a call twice, no answer asked twice, no question twice, nothing run after its end."""
        assert all(count == 1 for (name, _), count in self.did.items() if name != "refund"), self.did
        ended, asked = set(), Counter()
        for record in self.records():
            path, status = record["path"], record["status"]
            assert path not in ended or status == "noted", "%s was run after its end" % path
            if status == "done":
                ended.add(path)
            elif status == "suspended":
                asked[record["output"]["id"]] += 1
        assert set(asked.values()) <= {1}
        started = sum(record["status"] == "started" and record["path"].endswith("model-call")
                      for record in self.records())
        assert len(self.requests) <= started


def check_history(messages):
    """Every call has exactly one result, right after it, and no result is without its call."""
    due = []
    for message in messages:
        if message.role == "tool":
            assert [part.call_id for part in message.tool_results] == due
            due = []
        else:
            assert not due, "calls without results: %s" % due
            due = [part.call_id for part in message.tool_calls]
    assert not due


def without_unknown(output, others=()):
    """An output without the results of calls whose outcome nobody knows; and the ids of those."""
    data = come_to(output)
    unknown = {part["call_id"] for part in data.get("tool_errors", ()) if part.get("kind") == "unknown-outcome"}

    def kept(value):
        if isinstance(value, dict):
            return {key: kept(item) for key, item in value.items()}
        if isinstance(value, list):
            return [kept(item) for item in value if not (isinstance(item, dict) and item.get("type") == "tool-result"
                                                         and item["call_id"] in unknown | set(others))]
        return value

    return kept(data), unknown


def assert_same_end(world, output, reference):
    mine, unknown = without_unknown(output)
    assert differences(mine, without_unknown(reference, unknown)[0]) == []
    assert unknown <= {"call_1_3", "call_1_6"}  # the two tools whose effect must not be done twice
    world.check()


@pytest.fixture(scope="module")
def reference():
    """A world that was never stopped, and its output."""
    world = World()
    world.runs.checked = True
    output = world.finish()
    world.check()
    return world, output


def test_the_script_has_all_there_is(reference):
    """The run that is stopped everywhere makes every change but those of limits, cuts and aborts."""
    world, output = reference
    assert set(CHANGES) - world.runs.changes == {"ended-early", "tripped"}
    assert output.text == "Done.!"
    assert len(world.requests) == 5
    assert [item["reason"] for item in output.attempts] == ["no drafts"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_stopped_at_any_record_ends_like_an_undisturbed_one(reference, after):
    """Stopped once, before or after each record: same output, nothing lost and nothing done twice."""
    for stop in range(len(reference[0].records())):
        world, left = World(), stop
        output = world.process(left, after)
        while output is not None and output.finish_reason == "suspended":
            left = stop - len(world.records())
            output = world.process(left, after)

        assert output is None
        assert_same_end(world, world.finish(), reference[1])


@pytest.mark.parametrize("every", [3, 4, 5, 7])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_stopped_again_and_again_ends_like_an_undisturbed_one(reference, every, after):
    """Every process dies after a few records until one gets to the end."""
    world, output = World(), None
    for _ in range(200):
        output = world.process(every, after)
        if output is not None and output.finish_reason != "suspended":
            break

    assert_same_end(world, output, reference[1])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_parallel_tools_stopped_at_any_record_end_alike(reference, after):
    """The same with tools in threads, where several calls are in flight when the process dies."""
    quiet = World(concurrency=8)
    quiet.runs.checked = True
    quiet.finish()
    for stop in range(0, len(quiet.records()), 2):
        world = World(concurrency=8)
        output = world.process(stop, after)
        while output is not None and output.finish_reason == "suspended":
            output = world.process(max(0, stop - len(world.records())), after)
        if output is None:
            output = world.finish()

        assert_same_end(world, output, reference[1])


def test_a_snapshot_of_any_moment_goes_on_like_the_records(reference):
    """A run that was stopped after each record goes on from one checkpoint record as it does from all of them."""
    finished = next(record["seq"] for record in reference[0].records() if record["path"].endswith("map-results"))
    for stop in range(1, finished - 1):
        world, left = World(), stop
        output = world.process(left, True)
        while output is not None and output.finish_reason == "suspended":
            left = stop - len(world.records())
            output = world.process(left, True)
        if world.last is None:
            continue
        snapshot = snapshot_of(world.last.journal)
        assert json.loads(json.dumps(snapshot)) == snapshot
        decided = {id: posted["decision"] for id, posted in world.runs.inbox("run-1").items()}

        other = World()
        ended = go_on_from(other, snapshot, decided)

        expected = world.finish()
        unknown = without_unknown(ended)[1] | without_unknown(expected)[1]
        assert differences(without_unknown(ended, unknown)[0], without_unknown(expected, unknown)[0]) == []


def go_on_from(world, snapshot, decided):
    """Resume a snapshot without a store until the run ends."""
    while True:
        agent = world.agent(NullRuns())  # a new agent: what the last one had in the background is lost
        if snapshot["output"]["state"]["attempts"]:
            world.gate.set()
        waiting = [Suspension.from_dict(item) for item in snapshot["output"]["state"]["suspensions"]]
        output = agent.resume(snapshot, {item.id: decided.get(item.id) or by_kind(item) for item in waiting})
        if output.finish_reason == "stop":
            return output
        assert output.finish_reason == "suspended"
        snapshot = output.snapshot
