"""Check that the `lowest` tier is what it says: the oldest versions, and nothing compiled among them.

Run by the interpreter of that tier. Only what minagent itself depends on is looked at; what the tests
use is theirs.
"""

import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

# What setup.cfg promises; these bound what they depend on in turn.
OLDEST = {"requests": "2.25.0", "urllib3": "1.26.0", "jsonschema": "3.2.0"}


def runtime_closure(name, seen):
    """Add `name` and everything that it requires without an extra to `seen`, and return it."""
    if name not in seen:
        seen.add(name)
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                runtime_closure(requirement.name.lower(), seen)
    return seen


def problems():
    """Return what is not as it should be, a sentence each."""
    found = []
    for name, version in sorted(OLDEST.items()):
        if distribution(name).version != version:
            found.append("%s is %s, not %s" % (name, distribution(name).version, version))
    for name in sorted(runtime_closure("minagent", set())):
        compiled = [str(f) for f in distribution(name).files or () if Path(str(f)).suffix in (".so", ".pyd")]
        if compiled:
            found.append("%s brings compiled parts: %s" % (name, ", ".join(compiled)))
    return found


if __name__ == "__main__":
    sys.exit("; ".join(problems()) or 0)
