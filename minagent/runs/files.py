"""Files and folders, as private and as careful as a store of runs needs them.

Nothing here follows a symbolic link, and everything that is made is for its owner only (0600, 0700).  What is
not here: what the files mean (`file_lease`, `inbox`, `json_files`), and locks.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from typing import Iterator, List, Tuple

from ..errors import ConfigError, RunError

_CAREFUL = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_fdatasync = getattr(os, "fdatasync", os.fsync)

#: Windows refuses to replace a file while somebody reads it; so long it is tried again, in seconds.
PATIENCE = 1.0


def open_file(path: str, flags: int) -> int:
    """Open a file and return its descriptor; one that is made is for its owner only.

    Raises:
        RunError: If it is a symbolic link.
        OSError: If it cannot be opened.
    """
    try:
        return os.open(path, flags | _CAREFUL, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise _linked(path) from error
        raise


def _linked(path: str) -> RunError:
    return RunError("%s is a symbolic link, which a store of runs does not follow; put a folder or file there"
                    % path)


def read_file(path: str) -> bytes:
    """All bytes of a file."""
    fd = open_file(path, os.O_RDONLY)
    try:
        return read_all(fd)
    finally:
        os.close(fd)


def read_tail(path: str, most: int) -> Tuple[bytes, int]:
    """The last bytes of a file, `most` at most, and its size."""
    fd = open_file(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        os.lseek(fd, max(0, size - most), os.SEEK_SET)
        return read_all(fd), size
    finally:
        os.close(fd)


def read_all(fd: int) -> bytes:
    """All bytes from where an open file stands."""
    pieces: List[bytes] = []
    while True:
        piece = os.read(fd, 1 << 20)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, in as many turns as the system wants."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest):]


def write_file(path: str, data: bytes, sync: bool) -> None:
    """Write a whole file anew, to disk as well if `sync`."""
    fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, data)
        if sync:
            _fdatasync(fd)
    finally:
        os.close(fd)


def sync_file(fd: int) -> None:
    """Return when the bytes of an open file are on disk."""
    _fdatasync(fd)


def sync_path(path: str) -> None:
    """Return when the bytes of a file are on disk."""
    fd = open_file(path, os.O_RDWR)
    try:
        _fdatasync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    """Return when the names in a folder are on disk; on Windows there is no such request."""
    if os.name == "nt":
        return
    fd = open_file(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(source: str, target: str) -> None:
    """Give a file the name of another, which is gone then."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return os.replace(source, target)
        except PermissionError:
            if os.name != "nt" or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def make_folder(path: str) -> bool:
    """Make a folder unless it is there.  Returns whether it was made.

    Raises:
        RunError: If a symbolic link or a file is there.
    """
    try:
        os.mkdir(path, 0o700)
        return True
    except FileExistsError:
        is_folder(path)
        return False


def is_folder(path: str) -> bool:
    """Whether a folder is there.

    Raises:
        RunError: If a symbolic link or a file is there.
    """
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        raise _linked(path)
    if not stat.S_ISDIR(mode):
        raise RunError("%s is not a folder; move it away" % path)
    return True


def check_private(path: str) -> None:
    """See that nobody else can put something into a folder.

    Raises:
        ConfigError: If its mode lets them, without the sticky bit.
    """
    mode = os.stat(path).st_mode
    if os.name != "nt" and mode & 0o022 and not mode & stat.S_ISVTX:
        raise ConfigError("the folder of runs %s has mode %04o, so that others can replace what is in it; "
                          "chmod go-w it, or choose another folder" % (path, stat.S_IMODE(mode)))


def entries(path: str) -> Iterator[Tuple[str, float]]:
    """Names and modification times of the folders in a folder, none if it is not there."""
    try:
        found = list(os.scandir(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        try:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name, entry.stat(follow_symlinks=False).st_mtime
        except FileNotFoundError:  # gone since it was listed
            continue


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, or as much of it as can be."""
    shutil.rmtree(path, ignore_errors=True)
