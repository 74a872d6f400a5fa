"""`minagent chat`: a conversation over stdin, with a history, decisions and Ctrl-C.

Not here: what `run` shares with it.
"""

import os
import signal
import sys
import threading

import pytest
from _command_line import CommandLine


@pytest.fixture
def cli(tmp_path):
    return CommandLine(tmp_path)


def test_a_chat_keeps_its_history_and_ends_with_stdin(cli):
    """The second question comes with the first and its answer."""
    ended = cli("chat", "--model", "scripted:echoing", stdin=b"one\n\ntwo\n")
    assert (ended.code, ended.err) == (0, "")
    first, second = ended.out.splitlines()
    assert first == "['one']"
    assert second == repr(["one", first, "two"])


def test_a_turn_that_failed_leaves_no_trace_in_the_history(cli):
    """It is told in a line, and the chat goes on; a script that pipes its lines sees it in the exit code."""
    (cli.folder / "moody.py").write_text(
        "from minagent.errors import Overloaded\n"
        "from minagent.testing import ScriptedModel, fails, says\n"
        "def answer(request):\n"
        "    texts = [message.text for message in request.messages]\n"
        "    return fails(Overloaded('not now')) if texts[-1] == 'bad' else says(repr(texts))\n"
        "model = ScriptedModel(answer)\n")
    ended = cli("chat", "--model", "moody:model", stdin=b"bad\ngood\n")
    assert (ended.code, ended.out, ended.err) == (1, "['good']\n", "minagent: not now\n")


APPROVALS = [(b"y\n", "pay(amount=3) -> paid 3"), (b"n\n", "declined: no reason given"),
             (b"n too much\n", "declined: too much"), (b"No, too much.\n", "declined: too much.")]


@pytest.mark.parametrize("said, told", APPROVALS)
def test_an_approval_is_asked_for_on_the_next_line(cli, said, told):
    """y lets the call run, n declines it, with the reason if there is one; the prompt is told to a pipe, too."""
    ended = cli("chat", "--model", "scripted:approving", "--tool", "scripted:pay", stdin=b"pay\n" + said)
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert "may pay(amount=3) run?" in ended.err and told in ended.err
    assert ended.err.count("minagent: y, n, or n and the reason\n") == 1


@pytest.mark.parametrize("unclear", [b"", b"  ", b"ok", b"nope", b"yes, but later", b"yea"])
def test_what_is_neither_yes_nor_no_is_asked_again(cli, unclear):
    """A decision is final, so nothing is taken for one that might be a slip."""
    said = b"pay\n" + unclear + b"\ny\n"
    ended = cli("chat", "--model", "scripted:approving", "--tool", "scripted:pay", stdin=said)
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert ended.err.count("minagent: y, n, or n and the reason\n") == 2
    assert "pay(amount=3) -> paid 3" in ended.err


def test_a_tool_that_asks_gets_the_next_line_and_asks_again_if_it_does_not_fit(cli):
    """3 is JSON and no string, so it is refused by the tool's schema; "blue" is taken."""
    ended = cli("chat", "--model", "scripted:asking", "--tool", "scripted:ask", stdin=b"go\n3\nblue\n")
    assert (ended.code, ended.out) == (0, "Thank you.\n")
    assert ended.err.count("ask() asks: which colour?") == 2
    assert "said 'blue'" in ended.err


def test_a_chat_that_ends_before_a_decision_says_so(cli):
    """Exit code 3, as of a run."""
    ended = cli("chat", "--model", "scripted:approving", "--tool", "scripted:pay", stdin=b"pay\n")
    assert ended.code == 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX here")
def test_ctrl_c_cancels_the_answer_and_not_the_program(cli):
    """The next line is answered, and the cancelled one is not in the history."""
    (cli.folder / "stuck.py").write_text(
        "import sys, threading\n"
        "from minagent.testing import ScriptedModel, says\n"
        "def answer(request):\n"
        "    texts = [message.text for message in request.messages]\n"
        "    if texts[-1] == 'stuck':\n"
        "        sys.stdout.write('asked\\n'), sys.stdout.flush()\n"
        "        return says('never', gate=threading.Event())\n"
        "    return says(repr(texts))\n"
        "model = ScriptedModel(answer)\n")
    process = cli.start("chat", "--model", "stuck:model")
    process.stdin.write(b"stuck\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == b"asked"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(b"next\n", timeout=60)
    assert (process.returncode, out.split(), err.split()) == (0, [b"['next']"], [b"minagent:", b"cancelled"])


def test_a_person_at_a_terminal_is_prompted_and_leaves_with_ctrl_d(cli):
    """The prompt and the answer are on the terminal."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are POSIX")
    main, side = pty.openpty()
    seen = []
    process = cli.start("chat", "--model", "scripted:echoing", stdin=side, stdout=side)
    reader = threading.Thread(target=_collect, args=(main, seen))
    reader.start()
    os.write(main, b"one\n")
    _wait_for(seen, b"['one']")
    os.write(main, b"\x04")
    assert process.wait(60) == 0
    process.stderr.read(), process.stderr.close()
    os.close(side)
    reader.join(60)
    os.close(main)
    assert b"> " in b"".join(seen)


def test_prompts_are_no_part_of_an_output_that_goes_elsewhere(cli):
    """Somebody types, and stdout is a pipe: the prompt is on stderr."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are POSIX")
    main, side = pty.openpty()
    process = cli.start("chat", "--model", "scripted:echoing", stdin=side)
    os.close(side)
    try:
        os.write(main, b"one\n\x04")
        out, err = process.communicate(timeout=60)
    finally:
        os.close(main)
    assert (process.returncode, out) == (0, b"['one']\n")
    assert err.count(b"> ") == 2


def _collect(main, seen):
    while True:
        try:
            piece = os.read(main, 1000)
        except OSError:  # everybody on the other side is gone
            return
        if not piece:
            return
        seen.append(piece)


def _wait_for(seen, word):
    tick = threading.Event()
    for _ in range(600):
        if word in b"".join(seen):
            return
        tick.wait(0.05)
    raise AssertionError("%r was not shown: %r" % (word, seen))
