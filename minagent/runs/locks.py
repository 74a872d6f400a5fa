"""Kernel locks on files: who holds one holds it until it is released or its process ends, however it ends.

A lock belongs to one process.  A process made by fork does not have it, even if it outlives its parent.
The lock's file is never deleted while it matters.  What is not here: what a lock stands for.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
import time
from typing import Any, Dict, List, Optional, Tuple
from weakref import ref

from ..errors import RunError
from .files import open_file, write_all

#: How often a lock is tried again that only those hold who look whether it is held.
_TRIES = 100

#: Seconds from one search for locks that only garbage has to the next one.
SEARCH_PAUSE = 1.0


class Flock:
    """flock(2), which belongs to the open file: it also excludes other threads of this process.

    Parameters:
        fcntl: The module.
    """

    def __init__(self, fcntl: Any):
        self._fcntl = fcntl

    def take(self, fd: int) -> bool:
        """Take the lock if nobody has it."""
        return self._try(fd, self._fcntl.LOCK_EX)

    def taken(self, fd: int) -> bool:
        """Whether somebody has the lock."""
        if not self._try(fd, self._fcntl.LOCK_SH):  # two who look do not see each other
            return True
        self.drop(fd)
        return False

    def drop(self, fd: int) -> None:
        """Give up the lock, for copies of the descriptor in other processes too."""
        self._fcntl.flock(fd, self._fcntl.LOCK_UN)

    def _try(self, fd: int, how: int) -> bool:
        return _granted(lambda: self._fcntl.flock(fd, how | self._fcntl.LOCK_NB))


class ByteLock:
    """Windows: a lock on one byte, far behind the end of the file so that the file can be read.

    Parameters:
        msvcrt: The module.
    """

    _PLACE = 1 << 30

    def __init__(self, msvcrt: Any):
        self._msvcrt = msvcrt

    def take(self, fd: int) -> bool:
        """Take the lock if nobody has it."""
        return _granted(lambda: self._lock(fd, self._msvcrt.LK_NBLCK))

    def taken(self, fd: int) -> bool:
        """Whether somebody has the lock."""
        if not self.take(fd):
            return True
        self.drop(fd)
        return False

    def drop(self, fd: int) -> None:
        """Give up the lock."""
        self._lock(fd, self._msvcrt.LK_UNLCK)

    def _lock(self, fd: int, how: int) -> None:
        place = os.lseek(fd, 0, os.SEEK_CUR)
        os.lseek(fd, self._PLACE, os.SEEK_SET)
        try:
            self._msvcrt.locking(fd, how, 1)
        finally:
            os.lseek(fd, place, os.SEEK_SET)


def _granted(ask: Any) -> bool:
    try:
        ask()
        return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            return False
        raise RunError("the file system has no working locks (%s); keep runs on a local disk"
                       % error) from error


def kernel() -> Any:
    """The kind of locks that this system has."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        return ByteLock(msvcrt)
    return Flock(fcntl)


class Kept:
    """What this process notes of a lock that it holds, without keeping its `Held` alive.

    Attributes:
        fds: Descriptors that a forked child closes, the lock's own first.
        news: Set by threads of this process that have something for the holder.
        key: Device and inode of the file.
        locked: Whether it was locked.
        held: Leads to the `Held` as long as somebody has that.
    """

    def __init__(self, held: Held, kind: Any):
        self.fds: List[int] = []
        self.news = threading.Event()
        self.key = (-1, -1)
        self.locked = False
        self.held = ref(held)
        self._kind = kind

    def free(self) -> None:
        """Give up the lock; can be done again from wherever it was interrupted.  Only under _guard."""
        if self.locked and self.fds:
            self._kind.drop(self.fds[0])  # before the close: a child may have a copy of the descriptor
        if _held.get(self.key) is self:
            del _held[self.key]
        self.close()

    def close(self) -> None:
        """Close the descriptors; again is harmless."""
        while self.fds:
            os.close(self.fds.pop())


class Held:
    """A lock that this process holds, until it is released or nobody has this object any more.

    So an exception that comes before the caller could note the lock, from a signal's handler say, frees it.

    Attributes:
        fds, news: As `Kept`.
    """

    _pid = -1  # of one that was interrupted while it was made: it has nothing to free

    def __init__(self, kind: Any):
        self._kept = Kept(self, kind)
        self.fds = self._kept.fds
        self.news = self._kept.news
        self._kind = kind
        self._pid = os.getpid()

    def grasp(self, path: str) -> bool:
        """Lock the file that has this name now, if nobody has it locked."""
        self.fds.append(open_file(path, os.O_RDWR | os.O_CREAT))
        info = os.fstat(self.fds[0])
        self._kept.key = (info.st_dev, info.st_ino)
        self._kept.locked = _take(self._kind, self.fds[0])
        return self._kept.locked

    def note(self, path: str) -> bool:
        """Let this process know of the lock, unless another file has the name by now.  Only under _guard."""
        if _key(path) != self._kept.key:
            return False
        _held[self._kept.key] = self._kept
        return True

    def noted(self) -> bool:
        """Whether this process knows of the lock."""
        return _held.get(self._kept.key) is self._kept

    def sign(self) -> None:
        """Say in the lock's file who has it.  For people only, so that it may fail."""
        host = os.uname().nodename if hasattr(os, "uname") else "this machine"
        text = ("process %d on %s" % (os.getpid(), host)).encode("utf-8", "replace")
        try:
            # Always of one length: some file systems write a file to disk at once that was cut and filled again.
            write_all(self.fds[0], text[:79].ljust(79) + b"\n")
        except OSError:
            pass

    def release(self) -> None:
        """Give up the lock; again is harmless, and so is a forked child that does it."""
        if self._pid != os.getpid():
            return
        with _guard:
            self._kept.free()

    def __del__(self) -> None:
        # An interrupt that comes in here is lost: little is done after a release, and _sweep does what was not.
        # At the interpreter's exit, when there is no _guard any more, the system frees it.
        if self._pid >= 0 and self.fds and _guard is not None:
            self.release()


_held: Dict[Tuple[int, int], Kept] = {}
# Guards _held and _watching, and keeps forks out between opening and noting a lock.  Reentrant, for a `Held` may
# be collected anywhere.
_guard = threading.RLock()
_watching = False
_searched_at = float("-inf")


def take(path: str) -> Optional[Held]:
    """Take the lock on a file, which is made if it is not there.

    Returns:
        The lock, or None if somebody has it, this process included.

    Raises:
        FileNotFoundError: If its folder is not there.
    """
    kind = kernel()
    with _guard:
        _watch_forks()
        _sweep()
        while _key(path) not in _held:
            held = Held(kind)
            try:
                if not held.grasp(path):
                    break
                if held.note(path):
                    return held
                # The folder was moved away while we waited, and another file has the name now: try that one.
            finally:
                if not held.noted():
                    held.release()
    return None


def _sweep() -> None:
    """Free what nobody has any more and could not be freed when it was collected.  Only under _guard."""
    for kept in [kept for kept in list(_held.values()) if kept.held() is None]:
        kept.free()


def _take(kind: Any, fd: int) -> bool:
    for _ in range(_TRIES):
        if kind.take(fd):
            return True
        if kind.taken(fd):
            return False
        time.sleep(random.random() / 1000)  # somebody was just looking
    return False


def taken(path: str) -> bool:
    """Whether somebody has the lock on a file, this process included."""
    if holder(path) is not None:
        return True
    try:
        fd = open_file(path, os.O_RDONLY)  # whoever may look at a run need not be able to write to it
    except FileNotFoundError:
        return False
    try:
        found: bool = kernel().taken(fd)
        return found
    finally:
        os.close(fd)


def holder(path: str) -> Optional[Kept]:
    """What is noted of the lock on a file, if this process has it."""
    with _guard:
        _sweep()
        return _held.get(_key(path))


def search(path: str) -> bool:
    """Collect garbage if this process has the lock on a file, for it may be that only garbage has it.

    Returns:
        Whether that was done; it takes time, so that it is done seldom.
    """
    global _searched_at
    now = time.monotonic()
    if holder(path) is None or now < _searched_at + SEARCH_PAUSE:
        return False
    _searched_at = now
    gc.collect()
    return True


def _key(path: str) -> Tuple[int, int]:
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return -1, -1
    return info.st_dev, info.st_ino


def _watch_forks() -> None:
    global _watching
    if not _watching and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_drop_all)
        _watching = True


def _drop_all() -> None:
    """In a new child: the locks are the parent's.  Closing a copy of the descriptor leaves them taken."""
    all_kept = list(_held.values())
    _held.clear()
    _guard.release()
    for kept in all_kept:
        kept.close()
