"""Runs: where journals, decisions and ownership are kept.

`RunStore` is the contract; `NullRuns`, `MemoryRuns` and `JsonFileRuns` keep it.  Names are loaded on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .base import Lease as Lease
    from .base import RunStore as RunStore
    from .json_files import JsonFileRuns as JsonFileRuns
    from .memory import MemoryRuns as MemoryRuns
    from .null import NullRuns as NullRuns

_HOMES = {"Lease": "base", "RunStore": "base", "NullRuns": "null", "MemoryRuns": "memory",
          "JsonFileRuns": "json_files"}
__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
