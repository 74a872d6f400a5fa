"""Agent: the user's call.

::

    Agent.generate → Agent._execute → Run.drive → prepare-stream → FullOutput

An agent holds no state of a run: one may be shared by any number of threads.
"""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Tuple, Union

from .._util import CancelToken, Deadline, new_run_id
from ..errors import (
    AlreadyDecided,
    ConfigError,
    MinagentError,
    ResumeMismatch,
    RunConflict,
    RunFinished,
    UnknownSuspension,
)
from ..llm.base import LanguageModel
from ..loop.stream import CallbackSink, QueueSink, Sink, Tee
from ..messages import Message
from ..processors.runner import Runner, checked
from ..results import FullOutput
from ..runs.null import NullRuns
from ..tools import Tool, as_tool
from . import options as opts
from .output import AgentStream, full_output, open_suspensions
from .prepare_stream.tools_step import add_tool
from .run import SCHEMA, Run, decisions_by_id, folded

if TYPE_CHECKING:
    from typing_extensions import Unpack

OPTIONS = tuple(opts.GenerateOptions.__annotations__)

#: What `resume` takes besides live options.
RESUME_OPTIONS = ("limits", "max_steps", "deadline", "request_context", "model", "tools", "stop_when", "deps", "processors",
                  "on_step", "on_chunk", "require_tool_approval")


class Agent:
    """A model, instructions and tools under a name.

    Parameters:
        name: Names the agent in its runs.
        runs: A `RunStore`, such as ``JsonFileRuns("var/runs")``; None keeps nothing after a call.
        executor: An in-process `concurrent.futures.Executor` for parallel tools; None makes threads when needed.
        background_executor: The same for background tools.
        thread_wrapper: ``thread_wrapper(work)`` runs round every thread that is made for tools; must call ``work()``.
        on_suspend: Called with the FullOutput of a run that waits; its exceptions are logged.
        on_unknown_outcome: What happens to a "once" call that started and has no recorded end, unless the tool says:
            "tell-model" (default), "suspend" or "fail".
        max_recoveries: Starts without progress after which a run is refused (default 5).
        defaults: The options of `generate`, as defaults.

    Raises:
        ConfigError: If an option is unknown or not allowed.
    """

    def __init__(self, name: str, *, runs: Any = None, executor: Any = None, background_executor: Any = None,
                 thread_wrapper: Any = None, on_suspend: Any = None, on_unknown_outcome: str = "tell-model",
                 max_recoveries: int = 5, **defaults: "Unpack[opts.GenerateOptions]"):
        if not isinstance(name, str) or not name:
            raise ConfigError("an agent has the name %r; expected a text" % (name,))
        if on_unknown_outcome not in ("tell-model", "suspend", "fail"):
            raise ConfigError("on_unknown_outcome is %r; expected 'tell-model', 'suspend' or 'fail'" % on_unknown_outcome)
        opts.check_names(defaults, OPTIONS, "Agent")
        opts.split(defaults)
        self.name = name
        self.runs = runs if runs is not None else NullRuns()
        self.max_recoveries = max_recoveries
        self._defaults = dict(defaults)
        self._defaults["processors"] = checked(defaults.get("processors", ()))
        self._executor = executor
        self._background_executor = background_executor
        self._thread_wrapper = thread_wrapper
        self._on_suspend = on_suspend
        self._on_unknown_outcome = on_unknown_outcome
        self._lock = threading.Lock()  # guards _models and _running
        self._models: Dict[str, LanguageModel] = {}
        self._running: Dict[str, List[CancelToken]] = {}
        if not callable(self._defaults.get("tools", ())):
            self._defaults["tools"] = checked_tools(self._defaults.get("tools", ()))

    # The user's calls.

    def generate(self, messages: Any, **options: "Unpack[opts.GenerateOptions]") -> FullOutput[Any]:
        """Run the agent to its end, in this thread.

        Parameters:
            messages: A text, a list of texts, `Message`s, or dicts with role and content.
            options: See `GenerateOptions`; they win over the agent's.

        Returns:
            FullOutput: finish_reason stop, length, content-filter, max-steps, suspended, tripwire or cancelled.

        Raises:
            ConfigError: If an option or the input is not allowed; nothing was done.
            ModelError: If no model answered.
            ProcessorError: If a processor raised.
            RunBusy, RunConflict: If `run_id` names a run that is going on, or one with other input.
            MinagentError: Each has `run_id` and `output`; the run can be resumed.
        """
        run, options_ = self._execute(messages, options)
        return self._drive(run, options_)

    def stream(self, messages: Any, **options: "Unpack[opts.GenerateOptions]") -> AgentStream:
        """The same run in a thread of its own; returns a stream of its chunks.  Raises as `generate`."""
        run, options_ = self._execute(messages, options)
        return self._stream(run, options_)

    def resume(self, run: Any, decisions: Any = None, **options: Any) -> FullOutput[Any]:
        """Go on with a run: after a decision, a crash, a cancel, a limit or an error.

        Parameters:
            run: Its id; or, where the agent has no store, the `snapshot` of its output (a trusted input).
            decisions: ``{suspension_id: Approve() | Decline(reason) | Answer(value)}``; or one of these, if one
                suspension is open; or None.
            options: limits, max_steps, deadline, max_iterations (steps to finish now), max_recoveries,
                request_context, and live options: model, tools, deps, processors, stop_when,
                require_tool_approval, on_step, on_chunk.

        Raises:
            RunNotFound, RunBusy, RunFinished, AlreadyDecided, UnknownSuspension, InvalidDecision, ResumeMismatch.
        """
        opened, options_ = self._execute(None, options, run, decisions)
        return self._drive(opened, options_)

    def resume_stream(self, run: Any, decisions: Any = None, **options: Any) -> AgentStream:
        """The same as `resume`, as a stream of what happens now."""
        opened, options_ = self._execute(None, options, run, decisions)
        return self._stream(opened, options_)

    def cancel(self, run_id: str) -> None:
        """Stop a run, in whatever thread or process it goes on.  It can be resumed."""
        with self._lock:
            tokens = list(self._running.get(run_id, ()))
        for token in tokens:
            token.cancel()
        if not tokens:
            self.runs.cancel(run_id)

    def recover(self, limit: int = 100, **options: Any) -> List[Union[FullOutput[Any], MinagentError]]:
        """Resume this agent's interrupted runs; returns what came of each."""
        came: List[Union[FullOutput[Any], MinagentError]] = []
        for head in self.runs.list(status="interrupted", agent=self.name, limit=limit):
            try:
                came.append(self.resume(head["run_id"], **options))
            except MinagentError as error:
                came.append(error)
        return came

    def describe(self) -> Dict[str, Any]:
        """What the agent is, as JSON: no keys, no live objects.  Tools that depend on the request are left out."""
        values, live = opts.split(self._defaults)
        tools = live.get("tools", ())
        models = live.get("model") if isinstance(live.get("model"), (list, tuple)) else [live.get("model")]
        return {"name": self.name, "options": values,
                "models": [model.describe() if isinstance(model, LanguageModel) else str(model) for model in models or ()],
                "tools": [] if callable(tools) else [tool.spec.to_dict() for tool in tools],
                "processors": [type(processor).__name__ for processor in self._defaults["processors"]]}

    def close(self) -> None:
        """Close the connections of models that the agent made."""
        with self._lock:
            models, self._models = list(self._models.values()), {}
        for model in models:
            close = getattr(model, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # One way in.

    def _execute(self, messages: Any, given: Mapping[str, Any], resumed: Any = None,
                 decisions: Any = None) -> Tuple[Any, Dict[str, Any]]:
        """Check and merge options, create or load the run, and make its live side.

        Returns:
            The run, ready to be driven (or the output of a run that has one already), and its live options.
        """
        if resumed is None:
            opts.check_names(given, OPTIONS, "generate")
            values, live = opts.split(opts.merged(self._defaults, given))
            run = self._create(opts.to_messages(messages), values, live, sorted(
                name for name in opts.GIVEN_AGAIN if given.get(name) and (name in opts.LIVE or callable(given[name]))))
        else:
            opts.check_names(given, RESUME_OPTIONS + ("max_iterations", "max_recoveries"), "resume")
            _, live = opts.split(opts.merged(self._defaults, {
                name: value for name, value in given.items() if name in opts.GIVEN_AGAIN + opts.LIVE}))
            run = self._load(resumed, decisions, given)
        if isinstance(run, Run):
            try:
                self._bind(run, live, given)
            except BaseException:
                run.lease.release()
                raise
        return run, live

    def _create(self, messages: List[Message], values: Dict[str, Any], live: Mapping[str, Any],
                given_live: List[str]) -> Any:
        values["system_text"] = system_text(values, live)
        values.pop("instructions", None)
        values.pop("system", None)
        self._models_of(live, values.get("request_context") or {})
        run_id = values.pop("run_id", None) or new_run_id()
        said = [message.to_dict() for message in messages]
        output = {"schema": SCHEMA, "agent": self.name, "options": values, "messages": said, "digest": digest(said)}
        for name in ("thread_id", "resource_id", "metadata"):
            if values.get(name):
                output[name] = values[name]
        if given_live:
            output["live"] = given_live
        lease = self.runs.create(run_id, {"seq": 1, "at": time.time(), "epoch": 1, "path": "", "status": "created",
                                          "output": output, "changes": [{"type": "input-added"}]})
        return Run(lease, self.runs.keeps) if lease is not None else self._existing(run_id, output["digest"])

    def _existing(self, run_id: str, asked: str) -> Any:
        """A run of that id is there: its output, or the run to go on with."""
        records = self.runs.read(run_id)
        state = folded(run_id, records)
        recorded = state.digest
        if recorded != asked or state.agent != self.name:
            raise RunConflict("run %s exists with other input%s; choose another run_id"
                              % (run_id, "" if state.agent == self.name else " for agent %r" % state.agent), run_id)
        if state.finished or (state.status == "waiting" and not set(self.runs.inbox(run_id)) & set(
                item.id for item in open_suspensions(state))):
            return full_output(state)
        run = Run(self.runs.acquire(run_id), self.runs.keeps)
        run.own({}, self.max_recoveries)
        return run

    def _load(self, resumed: Any, decisions: Any, given: Mapping[str, Any]) -> Run:
        """Post decisions, then own the run."""
        overrides, _ = opts.split({name: given[name] for name in ("limits", "max_steps", "deadline", "request_context")
                                   if given.get(name) is not None})
        if "max_steps" not in given:
            overrides.pop("max_steps")
        run = self._load_snapshot(resumed, decisions) if isinstance(resumed, Mapping) else self._load_stored(
            resumed, decisions)
        if run.state.finished:
            run.lease.release()
            raise RunFinished("run %s has finished; there is nothing to resume" % run.id, run.id, run.output())
        self._check_live(run, given)
        run.own(overrides, given.get("max_recoveries", self.max_recoveries))
        return run

    def _load_stored(self, run_id: str, decisions: Any) -> Run:
        state = folded(run_id, self.runs.read(run_id))
        self._check_agent(state)
        ids = [item.id for item in open_suspensions(state)]
        try:
            for id, decision in decisions_by_id(run_id, decisions, ids).items():
                self.runs.decide(run_id, id, decision)
        except (AlreadyDecided, RunFinished) as error:
            latest = folded(run_id, self.runs.read(run_id))
            error.output = full_output(latest) if latest.finished else None
            raise
        return Run(self.runs.acquire(run_id), self.runs.keeps)

    def _load_snapshot(self, snapshot: Mapping[str, Any], decisions: Any) -> Run:
        from ..runs.decisions import check, plain

        if snapshot.get("status") != "checkpoint":
            raise ConfigError("resume got a dict that is no snapshot; pass output.snapshot, or a run id")
        run = Run(NullRuns().restore(snapshot["output"]["run_id"], dict(snapshot)), False)
        self._check_agent(run.state)
        waiting = {item.id: item for item in open_suspensions(run.state)}
        for id, decision in decisions_by_id(run.id, decisions, list(waiting)).items():
            if id not in waiting:
                raise UnknownSuspension("run %s has no open suspension %r; open are: %s"
                                        % (run.id, id, ", ".join(waiting) or "none"), run.id)
            check(waiting[id].to_dict(), plain(decision, run.id), run.id, time.time())
            run.lease.post(id, decision)
        return run

    def _check_agent(self, state: Any) -> None:
        if state.agent != self.name:
            raise ResumeMismatch("run %s belongs to agent %r, not to %r; resume it with that agent"
                                 % (state.run_id, state.agent, self.name), state.run_id)

    def _check_live(self, run: Run, given: Mapping[str, Any]) -> None:
        missing = [name for name in run.state.live if name not in given and self._defaults.get(name) is None]
        if missing:
            run.lease.release()
            raise ResumeMismatch("run %s was started with %s, which cannot be stored; pass it to resume again"
                                 % (run.id, " and ".join(name + "=" for name in missing)), run.id)

    # The live side.

    def _bind(self, run: Run, live: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        scope, values = run.scope, run.state.options
        scope.agent_name = self.name
        scope.keeps = run.keeps
        scope.request_context = values.get("request_context") or {}
        scope.deadline = Deadline(values.get("deadline"))
        scope.deps = live.get("deps")
        scope.models = self._models_of(live, scope.request_context)
        scope.make_tools = lambda: tools_of(live, scope.request_context)
        scope.runner = Runner(checked(live["processors"]), scope)
        scope.stop_when = live.get("stop_when")
        scope.require_tool_approval = live.get("require_tool_approval", values.get("require_tool_approval", False))
        scope.max_iterations = given.get("max_iterations")
        scope.thread_wrapper = self._thread_wrapper
        scope.executor = self._executor
        scope.background_executor = self._background_executor
        scope.on_unknown_outcome = self._on_unknown_outcome
        run.on_suspend = self._on_suspend

    def _models_of(self, live: Mapping[str, Any], request_context: Mapping[str, Any]) -> List[LanguageModel]:
        model = live.get("model")
        if callable(model) and not isinstance(model, LanguageModel):
            model = model(request_context)
        chosen = model if isinstance(model, (list, tuple)) else [model]
        if not chosen or chosen == [None]:
            raise ConfigError('agent %r has no model; pass model="openai/gpt-5-mini", another name or a LanguageModel'
                              % self.name)
        return [item if isinstance(item, LanguageModel) else self._resolved(item) for item in chosen]

    def _resolved(self, name: Any) -> LanguageModel:
        """The model of a name; kept, so that its connections are."""
        from ..llm.resolve import resolve

        if not isinstance(name, str):
            return resolve(name)
        with self._lock:
            if name not in self._models:
                self._models[name] = resolve(name)
            return self._models[name]

    # Two ways out.

    def _drive(self, run: Any, live: Mapping[str, Any]) -> FullOutput[Any]:
        if not isinstance(run, Run):
            output: FullOutput[Any] = run
            return output
        return self._watched(run, self._sink(run, live), live)

    def _stream(self, run: Any, live: Mapping[str, Any]) -> AgentStream:
        sink = QueueSink()
        if not isinstance(run, Run):
            return AgentStream(run.run_id, sink, lambda: _shown(run, sink), lambda: None)
        watched = Tee([self._sink(run, live), sink]) if live.get("on_chunk") else sink
        context = copy_context()
        return AgentStream(run.id, sink, lambda: context.run(self._watched, run, watched, live), run.scope.cancel.cancel)

    @staticmethod
    def _sink(run: Run, live: Mapping[str, Any]) -> Sink:
        return CallbackSink(live["on_chunk"], run.scope.logger) if live.get("on_chunk") else Sink()

    def _watched(self, run: Run, sink: Sink, live: Mapping[str, Any]) -> FullOutput[Any]:
        """Drive a run that `cancel` can find."""
        with self._lock:
            self._running.setdefault(run.id, []).append(run.scope.cancel)
        try:
            return run.drive(sink, live.get("on_step"))
        finally:
            with self._lock:
                self._running[run.id].remove(run.scope.cancel)
                if not self._running[run.id]:
                    del self._running[run.id]


def _shown(output: FullOutput[Any], sink: QueueSink) -> FullOutput[Any]:
    """A stream of a run that has its output already."""
    from ..chunks import Chunk

    sink.send([Chunk("finish", output.run_id, len(output.steps), {"output": output}, 0)])
    return output


def digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """What was asked, ids and times aside."""
    said = [{key: value for key, value in message.items() if key not in ("id", "created_at")} for message in messages]
    return sha256(dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def system_text(values: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    """Instructions, and the call's addition to them."""
    instructions: Any = live.get("instructions", values.get("instructions"))
    if callable(instructions):
        instructions = instructions(values.get("request_context") or {})
    return "\n\n".join([text for text in (instructions, values.get("system")) if text])


def checked_tools(tools: Sequence[Any]) -> List[Tool]:
    """Tools of a list.

    Raises:
        ConfigError: If something is no tool, or two have one name.
    """
    if isinstance(tools, (str, Mapping)) or not hasattr(tools, "__iter__"):
        raise ConfigError("tools is %r; expected a list of functions and Tools" % (tools,))
    toolset: Dict[str, Tool] = {}
    for item in tools:
        add_tool(toolset, as_tool(item))
    return list(toolset.values())


def tools_of(live: Mapping[str, Any], request_context: Mapping[str, Any]) -> List[Tool]:
    """The tools of one run."""
    tools: Any = live.get("tools") or ()
    return checked_tools(tools(request_context) if callable(tools) else tools)


