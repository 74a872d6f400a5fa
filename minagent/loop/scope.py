"""RunScope: the live side of a run, made anew at every start.

Models, tools, processors, callbacks and tokens are here; nothing of it is stored.  What must survive is in
`state`.
"""

from __future__ import annotations

import logging
import threading
from json import dumps
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .._util import CancelToken, Deadline
from ..chunks import Chunk
from ..errors import ConfigError
from ..llm.base import SETTINGS, Frame, LanguageModel, ToolChoice
from ..processors.runner import Runner
from ..tools import Tool, ToolSpec
from .executor import DaemonExecutor
from .limits import Limits
from .state import RunState

#: The built-in tool that is offered once a result was cut for the model.
READ_TOOL = "read_tool_result"


class RunScope:
    """Everything live that the leaves of one run need.

    Attributes:
        run_id: The run.
        agent_name: Name of the agent.
        keeps: Whether the run's store keeps it.
        state: The fold.
        lease: The store's handle of the run.
        journal: The records; set when it is opened.
        sink: Where chunks go.
        cancel: Set to stop the run.
        deadline: Of this start.
        deps: What the caller gave.
        request_context: JSON of the request.
        models: `LanguageModel`s, tried in order.
        make_tools: Returns the agent's tools.
        toolset: Tools by name; made by prepare-tools.
        runner: Calls the processors.
        request_keys: A key and headers for this run's requests; never recorded.
        stop_when: Condition over the steps, or None.
        require_tool_approval: True, False or a predicate (args, ctx).
        max_iterations: Steps to finish at this start, or None.
        iterations: Steps finished at this start.
        verdict: Why the loop ended at this start, or None.
        home: The thread that drives the run.
        claimed: Ids of calls of the open step that were begun at this start.
        counting: Guards `claimed`.
        background: Background tasks that run in this process; see `loop.background`.
        tasks_alive: Ids of background tasks that threads of this process are at, for all runs of the agent.
        fresh_tasks: Ids of the tasks sent off at this start that have not been started.
        grace: Seconds that running tools get after a cancel before they are abandoned.
    """

    def __init__(self, run_id: str, state: RunState, lease: Any):
        self.run_id = run_id
        self.agent_name = state.agent
        self.keeps = True
        self.state = state
        self.lease = lease
        self.journal: Any = None
        self.sink: Any = None
        self.cancel = CancelToken()
        self.deadline = Deadline()
        self.deps: Any = None
        self.request_context: Mapping[str, Any] = {}
        self.models: List[LanguageModel] = []
        self.make_tools: Callable[[], Sequence[Tool]] = tuple
        self.toolset: Dict[str, Tool] = {}
        self.runner: Runner = Runner((), self)
        self.request_keys: Mapping[str, Any] = {}
        self.stop_when: Optional[Callable[[Sequence[Any]], bool]] = None
        self.require_tool_approval: Any = False
        self.max_iterations: Optional[int] = None
        self.iterations = 0
        self.verdict: Optional[str] = None
        self.home = 0
        self.claimed: Set[str] = set()
        self.counting = threading.Lock()
        self.background: Any = None
        self.tasks_alive: Set[str] = set()
        self.fresh_tasks: Set[str] = set()
        self.grace = 2.0
        self.thread_wrapper: Any = None
        self.executor: Any = None
        self.background_executor: Any = None
        self.on_unknown_outcome = "tell-model"
        self.logger = logging.getLogger(__name__.rsplit(".", 2)[0])
        self._frame = Frame()
        self._named: Tuple[Optional[Frame], str] = (None, "")
        self._specs: Tuple[Tuple[str, ...], Tuple[ToolSpec, ...]] = ((), ())
        self._timed: Optional[DaemonExecutor] = None
        self._making = threading.Lock()  # guards the making of _timed

    @property
    def options(self) -> Mapping[str, Any]:
        """Value options, as recorded."""
        return self.state.options

    @property
    def limits(self) -> Limits:
        return Limits.from_dict(self.options.get("limits") or {})

    @property
    def speaks_last(self) -> bool:
        """Whether the step is the one after max_steps, in which nothing may be called."""
        asked = bool(self.options.get("final_answer_at_max_steps"))
        return asked and len(self.state.steps) >= self.options["max_steps"]

    # Tools.

    def active_tools(self) -> Tuple[str, ...]:
        """Names of the tools that the model is told of."""
        chosen = self.options.get("active_tools")
        return tuple([name for name in self.toolset if (chosen is None or name in chosen or name == READ_TOOL)
                      and (name != READ_TOOL or self.state.cut)])

    def specs(self, names: Tuple[str, ...]) -> Tuple[ToolSpec, ...]:
        """What the model is told of the tools with those names; the same object for the same names."""
        if self._specs[0] != names:
            unknown = [name for name in names if name not in self.toolset]
            if unknown:
                raise ConfigError("active tool %r does not exist; tools: %s" % (unknown[0], ", ".join(self.toolset)))
            self._specs = (names, tuple([self.toolset[name].spec for name in names]))
        return self._specs[1]

    # Requests.

    def settings(self) -> Dict[str, Any]:
        settings = {name: self.options[name] for name in SETTINGS if self.options.get(name) is not None}
        if self.request_keys:
            settings["provider_options"] = {**settings.get("provider_options", {}), **self.request_keys}
        return settings

    def frame(self, model: str, system: str, tools: Tuple[ToolSpec, ...], tool_choice: ToolChoice,
              settings: Mapping[str, Any]) -> Frame:
        """A frame; the last one if it says the same, so that its bytes are encoded once."""
        last = self._frame
        if (last.model, last.system, last.tools, last.tool_choice) != (model, system, tools, tool_choice) or (
                last.settings != settings):
            self._frame = Frame(model, system, tools, tool_choice, dict(settings))
        return self._frame

    def frame_blob(self, frame: Frame) -> str:
        """Name of the blob that holds a frame; written once for each distinct frame."""
        if self._named[0] is not frame:
            text = dumps(frame.to_dict(), sort_keys=True, ensure_ascii=False, default=str)
            self._named = (frame, self.lease.put_blob(text.encode("utf-8", "replace")))
        return self._named[1]

    # Threads.

    def make_executor(self) -> Any:
        """Where two or more tool calls run."""
        return self.executor or DaemonExecutor(self.options.get("tool_concurrency", 8), wrapper=self.thread_wrapper)

    def timed_executor(self) -> DaemonExecutor:
        """Where calls with a timeout run; unbounded, because the calls that wait for them are bounded."""
        with self._making:
            if self._timed is None:
                self._timed = DaemonExecutor(None, wrapper=self.thread_wrapper)
            return self._timed

    def close(self) -> None:
        """Let go of the threads that wait for more to do."""
        if self._timed is not None:
            self._timed.shutdown(wait=False)
        if self.background is not None:
            self.background.close()

    # Chunks.

    def chunk(self, type: str, payload: Mapping[str, Any]) -> Chunk:
        return Chunk(type, self.run_id, self.state.step, payload, self.journal.seq if self.journal else 0)

    def emit(self, type: str, payload: Mapping[str, Any]) -> None:
        """Show something to watchers, if there are any."""
        if self.sink.watched:
            self.sink.send([self.chunk(type, payload)])

    def emit_data(self, type: str, value: Any) -> None:
        if not type.startswith("data-"):
            raise ConfigError("ctx.emit got the chunk type %r; expected one that begins with 'data-'" % (type,))
        self.emit(type, {"value": value})
