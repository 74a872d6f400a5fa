"""Background tools: sent off with a placeholder as their one result, collected as a message when they are done.

A completion is a decision in the run's inbox, whoever posts it.  History is never rewritten.  Work that was
lost with its process follows the tool's effect.  What is not here: the door that sends a call off
(`tool_call`), and other executors than threads.
"""

from __future__ import annotations

from json import dumps
from typing import Any, Dict, List, Mapping

from .._util import may_live, process_mark, shorter
from ..errors import Suspend
from ..messages import Message, ToolResultPart
from ..schema import encode
from ..workflow.nodes import Branch, Done, Step
from .call_context import CallContext, key_of, own_copy
from .executor import DaemonExecutor
from .limits import check_running, claim_tool_call
from .tool_result import success

Json = Dict[str, Any]


class BackgroundTasks:
    """Starts the tasks of one run in threads."""

    def __init__(self, scope: Any):
        self.scope = scope
        self._executor: Any = None

    def start(self, task: Json) -> None:
        """Start a task; its completion is posted into the run's inbox."""
        if self._executor is None:
            self._executor = self.scope.background_executor or DaemonExecutor(
                None, "minagent-background", self.scope.thread_wrapper)
        self.scope.tasks_alive.add(task["id"])
        self._executor.submit(self._work, task)

    def _work(self, task: Json) -> None:
        scope = self.scope
        try:
            value = encode(scope.toolset[task["name"]].call(own_copy(task["args"]), CallContext(scope, task)))
            decision: Json = {"type": "answer", "value": value}
        except BaseException as error:
            decision = {"type": "decline", "reason": "%s: %s" % (type(error).__name__, error)}
        try:
            scope.lease.post(task["id"], decision)
        finally:
            scope.tasks_alive.discard(task["id"])

    def close(self) -> None:
        if isinstance(self._executor, DaemonExecutor):
            self._executor.shutdown(wait=False)


def create_send_off() -> Step:
    return Step("send-off", send_off, check=check_running, bind=lambda scope, output: start_fresh(scope, output))


def send_off(ctx: Any, call: Mapping[str, Any]) -> Done:
    """Record the placeholder; the work starts after the record."""
    scope = ctx.scope
    claim_tool_call(ctx, call)
    task = {"id": "b" + key_of(ctx.scope.run_id, ctx.path)[:24], "call_id": call["call_id"], "name": call["name"],
            "args": call["args"], "path": ctx.path, "step": scope.state.step, "created_at": scope.journal.now(),
            "process": process_mark()}
    text = "started in the background as task %s; its result will be sent as a message" % task["id"]
    result = ToolResultPart(call["call_id"], call["name"], text).to_dict()
    changes = [{"type": "background-opened"}]
    if not scope.runner.sees_results:
        changes.insert(0, {"type": "result-added"})
    scope.fresh_tasks.add(task["id"])
    return Done(dict(result, background=task), changes, True)


def start_fresh(scope: Any, output: Json) -> None:
    """Start a task that was sent off just now; what a lost process sent off is `settle_lost`'s."""
    if output["background"]["id"] in scope.fresh_tasks:
        scope.fresh_tasks.discard(output["background"]["id"])
        scope.background.start(output["background"])


def create_collect() -> Branch:
    """Open only while there are open tasks: takes in what has come, and waits at the end of the loop."""
    return Branch("collect").door("tasks", lambda value, scope: has_work(value, scope),
                                  Step("tasks", collect, check=check_running,
                                       join=lambda value, output: dict(value, arrived=len(output["messages"]))))


def has_work(value: Json, scope: Any) -> bool:
    return bool(scope.state.background) and (loop_ends(value) or bool(_arrived(scope)))


def loop_ends(value: Json) -> bool:
    """Whether nothing but open tasks would keep the loop going."""
    return not value["calls"] and not value.get("paused")


def _arrived(scope: Any) -> Dict[str, Json]:
    inbox = scope.lease.inbox()
    return {id: inbox[id]["decision"] for id in scope.state.background if id in inbox}


def collect(ctx: Any, value: Json) -> Done:
    """Add a message for each completed task."""
    scope = ctx.scope
    settle_lost(scope)
    if loop_ends(value):
        wait_for_all(ctx)
    arrived = _arrived(scope)
    messages, cut = {}, {}
    for id, decision in arrived.items():
        task = scope.state.background[id]
        shown = success(scope, task, decision.get("value")) if decision["type"] == "answer" else {}
        messages[id] = completion(task, decision, shown.get("output")).to_dict()
        if "cut" in shown:
            cut[id] = shown["cut"]
    changes: List[Json] = [{"type": "background-closed", "id": id} for id in arrived]
    tasks = {id: {"call_id": task["call_id"], "name": task["name"]} for id, task in scope.state.background.items()
             if id in arrived}
    output = {"messages": messages, "decisions": arrived, "tasks": tasks}
    return Done(dict(output, cut=cut) if cut else output, changes)


def settle_lost(scope: Any) -> None:
    """Open tasks that no process works on: those that may run again are started, the outcome of others is unknown."""
    for id, task in scope.state.background.items():
        if id in scope.tasks_alive or id in scope.lease.inbox() or _works_elsewhere(task):
            continue
        tool = scope.toolset.get(task["name"])
        if tool is not None and tool.policy.effect in ("read", "idempotent"):
            scope.background.start(task)
        elif scope.background_executor is None:
            reason = "the process that ran it is gone and how it ended is not known; check whether it took effect"
            scope.lease.post(id, {"type": "decline", "reason": reason})


def _works_elsewhere(task: Json) -> bool:
    """Whether another process that is still there sent the task off."""
    mark = task.get("process", "")
    return bool(mark) and mark != process_mark() and may_live(mark)


def wait_for_all(ctx: Any) -> None:
    """Wait until every open task has completed, or suspend the run if it was asked to.

    Raises:
        Suspend: With the open tasks, if background_wait is "suspend".
    """
    scope = ctx.scope
    while set(scope.state.background) - set(_arrived(scope)):
        if scope.options.get("background_wait") == "suspend":
            signal = Suspend([])
            signal.status = "noted"
            raise signal
        check_running(ctx)
        scope.lease.wait_inbox(shorter(1.0, scope.deadline.remaining()))


def completion(task: Json, decision: Json, value: Any) -> Message:
    """The message that tells the model what came of a task; `value` is the result as the model is shown it."""
    told = "Background task %s (call %s of %s)" % (task["id"], task["call_id"], task["name"])
    if decision["type"] == "decline":
        return Message.user("%s failed: %s" % (told, decision.get("reason", "")))
    return Message.user("%s is done. Result: %s" % (told, value if isinstance(value, str) else
                                                    dumps(value, ensure_ascii=False)))
