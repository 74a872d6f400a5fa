"""``python -m minagent``: the command line under the interpreter of your choice."""

import sys

if __name__ == "__main__":
    from .cli import main

    sys.exit(main(prog="python -m " + (__package__ or "minagent")))
