"""Run the tests on a copy of the package that lives inside another one, as in somebody's `vendor/` folder.

    python .ci/vendored.py install          the dependencies and the test tools, without minagent
    python .ci/vendored.py test [pytest …]  copy, rewrite the import name, run

The copy is made outside the checkout, so that nothing finds the checkout by its place. At the end of the
session the name `minagent` must not be among the loaded modules. Tests marked `checkout` are left out:
they are about the files of this checkout (house plan, README, packaging), not about the package.
"""

import configparser
import io
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = "host._vendor.agent_sdk"
PLUGIN = '''
"""Fails the session if the package was reached under its own name."""
import importlib.util
import sys

import pytest


def pytest_sessionstart(session):
    if importlib.util.find_spec("minagent") is not None:
        pytest.exit("this environment has a minagent of its own: the copy would not be what is tested", 3)


def pytest_sessionfinish(session):
    loaded = sorted(name for name in sys.modules if name.split(".")[0] == "minagent")
    if loaded:
        print("\\nLoaded under its own name: %s" % ", ".join(loaded))
        session.exitstatus = 3
'''


def requirements():
    """Return what setup.cfg asks for the package and its tests, as pip takes it."""
    config = configparser.ConfigParser()
    config.read(str(ROOT / "setup.cfg"), encoding="utf-8")
    text = config["options"]["install_requires"] + "\n" + config["options.extras_require"]["test"]
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def rewritten(source):
    """Return Python source in which the package has its vendored name.

    Names in code are replaced wherever they stand. In strings (code for a child process, targets of
    monkeypatch, arguments of `-m`) only what can be nothing but an import name is: prose stays.
    """
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for at in reversed(range(len(tokens))):
        token = tokens[at]
        if token.type == tokenize.NAME and token.string == "minagent":
            new = HOME
        elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            new = _in_string(token.string)
            if token.string.strip("\"'") == "minagent" and _is_import_name(tokens, at):
                new = repr(HOME)
        else:
            continue
        if new != token.string:
            _splice(lines, token.start, token.end, new)
    return "".join(lines)


def _is_import_name(tokens, at):
    """Say whether a literal that is the bare name stands where only an import name can."""
    before = [token.string.strip("\"'") for token in tokens[max(at - 2, 0):at]]
    after = [token.string for token in tokens[at + 1:at + 5]]
    return (before == ["-m", ","] or before[1:] == ["("] and before[0] in ("import_module", "find_spec", "__import__")
            or before == ["modules", "["] or after in (["in", "sys", ".", "modules"], ["not", "in", "sys", "."]))


def _in_string(text):
    """Return a string literal (or a piece of one) with its import names replaced."""
    text = re.sub(r"(\bimport (?:[\w.]+, )*|\bfrom |-m )minagent\b(?!\.)", lambda m: m[1] + HOME, text)
    return re.sub(r"(?<![\w./-])minagent(?=\.[A-Za-z_])(?!\.(?:toml|cfg|py|git)\b)", HOME, text)


def _splice(lines, start, end, new):
    """Replace what stands from `start` to `end` (row from 1, column) in `lines`."""
    (row, column), (last, stop) = start, end
    text = lines[row - 1][:column] + new + lines[last - 1][stop:]
    lines[row - 1:last] = [text]


def copy(to):
    """Lay the host package and the rewritten tests and examples below `to`."""
    vendor = to / "host" / "_vendor"
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    vendor.mkdir(parents=True)
    for folder in (vendor.parent, vendor):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    # The package goes as it is: not one byte of it may need to know its name.
    shutil.copytree(str(ROOT / "minagent"), str(vendor / "agent_sdk"), ignore=ignore)
    for name in ("tests", "examples"):
        if (ROOT / name).is_dir():
            shutil.copytree(str(ROOT / name), str(to / name), ignore=ignore)
            for path in (to / name).rglob("*.py"):
                path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copy(str(ROOT / "setup.cfg"), str(to / "setup.cfg"))
    (to / "vendored_only.py").write_text(PLUGIN, encoding="utf-8")


def run(arguments):
    """Run the suite in a fresh copy and return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="vendored-") as folder:
        to = Path(folder)
        copy(to)
        # `-m pytest` puts the folder on the path, and with it host and the plugin.
        command = [sys.executable, "-m", "pytest", "-p", "vendored_only",
                   "-m", "not service and not checkout", "-o", "cache_dir=" + str(to / ".cache")]
        return subprocess.call(command + arguments, cwd=folder)


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "install":
        return subprocess.call([sys.executable, "-m", "pip", "install", "--quiet"] + requirements())
    if verb == "test":
        return run(arguments)
    sys.exit("vendored.py takes 'install' or 'test', not %r" % verb)


if __name__ == "__main__":
    sys.exit(main())
