"""Import modules and say what happened meanwhile.

A script for `test_house`, run in a fresh interpreter as `python -B import_watch.py FOLDER NAMES`: the watch
begins before the first import and notes what happens while a file of the package is being executed.
"""

# What Python 3.8 does for whoever imports these two first is not the package's doing: the one reads
# /etc/mime.types, the other runs `uname`.
import http.server  # noqa: F401
import importlib
import json
import logging
import os
import sys
import threading
import uuid  # noqa: F401

FORBIDDEN = (
    "_thread.start_new_thread", "glob.", "os.chmod", "os.exec", "os.fork", "os.listdir", "os.mkdir",
    "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.scandir", "os.system", "shutil.", "signal.",
    "socket.", "sqlite3.", "subprocess.", "tempfile.", "urllib.",
)
HEAVY = {"requests", "jsonschema", "urllib3", "asyncio"}
PACKAGE = sys.argv[1]
seen = []


def note(what):
    """Keep what happened if a module of the package is being executed."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            seen.append("%s at %s:%s" % (what, name[len(PACKAGE) + 1:], frame.f_lineno))
            return
        frame = frame.f_back


def hook(event, args):
    """See what the interpreter itself reports."""
    if event == "open" and isinstance(args[0], str) and not args[0].endswith((".py", ".pyc", ".so", ".pyd")):
        note("open %s" % args[0])
    elif event.startswith(FORBIDDEN) and not looks_for_modules(event):
        note(event)


def looks_for_modules(event):
    """Say whether it is the import system that looks into a folder."""
    return event in ("os.listdir", "os.scandir") and "importlib" in sys._getframe(2).f_code.co_filename


class WatchedEnvironment(type(os.environ)):
    """The process environment, which notes who reads it."""

    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in ("os", "_collections_abc", "collections.abc"):
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(PACKAGE):
            note("environment %r" % key)
        return super().__getitem__(key)


def start(thread, _start=threading.Thread.start):
    """Start a thread, as `Thread.start` does, and note it; older interpreters report no event."""
    note("thread %s" % thread.name)
    _start(thread)


def main():
    os.environ.__class__ = WatchedEnvironment
    threading.Thread.start = start
    sys.addaudithook(hook)
    handlers = len(logging.root.handlers)
    for name in json.loads(sys.argv[2]):
        importlib.import_module(name)
    if len(logging.root.handlers) != handlers:
        seen.append("a handler on the root logger")
    heavy = sorted(HEAVY & set(sys.modules))
    print(json.dumps({"seen": seen, "threads": threading.active_count(), "heavy": heavy}))


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    main()
