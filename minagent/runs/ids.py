"""Run ids: which names a run may have, the same in every store.

What is not here: making one (`_util.new_run_id`).
"""

from __future__ import annotations

import re

from ..errors import ConfigError

_SHAPE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")

#: Names that Windows keeps for devices, whatever folder they are asked for in.
RESERVED = frozenset(["con", "prn", "aux", "nul"]
                     + [port + str(number) for port in ("com", "lpt") for number in range(1, 10)])


def usable_as_name(text: str) -> bool:
    """Whether a text can be the name of a file or folder on every system, alone and unchanged."""
    return _SHAPE.match(text) is not None and text not in RESERVED


def check_run_id(run_id: object) -> str:
    """Return the id.

    Raises:
        ConfigError: If it is not 1 to 64 of a-z, 0-9, "_" and "-", beginning with a letter or digit, or if
            Windows keeps it for a device.
    """
    if isinstance(run_id, str) and usable_as_name(run_id):
        return run_id
    if isinstance(run_id, str) and run_id in RESERVED:
        raise ConfigError("run_id is %r, the name of a device on Windows; put a letter before it" % (run_id,))
    raise ConfigError("run_id is %r; expected 1 to 64 of a-z, 0-9, '_' and '-', beginning with a letter or "
                      "digit" % (run_id,))
