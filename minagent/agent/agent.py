"""Agent: the user's call.

::

    Agent.generate → Agent._execute → Run.drive → prepare-stream → FullOutput

An agent holds no state of a run: one may be shared by any number of threads.  What a call needs is imported with
the first call, so that a program that only makes its agents pays little.
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple, Union

from .._util import CancelToken, Deadline
from ..errors import ConfigError, MinagentError
from . import options as opts
from .live import Models, checked_tools, is_factory, system_text, tools_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..loop.stream import QueueSink, Sink
    from ..results import FullOutput
    from .output import AgentStream
    from .run import Run

OPTIONS = tuple(opts.GenerateOptions.__annotations__)

#: In place of the run to resume: there is none.
_NEW: Any = object()

#: What `resume` takes.
RESUME_OPTIONS = opts.REPLACED + opts.LIVE + ("require_tool_approval", "provider_options", "max_iterations",
                                          "max_recoveries")


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
                 max_recoveries: int = 5, **defaults: Unpack[opts.GenerateOptions]):
        if not isinstance(name, str) or not name:
            raise ConfigError("an agent has the name %r; expected a text" % (name,))
        if on_unknown_outcome not in ("tell-model", "suspend", "fail"):
            raise ConfigError("on_unknown_outcome is %r; expected 'tell-model', 'suspend' or 'fail'"
                              % (on_unknown_outcome,))
        opts.check_names(defaults, OPTIONS, "Agent")
        opts.checked("max_recoveries", max_recoveries)
        for role, given in (("thread_wrapper", thread_wrapper), ("on_suspend", on_suspend)):
            if given is not None and not callable(given):
                raise ConfigError("%s is %r; expected a function, or None" % (role, given))
        for role, given in (("executor", executor), ("background_executor", background_executor)):
            if given is not None and not hasattr(given, "submit"):
                raise ConfigError("%s is %r; expected a concurrent.futures.Executor, or None" % (role, given))
        if runs is not None and not hasattr(runs, "acquire"):
            raise ConfigError("runs is %r; expected a store such as JsonFileRuns(%r)" % (runs, str(runs)))
        self.name = name
        self._runs = runs
        self._max_recoveries = max_recoveries
        self._defaults: Dict[str, Any] = dict(defaults)
        self._defaults["processors"] = checked_processors(self._defaults.get("processors"))
        if self._defaults.get("tools") is not None and not is_factory(self._defaults["tools"]):
            self._defaults["tools"] = checked_tools(self._defaults["tools"])
        opts.split(self._defaults)
        self._models = Models(name)
        self._host = {"executor": executor, "background_executor": background_executor,
                      "thread_wrapper": thread_wrapper, "on_unknown_outcome": on_unknown_outcome,
                      "tasks_alive": set()}
        self._on_suspend = on_suspend
        self._lock = threading.Lock()  # guards _running
        self._running: Dict[str, List[CancelToken]] = {}

    @property
    def runs(self) -> Any:
        """The store; one that keeps nothing if none was given."""
        if self._runs is None:
            from ..runs.null import NullRuns

            with self._lock:
                self._runs = self._runs or NullRuns()
        return self._runs

    # The user's calls.

    def generate(self, messages: Any, **options: Unpack[opts.GenerateOptions]) -> FullOutput[Any]:
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

    def stream(self, messages: Any, **options: Unpack[opts.GenerateOptions]) -> AgentStream:
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
        """Resume this agent's interrupted runs, and those that wait for background work alone.

        Parameters:
            limit: Runs at most.
            options: As of `resume`.

        Returns:
            What came of each: its output, or the error.
        """
        came: List[Union[FullOutput[Any], MinagentError]] = []
        heads = list(self.runs.list(status="interrupted", agent=self.name, limit=limit))
        heads += [head for head in self.runs.list(status="waiting", agent=self.name, limit=limit)
                  if all(item["kind"] == "background" for item in head.get("waiting_on", [{"kind": ""}]))]
        for head in heads[:limit]:
            try:
                came.append(self.resume(head["run_id"], **options))
            except MinagentError as error:
                came.append(error)
        return came

    def describe(self) -> Dict[str, Any]:
        """What the agent is, as JSON: no keys, no live objects.  Tools that depend on the request are left out."""
        from ..llm.base import LanguageModel

        values, live = opts.split(self._defaults)
        tools, model = live.get("tools") or (), live.get("model")
        models = model if isinstance(model, (list, tuple)) else [model]
        return {"name": self.name, "options": values,
                "models": [item.describe() if isinstance(item, LanguageModel) else str(item) for item in models],
                "tools": [] if is_factory(tools) else [tool.spec.to_dict() for tool in tools],
                "processors": [type(processor).__name__ for processor in self._defaults["processors"]]}

    def close(self) -> None:
        """Close the connections of models that the agent made."""
        self._models.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    # One way in.

    def _execute(self, messages: Any, given: Mapping[str, Any], resumed: Any = _NEW,
                 decisions: Any = None) -> Tuple[Any, Dict[str, Any]]:
        """Check and merge options, create or load the run, and make its live side.

        Returns:
            The run, ready to be driven (or the output of a run that has one already), and its live options.
        """
        from .history import completed
        from .opening import Opener
        from .run import Run

        opener = Opener(self.name, self.runs, self._max_recoveries)
        if resumed is _NEW:
            opts.check_names(given, OPTIONS, "generate")
            values, live = opts.split(opts.merged(self._defaults, given))
            said = completed(opts.to_messages(messages))
            values["system_text"] = system_text(values, live)
            values.pop("instructions", None)
            values.pop("system", None)
            self._models.of(live.get("model"), values.get("request_context") or {})
            tools_of(live.get("tools"), values.get("request_context") or {})
            checked_processors(live["processors"])
            run = opener.create(said, values, opts.to_be_given_again(given))
        else:
            opts.check_names(given, RESUME_OPTIONS, "resume")
            opts.checked("max_iterations", given.get("max_iterations"))
            asked = {name: given[name] for name in given if name in OPTIONS and name not in opts.REPLACED}
            _, live = opts.split(opts.merged(self._defaults, asked))
            run = opener.load(resumed, decisions, given, self._defaults)
        if isinstance(run, Run):
            self._bind(run, live, given)
        return run, live

    def _bind(self, run: Run, live: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Make the live side of a run; let go of the run if that fails."""
        from ..processors.runner import Runner

        scope, values = run.scope, run.state.options
        try:
            vars(scope).update(self._host)
            scope.agent_name, scope.keeps, run.on_suspend = self.name, run.keeps, self._on_suspend
            scope.request_context = values.get("request_context") or {}
            scope.deadline = Deadline(values.get("deadline"))
            scope.deps = live.get("deps")
            scope.models = self._models.of(live.get("model"), scope.request_context)
            scope.make_tools = lambda: tools_of(live.get("tools"), scope.request_context)
            scope.runner = Runner(checked_processors(live["processors"]), scope)
            scope.stop_when = live.get("stop_when")
            scope.request_keys = live.get("provider_options") or {}
            # What was recorded at the start wins over the agent, and what is given now over both.
            policies = [each.get("require_tool_approval") for each in (given, values, live)]
            scope.require_tool_approval = next((policy for policy in policies if policy is not None), False)
            scope.max_iterations = opts.checked("max_iterations", given.get("max_iterations"))
        except BaseException:
            run.lease.release()
            raise

    # Two ways out.

    def _drive(self, run: Any, live: Mapping[str, Any]) -> FullOutput[Any]:
        if hasattr(run, "drive"):
            return self._watched(run, _sink(run, live), live)
        output: FullOutput[Any] = run
        return output

    def _stream(self, run: Any, live: Mapping[str, Any]) -> AgentStream:
        from ..loop.stream import QueueSink, Tee
        from .output import AgentStream

        sink = QueueSink()
        if not hasattr(run, "drive"):
            return AgentStream(run.run_id, sink, lambda: _shown(run, sink), lambda: None)
        watched = Tee([_sink(run, live), sink]) if live.get("on_chunk") else sink
        context, cancel = copy_context(), run.scope.cancel.cancel
        return AgentStream(run.id, sink, lambda: context.run(self._watched, run, watched, live), cancel)

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


def checked_processors(processors: Any) -> List[Any]:
    """Processors as a list.

    Raises:
        ConfigError: If something is no processor, or two have one id.
    """
    if not processors:
        return []
    from ..processors.runner import checked

    return checked(processors)


def _sink(run: Run, live: Mapping[str, Any]) -> Sink:
    from ..loop.stream import CallbackSink, Sink

    return CallbackSink(live["on_chunk"], run.scope.logger) if live.get("on_chunk") else Sink()


def _shown(output: FullOutput[Any], sink: QueueSink) -> FullOutput[Any]:
    """A stream of a run that has its output already."""
    from ..chunks import Chunk

    sink.send([Chunk("finish", output.run_id, len(output.steps), {"output": output}, 0)])
    return output
