"""The inbox of a run on disk: a file a decision, made once, complete from the moment it can be seen.

What is not here: whether a decision fits (`decisions`).
"""

from __future__ import annotations

import errno
import json
import os
from hashlib import sha256
from typing import Any, Callable, Dict, Mapping, Optional

from ..errors import RunCorrupt
from . import files
from .ids import usable_as_name
from .records import to_bytes

Posted = Dict[str, Any]

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


def file_name(suspension_id: str) -> str:
    """The name of a decision's file: the id itself where that is a name on every system."""
    if usable_as_name(suspension_id):
        return suspension_id + ".json"
    return "id-%s.json" % sha256(suspension_id.encode("utf-8", "surrogatepass")).hexdigest()


def insert(folder: str, posted: Mapping[str, Any], lock: Callable[[], Any]) -> Optional[Posted]:
    """Put a decision into an inbox, on disk, unless there is one of its id.

    Parameters:
        lock: Makes a context in which no other process is, for file systems without hard links.

    Returns:
        The decision that was there, or None.
    """
    if files.make_folder(folder):
        files.sync_folder(os.path.dirname(folder))
    path = os.path.join(folder, file_name(posted["id"]))
    if not publish(path, to_bytes(posted) + b"\n", lock):
        return _read(path)
    files.sync_folder(folder)
    return None


def publish(path: str, data: bytes, lock: Callable[[], Any]) -> bool:
    """Make a file with all its bytes unless there is one of that name.  Returns whether it was made."""
    draft = "%s/.%s" % (os.path.dirname(path), os.urandom(8).hex())
    try:
        files.write_file(draft, data, sync=True)
        return _name(draft, path, lock)
    finally:
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass


def _name(draft: str, path: str, lock: Callable[[], Any]) -> bool:
    try:
        os.link(draft, path)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    with lock():
        if os.path.lexists(path):
            return False
        os.rename(draft, path)
        return True


def read(folder: str, known: Mapping[str, Posted]) -> Dict[str, Posted]:
    """All decisions of an inbox by file name.

    Parameters:
        known: Those that were read before; they are not read again.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    return {name: known[name] if name in known else _read(os.path.join(folder, name))
            for name in sorted(names) if name.endswith(".json")}


def _read(path: str) -> Posted:
    try:
        posted: Posted = json.loads(files.read_file(path).decode("utf-8"))
        return {"id": posted["id"], "decision": posted["decision"], "at": posted["at"]}
    except (ValueError, KeyError, TypeError) as error:
        run_id = os.path.basename(os.path.dirname(os.path.dirname(path)))
        raise RunCorrupt("the decision %s is damaged (%s); delete the file and decide again"
                         % (path, error), run_id) from error
