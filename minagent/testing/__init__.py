"""What tests of agents need: models and servers that follow a script, clocks that stand still.

Everything here is a product: use it in the tests of your own agents.  No network beyond 127.0.0.1, no mock
library.  Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .clock import FrozenClock as FrozenClock
    from .clock import InlineExecutor as InlineExecutor
    from .clock import inline as inline
    from .replies import Reply as Reply
    from .scripted_model import ScriptedModel as ScriptedModel
    from .server import ScriptedServer as ScriptedServer
    from .turns import Turn as Turn
    from .turns import call as call
    from .turns import calls as calls
    from .turns import fails as fails
    from .turns import says as says

_HOMES = {"ScriptedModel": "scripted_model", "Turn": "turns", "says": "turns", "calls": "turns",
          "call": "turns", "fails": "turns", "ScriptedServer": "server", "Reply": "replies",
          "FrozenClock": "clock", "inline": "clock", "InlineExecutor": "clock"}
__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
