"""The documented examples of `minagent.workflow` do what they say.  Not here: what the engine guarantees."""

import json
import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import minagent.workflow

pytestmark = pytest.mark.checkout

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "workflow.py"


def example(*arguments):
    """Run the example in a process of its own and return the lines that it printed."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([sys.executable, str(EXAMPLE), *map(str, arguments)], env=environment, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


def test_the_order_goes_on_in_a_second_process():
    """Priced once, asked once, packed and shipped after the approval, by two processes and one file."""
    assert example() == [
        "--- a process: start",
        "price: working out the price",
        "waiting: Approve this order? {'customer': 'ann', 'price': 37.0}",
        "--- a process: approve",
        "ask: bob said yes",
        "pack: a box for bolt, 2500 pieces left",
        "pack: a box for bolt, 1500 pieces left",
        "pack: a box for bolt, 500 pieces left",
        "pack: a box for nut, 1200 pieces left",
        "pack: a box for nut, 200 pieces left",
        "ship: sending it off",
        "done: shipped 3 of bolt, 2 of nut",
    ]


def test_the_order_is_refused_and_every_further_start_says_the_same(tmp_path):
    """The door that answers skips packing; a finished run does nothing more and tells its end."""
    path = tmp_path / "orders.jsonl"
    example("start", path)
    assert example("refuse", path) == ["ask: bob said no", "refuse: telling ann", "done: refused"]
    assert example("start", path) == ["done: refused"]
    assert example("approve", path) == ["done: refused"]


def test_the_order_may_be_stopped_after_any_record(tmp_path):
    """Cut after each of its lines the file leads to the same end, and nothing in it is done again."""
    workflow = runpy.run_path(str(EXAMPLE))
    whole = tmp_path / "whole.jsonl"
    decision = {"approved": True, "by": "bob"}
    end = workflow["run"](str(whole), decision)
    lines = whole.read_text().splitlines()
    for cut in range(len(lines)):
        path = tmp_path / ("%d.jsonl" % cut)
        path.write_text("".join(line + "\n" for line in lines[:cut]))
        assert workflow["run"](str(path), decision) == end
        done = [json.loads(line)["path"] for line in path.read_text().splitlines()
                if json.loads(line)["status"] == "done"]
        assert len(done) == len(set(done))


def test_the_example_in_the_docstring_runs():
    """It suspends, is decided by a second engine, and comes to its end."""
    text = minagent.workflow.__doc__
    code = textwrap.dedent(text[text.index("    from "):text.index("Only leaves")])
    names = {}
    exec(code, names)
    assert [record["status"] for record in names["records"]] == ["done", "suspended"]
    assert names["engine"].journal.seq > 20
