"""The journal: the ordered records of one run, the only thing that its state is made of.

Appended first, applied second: a record is handed to the lease, and then folded into the entries and the
state, under one lock.  Listeners are told after the lock is released.  What is not here: bytes, files and
ownership; a lease of `runs` has those.

A record is a dict ``{seq, at, epoch, path, status, output, changes}`` with status started, done, suspended,
decided or noted; the run's own records have the path "" and a status of `RUN_STATUSES`.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence

from ..errors import Abort, OwnershipLost, Signal, Suspend
from .entries import Entry

RUN_STATUSES = ("created", "owned", "cancel-asked", "completed", "checkpoint")
Record = Dict[str, Any]


class NullLease:
    """Keeps nothing.  What a lease must have to carry a journal: these members."""

    epoch = 1

    def __init__(self, run_id: str = "run", records: Iterable[Record] = ()):
        self.run_id = run_id
        self.records = list(records)

    def append(self, record: Record) -> None:
        """Keep a record, or raise and keep nothing."""

    def sync(self) -> None:
        """Return when all that was appended is on disk."""


class NullState:
    """A fold of nothing.  What a state must have: these members."""

    def apply(self, record: Record) -> None:
        """Fold one record."""

    def to_dict(self) -> Dict[str, Any]:
        return {}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take the state that `to_dict` wrote."""


class Journal:
    """The records of one run, folded.

    Parameters:
        lease: What keeps them, such as a `NullLease` or a lease of a store; its `records` are folded first.
        state: What they are folded into besides the entries.
        listener: Told each record after it was written and folded.
        now: Seconds since the epoch.

    Attributes:
        root: The entries.
        seq: Number of the last record, 0 before the first.
        completed: Whether the run is recorded as finished.
        aborted: Output of the record that aborted the run, or None.
    """

    def __init__(self, lease: Any = None, state: Any = None,
                 listener: Optional[Callable[[Record], None]] = None, now: Callable[[], float] = time.time):
        self.lease = lease if lease is not None else NullLease()
        self.state = state if state is not None else NullState()
        self.now = now
        self.listener = listener
        self.root = Entry()
        self.seq = 0
        self.aborted: Any = None
        self.completed = False
        self.closed = False
        self._lock = threading.Lock()  # guards seq, closed, and the order of lease, entries and state
        for record in self.lease.records:
            self._fold(record)

    @property
    def run_id(self) -> str:
        run_id: str = self.lease.run_id
        return run_id

    def append(self, entry: Entry, status: str, output: Any = None, changes: Sequence[Mapping[str, Any]] = (),
               sync: bool = False, signal: str = "") -> None:
        """Write a record of a place, fold it, and tell the listener.

        Raises:
            OwnershipLost: If the journal was closed meanwhile.
        """
        record: Record = {"seq": 0, "at": self.now(), "epoch": self.lease.epoch, "path": entry.path(),
                          "status": status}
        if output is not None:
            record["output"] = output
        if changes:
            record["changes"] = list(changes)
        if signal:
            record["signal"] = signal
        with self._lock:
            if self.closed:
                raise OwnershipLost("run %s is closed; a late record of %r was dropped" % (
                    self.run_id, record["path"]))
            record["seq"] = self.seq + 1
            self._keep(record, entry)
        if sync:
            self.lease.sync()
        if self.listener is not None:
            self.listener(record)

    def _keep(self, record: Record, entry: Entry) -> None:
        self.closed = True  # if this is left halfway, nothing may follow
        try:
            self.lease.append(record)
        except Exception:
            self.closed = False
            raise
        self._fold(record, entry)
        self.closed = False

    def append_run(self, status: str, output: Any = None, changes: Sequence[Mapping[str, Any]] = (),
                   sync: bool = False) -> None:
        """Write a record of the run itself; its status is one of `RUN_STATUSES`."""
        self.append(self.root, status, output, changes, sync)

    def append_failure(self, entry: Entry, error: BaseException) -> None:
        """Record why a leaf was left: a signal with its own status and changes, anything else as noted.

        An error may have a dict `noted`, which is recorded with it.
        """
        name = type(error).__name__
        if not isinstance(error, Signal):
            about: Dict[str, Any] = {"error": {"type": name, "message": str(error)}, **getattr(error, "noted", {})}
            self.append(entry, "noted", about, [{"type": "ended-early"}], False, name)
        elif isinstance(error, Abort):
            output = error.output if error.output is not None else {"reason": error.reason}
            self.append(entry, error.status, output, error.changes, True, Abort.__name__)
        elif error.status == "noted" or isinstance(error, Suspend) and not error.output:
            # A Suspend without an output of its own waits elsewhere, such as in another engine's journal.
            about = error.output if isinstance(error.output, dict) else {}
            self.append(entry, "noted", dict(about, reason=error.reason), error.changes, False, name)
        else:
            self.append(entry, error.status, error.output, error.changes, True, name)

    def close(self) -> None:
        """Take no more records; late ones of abandoned threads are refused."""
        with self._lock:
            self.closed = True

    def checkpoint(self) -> Record:
        """One record that stands for all records so far."""
        with self._lock:
            output = {"entries": self.root.to_dict(), "state": self.state.to_dict(), "aborted": self.aborted}
            return {"seq": self.seq, "at": self.now(), "epoch": self.lease.epoch, "path": "",
                    "status": "checkpoint", "output": output}

    def _fold(self, record: Record, entry: Optional[Entry] = None) -> None:
        self.seq = record["seq"]
        status = record["status"]
        if status == "checkpoint":
            self._restore(record["output"])
            return
        if status not in RUN_STATUSES:
            (entry if entry is not None else self.root.at(record["path"])).take(record)
            if record.get("signal") == Abort.__name__:
                self.aborted = record.get("output", {})
        self.completed = self.completed or status == "completed"
        self.state.apply(record)

    def _restore(self, output: Mapping[str, Any]) -> None:
        self.root = Entry.from_dict(output["entries"])
        self.aborted = output.get("aborted")
        self.state.restore(output["state"])
