"""`MemoryRuns`: runs in this process, for tests and for programs that need no more.

Records are kept as the text that a file would have, so that nothing aliases and nothing passes here that a
file would refuse.  What is not here: anything that outlives the process.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from threading import Event, Lock
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple
from weakref import ref

from ..errors import OwnershipLost, RunBusy, RunCorrupt, RunNotFound
from . import decisions as deciding
from .base import Lease, Posted, Record, RunStore, already_decided, check_turn
from .ids import check_run_id
from .listing import newest_first
from .records import check_schema, to_bytes
from .standing import Standing


class _Run:
    """What is kept of one run; `lock` guards all of it."""

    def __init__(self, first: bytes, created_at: float):
        self.lock = Lock()
        self.lines = [first]
        self.inbox: Dict[str, Posted] = {}
        self.blobs: Dict[str, bytes] = {}
        self.head: Dict[str, Any] = {}
        self.created_at = created_at
        self.cancel_asked = False
        self._owner: Optional[ref[MemoryLease]] = None

    @property
    def owner(self) -> Optional[MemoryLease]:
        """The lease, as long as somebody has it: an exception may have come before it was handed over."""
        return self._owner() if self._owner is not None else None

    @owner.setter
    def owner(self, lease: Optional[MemoryLease]) -> None:
        self._owner = ref(lease) if lease is not None else None

    def read(self) -> List[Record]:
        with self.lock:
            lines = list(self.lines)
        return [json.loads(line.decode("utf-8")) for line in lines]


class MemoryRuns(RunStore):
    """Keeps runs in memory, in this object only.  As strict as a store on disk."""

    durable = False

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._runs: Dict[str, _Run] = {}
        self._lock = Lock()  # guards _runs

    def create(self, run_id: str, record: Record) -> Optional[Lease]:
        check_run_id(run_id)
        check_schema(record, run_id)
        run = _Run(to_bytes(record), record.get("at", 0.0))
        lease = run.owner = MemoryLease(self, run_id, run)
        lease.follow(run.read())
        lease.epoch = record.get("epoch", 1)  # the first record is of this ownership already
        with self._lock:
            return lease if self._runs.setdefault(run_id, run) is run else None

    def acquire(self, run_id: str) -> Lease:
        run = self._run(run_id)
        with run.lock:
            if run.owner is not None:
                raise RunBusy("run %s is owned by another thread of this process; try again later" % run_id,
                              run_id)
            lease = run.owner = MemoryLease(self, run_id, run)
        try:
            lease.follow(self.read(run_id))
        except BaseException:
            lease.release()
            raise
        return lease

    def read(self, run_id: str) -> List[Record]:
        records = self._run(run_id).read()
        check_schema(records[0], run_id)
        return records

    def inbox(self, run_id: str) -> Dict[str, Posted]:
        return _inbox(self._run(run_id))

    def get_blob(self, run_id: str, sha: str) -> bytes:
        return _blob(self._run(run_id), run_id, sha)

    def cancel(self, run_id: str) -> None:
        if self.standing(run_id).finished:
            return
        run = self._run(run_id)
        with run.lock:
            run.cancel_asked = True
        _wake(run)

    def delete(self, run_id: str) -> None:
        run = self._run(run_id)
        with self._lock, run.lock:
            if run.owner is not None:
                raise RunBusy("run %s is owned and cannot be deleted; cancel it first" % run_id, run_id)
            if self._runs.get(run_id) is run:
                del self._runs[run_id]

    def _run(self, run_id: str) -> _Run:
        with self._lock:
            run = self._runs.get(check_run_id(run_id))
        if run is None:
            raise RunNotFound("there is no run %s in this MemoryRuns; it keeps the runs that were made with "
                              "this very object" % run_id, run_id)
        return run

    def _owned(self, run_id: str) -> bool:
        return self._run(run_id).owner is not None

    def _insert(self, run_id: str, suspension_id: str, posted: Posted) -> Optional[Posted]:
        return _insert(self._run(run_id), suspension_id, posted)

    def _newest_first(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        with self._lock:
            runs = dict(self._runs)
        heads = {run_id: _head(run) for run_id, run in runs.items()}
        return iter(newest_first(heads))


class MemoryLease(Lease):
    """Ownership of a run in memory."""

    def __init__(self, store: MemoryRuns, run_id: str, run: _Run):
        self.run_id = run_id
        self.news = Event()
        self._store = store
        self._run = run
        self._pid = os.getpid()
        self._before = 0
        self._cancelled = False

    def follow(self, records: List[Record]) -> None:
        """Take up where the last record stands."""
        self.records = records
        self._before = self.records[-1]["seq"] - len(self.records)
        self.epoch = self.records[-1].get("epoch", 0) + 1

    def append(self, record: Record) -> None:
        line = to_bytes(record)
        run = self._run
        with run.lock:
            self._check()
            check_turn(self, record, self._before + len(run.lines))
            run.lines.append(line)

    def _check(self) -> None:
        if self._run.owner is not self or self._pid != os.getpid():
            raise OwnershipLost("run %s is not owned by this lease any more; acquire it again" % self.run_id,
                                self.run_id)

    def sync(self) -> None:
        self._check()

    def inbox(self) -> Dict[str, Posted]:
        return _inbox(self._run)

    def post(self, suspension_id: str, decision: Any) -> None:
        data = deciding.plain(decision, self.run_id)
        posted = {"id": suspension_id, "decision": data, "at": self._store._now()}
        first = _insert(self._run, suspension_id, posted)
        if first is not None:
            raise already_decided(self.run_id, suspension_id, first)

    def wait_inbox(self, timeout: Optional[float] = None) -> None:
        self.news.wait(timeout)
        self.news.clear()

    def cancel_asked(self) -> bool:
        with self._run.lock:
            if self._run.cancel_asked and self._run.owner is self:
                self._run.cancel_asked, self._cancelled = False, True
        return self._cancelled

    def put_blob(self, data: bytes) -> str:
        sha = sha256(data).hexdigest()
        with self._run.lock:
            self._check()
            self._run.blobs.setdefault(sha, bytes(data))
        return sha

    def get_blob(self, sha: str) -> bytes:
        return _blob(self._run, self.run_id, sha)

    def head(self, shown: Mapping[str, Any]) -> None:
        copy = json.loads(to_bytes(dict(shown)).decode("utf-8"))
        with self._run.lock:
            if self._run.owner is self:
                self._run.head = copy

    def release(self) -> None:
        with self._run.lock:
            if self._run.owner is self and self._pid == os.getpid():
                self._run.owner = None


def _inbox(run: _Run) -> Dict[str, Posted]:
    with run.lock:
        return {key: dict(posted) for key, posted in run.inbox.items()}


def _insert(run: _Run, suspension_id: str, posted: Posted) -> Optional[Posted]:
    with run.lock:
        first = run.inbox.setdefault(suspension_id, posted)
    if first is posted:
        _wake(run)
        return None
    return first


def _wake(run: _Run) -> None:
    owner = run.owner
    if owner is not None:
        owner.news.set()


def _blob(run: _Run, run_id: str, sha: str) -> bytes:
    with run.lock:
        data = run.blobs.get(sha)
    if data is None:
        raise RunCorrupt("run %s has no blob %s" % (run_id, sha), run_id)
    return data


def _head(run: _Run) -> Dict[str, Any]:
    with run.lock:
        head = dict(run.head, created_at=run.created_at)
    standing = Standing(run.read())
    head.update(standing.shown())
    head["status"] = "finished" if standing.finished else "interrupted"
    return head
