"""One server for all processes of a user: who starts it, who finds it, who ends it.

A small HTTP server stands in for the model; keeper, locks and signals are real.
"""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from minagent.errors import Cancelled, ConfigError, ModelUnreachable
from minagent.llm.local_server import FileLock, LocalServer, private_folder

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the local model is for Linux")

SMALL_SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_small_server.py")


@pytest.fixture
def folder(tmp_path):
    """A folder for one server; what still runs at the end is ended."""
    yield str(tmp_path)
    state = state_of(str(tmp_path))
    for name in ("keeper", "pid"):
        if state and name in state:
            try:
                os.kill(state[name], signal.SIGKILL)
            except ProcessLookupError:
                pass


def server_in(folder, *arguments, **limits):
    limits = dict({"linger": 0.2, "start_timeout": 60}, **limits)
    return LocalServer(folder, lambda: [sys.executable, SMALL_SERVER, "{port}", *arguments], {"EXTRA": "yes"}, **limits)


def state_of(folder):
    try:
        with open(os.path.join(folder, "server.json"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return None


def exists(pid):
    """Whether a process runs; one that is dead but not buried yet does not."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition, seconds=30):
    """Wait for something that other processes bring about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about in %d s" % seconds
        time.sleep(0.02)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_the_server_is_started_once_and_found_again(folder):
    """A second user, in this process or another, is sent to the server of the first."""
    first, second = server_in(folder), server_in(folder)
    url = first.url()

    assert url.startswith("http://127.0.0.1:")
    assert first.url() == url == second.url()
    assert text_of(first.log_path).count("hello from") == 1
    first.close()
    second.close()


def test_the_last_user_takes_the_server_along(folder):
    """One user may leave; after the last one nothing is left running."""
    first, second = server_in(folder), server_in(folder)
    first.url(), second.url()
    state = state_of(folder)

    first.close()
    time.sleep(1)
    assert exists(state["pid"])

    second.close()
    until(lambda: not exists(state["pid"]) and not exists(state["keeper"]))
    assert state_of(folder) is None


def test_an_idle_server_ends_although_it_has_users(folder):
    """A user that does not call any more does not hold the memory; its next call starts a new server."""
    server = server_in(folder, idle_timeout=1.0)
    server.url()
    state = state_of(folder)

    until(lambda: not exists(state["pid"]) and not exists(state["keeper"]))

    server.url()
    assert state_of(folder)["pid"] != state["pid"]
    server.close()


def test_a_call_puts_the_idle_end_off(folder):
    """The time runs from the last call."""
    server = server_in(folder, idle_timeout=2.0)
    server.url()
    pid = state_of(folder)["pid"]
    for _ in range(4):
        time.sleep(1)
        server.touch()

    assert exists(pid)
    server.close()


USER = """
import sys, time
sys.path[:0] = %r
from minagent.llm.local_server import LocalServer
server = LocalServer(sys.argv[1], lambda: [sys.executable, sys.argv[2], "{port}"], {}, linger=0.2)
print(server.url(), flush=True)
sys.stdin.read()
"""


def user(folder):
    """Another process that uses the server until its stdin is closed."""
    return subprocess.Popen([sys.executable, "-c", USER % (sys.path,), folder, SMALL_SERVER], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def test_processes_that_start_together_share_one_server(folder):
    """Of three that come at the same moment, one starts it and the others wait for it."""
    users = [user(folder) for _ in range(3)]
    urls = {process.stdout.readline() for process in users}
    state = state_of(folder)

    for process in users:
        process.communicate()
    assert len(urls) == 1
    assert text_of(os.path.join(folder, "server.log")).count("hello from") == 1
    assert not os.path.exists(os.path.join(folder, "server.log.1"))
    until(lambda: not exists(state["pid"]))


def test_a_killed_user_counts_no_longer(folder):
    """The process that started the server is killed without a chance to say so: nothing is left running."""
    process = user(folder)
    process.stdout.readline()
    state = state_of(folder)

    process.kill()
    process.communicate()

    until(lambda: not exists(state["pid"]) and not exists(state["keeper"]))


def test_a_killed_keeper_takes_the_server_along(folder):
    """The kernel ends a server whose keeper is gone, and the next call starts a new pair."""
    server = server_in(folder)
    server.url()
    state = state_of(folder)

    os.kill(state["keeper"], signal.SIGKILL)

    until(lambda: not exists(state["pid"]))
    server.url()
    assert state_of(folder)["keeper"] != state["keeper"]
    server.close()


def test_a_killed_server_is_started_anew(folder):
    """A call finds that nobody answers."""
    server = server_in(folder)
    first = server.url()
    os.kill(state_of(folder)["pid"], signal.SIGKILL)
    until(lambda: "exit_code" in (state_of(folder) or {}))

    assert server.url() != first
    server.close()


def test_a_server_that_ignores_the_request_to_end_is_killed(folder):
    """It gets some seconds, then the kernel ends it."""
    server = server_in(folder, "stubborn")
    server.url()
    state = state_of(folder)

    server.close()

    until(lambda: not exists(state["pid"]) and not exists(state["keeper"]))


def test_neither_keeper_nor_server_is_a_child_of_the_user(folder):
    """They belong to nobody, so they leave no zombie in a long-lived host and get no signal of its terminal."""
    server = server_in(folder)
    server.url()
    state = state_of(folder)

    children = text_of("/proc/self/task/%d/children" % os.getpid()).split()
    assert str(state["keeper"]) not in children
    assert os.getsid(state["keeper"]) == state["keeper"]
    assert os.getsid(state["pid"]) == state["keeper"] != os.getsid(0)
    server.close()


def test_threads_of_one_process_share_one_server(folder):
    """Several threads that share one object, and some with objects of their own."""
    shared = server_in(folder)
    urls, servers = [], [shared, shared, server_in(folder), server_in(folder)]
    threads = [threading.Thread(target=lambda s=s: urls.append(s.url())) for s in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(urls) == 4 and len(set(urls)) == 1
    assert text_of(shared.log_path).count("hello from") == 1
    for server in servers:
        server.close()


FORKING_USER = """
import os, sys
sys.path[:0] = %r
from minagent.llm.local_server import LocalServer
server = LocalServer(sys.argv[1], lambda: [sys.executable, sys.argv[2], "{port}"], {}, linger=0.2)
url = server.url()
if os.fork() == 0:
    print(url == server.url(), flush=True)
    sys.stdin.read()
    os._exit(0)
server.close()
"""


def test_a_forked_process_is_a_user_of_its_own(folder):
    """The parent leaves, the child goes on with the same server; when the child ends, the server does."""
    parent = subprocess.Popen([sys.executable, "-c", FORKING_USER % (sys.path,), folder, SMALL_SERVER],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "True\n"
    state = state_of(folder)
    assert parent.wait() == 0

    time.sleep(1)
    assert exists(state["pid"])

    parent.communicate()
    until(lambda: not exists(state["pid"]))


def test_a_server_that_dies_at_its_start_shows_its_log(folder):
    """The error has the exit code, the log's path and its end."""
    server = server_in(folder, "die")

    with pytest.raises(ModelUnreachable) as caught:
        server.url()
    assert "exit code 3" in str(caught.value)
    assert server.log_path in str(caught.value)
    assert "no such model" in str(caught.value)
    server.close()


def test_a_server_that_is_never_ready_is_given_up(folder):
    """It is ended too."""
    server = server_in(folder, "mute", start_timeout=2)

    with pytest.raises(ModelUnreachable, match="did not answer within 2 s"):
        server.url()
    server.close()
    until(lambda: not any(SMALL_SERVER.encode() in line and b"mute" in line for line in command_lines()))


def command_lines():
    """Those of all processes."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                yield file.read()
        except OSError:
            pass


def test_an_illegal_instruction_is_explained(folder):
    """A build for newer processors dies of one; the message says what to do."""
    server = LocalServer(folder, lambda: [sys.executable, "-c", "import os; os.kill(os.getpid(), 4)"], {})

    with pytest.raises(ModelUnreachable, match="processors with more instructions.*ollama"):
        server.url()
    server.close()


def test_waiting_for_a_start_can_be_cancelled(folder):
    """Whoever waits is asked whether it still has to; the lock is free again afterwards."""
    server = server_in(folder, "mute")

    def leave():
        if state_of(folder):
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        server.url(leave)
    with FileLock(os.path.join(folder, "lock")):
        server.close()


def test_a_start_that_was_left_is_waited_for(folder):
    """The one who started the server has gone; the next one does not start another beside it."""
    server = server_in(folder, "slow")

    def leave():
        if state_of(folder):
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        server.url(leave)
    pid = state_of(folder)["pid"]
    server.url()

    assert state_of(folder)["pid"] == pid
    server.close()


def test_a_dropped_object_is_no_user_any_more(folder):
    """Without a warning about an open file, which fails the tests of a careful host."""
    server = server_in(folder)
    server.url()
    state = state_of(folder)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del server
        gc.collect()

    assert not caught
    until(lambda: not exists(state["pid"]))


def test_a_folder_that_was_deleted_is_made_again(tmp_path):
    """Caches are emptied at any time."""
    server = server_in(str(tmp_path / "cache"))
    first = server.url()
    server.close()
    shutil.rmtree(str(tmp_path / "cache"))

    assert server.url() != first
    server.close()


def test_the_server_gets_no_keys_of_ours(folder, monkeypatch):
    """It is a program of somebody else."""
    monkeypatch.setenv("SECRET_KEY", "hush")
    server = server_in(folder)
    server.url()

    assert "key None extra yes" in text_of(server.log_path)
    assert "hush" not in text_of("/proc/%d/environ" % state_of(folder)["keeper"])
    server.close()


def test_nothing_is_opened_before_the_first_call(tmp_path):
    """A constructor touches no file."""
    server_in(str(tmp_path / "missing")).close()

    assert not (tmp_path / "missing").exists()


def test_folders_are_private(tmp_path, monkeypatch):
    """Nobody else may enter, also when somebody loosened it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = private_folder("local-1")
    os.chmod(path, 0o755)
    private_folder("local-1")

    assert oct(os.stat(path).st_mode & 0o777) == oct(os.stat(os.path.dirname(path)).st_mode & 0o777) == "0o700"


def test_a_link_in_place_of_the_folder_is_refused(tmp_path, monkeypatch):
    """It could lead to somebody else's files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    private_folder()
    os.symlink(str(tmp_path / "elsewhere"), str(tmp_path / "minagent" / "local-1"))

    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        private_folder("local-1")
