"""Check that the `lowest` tier is what it says: the oldest versions, and nothing compiled among them.

Run by the interpreter of that tier. Only what minagent itself depends on is looked at; what the tests
use is theirs.
"""

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

# What setup.cfg promises. pip may move the rest within the bounds that these set.
OLDEST = {"requests": "2.25.0", "urllib3": "1.26.0", "jsonschema": "3.2.0"}


def runtime_closure(name, seen):
    """Add `name` and everything that it requires without an extra to `seen`."""
    if name in seen:
        return seen
    seen.add(name)
    for requirement in distribution(name).requires or ():
        text, _, marker = requirement.partition(";")
        if "extra" in marker or ("python_version" in marker and not _applies(marker)):
            continue
        runtime_closure(re.match(r"[\w.-]+", text).group().lower(), seen)
    return seen


def _applies(marker):
    """Say whether a marker of the form python_version < "3.8" holds here."""
    found = re.search(r'python_version\s*(<=|<|>=|>|==)\s*"(\d+)\.(\d+)', marker)
    wanted = (int(found.group(2)), int(found.group(3)))
    here = sys.version_info[:2]
    return {"<": here < wanted, "<=": here <= wanted, ">": here > wanted,
            ">=": here >= wanted, "==": here == wanted}[found.group(1)]


def main():
    problems = []
    for name, version in OLDEST.items():
        if distribution(name).version != version:
            problems.append("%s is %s, not %s" % (name, distribution(name).version, version))
    for name in sorted(runtime_closure("minagent", set())):
        compiled = [str(f) for f in distribution(name).files or () if Path(str(f)).suffix in (".so", ".pyd")]
        if compiled:
            problems.append("%s brings compiled parts: %s" % (name, ", ".join(compiled)))
    if problems:
        sys.exit("The lowest tier is not what it says: " + "; ".join(problems))


if __name__ == "__main__":
    main()
