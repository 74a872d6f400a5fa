"""The local model's server: one for all processes of a user, started when it is first needed.

A folder in the user's cache holds a lock, the place of the server and its log.  Whoever needs the server
takes the lock, and starts a keeper (`local_keeper`) if no server answers; the keeper ends the server after
its last user.  What is not here: which server and which model (`local`).
"""

from __future__ import annotations

import json
import os
import pkgutil
import stat
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..errors import ConfigError, ModelUnreachable
from .local_keeper import process_started

#: Seconds without a call after which the server ends.
IDLE_TIMEOUT = 300.0
#: Seconds after the end of its last user until the server ends, so that a next command finds it.
LINGER = 10.0
#: Seconds that the server gets until it answers.
START_TIMEOUT = 120.0
#: Seconds between two looks while waiting.
INTERVAL = 0.05
#: Seconds for ``/health``; a server that is busy answers late, one that is gone refuses at once.
HEALTH_TIMEOUT = 30.0
#: Bytes of the log that an error shows.
SHOWN_LOG = 2000
#: What the server gets of our environment: no keys of anybody, and no options of its own.
PASSED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_", "LD_", "VK_", "LC_")


def private_folder(*names: str) -> str:
    """Return a folder of that path in the user's cache, made if need be, that nobody else can enter.

    Raises:
        ConfigError: If it cannot be made or belongs to somebody else.
    """
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(root, "minagent", *names)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        for depth in range(len(names) + 1):
            _make_private(os.path.join(root, "minagent", *names[:depth]))
    except OSError as error:
        raise ConfigError("the local model needs the folder %r: %s; set XDG_CACHE_HOME to a folder of your own"
                          % (path, error)) from error
    return path


def _make_private(path: str) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError("%s is no folder of this user" % path)
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)


class FileLock:
    """A kernel lock on a file, held in a ``with`` block.  Two threads of a process exclude each other too.

    Parameters:
        path: The file; it is made and never deleted.
        check: Called while waiting; may raise.
    """

    def __init__(self, path: str, check: Callable[[], None] = lambda: None):
        self._path = path
        self._check = check
        self._file: Any = None

    def __enter__(self) -> None:
        import fcntl

        file = open(self._path, "ab")
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._check()
                    time.sleep(INTERVAL)
        except BaseException:
            file.close()
            raise
        self._file = file

    def __exit__(self, *error: Any) -> None:
        import fcntl

        # Explicitly: a process that was forked meanwhile holds a copy of the file.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


class LocalServer:
    """A server that is shared through a folder.  Opens nothing until `url` is called.

    The object counts as a user of the server until it is closed, collected, or its process ends.

    Parameters:
        folder: Where lock, log and place of the server are; private to the user.
        command: Returns the server's command line, ``{port}`` in it standing for the port.
        environment: Of the server, besides `PASSED_VARIABLES` of ours.
        idle_timeout: Seconds without a call after which the server ends.
        linger: Seconds from the end of the last user to the end of the server.
        start_timeout: Seconds that the server gets until it answers ``/health``.
    """

    _user: Any = None  # (process id, the file that is locked shared)

    def __init__(self, folder: str, command: Callable[[], List[str]], environment: Mapping[str, str], *,
                 idle_timeout: float = IDLE_TIMEOUT, linger: float = LINGER, start_timeout: float = START_TIMEOUT):
        self.folder = folder
        self._command = command
        self._environment = dict(environment)
        self._limits = {"idle": idle_timeout, "linger": linger}
        self._start_timeout = start_timeout

    @property
    def log_path(self) -> str:
        """The file that the server writes its log to."""
        return self._path("server.log")

    def url(self, check: Callable[[], None] = lambda: None) -> str:
        """Return where the server is; start it if it is not there.

        Parameters:
            check: Called while waiting; may raise.

        Raises:
            ModelUnreachable: If the server does not start; the message shows the end of its log.
        """
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # caches are emptied at any time
        with FileLock(self._path("lock"), check):
            self._count_as_user()
            self.touch()
            state = self._state()
            if state is None or not _alive(state):
                state = self._start(check)
            elif not _answers(state["port"]):
                # Whoever started it has left meanwhile; a server that died would have been told of.
                state = self._await(state["token"], check)
            return "http://127.0.0.1:%d" % state["port"]

    def touch(self) -> None:
        """Tell the keeper that the server is in use."""
        with open(self._path("used"), "ab"):
            os.utime(self._path("used"))

    def close(self) -> None:
        """Be no user any more."""
        user, self._user = self._user, None
        if user:
            user[1].close()

    def __del__(self) -> None:
        self.close()

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _count_as_user(self) -> None:
        import fcntl

        # A forked process counts for itself, since its parent may close first.
        if self._user is None or self._user[0] != os.getpid():
            self.close()
            file = open(self._path("users"), "ab")
            fcntl.flock(file, fcntl.LOCK_SH)
            self._user = os.getpid(), file

    def _state(self) -> Optional[Dict[str, Any]]:
        try:
            with open(self._path("server.json"), encoding="utf-8") as file:
                state = json.load(file)
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) else None

    def _start(self, check: Callable[[], None]) -> Dict[str, Any]:
        command = self._command()
        self._end_old()
        token = os.urandom(8).hex()
        _rotate(self.log_path)
        config = dict(self._limits, command=command, environment=self._environment, directory=self.folder,
                      token=token)
        # Not -m: whoever uses us may be zipped, vendored or no Python interpreter at all from the outside.
        script = self._path("keeper.py")
        with open(script, "wb") as file:
            file.write(pkgutil.get_data(__package__, "local_keeper.py") or b"")
        with open(self._path("keeper.log"), "wb") as log:
            code = subprocess.call([_interpreter(), "-I", "-S", script, json.dumps(config)],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_passed(),
                                   start_new_session=True)
        if code:
            raise ModelUnreachable("the keeper of the local model server failed with exit code %d: %s"
                                   % (code, _tail(self._path("keeper.log"))))
        return self._await(token, check)

    def _end_old(self) -> None:
        """End a keeper whose server does not answer."""
        import signal

        state = self._state()
        if state and _alive(state):
            os.kill(state["keeper"], signal.SIGTERM)
        try:
            os.unlink(self._path("server.json"))
        except OSError:
            pass

    def _await(self, token: str, check: Callable[[], None]) -> Dict[str, Any]:
        end = time.monotonic() + self._start_timeout
        while time.monotonic() < end:
            check()
            state = self._state()
            if state and state.get("token") == token:
                if "exit_code" in state:
                    raise ModelUnreachable(
                        "the local model server ended while it started, %s; its log %s ends with:\n%s"
                        % (_why(state["exit_code"]), self.log_path, _tail(self.log_path)))
                if _answers(state["port"]):
                    return state
            time.sleep(INTERVAL)
        self._end_old()
        raise ModelUnreachable("the local model server did not answer within %g s; its log %s ends with:\n%s"
                               % (self._start_timeout, self.log_path,
                                  _tail(self.log_path) or _tail(self._path("keeper.log"))))


def _alive(state: Mapping[str, Any]) -> bool:
    """Whether the keeper of a state still runs; a process id that was given to another one does not count."""
    keeper = state.get("keeper")
    return bool(keeper and "port" in state and process_started(int(keeper)) == state.get("keeper_started"))


def _answers(port: int) -> bool:
    """Whether the server says that it is ready."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HEALTH_TIMEOUT)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _passed() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_VARIABLES)}


def _interpreter() -> str:
    """A Python interpreter; `sys.executable` may be the program that we are embedded in."""
    import shutil

    name = os.path.basename(sys.executable or "")
    found = sys.executable if name.startswith(("python", "pypy")) else shutil.which("python3")
    if not found:
        raise ConfigError("the local model server needs a Python interpreter to be started with; sys.executable is "
                          "%r and there is no python3 in PATH" % sys.executable)
    return found


def _rotate(path: str) -> None:
    """Keep one log before the current one."""
    if os.path.exists(path):
        os.replace(path, path + ".1")


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - SHOWN_LOG))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _why(code: int) -> str:
    import signal

    if code == -signal.SIGILL:
        return ("by an illegal instruction: this build of it is made for processors with more instructions "
                "than this one has; install another version of it, or use Ollama or llama.cpp "
                '(model="ollama/...", "llamacpp/...")')
    return "with exit code %d" % code if code >= 0 else "by signal %d" % -code
