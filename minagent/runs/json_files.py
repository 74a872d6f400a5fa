"""`JsonFileRuns`: runs as folders of JSON that a person can read.

::

    <root>/<yymm>/<run_id>/
        journal.jsonl   the truth, one record a line
        run.json        what a person looks at; a cache
        blobs/<sha256>  large values
        inbox/<id>.json decisions, from any process
        cancel          somebody asked to cancel
        lock            held by the kernel while the run is owned

For one machine and a local disk.  What is not here: writing a journal (`file_lease`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from ..errors import ConfigError, RunBusy, RunError, RunNotFound
from . import files, inbox, locks
from .base import Lease, Posted, Record, RunStore
from .file_lease import CANCEL, HEAD, INBOX, JOURNAL, LOCK, FileLease, read_blob
from .ids import check_run_id, usable_as_name
from .listing import newest_first
from .records import check_schema, from_journal, last_record, to_line
from .standing import Standing

#: What to do about an error, by its number.
_ADVICE = dict.fromkeys((errno.EACCES, errno.EPERM), "; a store is for one user: work as that one, or chown the "
                        "files that are another's")
_ADVICE[errno.EROFS] = "; runs on a read-only file system can be looked at, and not made or taken further"

_SHARD = re.compile(r"\d{4}\Z")

#: Seconds that making a run waits for others who are making theirs.
_PATIENCE = 30.0

#: A lock that only garbage has is looked for after so many seconds of them.
_SUSPICION = 1.0

#: How many of a journal's last bytes are read to see whether it ends as its head says.
_TAIL = 8192

#: Seconds after which what a killed process left half made or half deleted is removed by `prune`.
_DEBRIS_AGE = 86400.0


class JsonFileRuns(RunStore):
    """Keeps runs below a folder, which is made with the first run.  Nothing is opened before it is needed.

    Parameters:
        root: The folder.  Others must not be able to write to it.
        now: Seconds since the epoch.
    """

    def __init__(self, root: Union[str, os.PathLike[str]], now: Callable[[], float] = time.time):
        super().__init__(now)
        self.root = os.path.abspath(os.fspath(root))

    def __repr__(self) -> str:
        return "JsonFileRuns(%r)" % self.root

    # Making, owning, deleting.

    def create(self, run_id: str, record: Record) -> Optional[Lease]:
        check_run_id(run_id)
        check_schema(record, run_id)
        line = to_line(record)
        with self.translated(run_id), ExitStack() as undo:
            self._make_root()
            if self._find(run_id) is not None:
                return None
            shard = self._shard()
            draft = os.path.join(shard, ".new-%s-%s" % (run_id, os.urandom(6).hex()))
            os.mkdir(draft, 0o700)
            undo.callback(files.remove_tree, draft)
            held = _owned_from_birth(draft)
            undo.callback(held.release)
            files.write_file(os.path.join(draft, JOURNAL), line, sync=True)
            files.sync_folder(draft)
            lease = self._place(run_id, draft, os.path.join(shard, run_id), held)
            if lease is not None:
                lease.epoch = record.get("epoch", 1)  # the first record is of this ownership already
                undo.pop_all()
            return lease

    def _make_root(self) -> None:
        try:
            os.makedirs(self.root, 0o700, exist_ok=True)
        except FileNotFoundError as error:  # not to be taken for a run that is not there
            raise ConfigError("the folder %s of this store cannot be made: %s" % (self.root, error)) from error
        files.check_private(self.root)

    def _shard(self) -> str:
        shard = os.path.join(self.root, time.strftime("%y%m", time.gmtime(self._now())))
        if files.make_folder(shard):
            files.sync_folder(self.root)
        return shard

    def _place(self, run_id: str, draft: str, folder: str, held: locks.Held) -> Optional[FileLease]:
        """Give a complete run its name, unless another one has it by now."""
        with self._alone():
            if self._find(run_id) is not None:
                return None
            if os.name == "nt":  # which moves no folder in which a file is open
                held.release()
            os.rename(draft, folder)
        files.sync_folder(os.path.dirname(folder))
        return FileLease(self, run_id, folder, self._own(run_id, folder) if os.name == "nt" else held)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only one who gives names: a run of that id may be in another month's folder, too."""
        held = None
        try:  # from before it is taken, so that nothing comes between that and its release
            held = _wait_for(os.path.join(self.root, LOCK))
            yield
        finally:
            if held is not None:
                held.release()

    def acquire(self, run_id: str) -> Lease:
        folder = self._folder(run_id)
        with self.translated(run_id):
            held = self._own(run_id, folder)
            try:
                held.sign()
                return FileLease(self, run_id, folder, held)
            except BaseException:
                held.release()
                raise

    def _own(self, run_id: str, folder: str) -> locks.Held:
        path = os.path.join(folder, LOCK)
        held = locks.take(path)
        if held is None and locks.search(path):
            held = locks.take(path)
        if held is None:
            raise RunBusy("run %s is owned by %s; try again later" % (run_id, _signature(path)), run_id)
        return held

    def delete(self, run_id: str) -> None:
        folder = self._folder(run_id)
        gone = os.path.join(os.path.dirname(folder), ".gone-%s-%s" % (run_id, os.urandom(6).hex()))
        with self.translated(run_id):
            held = self._own(run_id, folder)
            try:
                if os.name == "nt":
                    held.release()
                os.rename(folder, gone)
            finally:
                held.release()
        files.remove_tree(gone)

    def prune(self, older_than: float, status: str = "finished") -> List[str]:
        pruned = super().prune(older_than, status)
        for shard in self._shards():
            for name, changed_at in self._entries(shard):
                if name.startswith((".new-", ".gone-")) and changed_at < time.time() - _DEBRIS_AGE:
                    files.remove_tree(os.path.join(shard, name))
        return pruned

    # Looking.

    def read(self, run_id: str) -> List[Record]:
        folder = self._folder(run_id)
        with self.translated(run_id):
            return from_journal(files.read_file(os.path.join(folder, JOURNAL)), run_id)[0]

    def inbox(self, run_id: str) -> Dict[str, Posted]:
        folder = self._folder(run_id)
        with self.translated(run_id):
            found = inbox.read(os.path.join(folder, INBOX), {})
        return {posted["id"]: posted for posted in found.values()}

    def get_blob(self, run_id: str, sha: str) -> bytes:
        folder = self._folder(run_id)
        with self.translated(run_id):
            return read_blob(folder, run_id, sha)

    def _owned(self, run_id: str) -> bool:
        path = os.path.join(self._folder(run_id), LOCK)
        with self.translated(run_id):
            return locks.taken(path)

    # Telling the owner.

    def cancel(self, run_id: str) -> None:
        if self.standing(run_id).finished:
            return
        folder = self._folder(run_id)
        with self.translated(run_id):
            os.close(files.open_file(os.path.join(folder, CANCEL), os.O_WRONLY | os.O_CREAT))
            _wake(folder)

    def _insert(self, run_id: str, suspension_id: str, posted: Posted) -> Optional[Posted]:
        folder = self._folder(run_id)
        with self.translated(run_id):
            first = inbox.insert(os.path.join(folder, INBOX), posted, self._alone)
            if first is None:
                _wake(folder)
        return first

    # Finding.

    def _folder(self, run_id: str) -> str:
        folder = self._find(check_run_id(run_id))
        if folder is None:
            raise RunNotFound("there is no run %s below %s; check the id, and that it ran with this store"
                              % (run_id, self.root), run_id)
        return folder

    def _find(self, run_id: str) -> Optional[str]:
        refused: Optional[OSError] = None
        for shard in self._shards():
            folder = os.path.join(shard, run_id)
            try:
                if files.is_folder(folder):
                    return folder
            except OSError as error:  # another user's month; the run may be in a month of ours
                refused = refused or error
        if refused is not None:
            raise self._unusable(run_id, refused) from refused
        return None

    def _shards(self) -> List[str]:
        """The months' folders, newest first."""
        names = sorted((name for name, _ in self._entries(self.root) if _SHARD.match(name)), reverse=True)
        if names:
            with self.translated():
                files.check_private(self.root)  # what others can put there is not read either
        return [os.path.join(self.root, name) for name in names]

    def _entries(self, folder: str) -> List[Tuple[str, float]]:
        with self.translated():
            return list(files.entries(folder))

    def _newest_first(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        for shard in self._shards():
            heads = {name: self._head(name, os.path.join(shard, name))
                     for name, _ in self._entries(shard) if usable_as_name(name)}
            yield from newest_first(heads)

    def _head(self, run_id: str, folder: str) -> Dict[str, Any]:
        """What the last owner showed; without a status unless that is final and the journal ends so."""
        try:
            head = json.loads(files.read_file(os.path.join(folder, HEAD)).decode("utf-8"))
        except (OSError, RunError, ValueError, RecursionError):
            head = None
        if not _usable(head):  # a cache: made again from the journal
            return self._rebuilt(run_id)
        if head.pop("status", None) == "finished":
            head.update(_ending(os.path.join(folder, JOURNAL), head))
        return dict(head)

    def _rebuilt(self, run_id: str) -> Dict[str, Any]:
        try:
            return Standing(self.read(run_id)).shown()
        except RunError:  # `list` says so
            return {}

    @contextmanager
    def translated(self, run_id: Optional[str] = None) -> Iterator[None]:
        """Say of a file that is not there that the run is not, and of other trouble which run has it."""
        try:
            yield
        except FileNotFoundError as error:
            if run_id is None:
                raise self._unusable(run_id, error) from error
            raise RunNotFound("run %s was deleted, or its folder is not complete: %s" % (run_id, error),
                              run_id) from error
        except OSError as error:
            raise self._unusable(run_id, error) from error

    def _unusable(self, run_id: Optional[str], error: OSError) -> RunError:
        of = "" if run_id is None else " of run %s" % run_id
        return RunError("the store%s cannot be used: %s; check the disk and the permissions of %s%s"
                        % (of, error, self.root, _ADVICE.get(error.errno or 0, "")), run_id)


def _owned_from_birth(draft: str) -> locks.Held:
    held = locks.take(os.path.join(draft, LOCK))
    if held is None:
        raise RunError("the new folder %s is locked already; see which process did that" % draft)
    held.sign()
    return held


def _wait_for(path: str) -> locks.Held:
    begun = time.monotonic()
    while True:
        held = locks.take(path)
        if held is not None:
            return held
        waited = time.monotonic() - begun
        if waited > _PATIENCE:
            raise RunError("the lock %s was held for %d s by %s; see what that is doing"
                           % (path, _PATIENCE, "this process" if locks.holder(path) else "another process"))
        if waited > _SUSPICION:
            locks.search(path)
        time.sleep(0.001)


def _signature(path: str) -> str:
    """Who has a lock, as its file says."""
    try:
        return files.read_file(path).decode("utf-8", "replace").strip() or "somebody"
    except OSError:
        return "somebody"


def _ending(journal: str, head: Dict[str, Any]) -> Dict[str, Any]:
    """What the last record says of a run that its head calls finished; nothing if that is not so."""
    try:
        tail, size = files.read_tail(journal, _TAIL)
    except (OSError, RunError):
        return {}
    last = last_record(tail) if head.get("journal_bytes") == size else None
    if last is None or last["status"] != "completed":
        return {}
    return {"status": "finished", "updated_at": last.get("at", 0.0), "last_seq": last["seq"]}


def _usable(head: Any) -> bool:
    """Whether a head has the times that a list is sorted by."""
    times = [head.get("created_at"), head.get("updated_at")] if isinstance(head, dict) else [None]
    return all(isinstance(at, (int, float)) and 0 <= at < 1e12 for at in times)


def _wake(folder: str) -> None:
    held = locks.holder(os.path.join(folder, LOCK))
    if held is not None:
        held.news.set()
