"""The contract of run stores as tests: every member of the family inherits the classes that hold for it.

Not here: what only one member has, such as files.
"""

import gc
import os
import subprocess
import sys
import threading
from hashlib import sha256

import pytest

from minagent.errors import (
    AlreadyDecided,
    ConfigError,
    EncodeError,
    InvalidDecision,
    OwnershipLost,
    RunBusy,
    RunCorrupt,
    RunError,
    RunFinished,
    RunNotFound,
    RunTooNew,
    UnknownSuspension,
)
from minagent.results import Answer, Approve, Decline
from minagent.runs import records
from minagent.testing import FrozenClock
from minagent.workflow import Engine, ForEach, Journal, Step, Suspend

NUMBER = {"type": "integer"}
BAD_IDS = ["", "A", "a/b", "../a", ".a", "-a", "a.b", "a" * 65, "con", "com1", "ä", "a\n", None, 7]


def created(agent="support", at=1000.0, **about):
    """Return the first record of a run."""
    return {"seq": 1, "at": at, "epoch": 1, "path": "", "status": "created",
            "output": dict(about, schema=1, agent=agent)}


def following(lease, seq, status="done", path="w/a", at=1000.0, **members):
    """Return a record that a lease may take."""
    return dict(members, seq=seq, at=at, epoch=lease.epoch, path=path, status=status)


def asking(*asked):
    """Return a workflow that suspends once for each given set of members of a suspension."""
    ask = Step("ask", lambda ctx, about: ctx.suspend(None, **about))
    return ForEach("asked", ask, lambda value: list(asked))


def suspend(store, run_id, *asked, **about):
    """Make a run that waits, and return the ids of its suspensions."""
    with store.create(run_id, created(**about)) as lease:
        return run(lease, asking(*asked))


def run(lease, workflow, decisions=(), now=lambda: 1000.0):
    """Drive a workflow under a lease; return the ids of what it waits for."""
    engine = Engine(Journal(lease, now=now))
    engine.decide(dict(decisions))
    try:
        engine.run(workflow)
    except Suspend as suspended:
        return [item["id"] for item in suspended.suspensions]
    return []


def finish(lease):
    """Record that the run has ended."""
    Journal(lease, now=lambda: 1000.0).append_run("completed", {"finish_reason": "stop"})


def at_once(count, work):
    """Call `work(index)` in as many threads at the same moment; return results and exceptions in order."""
    gate = threading.Barrier(count)
    results = [None] * count

    def call(index):
        gate.wait()
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=call, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Child:
    """Another process that runs a script; `store` is the run store in it, and `say` and `hear` talk to us."""

    PRELUDE = ("import os, sys\n"
               "from minagent.runs import JsonFileRuns\n"
               "from minagent.results import Answer\n"
               "from minagent.errors import *\n"
               "def say(word): sys.stdout.write('%s\\n' % (word,)); sys.stdout.flush()\n"
               "def hear(): return sys.stdin.readline().strip()\n")

    def __init__(self, opening, script, *arguments, **environment):
        script = self.PRELUDE + "store = %s\n" % opening + script
        path = os.pathsep.join(part for part in sys.path if part)
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-c", script] + list(arguments), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=path, **environment))

    def hear(self):
        return self.process.stdout.readline().decode().strip()

    def tell(self, word="go"):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()  # who still listens ends
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()


def children_at_once(opening, count, script):
    """Run a script in several processes at the same moment; return the one word that each says."""
    children = [Child(opening, "say('ready'); hear()\n" + script) for _ in range(count)]
    try:
        assert [child.hear() for child in children] == ["ready"] * count
        for child in children:
            child.tell()
        return [child.hear() for child in children]
    finally:
        for child in children:
            child.__exit__()


class LeaseContract:
    """What every member keeps, also the one that keeps nothing.  A subclass has the fixture `store`."""

    @pytest.fixture
    def clock(self):
        return FrozenClock(1000.0)

    def test_a_new_run_is_owned_in_its_first_epoch(self, store):
        """The lease of a new run holds its first record."""
        with store.create("r1", created(prompt="Grüße")) as lease:
            assert (lease.run_id, lease.epoch, lease.records) == ("r1", 1, [created(prompt="Grüße")])
            lease.append(following(lease, 2, output={"text": "…"}))
            lease.sync()
            lease.head({"status": "running"})

    @pytest.mark.parametrize("run_id", BAD_IDS)
    def test_an_id_that_is_no_name_everywhere_is_refused(self, store, run_id):
        """Ids are checked before anything else, by every method."""
        for method in (store.acquire, store.read, store.status, store.inbox, store.cancel, store.delete,
                       lambda run_id: store.create(run_id, created()),
                       lambda run_id: store.decide(run_id, "s", Approve()),
                       lambda run_id: store.get_blob(run_id, "0" * 64)):
            with pytest.raises(ConfigError, match="run_id is"):
                method(run_id)

    def test_a_run_that_is_not_there_is_not_found(self, store):
        """Every method says so, and names the run."""
        for method in (store.acquire, store.read, store.status, store.inbox, store.cancel, store.delete,
                       lambda run_id: store.decide(run_id, "s", Approve()),
                       lambda run_id: store.get_blob(run_id, "0" * 64)):
            with pytest.raises(RunNotFound, match="run r1 ") as caught:
                method("r1")
            assert caught.value.run_id == "r1"

    def test_an_empty_store_has_nothing_to_show(self, store):
        """Nothing is listed, and nothing waits."""
        assert store.list() == [] and store.list().cursor is None
        assert store.suspensions() == []
        assert store.prune(0) == []

    def test_a_completion_of_the_owners_own_thread_is_in_the_inbox(self, store):
        """What is posted is there with its time, once for each id."""
        with store.create("r1", created()) as lease:
            assert lease.inbox() == {}
            lease.post("b1", Answer({"rows": 3}))
            lease.post("b2", {"type": "decline", "reason": "no luck"})
            assert lease.inbox()["b1"]["decision"] == {"type": "answer", "value": {"rows": 3}}
            assert lease.inbox()["b2"]["decision"] == {"type": "decline", "reason": "no luck"}
            assert lease.inbox()["b1"]["at"] == 1000.0
            with pytest.raises(AlreadyDecided) as caught:
                lease.post("b1", Answer(4))
            assert caught.value.decision == {"type": "answer", "value": {"rows": 3}}
            assert lease.inbox()["b1"]["decision"]["value"] == {"rows": 3}

    def test_a_waiting_owner_wakes_when_something_is_posted(self, store):
        """Waiting ends with a post or a cancel of this process, before or during the wait."""
        with store.create("r1", created()) as lease:
            lease.post("b1", Answer(1))
            lease.wait_inbox(60)
            poster = threading.Timer(0.02, lambda: lease.post("b2", Answer(2)))
            poster.start()
            lease.wait_inbox(60)
            poster.join()
            assert sorted(lease.inbox()) == ["b1", "b2"]
            store.cancel("r1")
            lease.wait_inbox(60)
            lease.wait_inbox(0.001)

    def test_a_cancel_is_seen_by_the_owner(self, store):
        """It stays seen as long as that lease lives."""
        with store.create("r1", created()) as lease:
            assert not lease.cancel_asked()
            store.cancel("r1")
            assert lease.cancel_asked()
            assert lease.cancel_asked()

    def test_blobs_are_kept_as_long_as_the_lease_at_least(self, store):
        """Bytes come back by their SHA-256, and a lost one is told."""
        with store.create("r1", created()) as lease:
            sha = lease.put_blob(b"\x00frame")
            assert sha == sha256(b"\x00frame").hexdigest()
            assert lease.put_blob(b"\x00frame") == sha
            assert lease.get_blob(sha) == b"\x00frame"
            for lost in ("0" * 64, "../../etc/passwd"):
                with pytest.raises(RunCorrupt, match="blob"):
                    lease.get_blob(lost)

    def test_releasing_again_is_harmless(self, store):
        """A lease can be released by whoever cleans up."""
        lease = store.create("r1", created())
        lease.release()
        lease.release()


class RunsContract(LeaseContract):
    """What every member keeps that keeps runs."""

    # Making and owning.

    def test_a_run_is_read_back_as_it_was_written(self, store):
        """Also by somebody who does not own it, while it is owned and after."""
        with store.create("r1", created(prompt="hi")) as lease:
            lease.append(following(lease, 2, output={"n": [1, 2.5, None, True]}, changes=[{"type": "x"}]))
            during = store.read("r1")
        second = following(lease, 2, output={"n": [1, 2.5, None, True]}, changes=[{"type": "x"}])
        assert during == store.read("r1") == [created(prompt="hi"), second]

    def test_an_id_is_taken_once(self, store):
        """Creating a run that exists gives no lease and changes nothing, whether it is owned or not."""
        with store.create("r1", created(prompt="first")):
            assert store.create("r1", created(prompt="second")) is None
        assert store.create("r1", created(prompt="third")) is None
        assert [record["output"]["prompt"] for record in store.read("r1")] == ["first"]
        store.acquire("r1").release()

    def test_of_threads_that_create_one_run_one_gets_it(self, store):
        """Create-or-get decides between 8 threads."""
        leases = at_once(8, lambda index: store.create("r1", created(n=index)))
        won = [lease for lease in leases if lease is not None]
        assert len(won) == 1
        assert store.read("r1") == won[0].records
        won[0].release()

    def test_an_owned_run_is_busy(self, store):
        """One owner at a time; a released run can be taken up."""
        with store.create("r1", created()):
            with pytest.raises(RunBusy, match="r1"):
                store.acquire("r1")
            assert store.status("r1") == "running"
        with store.acquire("r1"):
            with pytest.raises(RunBusy):
                store.acquire("r1")
        assert store.status("r1") == "interrupted"

    def test_of_threads_that_take_up_one_run_one_gets_it(self, store):
        """Exactly one wins, whoever else just looks."""
        store.create("r1", created()).release()
        results = at_once(8, lambda index: store.status("r1") if index % 4 == 3 else store.acquire("r1"))
        contenders = [result for index, result in enumerate(results) if index % 4 != 3]
        won = [result for result in contenders if not isinstance(result, Exception)]
        assert len(won) == 1
        assert all(isinstance(result, RunBusy) for result in contenders if result is not won[0])
        won[0].release()

    def test_a_lease_that_nobody_has_any_more_owns_nothing(self, store):
        """An exception may have come before its owner could note it, or it went away with a group of objects."""
        lease = store.create("r1", created())
        assert store.status("r1") == "running"
        del lease
        assert store.status("r1") == "interrupted"
        lease = store.acquire("r1")
        lease.append(following(lease, 2))
        lease.circle = lease
        del lease
        gc.collect()
        assert store.status("r1") == "interrupted"
        with store.acquire("r1") as lease:
            assert len(lease.records) == 2
            with pytest.raises(RunBusy):
                store.acquire("r1")
        store.delete("r1")

    def test_each_ownership_has_a_higher_epoch(self, store):
        """The epoch counts owners, and records of another one are refused."""
        store.create("r1", created()).release()
        for epoch in (2, 3):
            with store.acquire("r1") as lease:
                assert lease.epoch == epoch
                with pytest.raises(OwnershipLost, match="two writers"):
                    lease.append(dict(following(lease, epoch), epoch=epoch - 1))
                lease.append(following(lease, epoch, "owned", ""))
        assert [record["epoch"] for record in store.read("r1")] == [1, 2, 3]

    def test_a_released_lease_writes_nothing(self, store):
        """Late threads of an owner who left are refused."""
        lease = store.create("r1", created())
        lease.release()
        with store.acquire("r1"):
            for late in (lambda: lease.append(following(lease, 2)), lease.sync, lambda: lease.put_blob(b"x")):
                with pytest.raises(OwnershipLost, match="acquire"):
                    late()
            lease.release()  # and it does not release the new owner's
            with pytest.raises(RunBusy):
                store.acquire("r1")
        assert len(store.read("r1")) == 1

    def test_a_record_out_of_turn_is_refused(self, store):
        """Numbers follow each other; nothing of a refused record is kept."""
        with store.create("r1", created()) as lease:
            for seq in (1, 3):
                with pytest.raises(OwnershipLost):
                    lease.append(following(lease, seq))
            lease.append(following(lease, 2))
        assert [record["seq"] for record in store.read("r1")] == [1, 2]

    def test_an_interrupt_between_two_lines_doubles_no_record(self, store):
        """Wherever a Ctrl-C strikes, a record is kept wholly or not at all, and the run can be taken up."""
        class Striking(dict):
            def get(self, key, default=None):
                if key == "at":
                    raise KeyboardInterrupt
                return super().get(key, default)

        with store.create("r1", created()) as lease:
            try:
                lease.append(Striking(following(lease, 2)))
            except KeyboardInterrupt:
                pass
            with pytest.raises(RunError):
                lease.append(following(lease, 2))
        with store.acquire("r1") as lease:
            assert [record["seq"] for record in lease.records] == [1, 2]
            lease.append(following(lease, 3))

    def test_a_record_that_is_no_json_is_refused(self, store):
        """Nothing of it is kept, and the next one is taken."""
        with store.create("r1", created()) as lease:
            for value in (object(), {1, 2}, float("nan"), b"x"):
                with pytest.raises(EncodeError):
                    lease.append(following(lease, 2, output=value))
            lease.append(following(lease, 2, output="plain"))
        with pytest.raises(EncodeError):
            store.create("r2", created(value=object()))
        assert store.create("r2", created()) is not None
        assert [record.get("output") for record in store.read("r1")][1:] == ["plain"]

    def test_nothing_aliases_what_was_recorded(self, store):
        """Changing a record after it was kept, or one that was read, changes nothing."""
        first = created(items=[1])
        with store.create("r1", first) as lease:
            first["output"]["items"].append(2)
            record = following(lease, 2, output=[1])
            lease.append(record)
            record["output"].append(2)
            store.read("r1")[1]["output"].append(3)
            lease.records[0]["output"]["items"].append(4)
        assert [record["output"] for record in store.read("r1")] == [created(items=[1])["output"], [1]]

    @pytest.mark.parametrize("text", [
        "\u2028\u2029\x85", "line\nend\r\n", "\x00\x1f\x7f", "日本語 🎉", "\ud800 half",
        '","crc":"00000000"}', "\ufeff"])
    def test_any_text_survives(self, store, text):
        """Line separators, control characters, halves of pairs, and what looks like our own marks."""
        with store.create("r1", created(prompt=text)) as lease:
            lease.append(following(lease, 2, output={text: [text]}))
            lease.head({"text": text})
        first, second = store.read("r1")
        assert (first, second["output"]) == (created(prompt=text), {text: [text]})
        store.acquire("r1").release()
        assert store.list()[0]["text"] == text

    def test_ten_thousand_records(self, store):
        """A long run is read back whole and in order."""
        with store.create("r1", created()) as lease:
            for seq in range(2, 10001):
                lease.append(following(lease, seq, path="w/%d/a" % seq, output="x" * 20))
            lease.sync()
        again = store.acquire("r1")
        assert [record["seq"] for record in again.records] == list(range(1, 10001))
        assert store.status("r1") == "running"

    def test_threads_that_record_lose_nothing(self, store):
        """Eight threads of one owner append and sync through one journal."""
        lease = store.create("r1", created())
        journal = Journal(lease)
        places = [journal.root.child("t%d" % index) for index in range(8)]

        def work(index):
            for number in range(10):
                journal.append(places[index], "done", number, sync=True)

        assert at_once(8, work) == [None] * 8
        lease.release()
        kept = store.read("r1")[1:]
        assert [record["seq"] for record in kept] == list(range(2, 82))
        for index in range(8):
            assert [r["output"] for r in kept if r["path"] == "t%d" % index] == list(range(10))

    def test_a_run_of_a_newer_version_is_refused(self, store, monkeypatch):
        """The format's number is in the first record; such a run is not owned, and still listed."""
        older = created()
        older["output"]["schema"] = 0
        store.create("r1", older).release()
        store.create("r2", created()).release()
        monkeypatch.setattr(records, "SCHEMA", 0)
        with pytest.raises(RunTooNew):
            store.create("r3", created())
        for method in (store.acquire, store.acquire, store.read, store.status):
            with pytest.raises(RunTooNew, match="run r2 was recorded in format 1") as caught:
                method("r2")
            assert caught.value.run_id == "r2"
        assert {head["run_id"]: (head.get("error") or {}).get("type") for head in store.list()} == {
            "r1": None, "r2": "RunTooNew"}
        assert store.suspensions() == []

    def test_a_run_may_begin_with_a_checkpoint(self, store):
        """What is open in the checkpoint can be decided, and its epoch is counted on."""
        with store.create("r0", created()) as lease:
            journal = Journal(lease)
            with pytest.raises(Suspend) as caught:
                Engine(journal).run(asking({"kind": "approval"}))
            checkpoint = dict(journal.checkpoint(), seq=7, epoch=3)
        state = {"background": {"b1": {"id": "b1", "name": "report"}}, "options": {"metadata": {"job": 1}}}
        checkpoint["output"].update(schema=1, agent="a", state=state)
        store.create("r1", checkpoint).release()
        assert [item["id"] for item in store.suspensions("a")] == [caught.value.suspensions[0]["id"], "b1"]
        assert store.list(metadata={"job": 1})[0]["agent"] == "a"
        store.decide("r1", "b1", Answer(1))
        key = caught.value.suspensions[0]["id"]
        assert store.status("r1") == "waiting"
        store.decide("r1", key, Approve())
        with store.acquire("r1") as lease:
            assert (lease.epoch, sorted(lease.inbox())) == (4, sorted([key, "b1"]))
            lease.append(following(lease, 8, "owned", ""))

    # How a run stands.

    def test_a_run_is_waiting_until_all_is_decided(self, store):
        """Partial decisions leave it waiting; with the last one it is to be resumed."""
        first, second = suspend(store, "r1", {"kind": "approval"}, {"kind": "tool"})
        assert store.status("r1") == "waiting"
        store.decide("r1", second, Answer(1))
        assert store.status("r1") == "waiting"
        assert [item["id"] for item in store.suspensions()] == [first]
        store.decide("r1", first, Decline("no"))
        assert (store.status("r1"), store.suspensions()) == ("interrupted", [])

    def test_an_expired_suspension_waits_for_nobody(self, store, clock):
        """It counts as declined, so that the run is to be resumed."""
        suspend(store, "r1", {"kind": "approval", "expires_at": 1010.0})
        clock.advance(9)
        assert (store.status("r1"), len(store.suspensions())) == ("waiting", 1)
        clock.advance(1)
        assert (store.status("r1"), store.suspensions()) == ("interrupted", [])

    def test_a_run_that_was_left_for_its_background_tasks_is_waiting(self, store):
        """They are listed as suspensions; a run that was killed with open tasks is interrupted."""
        task = {"id": "b1", "call_id": "c1", "name": "report", "args": {"n": 1}, "step": 1}
        with store.create("r1", created()) as lease:
            lease.append(following(lease, 2, output={"background": task}, changes=[{"type": "background-opened"}]))
        assert (store.status("r1"), store.suspensions()) == ("interrupted", [])
        with store.acquire("r1") as lease:
            lease.append(following(lease, 3, "owned", ""))
            lease.append(following(lease, 4, "noted", signal="Suspend"))
        assert store.status("r1") == "waiting"
        (listed,) = store.suspensions()
        assert {name: value for name, value in listed.items() if value} == {
            "id": "b1", "kind": "background", "call_id": "c1", "tool_name": "report", "args": {"n": 1},
            "created_at": 1000.0, "run_id": "r1"}
        store.decide("r1", "b1", Answer(1))
        assert (store.status("r1"), store.suspensions()) == ("interrupted", [])

    def test_a_run_that_ended_is_finished(self, store):
        """Whatever it was before, and also while its lease is held."""
        suspend(store, "r1", {"kind": "tool"})
        with store.acquire("r1") as lease:
            finish(lease)
            assert store.status("r1") == "finished"
        assert store.status("r1") == "finished"
        assert store.suspensions() == []

    def test_a_run_that_was_ended_early_is_interrupted(self, store):
        """Its open suspensions are shown again when its next owner has left it with them."""
        suspend(store, "r1", {"kind": "tool"})
        with store.acquire("r1") as lease:
            journal = Journal(lease)
            journal.append_run("owned")
            journal.append(journal.root.child("x"), "noted", None, [{"type": "ended-early"}])
        assert (store.status("r1"), store.suspensions()) == ("interrupted", [])
        with store.acquire("r1") as lease:
            Journal(lease).append_run("owned")
        assert store.status("r1") == "waiting"
        assert len(store.suspensions()) == 1

    # Decisions.

    def test_a_decision_is_kept_with_its_time(self, store, clock):
        """The owner finds it in the inbox, also after it was taken up."""
        key, = suspend(store, "r1", {"kind": "approval"})
        clock.advance(5)
        store.decide("r1", key, Approve({"n": 1}, by="ann"))
        kept = {"id": key, "decision": {"type": "approve", "args": {"n": 1}, "by": "ann"}, "at": 1005.0}
        assert store.inbox("r1") == {key: kept}
        with store.acquire("r1") as lease:
            assert lease.inbox() == {key: kept}
            assert run(lease, asking({"kind": "approval"}), [(key, kept["decision"])]) == []
            assert lease.inbox() == {key: kept}
        with pytest.raises(AlreadyDecided) as caught:
            store.decide("r1", key, Decline())
        assert caught.value.decision == kept["decision"]

    def test_a_decision_is_taken_once(self, store):
        """A second one is refused, equal or not, and carries the first."""
        key, = suspend(store, "r1", {"kind": "approval"})
        store.decide("r1", key, {"type": "decline", "reason": "too much"})
        for again in (Approve(), Decline("too much")):
            with pytest.raises(AlreadyDecided, match=key) as caught:
                store.decide("r1", key, again)
            assert caught.value.decision == {"type": "decline", "reason": "too much"}
            assert caught.value.run_id == "r1"

    def test_of_threads_that_decide_one_suspension_one_counts(self, store):
        """Of 8 one is kept; the others carry that one."""
        key, = suspend(store, "r1", {"kind": "tool"})
        results = at_once(8, lambda index: store.decide("r1", key, Answer(index)))
        won, = [index for index, result in enumerate(results) if result is None]
        assert store.inbox("r1")[key]["decision"] == {"type": "answer", "value": won}
        losers = [result for result in results if result is not None]
        assert all(isinstance(error, AlreadyDecided) and error.decision["value"] == won for error in losers)

    def test_an_owned_run_can_be_decided(self, store):
        """Its owner is woken."""
        with store.create("r1", created()) as lease:
            first, second = run(lease, asking({"kind": "tool"}, {"kind": "tool"}))
            store.decide("r1", second, Answer(None))
            lease.wait_inbox(60)
            assert lease.inbox()[second]["decision"] == {"type": "answer", "value": None}
            assert [item["id"] for item in store.suspensions()] == [first]

    def test_an_unknown_suspension_is_refused(self, store):
        """The error lists what is open; nothing is kept."""
        first, second = suspend(store, "r1", {"kind": "tool"}, {"kind": "tool"})
        store.decide("r1", first, Answer(1))
        with pytest.raises(UnknownSuspension, match="no open suspension 'other'; open are: %s$" % second):
            store.decide("r1", "other", Answer(1))
        assert list(store.inbox("r1")) == [first]

    def test_a_finished_run_takes_no_decision(self, store):
        """What was decided before is AlreadyDecided, everything else RunFinished."""
        first, second = suspend(store, "r1", {"kind": "tool"}, {"kind": "tool"})
        store.decide("r1", first, Answer(1))
        with store.acquire("r1") as lease:
            finish(lease)
        with pytest.raises(AlreadyDecided):
            store.decide("r1", first, Answer(1))
        with pytest.raises(RunFinished):
            store.decide("r1", second, Answer(1))

    def test_a_decision_that_came_without_the_inbox_counts_too(self, store):
        """One that the owner recorded at once is as used as any."""
        key, = suspend(store, "r1", {"kind": "tool"})
        with store.acquire("r1") as lease:
            run(lease, asking({"kind": "tool"}), [(key, {"type": "answer", "value": 5})])
        with pytest.raises(AlreadyDecided) as caught:
            store.decide("r1", key, Answer(6))
        assert caught.value.decision == {"type": "answer", "value": 5}

    @pytest.mark.parametrize("about, decision, told", [
        ({"kind": "tool", "resume_schema": NUMBER}, Answer("x"), "expected integer"),
        ({"kind": "tool", "resume_schema": NUMBER}, Approve(), "cannot take Approve"),
        ({"kind": "elicitation"}, Approve(), "use Answer"),
        ({"kind": "approval", "resume_schema": {"properties": {"n": NUMBER}}}, Approve({"n": "x"}), r"\$.n"),
        ({"kind": "approval"}, Approve([1]), "Approve.args"),
        ({"kind": "approval"}, {"type": "approve", "arguments": {}}, "'arguments'"),
        ({"kind": "approval"}, {"type": "maybe"}, "expected Approve"),
        ({"kind": "approval"}, True, "expected Approve"),
        ({"kind": "tool"}, Answer(object()), "cannot be kept"),
        ({"kind": "approval", "expires_at": 1000.0}, Approve(), "expired"),
    ])
    def test_a_decision_that_does_not_fit_is_refused(self, store, about, decision, told):
        """The suspension stays open, and a fitting decision is taken."""
        key, = suspend(store, "r1", about)
        before = store.status("r1")
        with pytest.raises(InvalidDecision, match=told):
            store.decide("r1", key, decision)
        assert store.status("r1") == before and store.inbox("r1") == {}
        store.decide("r1", key, Decline())

    def test_a_misfit_names_the_place(self, store):
        """`problems` holds the path inside the answer."""
        key, = suspend(store, "r1", {"kind": "tool", "resume_schema": {"properties": {"n": NUMBER}}})
        with pytest.raises(InvalidDecision) as caught:
            store.decide("r1", key, Answer({"n": "x"}))
        assert [path for path, _ in caught.value.problems] == ["$.n"]

    @pytest.mark.parametrize("about, decision", [
        ({"kind": "tool", "resume_schema": NUMBER}, Answer(1)),
        ({"kind": "tool", "resume_schema": NUMBER}, Decline()),
        ({"kind": "approval", "resume_schema": {"required": ["n"]}}, Approve()),
        ({"kind": "approval", "resume_schema": {"required": ["n"]}}, Approve({"n": 1})),
        ({"kind": "approval", "resume_schema": {"required": ["n"]}}, Answer("instead")),
        ({"kind": "unknown-outcome"}, Approve()),
        ({"kind": "approval", "expires_at": 1000.5}, Approve()),
    ])
    def test_a_decision_that_fits_is_taken(self, store, about, decision):
        """Arguments of an approval are checked if they are given, an answer instead of the call never."""
        key, = suspend(store, "r1", about)
        store.decide("r1", key, decision)
        assert store.status("r1") == "interrupted"

    def test_a_background_task_is_decided_while_it_is_open(self, store):
        """It takes an answer or a decline, before the record that closes it."""
        with store.create("r1", created()) as lease:
            for seq, key in ((2, "b1"), (3, "b2"), (4, "b3")):
                lease.append(following(lease, seq, output={"background": {"id": key, "tool_name": "report"}},
                                       changes=[{"type": "background-opened"}]))
            store.decide("r1", "b1", Answer([1]))
            with pytest.raises(InvalidDecision, match="background"):
                store.decide("r1", "b2", Approve())
            store.decide("r1", "b2", Decline("failed"))
            lease.append(following(lease, 5, changes=[{"type": "background-closed", "id": "b1"},
                                                      {"type": "background-closed", "id": "b3"}]))
            with pytest.raises(AlreadyDecided):
                store.decide("r1", "b1", Answer([1]))
            with pytest.raises(UnknownSuspension):
                store.decide("r1", "b3", Answer([1]))

    # Lists.

    def test_suspensions_are_found_by_agent_and_age(self, store, clock):
        """Each comes as a dict with its run."""
        suspend(store, "r1", {"kind": "approval", "tool_name": "refund"}, agent="a")
        suspend(store, "r2", {"kind": "tool"}, {"kind": "tool"}, agent="b")
        with store.create("r3", created()) as lease:
            finish(lease)
        found, = store.suspensions(agent="a")
        assert (found["run_id"], found["kind"], found["tool_name"]) == ("r1", "approval", "refund")
        assert [item["run_id"] for item in store.suspensions()].count("r2") == 2
        assert store.suspensions(older_than=1) == []
        clock.advance(1)
        assert len(store.suspensions(older_than=1)) == 3

    def test_runs_are_listed_newest_first(self, store, clock):
        """With what their owner showed, and their true status."""
        for number in (2, 1, 3):
            with store.create("r%d" % number, created("a%d" % number, 1000.0 + number)) as lease:
                lease.head({"status": "running", "position": "step %d" % number})
        with store.acquire("r1") as lease:
            finish(lease)
            lease.head({"status": "finished", "position": "end"})
        suspend(store, "r4", {"kind": "tool"}, at=1004.0, resource_id="ann", metadata={"job": 7, "x": 1})
        lease = store.acquire("r3")
        heads = store.list()
        lease.release()
        assert [(h["run_id"], h["status"], h.get("position")) for h in heads] == [
            ("r4", "waiting", None), ("r3", "running", "step 3"), ("r2", "interrupted", "step 2"),
            ("r1", "finished", "end")]
        assert (heads[3]["agent"], heads[3]["created_at"], heads[3]["updated_at"]) == ("a1", 1001.0, 1000.0)
        for filters, found in (({"status": "finished"}, ["r1"]), ({"agent": "a2"}, ["r2"]),
                               ({"resource_id": "ann"}, ["r4"]), ({"metadata": {"job": 7}}, ["r4"]),
                               ({"metadata": {"job": 8}}, []), ({"status": "waiting", "agent": "a2"}, [])):
            assert [head["run_id"] for head in store.list(**filters)] == found
        assert [head["run_id"] for head in store.list(older_than=0)] == ["r4", "r1"]
        clock.advance(2.5)
        assert [head["run_id"] for head in store.list(older_than=0)] == ["r4", "r2", "r1"]

    def test_a_list_is_read_in_pages(self, store):
        """A cursor goes on where a page ended, though runs come and go meanwhile."""
        for number in range(7):
            store.create("r%d" % number, created(at=1000.0 + number // 2)).release()
        seen, cursor, pages = [], None, 0
        while True:
            page = store.list(limit=3, cursor=cursor)
            seen.extend(head["run_id"] for head in page)
            pages, cursor = pages + 1, page.cursor
            if cursor is None:
                break
            store.create("new%d" % pages, created(at=2000.0)).release()
            store.delete(seen[-1])
        assert (seen, pages) == (["r6", "r5", "r4", "r3", "r2", "r1", "r0"], 3)

    def test_a_list_that_cannot_be_is_refused(self, store):
        """A status is one of four words, a page holds one run at least."""
        for wrong in ({"status": "done"}, {"limit": 0}):
            with pytest.raises(ConfigError):
                store.list(**wrong)

    def test_who_left_shows_nothing_more(self, store):
        """The head is the owner's; to write it without owning the run does nothing."""
        lease = store.create("r1", created())
        lease.head({"position": "first"})
        lease.release()
        lease.head({"position": "late"})
        assert store.list()[0]["position"] == "first"

    def test_a_deleted_run_is_gone(self, store):
        """Its id can be used again; an owned run is not deleted."""
        with store.create("r1", created(n=1)) as lease:
            lease.put_blob(b"x")
            with pytest.raises(RunBusy):
                store.delete("r1")
        store.delete("r1")
        with pytest.raises(RunNotFound):
            store.read("r1")
        assert store.list() == []
        store.create("r1", created(n=2)).release()
        assert store.read("r1")[0]["output"]["n"] == 2

    def test_old_runs_are_pruned(self, store, clock):
        """Only finished ones unless told otherwise, and none that is owned."""
        for run_id in ("r1", "r2", "r3"):
            with store.create(run_id, created()) as lease:
                if run_id != "r3":
                    finish(lease)
        assert store.prune(10) == []
        clock.advance(10)
        with store.acquire("r2"):
            assert store.prune(10) == ["r1"]
        assert store.prune(10, "interrupted") == ["r3"]
        assert [head["run_id"] for head in store.list()] == ["r2"]

    # Cancelling and blobs.

    def test_a_cancel_is_for_one_owner(self, store):
        """Who owns the run next sees what was asked before, and who comes after that does not."""
        store.create("r1", created()).release()
        store.cancel("r1")
        store.cancel("r1")
        with store.acquire("r1") as lease:
            assert lease.cancel_asked()
        with store.acquire("r1") as lease:
            assert not lease.cancel_asked()
            finish(lease)
        store.cancel("r1")
        with store.acquire("r1") as lease:
            assert not lease.cancel_asked()

    def test_a_cancel_is_not_used_up_by_who_left(self, store):
        """A lease that was released does not take the request from the next."""
        lease = store.create("r1", created())
        lease.release()
        store.cancel("r1")
        assert not lease.cancel_asked()
        with store.acquire("r1") as lease:
            assert lease.cancel_asked()

    def test_blobs_outlive_the_lease(self, store):
        """They can be read by the next owner, and without owning the run."""
        with store.create("r1", created()) as lease:
            sha = lease.put_blob(b"a" * 100000)
            lease.sync()
        assert store.get_blob("r1", sha) == b"a" * 100000
        with store.acquire("r1") as lease:
            assert lease.get_blob(sha) == store.get_blob("r1", lease.put_blob(b"a" * 100000))
        with pytest.raises(RunCorrupt):
            store.get_blob("r1", "0" * 64)


class ProcessesContract(RunsContract):
    """What a member keeps that several processes share.  A subclass has the fixture `opening`, its source."""

    def test_of_processes_that_create_one_run_one_gets_it(self, store, opening):
        """Create-or-get decides between 4 processes."""
        script = ("first = {'seq': 1, 'at': 1.0, 'epoch': 1, 'path': '', 'status': 'created',\n"
                  "         'output': {'pid': os.getpid()}}\n"
                  "lease = store.create('r1', first)\n"
                  "say('none' if lease is None else os.getpid()); hear()\n")
        words = children_at_once(opening, 4, script)
        won, = [word for word in words if word != "none"]
        assert store.read("r1")[0]["output"]["pid"] == int(won)

    def test_of_processes_that_take_up_one_run_one_gets_it(self, store, opening):
        """Exactly one wins, the others are told that it is busy."""
        store.create("r1", created()).release()
        script = ("try: lease = store.acquire('r1'); say('won'); hear()\n"
                  "except RunBusy: say('busy')\n")
        assert sorted(children_at_once(opening, 4, script)) == ["busy", "busy", "busy", "won"]

    def test_of_processes_that_decide_one_suspension_one_counts(self, store, opening):
        """Exactly one decision is kept; the others carry it."""
        key, = suspend(store, "r1", {"kind": "tool"})
        script = ("try: store.decide('r1', %r, Answer(os.getpid())); say(os.getpid())\n"
                  "except AlreadyDecided as error: say('after %%d' %% error.decision['value'])\n") % key
        words = children_at_once(opening, 4, script)
        won = store.inbox("r1")[key]["decision"]["value"]
        assert sorted(words) == sorted([str(won)] + ["after %d" % won] * 3)

    def test_another_process_that_owns_a_run_keeps_it_until_it_dies(self, store, opening):
        """It is busy, even while its owner is stopped; a kill frees it, and what was appended is there."""
        script = ("lease = store.acquire('r1')\n"
                  "lease.append({'seq': 2, 'at': 2.0, 'epoch': 2, 'path': '', 'status': 'owned'})\n"
                  "say('owned'); hear()\n")
        store.create("r1", created()).release()
        with Child(opening, script) as child:
            assert child.hear() == "owned"
            os.kill(child.process.pid, 19)  # SIGSTOP
            with pytest.raises(RunBusy, match="process %d" % child.process.pid):
                store.acquire("r1")
            assert store.status("r1") == "running"
            with pytest.raises(RunBusy):
                store.delete("r1")
            child.kill()
            with store.acquire("r1") as lease:
                assert (lease.epoch, len(lease.records)) == (3, 2)

    def test_a_run_is_read_while_another_process_writes_it(self, store, opening):
        """A reader sees whole records only, each time at least as many as before."""
        script = ("lease = store.acquire('r1'); say('owned'); hear()\n"
                  "for seq in range(2, 3002):\n"
                  "    lease.append({'seq': seq, 'at': 2.0, 'epoch': 2, 'path': 'a', 'status': 'noted',\n"
                  "                  'output': 'ä' * (seq % 3000)})\n"
                  "say('done')\n")
        store.create("r1", created()).release()
        with Child(opening, script) as child:
            assert child.hear() == "owned"
            child.tell()
            seen = 0
            while seen < 3001:
                found = store.read("r1")
                assert len(found) >= seen
                seen = len(found)
                assert [record["seq"] for record in found] == list(range(1, seen + 1))
            assert child.hear() == "done"

    def test_an_owner_in_another_process_sees_cancel_and_decision(self, store, opening):
        """Both come through the store alone."""
        key, = suspend(store, "r1", {"kind": "tool"})
        script = ("lease = store.acquire('r1'); say('owned'); hear()\n"
                  "say(lease.inbox()[%r]['decision']['value']); say(lease.cancel_asked()); hear()\n") % key
        with Child(opening, script) as child:
            assert child.hear() == "owned"
            store.decide("r1", key, Answer(42))
            store.cancel("r1")
            child.tell()
            assert [child.hear(), child.hear()] == ["42", "True"]
