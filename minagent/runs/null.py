"""`NullRuns`, the member of the family that keeps nothing: an agent without a store has this one.

The inbox works while a run goes on, so that its own background work can report.  What is not here: snapshots,
which the agent makes itself.
"""

from __future__ import annotations

import json
from hashlib import sha256
from threading import Event, Lock
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import RunCorrupt, RunNotFound
from . import decisions as deciding
from .base import Lease, Posted, Record, RunStore, already_decided
from .ids import check_run_id


class NullRuns(RunStore):
    """Keeps nothing after the call: no run can be taken up by its id."""

    keeps = False
    durable = False

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._live: Dict[str, List[NullRunLease]] = {}
        self._lock = Lock()  # guards _live

    def create(self, run_id: str, record: Record) -> Lease:
        """A lease that keeps nothing; an id may be used again and again."""
        return self._lease(check_run_id(run_id), [record], record.get("epoch", 1))

    def restore(self, run_id: str, checkpoint: Record) -> Lease:
        """A lease that begins with a checkpoint record, as a snapshot has it; the record is copied."""
        record = json.loads(json.dumps(checkpoint))
        return self._lease(check_run_id(run_id), [record], record.get("epoch", 0) + 1)

    def _lease(self, run_id: str, records: List[Record], epoch: int) -> Lease:
        lease = NullRunLease(self, run_id, records, epoch)
        with self._lock:
            self._live.setdefault(run_id, []).append(lease)
        return lease

    def _forget(self, lease: NullRunLease) -> None:
        with self._lock:
            leases = self._live.get(lease.run_id, [])
            if lease in leases:
                leases.remove(lease)
            if not leases:
                self._live.pop(lease.run_id, None)

    def acquire(self, run_id: str) -> Lease:
        raise self._none(run_id)

    def read(self, run_id: str) -> List[Record]:
        raise self._none(run_id)

    def inbox(self, run_id: str) -> Dict[str, Posted]:
        raise self._none(run_id)

    def get_blob(self, run_id: str, sha: str) -> bytes:
        raise self._none(run_id)

    def delete(self, run_id: str) -> None:
        raise self._none(run_id)

    def cancel(self, run_id: str) -> None:
        """Ask to cancel a run of this object that goes on now.

        Raises:
            RunNotFound: If there is none.
        """
        with self._lock:
            leases = list(self._live.get(check_run_id(run_id), ()))
        if not leases:
            raise self._none(run_id)
        for lease in leases:
            lease.ask_cancel()

    def _newest_first(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        return iter(())

    def _none(self, run_id: str) -> RunNotFound:
        check_run_id(run_id)
        return RunNotFound('run %s cannot be looked up: the agent has no store, so nothing was '
                           'kept; pass runs=JsonFileRuns("var/runs") to the agent' % run_id, run_id)


class NullRunLease(Lease):
    """Keeps the inbox and the blobs, as long as it lives."""

    def __init__(self, store: NullRuns, run_id: str, records: List[Record], epoch: int):
        self.run_id = run_id
        self.epoch = epoch
        self.records = records
        self._store = store
        self._inbox: Dict[str, Posted] = {}
        self._blobs: Dict[str, bytes] = {}
        self._news = Event()
        self._cancelled = False

    def append(self, record: Record) -> None:
        """Keep nothing."""

    def sync(self) -> None:
        """Nothing is to be written."""

    def inbox(self) -> Dict[str, Posted]:
        return dict(self._inbox)

    def post(self, suspension_id: str, decision: Any) -> None:
        data = deciding.plain(decision, self.run_id)
        posted = {"id": suspension_id, "decision": data, "at": self._store._now()}
        if self._inbox.setdefault(suspension_id, posted) is not posted:
            raise already_decided(self.run_id, suspension_id, self._inbox[suspension_id])
        self._news.set()

    def wait_inbox(self, timeout: Optional[float] = None) -> None:
        self._news.wait(timeout)
        self._news.clear()

    def cancel_asked(self) -> bool:
        return self._cancelled

    def ask_cancel(self) -> None:
        """Tell the lease's holder to stop."""
        self._cancelled = True
        self._news.set()

    def put_blob(self, data: bytes) -> str:
        sha = sha256(data).hexdigest()
        self._blobs[sha] = bytes(data)
        return sha

    def get_blob(self, sha: str) -> bytes:
        if sha not in self._blobs:
            raise RunCorrupt("run %s has no blob %s: the agent has no store, so none is kept after the call"
                             % (self.run_id, sha), self.run_id)
        return self._blobs[sha]

    def head(self, shown: Mapping[str, Any]) -> None:
        """Nobody looks."""

    def release(self) -> None:
        self._store._forget(self)
