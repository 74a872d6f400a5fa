"""Every run store against its contract."""

import json

import pytest
from runs_contract import LeaseContract, ProcessesContract, RunsContract, asking, created, run

from minagent.errors import OwnershipLost, RunNotFound
from minagent.runs import JsonFileRuns, MemoryRuns, NullRuns
from minagent.workflow import Engine, Journal, Suspend


class TestNullRuns(LeaseContract):
    @pytest.fixture
    def store(self, clock):
        return NullRuns(clock.time)

    def test_no_run_is_found_again(self, store):
        """The error says that there is no store, and how to have one."""
        store.create("r1", created()).release()
        for method in (store.acquire, store.read, store.status, store.cancel):
            with pytest.raises(RunNotFound, match=r'no store.*JsonFileRuns\("var/runs"\)'):
                method("r1")
        assert not store.keeps and not store.durable

    def test_an_id_may_be_used_again(self, store):
        """Also at the same time; a cancel reaches all of that id."""
        first, second = store.create("r1", created()), store.create("r1", created())
        store.cancel("r1")
        assert first.cancel_asked() and second.cancel_asked()
        first.release()
        second.release()
        with pytest.raises(RunNotFound):
            store.cancel("r1")

    def test_a_snapshot_is_taken_up(self, store):
        """The record is copied, and the epoch counted on."""
        with store.create("r1", created()) as lease:
            journal = Journal(lease)
            with pytest.raises(Suspend) as caught:
                Engine(journal).run(asking({"kind": "tool"}))
            snapshot = json.loads(json.dumps(journal.checkpoint()))
        key = caught.value.suspensions[0]["id"]
        kept = json.dumps(snapshot)
        with store.restore("r1", snapshot) as lease:
            assert lease.epoch == 2
            assert run(lease, asking({"kind": "tool"}), [(key, {"type": "answer", "value": 1})]) == []
        assert json.dumps(snapshot) == kept


class TestMemoryRuns(RunsContract):
    @pytest.fixture
    def store(self, clock):
        return MemoryRuns(clock.time)

    def test_runs_belong_to_their_object(self, store):
        """Another store does not have them."""
        store.create("r1", created()).release()
        with pytest.raises(RunNotFound, match="very object"):
            MemoryRuns().read("r1")
        assert store.keeps and not store.durable


class TestJsonFileRuns(ProcessesContract):
    @pytest.fixture
    def store(self, clock, tmp_path):
        return JsonFileRuns(tmp_path / "var" / "runs", clock.time)

    @pytest.fixture
    def opening(self, store):
        return "JsonFileRuns(%r, lambda: 1000.0)" % store.root

    def test_runs_belong_to_their_folder(self, store):
        """Another object on the same folder has them, and sees who owns them."""
        other = JsonFileRuns(store.root)
        with store.create("r1", created()) as lease:
            assert other.status("r1") == "running"
            lease.append({"seq": 2, "at": 1.0, "epoch": 1, "path": "", "status": "completed"})
        assert other.status("r1") == "finished"
        assert store.keeps and store.durable


def test_an_unowned_lease_of_memory_is_refused_in_a_child(monkeypatch):
    """A copy of a lease in another process writes nothing."""
    lease = MemoryRuns().create("r1", created())
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(OwnershipLost):
        lease.append({"seq": 2, "at": 1.0, "epoch": 1, "path": "a", "status": "done"})
