"""What a program pays for `import minagent` and an `Agent` before anything is asked."""

import os
import resource
import statistics
import subprocess
import sys

import pytest

AGENT = "import minagent; minagent.Agent('cost', model='local')"
BOTH = "import requests, jsonschema"
UNLOADED = """
import sys
loaded = {'requests', 'jsonschema', 'urllib3'} & set(sys.modules)
assert not loaded, loaded
"""
PAIRS = 11


def cost(code, compiled):
    """Return the processor time in seconds that a fresh interpreter takes for `code`, its start included."""
    environ = dict(os.environ, PYTHONPYCACHEPREFIX=str(compiled))
    # Byte code is what an installer leaves; whoever runs the tests may have asked for none.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_an_agent_loads_neither_requests_nor_jsonschema():
    """Both come with the first request and the first schema."""
    subprocess.run([sys.executable, "-c", AGENT + UNLOADED], check=True, timeout=60)


@pytest.mark.service
def test_an_agent_costs_at_most_two_fifths_of_its_dependencies(tmp_path):
    """A process that makes an agent takes at most 0.40 of the time of one that imports both dependencies.

    The median over pairs that take turns, so that a machine that is busy for a while slows both.
    """
    cost(AGENT, tmp_path), cost(BOTH, tmp_path)  # these compile
    ratio = statistics.median(cost(AGENT, tmp_path) / cost(BOTH, tmp_path) for _ in range(PAIRS))
    assert ratio <= 0.40, "an agent costs %.2f of importing both" % ratio
