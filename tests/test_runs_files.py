"""What only runs on disk have: permissions, damage, full disks, locks and half-made folders."""

import errno
import gc
import json
import os
import shutil
import signal
import stat
import sys
import threading
from zlib import crc32

import pytest
from runs_contract import Child, at_once, created, finish, following, suspend

from minagent.errors import (
    AlreadyDecided,
    ConfigError,
    OwnershipLost,
    RunBusy,
    RunCorrupt,
    RunError,
    RunNotFound,
)
from minagent.results import Answer
from minagent.runs import JsonFileRuns, files, locks
from minagent.runs.inbox import file_name
from minagent.testing import FrozenClock
from minagent.workflow import Journal

NOW = 1_700_000_000.0  # in November 2023


@pytest.fixture
def store(tmp_path):
    return JsonFileRuns(tmp_path / "runs", FrozenClock(NOW).time)


@pytest.fixture
def opening(store):
    return "JsonFileRuns(%r, lambda: %r)" % (store.root, NOW)


def place(store, run_id="r1"):
    return os.path.join(store.root, "2311", run_id)


def journal(store, run_id="r1"):
    return os.path.join(place(store, run_id), "journal.jsonl")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def three_records(store):
    """Make a run of three records, and return its journal's lines."""
    with store.create("r1", created(prompt="ä")) as lease:
        lease.append(following(lease, 2, output="zwei"))
        lease.append(following(lease, 3, output="drei"))
    return content(journal(store)).splitlines(True)


# The format.


def test_the_journal_is_lines_of_json_with_a_checksum(store):
    """The checksum is the last member: the CRC-32 of the line's bytes before it.  Text is UTF-8 as it is."""
    for line in three_records(store):
        body, sum_of_it = line[:-19], line[-19:]
        assert sum_of_it == b',"crc":"%08x"}\n' % crc32(body)
        assert json.loads(line.decode("utf-8"))["crc"] == "%08x" % crc32(body)
    assert "ä".encode() in content(journal(store))


def test_a_run_is_a_folder_in_its_month(store):
    """Only what was used is there."""
    with store.create("r1", created()) as lease:
        lease.head({"status": "running"})
    assert sorted(os.listdir(store.root)) == ["2311", "lock"]
    assert os.listdir(os.path.dirname(place(store))) == ["r1"]
    assert sorted(os.listdir(place(store))) == ["journal.jsonl", "lock", "run.json"]


def test_a_run_is_found_in_any_month(store):
    """Also by who creates one of that id later."""
    store.create("r1", created()).release()
    os.makedirs(os.path.join(store.root, "2212"))
    os.rename(place(store), os.path.join(store.root, "2212", "r1"))
    assert store.read("r1") == [created()]
    assert store.create("r1", created()) is None
    assert [head["run_id"] for head in store.list()] == ["r1"]


def test_one_id_made_in_two_months_at_once_is_one_run(store):
    """Around midnight of the last day a run is still made once."""
    clocks = [FrozenClock(NOW + 30 * 86400 * (index % 2)) for index in range(8)]
    stores = [JsonFileRuns(store.root, clock.time) for clock in clocks]
    leases = [lease for lease in at_once(8, lambda index: stores[index].create("r1", created())) if lease]
    assert len(leases) == 1
    leases[0].release()


def test_the_constructor_opens_nothing(tmp_path, monkeypatch):
    """The folder is made with the first run, below the folder that was current when the store was made."""
    monkeypatch.chdir(tmp_path)
    store = JsonFileRuns("a/b")
    assert os.listdir(str(tmp_path)) == [] and store.list() == []
    monkeypatch.chdir("/")
    store.create("r1", created()).release()
    assert os.listdir(str(tmp_path / "a" / "b"))


def test_a_decision_is_a_file_that_a_person_can_read(store):
    """Named by its suspension where that is a name everywhere, otherwise by a hash of it."""
    with store.create("r1", created()) as lease:
        for key in ("s1", "S1", "../x", "con", "ü" * 200):
            lease.post(key, Answer(key))
        assert {key: posted["decision"]["value"] for key, posted in lease.inbox().items()} == {
            key: key for key in ("s1", "S1", "../x", "con", "ü" * 200)}
    names = os.listdir(os.path.join(place(store), "inbox"))
    assert len(names) == 5 and file_name("s1") == "s1.json" in names
    assert all(name == name.lower() and len(name) < 80 for name in names)


# Who may see and touch it.


def test_files_are_for_their_owner_only(store):
    """0600 and 0700, whatever the umask allows."""
    before = os.umask(0)
    try:
        key, = suspend(store, "r1", {"kind": "tool"})
        store.decide("r1", key, Answer(1))
        with store.acquire("r1") as lease:
            lease.put_blob(b"x")
            lease.head({})
            store.cancel("r1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(store.root).st_mode) == 0o700
    for folder, folders, names in os.walk(store.root):
        for name in folders + names:
            path = os.path.join(folder, name)
            wanted = 0o700 if name in folders else 0o600
            assert stat.S_IMODE(os.lstat(path).st_mode) == wanted, path


@pytest.mark.parametrize("mode, refused", [
    (0o777, True), (0o770, True), (0o702, True), (0o1777, False), (0o755, False)])
def test_a_root_that_others_can_write_to_is_refused(store, mode, refused):
    """Unless it is sticky; the error says what to do.  Nothing is read there either."""
    store.create("r1", created()).release()
    os.chmod(store.root, mode)
    for method in (store.read, lambda run_id: store.acquire(run_id).release(),
                   lambda run_id: store.create("r2", created()).release()):
        if refused:
            with pytest.raises(ConfigError, match="chmod go-w"):
                method("r1")
        else:
            method("r1")


def test_an_empty_root_that_others_can_write_to_is_refused(tmp_path):
    """Before anything is made in it."""
    os.chmod(str(tmp_path), 0o777)
    with pytest.raises(ConfigError, match="chmod go-w"):
        JsonFileRuns(tmp_path).create("r1", created())
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("what", ["", "journal.jsonl", "lock", "inbox"])
def test_a_symbolic_link_is_not_followed(store, tmp_path, what):
    """Neither to a run nor to one of its files."""
    key, = suspend(store, "r1", {"kind": "tool"})
    path = os.path.join(place(store), what).rstrip("/")
    aside = str(tmp_path / "aside")
    if os.path.exists(path):
        os.rename(path, aside)
    else:
        os.mkdir(aside)
    os.symlink(aside, path)
    with pytest.raises(RunError, match="symbolic link"):
        if what == "inbox":
            store.decide("r1", key, Answer(1))
        else:
            store.acquire("r1")


@pytest.mark.unprivileged
def test_a_run_that_may_not_be_read_says_so(store):
    """The error names the run and the folder."""
    three_records(store)
    os.chmod(journal(store), 0)
    with pytest.raises(RunError, match="run r1 cannot be used.*ermission"):
        store.read("r1")


@pytest.mark.unprivileged
def test_a_root_that_may_not_be_written_says_so(tmp_path):
    """Nothing is left half made."""
    os.chmod(str(tmp_path), 0o500)
    with pytest.raises(RunError, match="check the disk and the permissions"):
        JsonFileRuns(tmp_path / "runs").create("r1", created())


# Damage.


def test_a_torn_tail_is_cut_by_the_next_owner(store):
    """At whatever byte of the last record the writer was stopped; a reader ignores it and changes nothing."""
    whole = b"".join(three_records(store))
    last = len(whole) - len(whole.splitlines(True)[-1])
    for end in range(last + 1, len(whole)):
        put(journal(store), whole[:end])
        assert [record["seq"] for record in store.read("r1")] == [1, 2]
        assert content(journal(store)) == whole[:end]
        with store.acquire("r1") as lease:
            assert [record["seq"] for record in lease.records] == [1, 2]
            assert content(journal(store)) == whole[:last]
            assert content(os.path.join(place(store), "journal.torn")) == whole[last:end]
            lease.append(following(lease, 3, output="neu"))
        assert store.read("r1")[2]["output"] == "neu"


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\n", b"{}\n", b"\xff\xfe\n", b"x" * 5000])
def test_rubbish_at_the_end_is_cut_too(store, tail):
    """Blocks of zeros and the like, as a power failure leaves them."""
    whole = b"".join(three_records(store))
    put(journal(store), whole + tail)
    assert len(store.read("r1")) == 3
    store.acquire("r1").release()
    assert content(journal(store)) == whole


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("spoil", [
    lambda line: line.replace(b'"at":1', b'"at":2'), lambda line: b"\0" * (len(line) - 1) + b"\n",
    lambda line: line[:20] + line[21:], lambda line: b"\n", lambda line: line[:-19] + b"}\n"])
def test_damage_in_the_middle_is_told_with_its_place(store, number, spoil):
    """The file is left alone, and the run is not owned afterwards."""
    lines = three_records(store)
    offset = sum(map(len, lines[:number]))
    lines[number] = spoil(lines[number])
    put(journal(store), b"".join(lines))
    for method in (store.read, store.acquire, store.acquire, store.status):
        with pytest.raises(RunCorrupt, match="run r1 is damaged at byte %d" % offset) as caught:
            method("r1")
        assert caught.value.offset == offset
    assert content(journal(store)) == b"".join(lines)
    assert os.listdir(place(store)).count("journal.torn") == 0
    assert store.list()[0]["error"]["type"] == "RunCorrupt"


def test_a_missing_record_is_damage(store):
    """Numbers follow each other; a line that was taken out is noticed, and one that came twice."""
    first, second, third = three_records(store)
    for lines in ([first, third, third], [first, first, second], [first, second, second, third]):
        put(journal(store), b"".join(lines))
        with pytest.raises(RunCorrupt, match="follows record"):
            store.read("r1")


def test_a_journal_without_a_first_record_is_damage(store):
    """It was on disk before anybody was told of the run."""
    first = three_records(store)[0]
    for data in (b"", first[:-1]):
        put(journal(store), data)
        with pytest.raises(RunCorrupt, match="byte 0"):
            store.acquire("r1")


def test_a_damaged_decision_is_told(store):
    """It is not taken for one that nobody made."""
    key, = suspend(store, "r1", {"kind": "tool"})
    store.decide("r1", key, Answer(1))
    put(os.path.join(place(store), "inbox", key + ".json"), b"{}")
    with pytest.raises(RunCorrupt, match="delete the file and decide again"):
        store.inbox("r1")


def test_a_blob_is_never_looked_for_elsewhere(store):
    """Only what can be a SHA-256 becomes part of a path."""
    store.create("r1", created()).release()
    for name in ("../journal.jsonl", "A" * 64, "0" * 63, ""):
        with pytest.raises(RunCorrupt, match="expected 64 hexadecimal digits"):
            store.get_blob("r1", name)


def test_a_damaged_blob_is_told_and_put_again(store):
    """What is read is what was put."""
    with store.create("r1", created()) as lease:
        sha = lease.put_blob(b"whole")
    put(os.path.join(place(store), "blobs", sha), b"")
    with pytest.raises(RunCorrupt, match="damaged"):
        store.get_blob("r1", sha)
    with store.acquire("r1") as lease:
        assert lease.put_blob(b"whole") == sha
        assert lease.get_blob(sha) == b"whole"


@pytest.mark.parametrize("text", [b"", b"\0\0", b"[]", b'"x"', b"{", b'{"status": "finished"}',
                                  b'{"status": "finished", "created_at": "x", "updated_at": 1}',
                                  b'{"status": "finished", "created_at": NaN, "updated_at": 1}',
                                  b'{"status": "finished", "created_at": 5, "updated_at": 6, "journal_bytes": 1}'])
def test_the_head_is_a_cache(store, text):
    """Whatever is in it, how the run stands is decided by its journal."""
    key, = suspend(store, "r1", {"kind": "tool"})
    put(os.path.join(place(store), "run.json"), text)
    assert store.status("r1") == "waiting"
    assert [head["status"] for head in store.list()] == ["waiting"]
    assert [item["id"] for item in store.suspensions()] == [key]


def test_a_head_of_a_finished_run_saves_reading_its_journal(store):
    """It is believed as long as the journal has the length that it had then, and ends with that."""
    with store.create("r1", created(prompt="x" * 20000)) as lease:
        finish(lease)
        lease.head({"status": "finished", "usage": {"input_tokens": 5}})
    whole = content(journal(store))
    spoilt = b"x" * 20000 + whole[20000:]
    put(journal(store), spoilt)
    head, = store.list()
    assert (head["status"], head["usage"], head["agent"]) == ("finished", {"input_tokens": 5}, "support")
    for unlike in (b"x" + spoilt, b"x" * len(whole), spoilt[:-10] + b"x" * 10):
        put(journal(store), unlike)
        assert store.list()[0]["error"]["type"] == "RunCorrupt"


def test_a_head_that_lies_deletes_no_run(store):
    """What was left waiting is not pruned or hidden, whatever its `run.json` says of status, time and agent."""
    key, = suspend(store, "r1", {"kind": "tool"})
    size = os.path.getsize(journal(store))
    with store.create("r2", created(at=NOW)) as lease:
        Journal(lease, now=lambda: NOW).append_run("completed", {"finish_reason": "stop"})
        lease.head({"status": "finished"})
    for run_id, length in (("r1", size), ("r2", os.path.getsize(journal(store, "r2")))):
        head = {"status": "finished", "created_at": 5, "updated_at": 6, "journal_bytes": length, "agent": "other",
                "metadata": ["x"]}
        put(os.path.join(place(store, run_id), "run.json"), json.dumps(head).encode())
    assert store.prune(10) == []
    assert [(head["run_id"], head["status"]) for head in store.list()] == [("r2", "finished"), ("r1", "waiting")]
    assert [item["id"] for item in store.suspensions(agent="support")] == [key]
    assert store.list(metadata={"x": 1}) == []


def test_a_damaged_run_is_not_pruned(store):
    """It is left as it is, for a backup to be restored over it."""
    three_records(store)
    put(journal(store), b"x" * 100 + content(journal(store)))
    assert [head["status"] for head in store.list()] == ["interrupted"]
    assert store.prune(0, "interrupted") == [] and os.path.exists(journal(store))


# Trouble with the system's permissions.


def refuse(monkeypatch, wanted, error=errno.EACCES):
    """Let the system refuse what `wanted(path, flags)` says; whoever runs the tests may be allowed all."""
    def refusing(name, flags_at=None):
        real = getattr(os, name)

        def call(path, *args, **named):
            flags = args[0] if flags_at and args else 0
            if isinstance(path, str) and wanted(path, flags, name):
                raise OSError(error, os.strerror(error), path)
            return real(path, *args, **named)
        monkeypatch.setattr(os, name, call)
    refusing("open", 1)
    for name in ("lstat", "stat", "mkdir", "rename", "replace", "unlink", "listdir", "scandir"):
        refusing(name)


CHANGES = ("mkdir", "rename", "replace", "unlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def calls(store, run_id, key):
    """Return all that can be asked of a store, by name."""
    return {"list": store.list, "suspensions": store.suspensions, "prune": lambda: store.prune(0),
            "read": lambda: store.read(run_id), "status": lambda: store.status(run_id),
            "inbox": lambda: store.inbox(run_id), "cancel": lambda: store.cancel(run_id),
            "decide": lambda: store.decide(run_id, key, Answer(1)), "acquire": lambda: store.acquire(run_id),
            "delete": lambda: store.delete(run_id), "get_blob": lambda: store.get_blob(run_id, "0" * 64),
            "create": lambda: store.create("new", created()), "again": lambda: store.create(run_id, created())}


@pytest.mark.parametrize("what", ["", "2311", "2311/r1"])
def test_a_folder_of_another_user_says_so(store, monkeypatch, what):
    """Whatever is asked, the error is the store's own and names the path; other runs' lists go on."""
    key, = suspend(store, "r1", {"kind": "tool"})
    asked = calls(store, "r1", key)
    path = os.path.join(store.root, what).rstrip("/")
    refuse(monkeypatch, lambda name, flags, how: name.startswith(path + "/") or (
        name == path and how in ("scandir", "listdir")))
    if what.endswith("r1"):
        assert store.list()[0]["error"]["type"] == "RunError" and asked.pop("suspensions")() == []
        assert asked.pop("prune")() == [] and asked.pop("again")() is None
        del asked["list"], asked["create"]
    for name, ask in asked.items():
        with pytest.raises(RunError, match="ermission denied.*chown") as caught:
            ask()
        assert path in str(caught.value), name


def test_a_run_in_our_month_is_found_beside_another_users_month(store, monkeypatch):
    """A new one is not made: its id may be in there."""
    store.create("r1", created()).release()
    theirs = os.path.join(store.root, "2312")
    os.mkdir(theirs, 0o700)
    store.create("r2", created()).release()
    os.rename(place(store, "r2"), os.path.join(theirs, "r2"))
    refuse(monkeypatch, lambda name, flags, how: name.startswith(theirs + "/"))
    assert len(store.read("r1")) == 1
    for ask in (lambda: store.read("r3"), lambda: store.create("r3", created())):
        with pytest.raises(RunError, match="chown"):
            ask()


@pytest.mark.parametrize("what", ["journal.jsonl", "lock", "inbox"])
def test_a_run_that_cannot_be_read_hides_no_other(store, monkeypatch, what):
    """It is listed with its error, like a damaged one."""
    keys = [suspend(store, run_id, {"kind": "tool"})[0] for run_id in ("r1", "r2")]
    refuse(monkeypatch, lambda name, flags, how: name.startswith(os.path.join(place(store), what)) and (
        how in ("open", "listdir")))
    heads = {head["run_id"]: head for head in store.list()}
    assert heads["r1"]["error"]["type"] == "RunError" and "ermission" in heads["r1"]["error"]["message"]
    assert heads["r2"]["status"] == "waiting" and "error" not in heads["r2"]
    assert keys[1] in [item["id"] for item in store.suspensions()]
    assert store.prune(0, "waiting") == ["r2"]


@pytest.mark.parametrize("name, data", [("inbox", b"x"), ("inbox/x.json", b"[]"), ("run.json", b"[" * 100000),
                                        ("journal.jsonl", None), ("lock", None)])
def test_what_is_no_run_hides_no_other(store, name, data):
    """Files and folders that somebody put in place of a run's own."""
    for run_id in ("r1", "r2"):
        suspend(store, run_id, {"kind": "tool"})
    path = os.path.join(place(store), name)
    if os.path.exists(path):
        os.unlink(path)
    os.makedirs(path if data is None else os.path.dirname(path), exist_ok=True)
    if data is not None:
        put(path, data)
    assert {head["run_id"]: head["status"] for head in store.list()}["r2"] == "waiting"
    assert "r2" in [item["run_id"] for item in store.suspensions()]


def test_a_line_that_is_no_record_is_damage(store):
    """Even if its checksum fits."""
    first = three_records(store)[0]
    for body in (b'{"a":1', b'{"seq":"2","status":"done"'):
        put(journal(store), first + b'%b,"crc":"%08x"}\n' % (body, crc32(body)) * 2)
        with pytest.raises(RunCorrupt, match="it is no record"):
            store.read("r1")


def test_a_store_on_a_read_only_file_system_can_be_looked_at(store, monkeypatch):
    """What would change it says that it cannot."""
    key, = suspend(store, "r1", {"kind": "tool"})
    refuse(monkeypatch, lambda name, flags, how: how in CHANGES or how == "open" and flags & WRITES, errno.EROFS)
    assert store.status("r1") == "waiting" and len(store.read("r1")) > 1 and store.inbox("r1") == {}
    assert [head["status"] for head in store.list()] == ["waiting"]
    assert [item["id"] for item in store.suspensions()] == [key]
    asked = calls(store, "r1", key)
    for name in ("create", "acquire", "delete", "decide", "cancel"):
        with pytest.raises(RunError, match="run [a-z0-9]+ cannot be used.*read-only file system can be looked at"):
            asked[name]()


def test_a_lease_whose_folder_was_taken_away_says_so(store, monkeypatch):
    """No bare error of the system leaves it, and the head is no failure."""
    with store.create("r1", created()) as lease:
        store.cancel("r1")
        sha = lease.put_blob(b"y")
        with monkeypatch.context() as patch:
            refuse(patch, lambda name, flags, how: name.startswith(place(store)))
            for ask in (lease.cancel_asked, lambda: lease.put_blob(b"x"), lambda: lease.get_blob(sha), lease.inbox,
                        lambda: lease.post("b1", Answer(1))):
                with pytest.raises(RunError, match="ermission denied"):
                    ask()
            lease.head({})


# Disks that are full, and disks that fail.


class Faulty:
    """`os.write` that lets through only so many bytes of a record, then fails or falls short."""

    def __init__(self, monkeypatch, room, error):
        self.room, self.error, self.write = room, error, os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, fd, data):
        if self.room is None or not bytes(data).startswith(b'{"seq"'):
            return self.write(fd, data)
        written = self.write(fd, data[:self.room]) if self.room else 0
        if self.error is not None:
            raise self.error
        return written


def record_first(lease, seq, **members):
    """Return a record whose line begins with its number."""
    record = following(lease, seq, **members)
    return dict([("seq", record.pop("seq")), *record.items()])


@pytest.mark.parametrize("room", [0, 1, 50])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), None])
def test_a_record_that_does_not_fit_leaves_nothing(store, monkeypatch, room, error):
    """What was written of it is cut off, and the next record is taken once there is room."""
    with store.create("r1", created()) as lease:
        before = content(journal(store))
        faulty = Faulty(monkeypatch, room, error)
        wanted = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else RunError
        for _ in range(2):
            with pytest.raises(wanted):
                lease.append(record_first(lease, 2))
            assert content(journal(store)) == before
        faulty.room = None
        lease.append(record_first(lease, 2))
        lease.sync()
    assert len(store.read("r1")) == 2


def test_a_record_that_cannot_be_cut_off_ends_the_lease(store, monkeypatch):
    """Nothing is written behind it; the next owner cuts it."""
    with store.create("r1", created()) as lease:
        faulty = Faulty(monkeypatch, 10, None)

        def refuse(fd, size):
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(RunError, match="only 10 of"):
                lease.append(record_first(lease, 2))
        faulty.room = None
        for late in (lambda: lease.append(record_first(lease, 2)), lease.sync):
            with pytest.raises(RunError, match="takes no more records"):
                late()
    with store.acquire("r1") as lease:
        assert len(lease.records) == 1


def test_a_full_disk_makes_no_half_run(store, monkeypatch):
    """Creating fails with nothing left, and works once there is room."""
    store.create("r0", created()).release()
    faulty = Faulty(monkeypatch, 20, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(RunError, match="No space left"):
        store.create("r1", created())
    assert os.listdir(os.path.dirname(place(store))) == ["r0"]
    faulty.room = None
    store.create("r1", created()).release()


def test_after_a_failed_sync_nothing_is_promised(store, monkeypatch):
    """A second try would succeed without the bytes being on disk, so there is none."""
    with store.create("r1", created()) as lease:
        def fail(fd):
            raise OSError(errno.EIO, "Input/output error")

        lease.append(following(lease, 2))
        with monkeypatch.context() as patch:
            patch.setattr(files, "sync_file", fail)
            with pytest.raises(RunError, match="Input/output error"):
                lease.sync()
        for late in (lambda: lease.append(following(lease, 3)), lease.sync):
            with pytest.raises(RunError, match="did not reach the disk"):
                late()


def test_a_head_that_cannot_be_written_is_no_failure(store, monkeypatch):
    """It is a cache."""
    with store.create("r1", created()) as lease:
        os.mkdir(os.path.join(place(store), "run.json.new"))
        lease.head({"status": "running"})
        lease.append(following(lease, 2))


# When something is on disk.


def test_only_a_sync_waits_for_the_disk(store, monkeypatch):
    """Appending does not; syncing does once, and not at all if nothing is new."""
    with store.create("r1", created()) as lease:
        synced = []
        monkeypatch.setattr(files, "sync_file", lambda fd: synced.append("journal"))
        monkeypatch.setattr(files, "sync_path", lambda path: synced.append("blob"))
        monkeypatch.setattr(files, "sync_folder", lambda path: synced.append("folder"))
        for seq in range(2, 10):
            lease.append(following(lease, seq))
        lease.head({})
        lease.sync()
        lease.sync()
        assert synced == ["journal"]
        lease.put_blob(b"x")
        lease.append(following(lease, 10))
        lease.put_blob(b"x")
        lease.sync()
        assert synced == ["journal", "blob", "folder", "folder", "journal"]


def test_a_blob_left_unsynced_by_the_last_owner_is_synced(store, monkeypatch):
    """A record may rely on it."""
    with store.create("r1", created()) as lease:
        lease.put_blob(b"x")
    with store.acquire("r1") as lease:
        synced = []
        monkeypatch.setattr(files, "sync_path", synced.append)
        sha = lease.put_blob(b"x")
        lease.sync()
        assert [os.path.basename(path) for path in synced] == [sha]


def test_threads_that_wait_for_the_disk_share_one_sync(store, monkeypatch):
    """While one write-out is going on the others gather, and the next one is for all of them."""
    with store.create("r1", created()) as lease:
        begun, go_on, calls = threading.Event(), threading.Event(), []

        def slow(fd):
            calls.append(fd)
            begun.set()
            assert go_on.wait(30)

        monkeypatch.setattr(files, "sync_file", slow)
        lease.append(following(lease, 2))
        first = threading.Thread(target=lease.sync)
        first.start()
        assert begun.wait(30)
        lease.append(following(lease, 3))
        others = [threading.Thread(target=lease.sync) for _ in range(8)]
        for thread in others:
            thread.start()
        go_on.set()
        for thread in [first, *others]:
            thread.join()
        assert len(calls) == 2


def test_a_run_is_on_disk_before_it_can_be_seen(store, monkeypatch):
    """Its record, its folder and the name of it, in this order."""
    store.create("r0", created()).release()
    seen = []
    write_file, sync_folder, rename = files.write_file, files.sync_folder, os.rename

    def note_write(path, data, sync):
        seen.append((os.path.basename(path), sync))
        write_file(path, data, sync)

    def note_folder(path):
        seen.append("new" if os.path.basename(path).startswith(".new") else "month")
        sync_folder(path)

    def note_rename(old, new):
        seen.append("rename")
        rename(old, new)

    monkeypatch.setattr(files, "write_file", note_write)
    monkeypatch.setattr(files, "sync_folder", note_folder)
    monkeypatch.setattr(os, "rename", note_rename)
    store.create("r1", created()).release()
    assert seen == [("journal.jsonl", True), "new", "rename", "month"]


# Half-made and half-deleted runs.


def test_a_half_made_run_is_not_seen(store):
    """What a killed process left does not count, does not hinder, and is cleared away when it is old."""
    store.create("r0", created()).release()
    month = os.path.dirname(place(store))
    debris = [os.path.join(month, name) for name in (".new-r1-abc", ".gone-r2-abc", ".new-r3-abc")]
    for path in debris:
        shutil.copytree(place(store, "r0"), path)
    for path in debris[:2]:
        os.utime(path, (1000, 1000))
    assert [head["run_id"] for head in store.list()] == ["r0"]
    with pytest.raises(RunNotFound):
        store.read("r1")
    store.create("r1", created()).release()
    assert store.prune(1e9) == []
    assert [os.path.exists(path) for path in debris] == [False, False, True]


def test_other_things_in_the_folder_are_left_alone(store):
    """Files and folders that are no runs are not listed."""
    store.create("r1", created()).release()
    put(os.path.join(store.root, "notes.txt"), b"x")
    os.makedirs(os.path.join(store.root, "backup", "r2"))
    os.makedirs(os.path.join(store.root, "2311", "Not-a-Run"))
    put(os.path.join(store.root, "2311", "r3"), b"x")
    assert [head["run_id"] for head in store.list()] == ["r1"]


# Locks.


FORKED = """
lease = store.acquire('r1')
pid = os.fork()
if pid == 0:
    try:
        lease.append({'seq': 2, 'at': 1.0, 'epoch': 2, 'path': 'a', 'status': 'done'})
        say('wrote')
    except OwnershipLost:
        say('lost')
    lease.release()
    say(store.status('r1'))
    hear()
    try:
        store.acquire('r1'); say('owns')
    except RunBusy:
        say('busy')
    hear()
    os._exit(0)
say('parent'); os.waitpid(pid, 0)
"""


def test_a_forked_child_does_not_own_its_parents_run(store, opening):
    """It cannot write or release, and when the parent is killed the run is free though the child lives on."""
    store.create("r1", created()).release()
    with Child(opening, FORKED) as child:
        words = sorted([child.hear(), child.hear(), child.hear()])
        assert words == ["lost", "parent", "running"]
        with pytest.raises(RunBusy):
            store.acquire("r1")
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait()
        store.acquire("r1").release()
        child.tell()
        assert child.hear() == "owns"
        child.tell()


def test_a_release_counts_though_a_child_was_forked_meanwhile(store, opening):
    """Also where the child was made by other means and has a copy of the lock's descriptor."""
    with store.create("r1", created()):
        held = locks.holder(os.path.join(place(store), "lock"))
        copy = os.dup(held.fds[0])
    try:
        script = "store.acquire('r1'); say('owns'); hear()\n"
        with Child(opening, script) as child:
            assert child.hear() == "owns"
    finally:
        os.close(copy)


def test_a_program_that_is_started_does_not_inherit_the_lock(store, opening):
    """The run is free when its owner has released it, whatever that has started."""
    script = ("import subprocess\n"
              "lease = store.acquire('r1')\n"
              "slow = subprocess.Popen([sys.executable, '-c', 'input()'], close_fds=False)\n"
              "say('started'); os.kill(os.getpid(), 9)\n")
    store.create("r1", created()).release()
    with Child(opening, script) as child:
        assert child.hear() == "started"
        child.process.wait()
        store.acquire("r1").release()


def test_who_looks_does_not_disturb_who_takes(store):
    """A status asked in the same moment never makes a free run busy."""
    store.create("r1", created()).release()
    stop = threading.Event()

    def look():
        while not stop.is_set():
            store.status("r1")

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in lookers:
        thread.start()
    try:
        for _ in range(50):
            store.acquire("r1").release()
    finally:
        stop.set()
        for thread in lookers:
            thread.join()


class Interrupter:
    """Raises KeyboardInterrupt as the n-th function of this package's stores is entered or left."""

    def __init__(self, number):
        self.left = number
        self.folder = os.path.dirname(locks.__file__)

    def __call__(self, frame, event, argument):
        if os.path.dirname(frame.f_code.co_filename) != self.folder or self.left <= 0:
            return None
        if frame.f_code.co_name == "__del__":  # where Python only prints exceptions
            return None
        frame.f_trace_lines = False
        if event in ("call", "return"):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def interrupts(self, work, *arguments):
        """Whether it came before the work was done."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work(*arguments)
            return False
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)


@pytest.mark.parametrize("work", [
    lambda store, run_id: store.create(run_id, created()).release(),
    lambda store, run_id: store.acquire("r0").release(),
    lambda store, run_id: store.status("r0")])
def test_an_interrupt_at_any_moment_leaves_no_lock_held(store, work):
    """Also between taking a lock and handing it to the caller: neither a run's nor the root's."""
    store.create("r0", created()).release()
    number = 1
    while Interrupter(number).interrupts(work, store, "r%d" % number):
        assert not locks._held, number
        assert not locks.taken(os.path.join(store.root, "lock")), number
        assert [head["run_id"] for head in store.list(status="running")] == [], number
        number += 1
    assert number > 10
    store.acquire("r0").release()


def test_a_lock_whose_collection_was_interrupted_is_free(store, monkeypatch):
    """An interrupt may come just then, and Python goes on as if nothing had been."""
    monkeypatch.setattr(locks.Held, "__del__", lambda self: None)
    store.create("r1", created())
    assert store.status("r1") == "interrupted"
    store.acquire("r1")
    store.acquire("r1").release()


def test_a_lock_that_only_garbage_has_is_found(store, monkeypatch):
    """Who wants a run that this process has looks for such ones, and who waits for the root's lock."""
    monkeypatch.setattr("minagent.runs.json_files._SUSPICION", 0.0)
    monkeypatch.setattr(locks, "SEARCH_PAUSE", 0.0)
    os.mkdir(store.root, 0o700)
    gc.disable()
    try:
        cycle = [locks.take(os.path.join(store.root, "lock"))]
        cycle.append(cycle)
        del cycle
        cycle = [store.create("r1", created())]
        cycle.append(cycle)
        del cycle
        store.acquire("r1").release()
    finally:
        gc.enable()


def test_garbage_is_searched_for_locks_only_now_and_then(store, monkeypatch):
    """Who asks again and again for a busy run does not slow the program down."""
    searched = []
    monkeypatch.setattr(gc, "collect", lambda: searched.append(1))
    monkeypatch.setattr(locks, "_searched_at", float("-inf"))
    monkeypatch.setattr(locks, "SEARCH_PAUSE", 1e9)
    with store.create("r1", created()):
        for _ in range(3):
            with pytest.raises(RunBusy):
                store.acquire("r1")
    assert searched == [1]


def test_a_lock_that_is_kept_is_told_after_a_while(store, monkeypatch):
    """With its path and who has it."""
    monkeypatch.setattr("minagent.runs.json_files._PATIENCE", 0.0)
    os.mkdir(store.root, 0o700)
    held = locks.take(os.path.join(store.root, "lock"))
    with pytest.raises(RunError, match="lock was held for 0 s by this process"):
        store.create("r1", created())
    held.release()
    assert os.listdir(os.path.join(store.root, "2311")) == []


def test_a_dropped_lock_is_the_parents_in_a_child(store, monkeypatch):
    """Collecting a copy in a child that no hook has told leaves the parent's lock."""
    store.create("r1", created()).release()
    held = locks.take(os.path.join(place(store), "lock"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        held.__del__()
    assert store.status("r1") == "running"
    held.release()


def test_a_lock_file_that_says_something_is_no_lock(store):
    """What is written in it is for people; a run whose owner is gone is free, even if the file is missing."""
    store.create("r1", created()).release()
    assert b"process %d" % os.getpid() in content(os.path.join(place(store), "lock"))
    assert store.status("r1") == "interrupted"
    os.unlink(os.path.join(place(store), "lock"))
    assert store.status("r1") == "interrupted"
    store.acquire("r1").release()


def test_a_lock_on_a_file_that_was_replaced_is_not_taken_for_the_lock(tmp_path, monkeypatch):
    """Who gets the lock of a file that has lost its name meanwhile tries the one that has it now."""
    path = str(tmp_path / "lock")
    opened = []

    def swap(name, flags):
        fd = open_file(name, flags)
        if not opened:
            os.unlink(path)
            put(path, b"")
        opened.append(fd)
        return fd

    open_file = files.open_file
    monkeypatch.setattr(locks, "open_file", swap)
    held = locks.take(path)
    assert len(opened) == 2 and os.fstat(held.fds[0]).st_ino == os.stat(path).st_ino
    assert locks.take(path) is None and locks.taken(path)
    held.release()
    assert not locks.taken(path)


def test_a_run_deleted_under_its_lease_is_lost(store):
    """Whoever removes a folder by hand gets no second journal in its place."""
    with store.create("r1", created()) as lease:
        shutil.rmtree(place(store))
        with pytest.raises(RunNotFound):
            lease.post("b1", Answer(1))
        with pytest.raises(RunError):
            lease.put_blob(b"x")


def test_one_process_does_not_get_a_lock_twice_whatever_the_kernel_says(tmp_path, monkeypatch):
    """On some file systems locks belong to the process, and a second one would be granted."""
    class Generous:
        take = staticmethod(lambda fd: True)
        taken = staticmethod(lambda fd: False)
        drop = staticmethod(lambda fd: None)

    monkeypatch.setattr(locks, "kernel", Generous)
    held = locks.take(str(tmp_path / "lock"))
    assert locks.take(str(tmp_path / "lock")) is None
    assert locks.taken(str(tmp_path / "lock"))
    held.release()
    locks.take(str(tmp_path / "lock")).release()


class FakeMsvcrt:
    """The byte locks of Windows: one holder of a place in a file, told by its open descriptor."""

    LK_UNLCK, LK_NBLCK = 0, 2

    def __init__(self):
        self.held = {}

    def locking(self, fd, mode, count):
        place = (os.fstat(fd).st_ino, os.lseek(fd, 0, os.SEEK_CUR))
        if mode == self.LK_UNLCK:
            assert self.held.pop(place) == fd
        elif place in self.held:
            raise PermissionError(errno.EACCES, "Permission denied")
        else:
            self.held[place] = fd


@pytest.fixture
def windows(monkeypatch):
    """Locks, links and folders as on Windows, as far as they matter here."""
    byte_lock = locks.ByteLock(FakeMsvcrt())
    monkeypatch.setattr(locks, "kernel", lambda: byte_lock)
    rename = os.rename

    def strict(old, new):
        if os.path.isdir(old) and locks.holder(os.path.join(old, "lock")):
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", strict)
        patch.setattr(os, "name", "nt")
        yield
        patch.undo()


def test_runs_live_on_windows(tmp_path, windows):
    """Byte locks exclude, folders are renamed while nothing in them is open, and deleting works."""
    store = JsonFileRuns(str(tmp_path) + "/runs", lambda: NOW)
    with store.create("r1", created()) as lease:
        lease.append(following(lease, 2))
        lease.sync()
        lease.head({"status": "running"})
        with pytest.raises(RunBusy):
            store.acquire("r1")
        assert store.create("r1", created()) is None
        assert store.status("r1") == "running"
    assert store.status("r1") == "interrupted"
    with store.acquire("r1") as lease:
        assert lease.epoch == 2
    store.delete("r1")
    assert store.list() == []


def test_a_file_that_is_being_read_is_replaced_a_moment_later_on_windows(tmp_path, monkeypatch):
    """Elsewhere a refusal is final at once."""
    source, target = str(tmp_path / "a"), str(tmp_path / "b")
    put(source, b"x")
    refusals = [PermissionError(errno.EACCES, "in use")] * 2
    replace = os.replace

    def busy(old, new):
        if refusals:
            raise refusals.pop()
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", busy)
        with pytest.raises(PermissionError):
            files.replace(source, target)
        patch.setattr(os, "name", "nt")
        files.replace(source, target)
    assert content(target) == b"x"


def test_a_file_system_without_working_locks_is_refused(store, monkeypatch):
    """The error says where runs belong."""
    class NoLocks:
        LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN = 2, 4, 1, 8

        @staticmethod
        def flock(fd, how):
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "kernel", lambda: locks.Flock(NoLocks))
    with pytest.raises(RunError, match="keep runs on a local disk"):
        store.create("r1", created())


def test_a_file_system_without_hard_links_still_takes_one_decision(store, monkeypatch):
    """Of 8 threads one is kept."""
    key, = suspend(store, "r1", {"kind": "tool"})

    def refuse(old, new):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    results = at_once(8, lambda index: store.decide("r1", key, Answer(index)))
    won, = [index for index, result in enumerate(results) if result is None]
    assert store.inbox("r1")[key]["decision"]["value"] == won
    assert all(isinstance(result, AlreadyDecided) for index, result in enumerate(results) if index != won)
    assert os.listdir(os.path.join(place(store), "inbox")) == [key + ".json"]


def test_a_lease_of_another_process_writes_nothing(store, monkeypatch):
    """Where no fork hook ran, the process id tells."""
    lease = store.create("r1", created())
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        for late in (lambda: lease.append(following(lease, 2)), lease.sync, lambda: lease.put_blob(b"x")):
            with pytest.raises(OwnershipLost):
                late()
        store.cancel("r1")
        assert not lease.cancel_asked()
        lease.release()
    with pytest.raises(RunBusy):
        store.acquire("r1")
    lease.release()


def test_a_bare_locale_changes_nothing(tmp_path):
    """Under LANG=C names and text are what they are elsewhere."""
    root = str(tmp_path / "räume")
    script = ("lease = store.create('r1', {'seq': 1, 'at': 1.0, 'epoch': 1, 'path': '', 'status': 'created',\n"
              "                            'output': {'text': '\\u65e5\\u672c \\xe4'}})\n"
              "lease.put_blob(b'x'); lease.head({'t': '\\xe4'}); lease.post('\\xe4', Answer('\\xe4')); say('ok')\n")
    opening = "JsonFileRuns(os.fsdecode(%r))" % os.fsencode(root)
    with Child(opening, script, LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") as child:
        assert child.hear() == "ok"
    store = JsonFileRuns(root)
    assert store.read("r1")[0]["output"]["text"] == "日本 ä"
    assert store.inbox("r1")["ä"]["decision"]["value"] == "ä"
    assert store.list()[0]["t"] == "ä"
