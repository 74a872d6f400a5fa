"""The gate's own helpers: what they count, and what they rewrite for the vendored copy.

Not here: the gate itself, which runs these tests.
"""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parent.parent


JUNIT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}" time="1.5"/></testsuites>'


@pytest.fixture
def gate(tmp_path, gate_script):
    """Return a function that lays down what a gate has left and returns (exit code, closing line)."""
    (tmp_path / "tox" / "junit").mkdir(parents=True)
    (tmp_path / "junit").mkdir()
    (tmp_path / "steps").write_text("clone\tpassed\t1\n")

    def closing(capsys, tiers, junit=(), steps=""):
        results = {name: {"result": {"success": ok, "duration": 2.0}}
                   for name, ok in tiers.items() if ok is not None}
        (tmp_path / "tox.json").write_text(json.dumps({"testenvs": results}))
        for name, numbers in dict(junit).items():
            (tmp_path / "tox" / "junit" / (name + ".xml")).write_text(JUNIT.format(*numbers))
        with open(str(tmp_path / "steps"), "a") as file:
            file.write(steps)
        code = gate_script("total").main(tmp_path, list(tiers))
        return code, capsys.readouterr().out.splitlines()[-1]

    return closing


def test_the_closing_line_is_the_sum_over_the_tiers(gate, capsys):
    """Tests are counted where there is a report; what has none counts as one."""
    code, line = gate(capsys, {"py312": True, "lint": True}, {"py312": (10, 0, 0, 3)})
    assert (code, line) == (0, "9 passed, 0 failed, 3 skipped")


def test_errors_and_failures_fail_the_gate(gate, capsys):
    """An error in a fixture is a failed test."""
    code, line = gate(capsys, {"py312": False}, {"py312": (10, 1, 2, 0)})
    assert (code, line) == (1, "8 passed, 3 failed, 0 skipped")


def test_a_tier_that_ended_badly_without_a_failed_test_is_a_failure(gate, capsys):
    """So is a crash after the report was written."""
    code, line = gate(capsys, {"vendored": False}, {"vendored": (10, 0, 0, 0)})
    assert (code, line) == (1, "11 passed, 1 failed, 0 skipped")


def test_a_tier_that_never_ran_is_a_failure(gate, capsys):
    """A missing interpreter leaves nothing behind, and nothing is not a pass."""
    code, line = gate(capsys, {"py38": None})
    assert (code, line) == (1, "1 passed, 1 failed, 0 skipped")


def test_a_report_without_a_passed_test_is_a_failure(gate, capsys):
    """A tier in which everything was skipped has shown nothing."""
    code, line = gate(capsys, {"py38": True}, {"py38": (5, 0, 0, 5)})
    assert (code, line) == (1, "1 passed, 1 failed, 5 skipped")


def test_a_failed_step_fails_the_gate(gate, capsys):
    """The README's commands are steps."""
    code, line = gate(capsys, {"lint": True}, steps="readme-prompt\tfailed\t3\n")
    assert (code, line) == (1, "2 passed, 1 failed, 0 skipped")


REWRITES = [
    ("import minagent", "import host._vendor.agent_sdk"),
    ("from minagent.llm import base", "from host._vendor.agent_sdk.llm import base"),
    ("x = minagent.__version__", "x = host._vendor.agent_sdk.__version__"),
    ("run([exe, '-m', 'minagent', 'doctor'])", "run([exe, '-m', 'host._vendor.agent_sdk', 'doctor'])"),
    ("code = 'from minagent import Agent'", "code = 'from host._vendor.agent_sdk import Agent'"),
    ("code = 'import sys, minagent'", "code = 'import sys, host._vendor.agent_sdk'"),
    ("patch('minagent.llm.local.start')", "patch('host._vendor.agent_sdk.llm.local.start')"),
    ("say('pip install minagent[local]')", "say('pip install minagent[local]')"),
    ("m = import_module('minagent')", "m = import_module('host._vendor.agent_sdk')"),
    ("assert 'minagent' not in sys.modules", "assert 'host._vendor.agent_sdk' not in sys.modules"),
    ("assert out.split() == ['minagent', '1']", "assert out.split() == ['minagent', '1']"),
    ("say('minagent needs a key')", "say('minagent needs a key')"),
    ("url = 'https://example.com/minagent.git'", "url = 'https://example.com/minagent.git'"),
    ("minagent_home = 1", "minagent_home = 1"),
]


@pytest.mark.parametrize("source, expected", REWRITES)
def test_only_import_names_are_rewritten(gate_script, source, expected):
    """The vendored copy's tests import the copy; prose that names the product stays."""
    assert gate_script("vendored").rewritten(source + "\n") == expected + "\n"


def test_the_vendored_copy_is_the_package_as_it_is(gate_script, tmp_path):
    """Not a byte of the package changes when it moves."""
    gate_script("vendored").copy(tmp_path)
    copied = tmp_path / "host" / "_vendor" / "agent_sdk"
    originals = [p for p in (ROOT / "minagent").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert originals
    for path in originals:
        assert (copied / path.relative_to(ROOT / "minagent")).read_bytes() == path.read_bytes()


def test_the_readme_blocks_are_found_in_order(gate_script):
    """Only blocks marked `sh` count."""
    text = "a\n```sh\none\ntwo\n```\n```python\nx\n```\n```sh\nthree\n```\n"
    assert gate_script("readme").blocks(text) == ["one\ntwo\n", "three\n"]
