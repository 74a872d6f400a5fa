"""The README's two commands, which the gate takes from the README and runs.

Not here: the Python examples of the README, and running the commands (`.ci/run` does, in fresh environments).
"""

import importlib
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.checkout,
    pytest.mark.skipif("not (ROOT / 'README.md').exists()", reason="there is no README.md yet"),
]


@pytest.fixture
def commands(gate_script):
    """Return the two blocks, as the gate gets them."""
    return gate_script("readme").blocks((ROOT / "README.md").read_text(encoding="utf-8"))[:2]


def test_the_first_command_installs_and_asks_for_something_that_needs_a_tool(commands):
    """It makes `.venv`, installs the local model and ends in a prompt with two numbers and a tool."""
    *install, prompt = commands[0].replace("\\\n", " ").strip().splitlines()
    assert any("-m venv .venv" in line for line in install)
    assert any("[local]" in line for line in install)
    words = shlex.split(prompt)
    assert "minagent" in words[0] and words[1] == "run"
    assert len(re.findall(r"\d+", words[2])) == 2
    module, _, function = words[words.index("--tool") + 1].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_second_command_runs_the_tests(commands):
    """It installs the test extra and calls pytest."""
    assert "[test]" in commands[1]
    assert "pytest" in commands[1]
