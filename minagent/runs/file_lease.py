"""`FileLease`: the ownership of a run on disk, and the writing of its journal.

One record is one write of a whole line; what was written in part is cut off again.  What is not here: finding
and making runs (`json_files`).
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from threading import Lock
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from ..errors import OwnershipLost, RunCorrupt, RunError
from . import decisions as deciding
from . import files, inbox
from .base import Lease, Posted, Record, already_decided, check_turn
from .locks import Held
from .records import from_journal, to_line
from .standing import Standing

JOURNAL = "journal.jsonl"
TORN = "journal.torn"
HEAD = "run.json"
CANCEL = "cancel"
INBOX = "inbox"
BLOBS = "blobs"
LOCK = "lock"


class FileLease(Lease):
    """Ownership of a run on disk, until it is released or nobody has this object any more.

    Parameters:
        store: The `JsonFileRuns`.
        folder: The run's.
        held: The run's lock; it is released with the lease.
    """

    def __init__(self, store: Any, run_id: str, folder: str, held: Held):
        self.run_id = run_id
        self._store = store
        self._folder = folder
        self._held = held
        self._pid = os.getpid()
        self._lock = Lock()  # guards _fd, _size, _seq, _broken, _fresh and _inbox
        self._putting = Lock()  # guards _put: who is told of a blob may rely on its being there and noted
        self._syncing = Lock()  # held while something is written out; taken before _lock
        self._fd = files.open_file(os.path.join(folder, JOURNAL), os.O_RDWR | os.O_APPEND)
        self._held.fds.append(self._fd)
        self._broken = ""
        self._cancelled = False
        self._updated_at = 0.0
        self._fresh: List[str] = []
        self._put: Set[str] = set()
        self._inbox: Dict[str, Posted] = {}
        try:
            self._load()
        except BaseException:
            self._close()
            raise

    def _load(self) -> None:
        data = files.read_all(self._fd)
        self.records, self._size = from_journal(data, self.run_id)
        if self._size < len(data):
            self._cut(data[self._size:])
        self._synced = self._size
        self._seq = self.records[-1]["seq"]
        self._updated_at = self.records[-1].get("at", 0.0)
        self.epoch = max(record.get("epoch", 0) for record in self.records) + 1

    def _cut(self, torn: bytes) -> None:
        """Set a torn tail aside, so that the next record does not grow together with it."""
        files.write_file(os.path.join(self._folder, TORN), torn, sync=True)
        os.ftruncate(self._fd, self._size)
        files.sync_file(self._fd)

    # Records.

    def append(self, record: Record) -> None:
        line = to_line(record)
        self._check_owner()  # before a lock that may have been held when this process was forked
        with self._lock:
            self._check()
            check_turn(self, record, self._seq)
            self._broken = "a record was interrupted"  # if this is left before its end, the file knows better
            self._write(line)
            self._size += len(line)
            self._seq += 1
            self._updated_at = record.get("at", 0.0)
            self._broken = ""

    def _check_owner(self) -> None:
        if self._pid != os.getpid() or self._fd < 0:
            raise OwnershipLost("run %s is not owned by this lease any more (it was released, or this "
                                "process was forked); acquire it again" % self.run_id, self.run_id)

    def _check(self) -> None:
        """As `_check_owner`, and that records can still be relied on.  Only under _lock."""
        self._check_owner()
        if self._broken:
            raise RunError("run %s takes no more records: %s; resume it" % (self.run_id, self._broken),
                           self.run_id)

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self._roll_back()
            raise self._failed("be written", error) from error
        except BaseException:  # a KeyboardInterrupt may come after some bytes
            self._roll_back()
            raise
        if written != len(line):
            self._roll_back()
            raise self._failed("be written", "only %d of %d bytes were taken" % (written, len(line)))

    def _roll_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
            self._broken = ""
        except OSError as error:
            self._broken = "a record that was written in part could not be cut off (%s)" % error

    def _failed(self, what: str, error: object) -> RunError:
        return RunError("a record of run %s could not %s to %s: %s; make room or repair the disk, then resume"
                        % (self.run_id, what, self._folder, error), self.run_id)

    def sync(self) -> None:
        self._check_owner()
        goal = self._size
        with self._syncing:  # who waits here is served by the one before, if that one began late enough
            with self._lock:
                self._check()
                end, fresh, self._fresh = self._size, self._fresh, []
            if self._synced >= goal and not fresh:
                return
            try:
                self._write_out(fresh)
            except OSError as error:
                # What the system could not write it may count as written: a second try proves nothing.
                self._broken = "earlier records did not reach the disk (%s)" % error
                raise self._failed("be brought", error) from error
            self._synced = end

    def _write_out(self, fresh: List[str]) -> None:
        for path in fresh:  # blobs first: no record on disk names one that is not
            files.sync_path(path)
        if fresh:
            files.sync_folder(os.path.join(self._folder, BLOBS))
            files.sync_folder(self._folder)
        files.sync_file(self._fd)

    # The inbox.

    def inbox(self) -> Dict[str, Posted]:
        with self._store.translated(self.run_id), self._lock:
            self._inbox = inbox.read(os.path.join(self._folder, INBOX), self._inbox)
            return {posted["id"]: dict(posted) for posted in self._inbox.values()}

    def post(self, suspension_id: str, decision: Any) -> None:
        data = deciding.plain(decision, self.run_id)
        posted = {"id": suspension_id, "decision": data, "at": self._store._now()}
        first = self._store._insert(self.run_id, suspension_id, posted)
        if first is not None:
            raise already_decided(self.run_id, suspension_id, first)

    def wait_inbox(self, timeout: Optional[float] = None) -> None:
        self._held.news.wait(timeout)
        self._held.news.clear()

    def cancel_asked(self) -> bool:
        if not self._cancelled and self._fd >= 0 and self._pid == os.getpid():
            try:
                os.unlink(os.path.join(self._folder, CANCEL))
                self._cancelled = True
            except FileNotFoundError:
                pass
            except OSError as error:
                raise RunError("run %s was asked to cancel, and the request cannot be used up: %s; check the "
                               "permissions of %s" % (self.run_id, error, self._folder), self.run_id) from error
        return self._cancelled

    # Blobs and the head.

    def put_blob(self, data: bytes) -> str:
        self._check_owner()
        sha = sha256(data).hexdigest()
        path = os.path.join(self._folder, BLOBS, sha)
        with self._putting:
            if sha not in self._put:
                self._attempt(lambda: _keep_blob(path, sha, data))
                self._put.add(sha)
                with self._lock:
                    self._fresh.append(path)  # the last owner may have left it unsynced
        return sha

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise self._failed("be written", error) from error

    def get_blob(self, sha: str) -> bytes:
        with self._store.translated(self.run_id):
            return read_blob(self._folder, self.run_id, sha)

    def head(self, shown: Mapping[str, Any]) -> None:
        with self._lock:
            if self._pid != os.getpid() or self._fd < 0:
                return
            facts = Standing(self.records[:1]).shown()
            facts.update(run_id=self.run_id, updated_at=self._updated_at, last_seq=self._seq,
                         journal_bytes=self._size, epoch=self.epoch)
            path = os.path.join(self._folder, HEAD)
            try:
                files.write_file(path + ".new", _pretty(dict(shown, **facts)), sync=False)
                files.replace(path + ".new", path)
            except (OSError, RunError):  # a cache; the next one who looks makes it from the journal
                pass

    # The end.

    def release(self) -> None:
        if self._pid == os.getpid():
            with self._syncing, self._lock:
                self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._held.fds.remove(fd)
            os.close(fd)
        self._held.release()


def _pretty(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=1).encode("ascii")


def _keep_blob(path: str, sha: str, data: bytes) -> None:
    if _holds(path, sha):
        return
    folder = os.path.dirname(path)
    files.make_folder(folder)
    draft = os.path.join(folder, "." + os.urandom(8).hex())
    files.write_file(draft, data, sync=False)
    files.replace(draft, path)


def _holds(path: str, sha: str) -> bool:
    """Whether a blob is there and whole; after a power failure it may be neither."""
    try:
        return sha256(files.read_file(path)).hexdigest() == sha
    except FileNotFoundError:
        return False


def read_blob(folder: str, run_id: str, sha: str) -> bytes:
    """A blob of a run's folder.

    Raises:
        RunCorrupt: If it is not there or damaged.
    """
    if len(sha) != 64 or set(sha) - set("0123456789abcdef"):
        raise RunCorrupt("run %s has no blob %r; expected 64 hexadecimal digits" % (run_id, sha), run_id)
    path = os.path.join(folder, BLOBS, sha)
    try:
        data = files.read_file(path)
    except FileNotFoundError as error:
        raise RunCorrupt("run %s has lost its blob %s; restore it from a backup" % (run_id, path),
                         run_id) from error
    if sha256(data).hexdigest() != sha:
        raise RunCorrupt("the blob %s is damaged; restore it from a backup" % path, run_id)
    return data
