"""What an installer and the tiers are told: setup.cfg and tox.ini say what the README promises."""

import ast
import configparser
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parent.parent
INTERPRETERS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]


def config(name):
    """Return an .ini-like file of the checkout."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(str(ROOT / name), encoding="utf-8")
    return parser


def lines(text):
    """Return the lines of a multi-line value that say something."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_there_are_two_dependencies():
    """Nothing but requests and jsonschema comes with the package."""
    assert lines(config("setup.cfg")["options"]["install_requires"]) == ["requests>=2.25", "jsonschema>=3.2"]


def test_the_version_is_a_literal():
    """A build reads it without importing anything."""
    tree = ast.parse((ROOT / "minagent" / "__init__.py").read_text(encoding="utf-8"))
    found = [node.value for node in tree.body if isinstance(node, ast.Assign)
             and [getattr(target, "id", "") for target in node.targets] == ["__version__"]]
    assert len(found) == 1 and re.match(r"\d+\.\d+\.\d+", ast.literal_eval(found[0]))


def test_the_changelog_has_the_version():
    """What is installed can be looked up."""
    init = (ROOT / "minagent" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'__version__ = "([^"]+)"', init).group(1)
    assert "\n## %s" % version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_local_extra_is_bound_to_the_platform_it_exists_for():
    """Elsewhere the extra installs nothing instead of failing."""
    for requirement in lines(config("setup.cfg")["options.extras_require"]["local"]):
        if requirement.startswith("#"):
            continue
        name, _, marker = requirement.partition(";")
        assert re.match(r"[\w-]+==[\d.]+$", name)
        for part in ('python_version>="3.10"', 'sys_platform=="linux"', 'platform_machine=="x86_64"'):
            assert part in marker


def test_every_supported_interpreter_has_a_tier_and_none_may_be_missing():
    """What the classifiers promise is what is run."""
    classifiers = config("setup.cfg")["metadata"]["classifiers"]
    assert re.findall(r"Python :: (3\.\d+)", classifiers) == INTERPRETERS
    tox = config("tox.ini")["tox"]
    tiers = re.split(r"[,\s]+", tox["env_list"].strip())
    assert {"py" + version.replace(".", "") for version in INTERPRETERS} <= set(tiers)
    assert {"lowest", "lint", "types", "vendored"} <= set(tiers)
    assert tox["skip_missing_interpreters"] == "false"


def test_the_gate_runs_every_tier():
    """.ci/run names the tiers of tox.ini, each once."""
    tiers = re.split(r"[,\s]+", config("tox.ini")["tox"]["env_list"].strip())
    named = re.search(r'^tiers="([^"]+)"', (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named.group(1).split()) == sorted(tiers)
