"""The contract of a store of runs: `RunStore` keeps them, a `Lease` is the ownership of one.

A store is asked by anybody at any time; only the lease's holder writes records.  Decisions need no ownership:
they wait in the run's inbox, each id once.  What is not here: what records mean to the loop, and where they
are kept (each member has its file).
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import (
    AlreadyDecided,
    ConfigError,
    OwnershipLost,
    RunBusy,
    RunError,
    RunFinished,
    RunNotFound,
    UnknownSuspension,
)
from ..results import Suspension
from . import decisions as deciding
from .listing import Page, matches, settled_by, sort_key
from .standing import Standing

Record = Dict[str, Any]
Posted = Dict[str, Any]

STATUSES = ("finished", "waiting", "interrupted", "running")


class Lease:
    """Ownership of one run by one process; its threads share it.

    Attributes:
        run_id: The run.
        epoch: Number of this ownership, from 1; it is in every record that is written under it.
        records: All records found when it was acquired, in order.
    """

    run_id: str
    epoch: int
    records: List[Record]

    def append(self, record: Record) -> None:
        """Keep one record, a dict of plain JSON; it need not be on disk when this returns.

        Raises:
            OwnershipLost: If the run is no longer owned: released, after a fork, or by a record out of turn.
            EncodeError: If it is no JSON.
            RunError: If it could not be written; nothing was kept then.
        """
        raise NotImplementedError

    def sync(self) -> None:
        """Return when all that was appended, and every blob put before, is on disk.

        Threads that wait here at the same time share one write-out.

        Raises:
            OwnershipLost, RunError: As `append`.
        """
        raise NotImplementedError

    def inbox(self) -> Dict[str, Posted]:
        """All posted decisions by suspension id, used ones too: ``{"decision": {...}, "at": seconds}``."""
        raise NotImplementedError

    def post(self, suspension_id: str, decision: Any) -> None:
        """Put what a thread of the owner completed into the inbox; not checked against a suspension.

        Raises:
            AlreadyDecided: If there is one of that id.
            InvalidDecision: If it is no decision.
        """
        raise NotImplementedError

    def wait_inbox(self, timeout: Optional[float] = None) -> None:
        """Return when something was posted or cancelled in this process since the last wait.

        At the latest after `timeout` seconds; what other processes post is not noticed before that.
        """
        raise NotImplementedError

    def cancel_asked(self) -> bool:
        """Whether somebody asked to cancel.  The request is used up by the first lease that is told of it."""
        raise NotImplementedError

    def put_blob(self, data: bytes) -> str:
        """Keep bytes beside the records, equal ones once.  Returns their SHA-256 as 64 hexadecimal digits."""
        raise NotImplementedError

    def get_blob(self, sha: str) -> bytes:
        """The bytes that were put.

        Raises:
            RunCorrupt: If they are not there or damaged.
        """
        raise NotImplementedError

    def head(self, shown: Mapping[str, Any]) -> None:
        """Say what a person who looks at the run shall see: status, position, usage, error ….

        A cache; nothing is ever decided by it, and failing to write it is no failure.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Give up the ownership; again is harmless."""
        raise NotImplementedError

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()


class RunStore:
    """Keeps runs: a journal, blobs and an inbox each.  Safe to share between threads.

    A member defines what raises NotImplementedError here.  Every method that takes a run id raises
    ConfigError if it cannot be one, and RunNotFound if there is no such run.

    Parameters:
        now: Seconds since the epoch.

    Attributes:
        keeps: Whether a run can be taken up again by its id; only `NullRuns` says no.
        durable: Whether that is so after this process has ended.
    """

    keeps = True
    durable = True

    def __init__(self, now: Callable[[], float] = time.time):
        self._now = now

    # What a member has.

    def create(self, run_id: str, record: Record) -> Optional[Lease]:
        """Keep a new run with its first record, and own it; the record is on disk when this returns.

        Parameters:
            record: The `created` record (or a checkpoint that the run begins with).

        Returns:
            The lease; None if there is a run of that id.  Of several who create it at once one gets it.

        Raises:
            EncodeError: If the record is no JSON.
            RunTooNew: If it is of a newer format.
            RunError: If it cannot be kept; nothing is left of it then.
        """
        raise NotImplementedError

    def acquire(self, run_id: str) -> Lease:
        """Own a run.  Its epoch is one more than that of the last record; the caller records it.

        Raises:
            RunBusy: If somebody owns it, this process included.
            RunCorrupt, RunTooNew: If its journal cannot be used; it is not owned then.
        """
        raise NotImplementedError

    def read(self, run_id: str) -> List[Record]:
        """All complete records, without owning the run; whoever owns it may be writing meanwhile.

        Raises:
            RunCorrupt, RunTooNew: If the journal cannot be used.
        """
        raise NotImplementedError

    def inbox(self, run_id: str) -> Dict[str, Posted]:
        """As `Lease.inbox`, without owning the run."""
        raise NotImplementedError

    def get_blob(self, run_id: str, sha: str) -> bytes:
        """As `Lease.get_blob`, without owning the run."""
        raise NotImplementedError

    def cancel(self, run_id: str) -> None:
        """Ask to cancel a run: its owner, or whoever owns it next, is told.  A finished run is left alone."""
        raise NotImplementedError

    def delete(self, run_id: str) -> None:
        """Forget a run.

        Raises:
            RunBusy: If it is owned.
        """
        raise NotImplementedError

    def _owned(self, run_id: str) -> bool:
        """Whether somebody owns the run now."""
        raise NotImplementedError

    def _insert(self, run_id: str, suspension_id: str, posted: Posted) -> Optional[Posted]:
        """Put a decision into the inbox unless there is one of that id; returns the one that was there."""
        raise NotImplementedError

    def _newest_first(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Id and last head of every run, by time of creation.

        A status of finished is trusted: it was compared with the records.
        """
        raise NotImplementedError

    # What follows from that.

    def status(self, run_id: str) -> str:
        """How a run stands.

        Returns:
            finished; running (owned now); waiting (suspended, with something that nobody decided); or
            interrupted (cancelled, failed, killed, or decided), which a resume takes further.
        """
        return self._status(run_id, self.standing(run_id))

    def standing(self, run_id: str) -> Standing:
        """The fold of a run's records."""
        return Standing(self.read(run_id))

    def _status(self, run_id: str, standing: Standing) -> str:
        if standing.finished:
            return "finished"
        if self._owned(run_id):
            return "running"
        return "waiting" if standing.suspended and self._undecided(run_id, standing) else "interrupted"

    def _undecided(self, run_id: str, standing: Standing) -> List[Dict[str, Any]]:
        found, now = standing.open, self._now()
        posted = self.inbox(run_id) if found else {}
        return [suspension for key, suspension in found.items()
                if key not in posted and not deciding.expired(suspension, now)]

    def decide(self, run_id: str, suspension_id: str, decision: Any) -> None:
        """Decide a suspension, or end a background task.  Of several decisions the first one counts.

        Parameters:
            decision: `Approve`, `Decline` or `Answer`, or such a one as a dict.

        Raises:
            AlreadyDecided: If it was decided; it carries the first decision.
            RunFinished: If the run has ended.
            UnknownSuspension: If nothing of that id is open.
            InvalidDecision: If the decision does not fit; the suspension stays open.
        """
        data = deciding.plain(decision, run_id)
        standing = self.standing(run_id)
        first = self.inbox(run_id).get(suspension_id)
        if first is None and suspension_id in standing.decided:
            first = {"decision": standing.decided[suspension_id]}
        if first is None:
            deciding.check(self._suspension(run_id, suspension_id, standing), data, run_id, self._now())
            posted = {"id": suspension_id, "decision": data, "at": self._now()}
            first = self._insert(run_id, suspension_id, posted)
        if first is not None:
            raise already_decided(run_id, suspension_id, first)

    def _suspension(self, run_id: str, suspension_id: str, standing: Standing) -> Dict[str, Any]:
        if standing.finished:
            raise RunFinished("run %s has finished; there is nothing left to decide" % run_id, run_id)
        found = standing.open.get(suspension_id)
        if found is None:
            ids = ", ".join(str(item["id"]) for item in self._undecided(run_id, standing)) or "none"
            raise UnknownSuspension("run %s has no open suspension %r; open are: %s"
                                    % (run_id, suspension_id, ids), run_id)
        return found

    def suspensions(self, agent: Optional[str] = None,
                    older_than: Optional[float] = None) -> List[Dict[str, Any]]:
        """What waits for a decision, of the newest run first; each a suspension as a dict with its `run_id`.

        Runs that were cancelled, failed or hit a limit are left out: resume those first.

        Parameters:
            agent: Only of runs of this agent.
            older_than: Only what was asked at least so many seconds ago.
        """
        found: List[Dict[str, Any]] = []
        for run_id, head in self._newest_first():
            if head.get("status") != "finished":
                found.extend(dict(item, run_id=run_id) for item in self._asked(run_id, agent))
        latest = None if older_than is None else self._now() - older_than
        return [item for item in found if latest is None or item.get("created_at", 0.0) <= latest]

    def _asked(self, run_id: str, agent: Optional[str]) -> List[Dict[str, Any]]:
        try:
            standing = self.standing(run_id)
            meant = standing.suspended and agent in (None, standing.about.get("agent"))
            asked = self._undecided(run_id, standing) if meant else []
            return [dict(vars(Suspension.from_dict(item))) for item in asked]
        except RunError:  # deleted meanwhile, or shown by `list` with its error
            return []

    def list(self, status: Optional[str] = None, agent: Optional[str] = None, limit: int = 100,
             cursor: Optional[str] = None, resource_id: Optional[str] = None,
             older_than: Optional[float] = None, metadata: Optional[Mapping[str, Any]] = None) -> Page:
        """Heads of runs, newest first: run_id, status, agent, created_at, updated_at, what the owner showed.

        Parameters:
            status: Only runs that are finished, waiting, interrupted or running.
            agent: Only runs of this agent.
            limit: How many at most.
            cursor: The `cursor` of the page before.
            resource_id: Only runs asked for by this one.
            older_than: Only runs in which nothing has happened for so many seconds.
            metadata: Only runs whose metadata has all these members.

        Raises:
            ConfigError: If the status is none of the four, or the limit is below 1.
        """
        if status not in (None, *STATUSES):
            raise ConfigError("status is %r; expected one of %s" % (status, ", ".join(STATUSES)))
        if limit < 1:
            raise ConfigError("limit is %r; expected 1 or more" % (limit,))
        wanted = {"status": status, "agent": agent, "resource_id": resource_id}
        latest = None if older_than is None else self._now() - older_than
        page = Page()
        for run_id, head in self._newest_first():
            key = sort_key(run_id, head)
            if cursor is not None and key >= cursor:
                continue
            shown = self._shown(run_id, head)
            if shown is None or not matches(shown, wanted, metadata) or not settled_by(shown, latest):
                continue
            if len(page) == limit:
                page.cursor = sort_key(page[-1]["run_id"], page[-1])
                break
            page.append(shown)
        return page

    def _shown(self, run_id: str, head: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        if head.get("status") == "finished":
            return dict(head, run_id=run_id)
        try:
            standing = self.standing(run_id)
            return dict(head, run_id=run_id, status=self._status(run_id, standing), **standing.shown())
        except RunNotFound:  # deleted meanwhile
            return None
        except RunError as error:  # damaged, or not to be read by us
            return dict(head, run_id=run_id, status="interrupted",
                        error={"type": type(error).__name__, "message": str(error)})

    def prune(self, older_than: float, status: str = "finished") -> List[str]:
        """Delete runs in which nothing has happened for so many seconds.  Returns their ids.

        Their records decide; runs that cannot be read are left alone.
        """
        pruned, latest = [], self._now() - older_than
        for head in self.list(status, limit=sys.maxsize, older_than=older_than):
            try:
                if self._stands(head["run_id"], status, latest):
                    self.delete(head["run_id"])
                    pruned.append(head["run_id"])
            except (RunBusy, RunNotFound):  # taken up, or deleted by another one, since it was listed
                continue
        return pruned

    def _stands(self, run_id: str, status: Optional[str], latest: float) -> bool:
        """Whether a run's records say that it has this status, and that since `latest`."""
        try:
            standing = self.standing(run_id)
            found = self._status(run_id, standing)
        except RunError:
            return False
        return status in (None, found) and standing.updated_at <= latest


def already_decided(run_id: str, suspension_id: str, first: Mapping[str, Any]) -> AlreadyDecided:
    """The error that carries the first decision."""
    decision = first["decision"]
    kept = decision if isinstance(decision, Mapping) else {"value": decision}
    return AlreadyDecided("suspension %s of run %s was decided before: %r; a decision is taken once"
                          % (suspension_id, run_id, dict(kept)), run_id, kept)


def check_turn(lease: Lease, record: Record, seq: int) -> None:
    """See that a record is the one after number `seq` in this ownership.

    Raises:
        OwnershipLost: If it is not: two writers are at work.
    """
    if record["seq"] != seq + 1 or record.get("epoch", lease.epoch) != lease.epoch:
        found = (record["seq"], record.get("epoch"), lease.run_id, seq, lease.epoch)
        raise OwnershipLost("record %r of epoch %r came to run %s after record %d in epoch %d; "
                            "two writers are at work" % found, lease.run_id)
