"""Ask the README's question with numbers drawn now, and look on the wire whether the answer is real.

    python .ci/wire_check.py REQUESTS LOG     in the clone in which the README's first command was run

REQUESTS is what the tap keeps, LOG the model server's own log. The README's first block is taken as it
is, but for the numbers in its prompt, the tool (`gate_tool:add`, whose result is a random token) and
`--json`. A small model errs now and then: it gets three draws and must be right once.
"""

import json
import os
import random
import re
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

from readme import README, blocks

DRAWS = 3


def prompt_command(block, numbers):
    """Return the block's `minagent run …` with these numbers, the gate's tool and --json."""
    lines = block.replace("\\\n", " ").splitlines()
    words = shlex.split(next(line for line in lines if "minagent run " in line))
    words[words.index("run") + 1] = with_numbers(words[words.index("run") + 1], numbers)
    words[words.index("--tool") + 1] = "gate_tool:add"
    return words + ["--json"]


def with_numbers(prompt, numbers):
    """Return the prompt with its two numbers replaced."""
    found = re.findall(r"\d+", prompt)
    if len(found) != 2:
        raise SystemExit("the README's prompt should have two numbers, not %r" % prompt)
    drawn = iter(numbers)
    return re.sub(r"\d+", lambda _: str(next(drawn)), prompt)


def requests(file):
    """Return the bodies of the chat requests so far."""
    rows = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [row["body"] for row in map(json.loads, rows) if row["path"].endswith("/chat/completions")]


def logged(file):
    """Return how many requests the model server says it took on."""
    return file.read_text(encoding="utf-8", errors="replace").count("| processing task")


def draw(block, wire, log):
    """Ask once; return what is wrong with the answer, or None."""
    numbers, token = [random.randint(10, 99) for _ in range(2)], secrets.token_hex(6)
    asked, answered = len(requests(wire)), logged(log)
    environ = dict(os.environ, GATE_TOKEN=token, PYTHONPATH=str(Path(__file__).resolve().parent))
    done = subprocess.run(prompt_command(block, numbers), stdout=subprocess.PIPE, env=environ, timeout=300)
    print("numbers %s, token %s, exit code %d" % (numbers, token, done.returncode))
    print(done.stdout.decode("utf-8", "replace"))
    if done.returncode != 0:
        return "the command failed"
    calls = json.loads(done.stdout).get("tool_calls", ())
    if not any(sorted(call["args"].values()) == sorted(numbers) for call in calls):
        return "no tool call has the numbers: %r" % calls
    bodies = [json.dumps(body) for body in requests(wire)[asked:]]
    if len(bodies) < 2 or token in bodies[0] or token not in bodies[1]:
        return "the second of %d requests should be the first with the tool's result" % len(bodies)
    if logged(log) - answered < 2:
        return "the model server's log does not show two requests"
    return None


def main(wire, log):
    block = blocks(README.read_text(encoding="utf-8"))[0]
    for attempt in range(1, DRAWS + 1):
        wrong = draw(block, wire, log)
        print("draw %d: %s" % (attempt, wrong or "right"))
        if wrong is None:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
