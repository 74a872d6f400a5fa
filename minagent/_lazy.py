"""Names of a package that are loaded on first use (PEP 562).

What is not here: anything else; every package of ours may import this at no cost.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, List, Mapping, Tuple


def lazy(package: str, homes: Mapping[str, str]) -> Tuple[Callable[[str], Any], Callable[[], List[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Parameters:
        package: Its ``__name__``.
        homes: The module below the package that each name comes from.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError("module %r has no attribute %r" % (package, name))
        import importlib

        value = getattr(importlib.import_module("." + homes[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})
