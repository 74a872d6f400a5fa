"""The keeper of a local model server: a small process that holds the server and ends it.

It runs as a script of its own, copied out of the package, so it uses the standard library only and imports
nothing of ours (a host program may be vendored, zipped or embedded).  It starts the server, writes where it
is, and ends it when no process uses it any more or nobody asked it for a while.  Users are counted by kernel
locks, so one that was killed counts no longer.  What is not here: who starts the keeper (`local_server`).

Its one argument is a JSON object: command (with ``{port}``), environment (added to its own), directory, token
(told with the place of the server), idle and linger (seconds).
Files of the directory: `lock` (who holds it may start or end a server), `users` (locked shared by each user),
`used` (its time is that of the last call), `server.json` (where the server is), `server.log`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, Optional

#: Seconds between two looks.
INTERVAL = 0.25
#: Processor ticks in an interval from which on a server counts as working.
BUSY_TICKS = 5
#: Seconds that a server gets to end before it is killed.
GRACE = 5.0
PR_SET_PDEATHSIG = 1


def process_started(pid: int) -> Optional[str]:
    """Return when a process started, in ticks since the boot, or None if there is none (or a dead one)."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in ("Z", "X") else fields[19]


def _stat(pid: int) -> Any:
    """The fields of /proc/PID/stat from the third one, or None."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


class Keeper:
    """Holds one server.

    Parameters:
        config: See the module.
    """

    def __init__(self, config: Dict[str, Any]):
        self.config = config
        self.asked_to_stop = False

    def path(self, name: str) -> str:
        return os.path.join(self.config["directory"], name)

    def run(self) -> None:
        """Start the server and hold it to its end."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        port = _free_port()
        command = [item.replace("{port}", str(port)) for item in self.config["command"]]
        with open(self.path("server.log"), "ab") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      env=dict(os.environ, **self.config["environment"]), preexec_fn=_end_with_keeper)
        self._tell({"port": port, "pid": server.pid, "keeper": os.getpid(),
                    "keeper_started": process_started(os.getpid())})
        try:
            self._hold(server)
        finally:
            _end(server)

    def _on_signal(self, number: int, frame: Any) -> None:
        self.asked_to_stop = True

    def _tell(self, state: Dict[str, Any]) -> None:
        state["token"] = self.config["token"]
        with open(self.path("server.json.new"), "w", encoding="utf-8") as file:
            json.dump(state, file)
        os.replace(self.path("server.json.new"), self.path("server.json"))

    def _hold(self, server: Any) -> None:
        ticks = _ticks(server.pid)
        worked = used = time.time()
        while not self.asked_to_stop:
            try:
                code = server.wait(INTERVAL)
            except subprocess.TimeoutExpired:
                pass
            else:
                self._tell({"exit_code": code})
                return
            now, before, ticks = time.time(), ticks, _ticks(server.pid)
            if ticks - before >= BUSY_TICKS:
                worked = now
            if self._has_users():
                used = now
            if (now - used > self.config["linger"] or self._idle(now, worked)) and self._withdraw(worked):
                return

    def _idle(self, now: float, worked: float) -> bool:
        try:
            asked = os.stat(self.path("used")).st_mtime
        except OSError:
            asked = 0.0
        return bool(now - max(asked, worked) > self.config["idle"])

    def _has_users(self) -> bool:
        with open(self.path("users"), "ab") as file:
            return not _locked(file)

    def _withdraw(self, worked: float) -> bool:
        """Take back where the server is, unless somebody is coming just now; whether it was taken back."""
        with open(self.path("lock"), "ab") as lock:
            if not _locked(lock):
                return False
            if self._has_users() and not self._idle(time.time(), worked):
                return False
            self._forget()
            return True

    def _forget(self) -> None:
        try:
            with open(self.path("server.json"), encoding="utf-8") as file:
                own = json.load(file).get("token") == self.config["token"]
            if own:
                os.unlink(self.path("server.json"))
        except (OSError, ValueError):
            pass


def _locked(file: Any) -> bool:
    """Try to lock an open file for this process alone; it is unlocked when it is closed."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _end_with_keeper() -> None:
    """Between fork and exec of the server: should the keeper be killed, the kernel kills the server."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(server: Any) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(GRACE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main() -> None:
    """Leave whoever started us, then keep."""
    config = json.loads(sys.argv[1])
    # The starter waits for this process, so it leaves no zombie; the keeper itself belongs to nobody.
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    Keeper(config).run()


if __name__ == "__main__":
    main()
