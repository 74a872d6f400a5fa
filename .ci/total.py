"""Add up what the gate did and close with the one line that counts.

    python .ci/total.py FOLDER TIER…

What it reads there: `junit/*.xml` and `tox/junit/*.xml` are pytest's reports; `tox.json` says how each tier
ended; `steps` has a line `name<TAB>passed|failed<TAB>seconds` for each thing that is not a test run. What
reported no tests counts as one, and so does a tier that ended badly without a failed test. A report without a
passed test is a failure: it has shown nothing.
"""

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def report(path):
    """Return (passed, failed, skipped, seconds) of one pytest report."""
    tests = failed = skipped = 0
    seconds = 0.0
    for suite in ElementTree.parse(str(path)).getroot().iter("testsuite"):
        tests += int(suite.get("tests"))
        failed += int(suite.get("failures")) + int(suite.get("errors"))
        skipped += int(suite.get("skipped"))
        seconds += float(suite.get("time"))
    passed = tests - failed - skipped
    return passed, failed or (0 if passed else 1), skipped, seconds


def single(passed, seconds):
    """Return the row of something that is no test run."""
    return int(passed), int(not passed), 0, seconds


def steps(folder):
    """Yield (name, row) for what the gate did itself."""
    for line in (folder / "steps").read_text(encoding="utf-8").splitlines():
        name, outcome, seconds = line.split("\t")
        yield name, single(outcome == "passed", float(seconds))


def tiers(folder, wanted):
    """Yield (name, row) for each tier that tox was asked for, those that it never came to included."""
    file = folder / "tox.json"
    results = json.loads(file.read_text(encoding="utf-8"))["testenvs"] if file.is_file() else {}
    for name in wanted:
        result = results.get(name, {}).get("result", {"success": False, "duration": 0.0})
        junit = folder / "tox" / "junit" / (name + ".xml")
        if not junit.is_file():
            yield name, single(result["success"], result["duration"])
            continue
        passed, failed, skipped, _ = report(junit)
        yield name, (passed, failed or int(not result["success"]), skipped, result["duration"])


def main(folder, wanted):
    """Print the table and the closing line; return the exit code."""
    rows = list(steps(folder)) + list(tiers(folder, wanted))
    rows += [(path.stem, report(path)) for path in sorted((folder / "junit").glob("*.xml"))]
    for name, (passed, failed, skipped, seconds) in rows:
        print("%-14s passed %5d  failed %3d  skipped %3d %8.1f s" % (name, passed, failed, skipped, seconds))
    passed, failed, skipped = (sum(row[i] for _, row in rows) for i in (0, 1, 2))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
