"""The two commands of the README: the only place where they are written is the README itself.

    python .ci/readme.py 1     print the first ```sh block (install, and a prompt that needs a tool)
    python .ci/readme.py 2     print the second one (the tests)
"""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(text):
    """Return the ```sh blocks of a Markdown text, in order."""
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


if __name__ == "__main__":
    found = blocks(README.read_text(encoding="utf-8"))
    number = int(sys.argv[1])
    if number > len(found):
        sys.exit("README.md has %d ```sh blocks; number %d is asked for" % (len(found), number))
    print(found[number - 1], end="")
