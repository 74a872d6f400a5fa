"""Sinks: where the chunks of a run go; and the chunks that records stand for.

A chunk that states a fact is made from its record, after it was written.  What is not here: the caller's side
of a stream (`agent.output`).
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Tuple

from ..chunks import Chunk
from ..messages import ToolCallPart, ToolResultPart
from ..results import Suspension, Tripwire

Fact = Tuple[str, Mapping[str, Any]]


class Sink:
    """Nobody watches.

    Attributes:
        watched: Whether it is worth making chunks.
    """

    watched = False

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Take chunks that were made by one event."""


class CallbackSink(Sink):
    """Calls ``on_chunk(chunk)`` for each chunk.  An exception in it is logged and changes nothing."""

    watched = True

    def __init__(self, on_chunk: Callable[[Chunk], Any], logger: Any):
        self._on_chunk = on_chunk
        self._logger = logger
        self._one = threading.RLock()  # one call of on_chunk at a time; tools in threads send, too

    def send(self, chunks: Sequence[Chunk]) -> None:
        with self._one:
            for chunk in chunks:
                try:
                    self._on_chunk(chunk)
                except Exception:
                    self._logger.exception("on_chunk raised for a %r chunk; the run goes on", chunk.type)


class QueueSink(Sink):
    """Hands chunks over to another thread, one queue item for each list; waits while the queue is full.

    Parameters:
        size: Lists at most in the queue.
    """

    watched = True

    def __init__(self, size: int = 64):
        self._queue: queue.Queue[Sequence[Chunk]] = queue.Queue(size)
        self._left = False

    def send(self, chunks: Sequence[Chunk]) -> None:
        if not self._left:
            self._queue.put(list(chunks))
            if self._left:  # it waited while the reader left: let the next one go on, too
                self._drain()

    def receive(self, timeout: Optional[float] = None) -> Sequence[Chunk]:
        """The next list; waits for it, at most `timeout` seconds, after which it is empty."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return ()

    def leave(self) -> None:
        """Nobody receives any more: what comes is dropped, and who waits to send goes on."""
        self._left = True
        self._drain()

    def _drain(self) -> None:
        try:
            while True:
                self._queue.get_nowait()
        except queue.Empty:
            pass


class Tee(Sink):
    """Sends to several sinks."""

    watched = True

    def __init__(self, sinks: Sequence[Sink]):
        self._sinks = list(sinks)

    def send(self, chunks: Sequence[Chunk]) -> None:
        for sink in self._sinks:
            sink.send(chunks)


def show(scope: Any, on_step: Any, record: Mapping[str, Any]) -> None:
    """Show what a record states; the journal's listener."""
    if scope.sink.watched:
        chunks = [scope.chunk(type, payload) for type, payload in facts(record, scope.state)]
        if chunks:
            scope.sink.send(chunks)
    if on_step is not None and any(change["type"] == "step-finished" for change in record.get("changes", ())):
        try:
            on_step(scope.state.steps[-1])
        except Exception:
            scope.logger.exception("on_step raised; the run goes on")


def facts(record: Mapping[str, Any], state: Any) -> Iterator[Fact]:
    """The chunks that a record stands for, in the order of its changes."""
    output = record.get("output") or {}
    for change in record.get("changes", ()):
        make = FACTS.get(change["type"])
        if make is not None:
            yield from make(output, state, change)


def _accepted(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    for call in state.calls:
        yield "tool-call", _call(call)


def _call(call: ToolCallPart) -> Mapping[str, Any]:
    return {"call_id": call.call_id, "tool_name": call.name, "args": call.args}


def _result(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    part = ToolResultPart.from_dict(output)
    told = {"call_id": part.call_id, "tool_name": part.name}
    if part.kind == "declined":
        yield "tool-output-denied", dict(told, reason=part.output)
    elif part.is_error:
        yield "tool-error", dict(told, error=part.output, kind=part.kind)
    else:
        yield "tool-result", dict(told, output=part.output)


def _suspended(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    suspension = Suspension.from_dict(output)
    yield "tool-call-approval" if suspension.kind == "approval" else "tool-call-suspended", {"suspension": suspension}


def _rejected(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    yield "tripwire", {"tripwire": Tripwire.from_dict(output["rejected"])}


def _tripped(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    yield "tripwire", {"tripwire": state.tripwire}


def _sent_off(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    yield "background-task-started", {"call_id": output["call_id"], "tool_name": output["name"]}


def _came_back(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    decision, task = output["decisions"][change["id"]], output["tasks"][change["id"]]
    told = {"call_id": task["call_id"], "tool_name": task["name"]}
    if decision["type"] == "decline":
        yield "background-task-failed", dict(told, error=decision.get("reason", ""))
    else:
        yield "background-task-completed", dict(told, output=decision.get("value"))


def _finished_step(output: Any, state: Any, change: Any) -> Iterator[Fact]:
    yield "step-finish", {"step": state.steps[-1]}


FACTS = {
    "attempt-started": lambda output, state, change: iter([("step-start", {"attempt": state.attempt})]),
    "answer-accepted": _accepted,
    "attempt-rejected": _rejected,
    "result-added": _result,
    "suspension-opened": _suspended,
    "background-opened": _sent_off,
    "background-closed": _came_back,
    "step-finished": _finished_step,
    "tripped": _tripped,
}
