"""The doors of a tool call: the only place that reads a tool's policy.

::

    answer
      check   unknown-tool | invalid-args | ok        the first two answer with an error result
      gate    ask-approval | pass                     asked only about arguments that are valid
      run     declined | answered | send-off | execute
    process-result                                    only if some processor sees tool results

A new policy is a new door.  What is not here: threads for parallel calls (`workflow.engine`), background work
after it was sent off (`background`), and how results are encoded and cut (`tool_result`).
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from itertools import count
from threading import get_ident
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .._util import Deadline, shorter
from ..errors import InvalidArguments, MinagentError, UnknownOutcome
from ..messages import ToolResultPart
from ..tools import Tool
from ..workflow.nodes import Branch, Done, Node, Step, Workflow, always
from .background import create_send_off
from .call_context import CallContext, Declined, about, own_copy
from .limits import check_running, claim_tool_call, stop
from .tool_result import failure, raised, success

Json = Dict[str, Any]
Call = Mapping[str, Any]


def create_tool_call_node(scope: Any) -> Workflow:
    """The body of tool-calls; its input is a call: call_id, name, args (None if no JSON object), raw_args."""
    check = Branch("check")
    check.door("unknown-tool", is_unknown, Step("unknown-tool", unknown_tool), answers=True)
    check.door("invalid-args", has_problems, Step("invalid-args", invalid_args), answers=True)
    check.door("ok", always)
    gate = Branch("gate")
    gate.door("ask-approval", needs_approval, Step("ask-approval", ask_approval, join=decided))
    gate.door("pass", always)
    run = Branch("run")
    run.door("declined", is_decided("decline"), Step("declined", declined), answers=True)
    run.door("answered", is_decided("answer"), Step("answered", answered), answers=True)
    run.door("send-off", in_background, create_send_off())
    run.door("execute", always, Step("execute", execute, check=check_running))
    nodes: List[Node] = [Workflow("answer", [check, gate, run])]
    if scope.runner.sees_results or scope.state.calls:
        # A step that is resumed may have been begun with other processors: no result must be left behind.
        nodes.append(Step("process-result", process_result, check=check_running, exclusive=True))
    return Workflow("tool-call", nodes)


def calls_of(value: Any) -> Sequence[Call]:
    """The calls that an answer asks us to run, from what llm-execution handed on."""
    return [{"call_id": part["call_id"], "name": part["name"], "args": part.get("args"),
             "raw_args": part.get("raw_args", "")} for part in value["message"]["parts"]
            if part["type"] == "tool-call" and not part.get("provider_executed")]


def recorded(ctx: Any, result: Json, sync: bool = False) -> Done:
    """A result as the end of its leaf; with processors that see results it enters the state after them."""
    changes: List[Json] = [] if ctx.scope.runner.sees_results else [{"type": "result-added"}]
    return Done(result, changes, sync)


# check


def is_unknown(call: Call, scope: Any) -> bool:
    return scope.speaks_last or call["name"] not in scope.toolset or call["name"] not in scope.active_tools()


def unknown_tool(ctx: Any, call: Call) -> Done:
    if ctx.scope.speaks_last:
        message = "not run: this was the last answer, without tools"
        return recorded(ctx, failure(ctx.scope, call, message, "unknown-tool"))
    names = ", ".join(ctx.scope.active_tools()) or "none"
    return recorded(ctx, failure(ctx.scope, call, "there is no tool %r; the tools are: %s" % (call["name"], names),
                                 "unknown-tool"))


def has_problems(call: Call, scope: Any) -> bool:
    return call["args"] is None or bool(scope.toolset[call["name"]].problems(call["args"]))


def invalid_args(ctx: Any, call: Call) -> Done:
    scope = ctx.scope
    if call["args"] is None:
        message = "the arguments of %s are not a JSON object: %.500s" % (call["name"], call["raw_args"])
        return recorded(ctx, failure(scope, call, message, "invalid-json"))
    problems = scope.toolset[call["name"]].problems(call["args"])
    lines = "; ".join("%s: %s" % problem for problem in problems)
    return recorded(ctx, failure(scope, call, "invalid arguments for %s: %s" % (call["name"], lines), "invalid-args"))


# gate


def needs_approval(call: Call, scope: Any) -> bool:
    """Whether the tool's or the agent's policy asks for approval; a predicate that raises means yes."""
    return _asks(scope.toolset[call["name"]].policy.require_approval, call, scope) or _asks(
        scope.require_tool_approval, call, scope)


def _asks(policy: Any, call: Call, scope: Any) -> bool:
    if not callable(policy):
        return bool(policy)
    try:
        return bool(policy(dict(call["args"]), CallContext(scope, call)))
    except Exception:
        scope.logger.exception("the approval predicate of tool %s raised; asking for approval", call["name"])
        return True


def ask_approval(ctx: Any, call: Call) -> Done:
    """Suspend until somebody decides; the schema travels along for those who edit the arguments.

    An approval of a tool whose schema has changed meanwhile does not count: it is asked for again, unless the arguments
    no longer fit and the call will fail anyway.
    """
    tool = ctx.scope.toolset.get(call["name"])  # gone, perhaps, since the question was asked
    if tool is None:
        return Done(ctx.suspend(None, None, **about(ctx.scope, call, "approval")))
    for number in count():
        decision = ctx.suspend(None, tool.spec.parameters, tool_digest=tool.digest,
                               **about(ctx.scope, call, "approval"))
        known = ctx.entry.waits[number].get("tool_digest") == tool.digest
        if known or decision["type"] != "approve" or has_problems(decided(call, decision), ctx.scope):
            return Done(decision)
    raise AssertionError("unreachable")


def decided(call: Call, decision: Json) -> Json:
    """The call with its decision, and with the arguments that were approved."""
    args = decision.get("args")
    return dict(call, decision=decision, args=call["args"] if args is None else args)


# run


def is_decided(type: str) -> Callable[[Call, Any], bool]:
    return lambda call, scope: call.get("decision", {}).get("type") == type


def declined(ctx: Any, call: Call) -> Done:
    reason = call["decision"].get("reason") or "no reason given"
    return recorded(ctx, failure(ctx.scope, call, "declined: %s" % reason, "declined"))


def answered(ctx: Any, call: Call) -> Done:
    return recorded(ctx, success(ctx.scope, call, call["decision"].get("value")))


def in_background(call: Call, scope: Any) -> bool:
    tool = scope.toolset.get(call["name"])
    return tool is not None and tool.policy.background and not ("decision" in call and has_problems(call, scope))


def execute(ctx: Any, call: Call) -> Done:
    """Run the tool's function; whatever comes of it is a result, except a signal."""
    scope = ctx.scope
    tool = scope.toolset.get(call["name"])
    if tool is None:
        return unknown_tool(ctx, call)
    if "decision" in call and has_problems(call, scope):
        return invalid_args(ctx, call)
    claim_tool_call(ctx, call)
    sync = tool.policy.effect != "read"
    if tool.policy.effect == "once" and (ctx.unfinished or _asked_outcome(ctx)):
        known = _outcome(ctx, call, tool)
        if known is not None:
            return recorded(ctx, known, sync)
    try:
        return recorded(ctx, _attempts(ctx, call, tool), sync)
    except Declined as signal:
        message = "declined: %s" % (signal.reason or "no reason given")
        return recorded(ctx, failure(scope, call, message, "declined"), sync)


def _series(ctx: Any) -> str:
    """Questions about the outcome of one start; they are not the tool's own."""
    return "outcome-%d-" % ctx.entry.starts


def _asked_outcome(ctx: Any) -> bool:
    return any(wait.get("series") == _series(ctx) for wait in ctx.entry.waits or ())


def _outcome(ctx: Any, call: Call, tool: Tool) -> Optional[Json]:
    """The result of a call that started before and has no recorded end; None to run it again."""
    scope = ctx.scope
    policy = tool.policy.on_unknown_outcome or scope.on_unknown_outcome
    message = ("%s was started before and how it ended is not known; check whether it took effect before you call it "
               "again" % call["name"])
    if _asked_outcome(ctx):
        policy = "suspend"
    if policy == "fail":
        raise UnknownOutcome("tool %s; on_unknown_outcome is 'fail'" % message)
    if policy == "tell-model":
        return failure(scope, call, message, "unknown-outcome")
    decision = ctx.suspend(message, series=_series(ctx), **about(scope, call, "unknown-outcome"))
    if decision["type"] == "answer":
        return success(scope, call, decision.get("value"))
    if decision["type"] == "decline":
        return failure(scope, call, "declined: %s" % decision.get("reason", ""), "declined")
    return None


def _attempts(ctx: Any, call: Call, tool: Tool) -> Json:
    """Run the function, again if it raises and the tool allows it; each run writes its own start."""
    scope = ctx.scope
    for retry in range(tool.policy.retries + 1):
        if tool.policy.effect == "read":
            ctx.sync()
        else:
            ctx.start(sync=True)
        try:
            value = _once(ctx, call, tool, retry)
        except _TimedOut as timeout:
            return failure(scope, call, "%s did not finish within %g seconds" % (call["name"], timeout.seconds),
                           "timeout")
        except InvalidArguments as error:
            return failure(scope, call, str(error), "invalid-args")
        except BaseException as error:
            if not _is_the_calls_own(scope, error):
                raise
            if retry == tool.policy.retries or scope.cancel:
                return raised(scope, call, error)
            scope.logger.warning("tool %s raised %r; it runs again", call["name"], error)
        else:
            return _encoded(scope, call, value)
    raise AssertionError("unreachable")


def _is_the_calls_own(scope: Any, error: BaseException) -> bool:
    """Whether what a tool raised is its call's failure, and not to leave the run.

    asyncio's CancelledError is no Exception, but only says something of a loop that the tool ran; SystemExit ends
    a thread, and only in the caller's own thread the program.
    """
    if isinstance(error, SystemExit):
        return bool(get_ident() != scope.home)
    return isinstance(error, Exception) or type(error).__name__ == "CancelledError"


def _encoded(scope: Any, call: Call, value: Any) -> Json:
    """The result for a value; one that is no JSON does not make the tool run again."""
    try:
        return success(scope, call, value)
    except Exception as error:
        return raised(scope, call, error)


def _once(ctx: Any, call: Call, tool: Tool, retry: int) -> Any:
    timeout = shorter(tool.policy.timeout, ctx.scope.options.get("tool_timeout"))
    context = CallContext(ctx.scope, call, ctx, timeout)
    if tool.policy.effect == "read":  # its starts are not recorded
        context.attempt += retry
    args = own_copy(call["args"])
    if timeout is None:
        return tool.call(args, context)
    return _bounded(ctx, lambda: tool.call(args, context), timeout)


class _TimedOut(Exception):
    def __init__(self, seconds: float):
        super().__init__("timed out")
        self.seconds = seconds


def _bounded(ctx: Any, work: Callable[[], Any], timeout: float) -> Any:
    """Run `work` in a thread that is abandoned after `timeout` seconds, or after a cancel and its grace."""
    scope = ctx.scope
    executor, wake, end = scope.timed_executor(), Future(), Deadline(timeout)  # type: ignore[var-annotated]
    future = executor.submit(work)
    forget = scope.cancel.on_cancel(lambda: wake.set_result(None))
    try:
        wait([future, wake], shorter(end.remaining(), scope.deadline.remaining()), FIRST_COMPLETED)
        if not future.done() and not end.passed():
            wait([future], shorter(end.remaining(), scope.grace))
    finally:
        forget()
    if future.done():
        return future.result()
    if not future.cancel():  # else no thread has taken it up, and none will
        executor.abandon(future)
        future.add_done_callback(lambda late: _note_late(ctx, late))
    if not end.passed():
        stop(scope)
    raise _TimedOut(timeout)


def _note_late(ctx: Any, late: Future[Any]) -> None:
    """A result that came after the call was given up is dropped; that it came is noted if the run is still ours."""
    error = late.exception()
    try:
        ctx.note({"late": "returned" if error is None else type(error).__name__})
    except (MinagentError, OSError):
        pass


# process-result


def process_result(ctx: Any, value: Json) -> Done:
    """Show the result to the processors, one result at a time, and let it into the state."""
    runner, state = ctx.scope.runner, ctx.scope.state
    if state.tripwire is not None:
        return Done()  # the run was stopped at a sibling's result: nobody sees this one
    before = ToolResultPart.from_dict(value)
    if not runner.sees_results and before.call_id in state.open.results:
        return Done()  # recorded when no processor saw results
    after = replace(runner.process_tool_result(before), call_id=before.call_id, name=before.name)
    output = value if after == before else dict(value, **_plain(after))
    return Done(output, [{"type": "result-added"}, *runner.state_changes()])


def _plain(part: ToolResultPart) -> Json:
    data = part.to_dict()
    return dict({"is_error": False, "kind": None, "content": []}, **dict(data, call_id=part.call_id))


