"""Runs: where journals, decisions and ownership are kept.

`RunStore` is the contract; `NullRuns`, `MemoryRuns` and `JsonFileRuns` keep it.  Names are loaded on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from .base import Lease as Lease
    from .base import RunStore as RunStore
    from .json_files import JsonFileRuns as JsonFileRuns
    from .memory import MemoryRuns as MemoryRuns
    from .null import NullRuns as NullRuns

_HOMES = {"Lease": "base", "RunStore": "base", "NullRuns": "null", "MemoryRuns": "memory",
          "JsonFileRuns": "json_files"}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    import importlib

    value = getattr(importlib.import_module("." + _HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(_HOMES))
