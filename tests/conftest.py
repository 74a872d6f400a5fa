"""What every test may ask for, and the rules that hold for the whole session.

Not here: fakes of models and servers; they are products and live in `minagent.testing`.
"""

import importlib.util
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every run, and no verdict that depends on how busy the machine is.
settings.register_profile("steady", deadline=None, derandomize=True, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def in_ci():
    """Say whether a missing precondition is a failure instead of a skip."""
    return os.environ.get("CI", "").lower() in ("1", "true")


@pytest.fixture(scope="session")
def recordings():
    """Return the folder of recorded provider traffic, which is not part of this repository.

    `MINAGENT_RECORDINGS` names it; otherwise it is looked for beside the checkout. Elsewhere the tests that
    need it are skipped, but never in CI.
    """
    named = os.environ.get("MINAGENT_RECORDINGS")
    folder = Path(named) if named else ROOT.parent / "shared" / "recordings"
    if (folder / "INDEX.tsv").is_file():
        return folder
    message = "no recorded provider traffic at %s; set MINAGENT_RECORDINGS to its folder" % folder
    if in_ci():
        pytest.fail(message)
    return pytest.skip(message)


@pytest.fixture(scope="session")
def gate_script():
    """Return a function that loads one of the scripts in .ci by name; they are no package."""

    def load(name):
        spec = importlib.util.spec_from_file_location("gate_" + name, str(ROOT / ".ci" / (name + ".py")))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def permissions_bind():
    """Say whether this process is refused what a file's mode forbids, which an almighty user is not."""
    with tempfile.TemporaryDirectory() as folder:
        closed = os.path.join(folder, "closed")
        os.mkdir(closed, 0o500)
        try:
            os.mkdir(os.path.join(closed, "inside"))
        except PermissionError:
            return True
        return False


def pytest_collection_modifyitems(items):
    """Skip the tests about permissions where permissions mean nothing."""
    marked = [item for item in items if item.get_closest_marker("unprivileged")]
    if marked and not permissions_bind():
        why = "file permissions do not bind this user; .ci/run runs these without that privilege"
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=why))
