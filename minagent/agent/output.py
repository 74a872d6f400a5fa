"""FullOutput from RunState, and the caller's side of a stream.

The output is built from the state alone, at any time, so that generate, a consumed stream and a resume in
another process return the same.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional

from ..chunks import LAST_TYPES, Chunk
from ..loop.state import RunState
from ..loop.stream import QueueSink
from ..messages import FilePart
from ..results import FullOutput, Suspension, Tripwire


def full_output(state: RunState, finish_reason: Optional[str] = None,
                snapshot: Optional[Dict[str, Any]] = None) -> FullOutput[Any]:
    """What the run has come to.

    Parameters:
        finish_reason: Why it ends, where that is not recorded yet.
        snapshot: For runs without a store.
    """
    reason = finish_reason or reason_of(state)
    steps = tuple([*state.steps, state.open_result()] if state.open is not None else state.steps)
    results = [result for step in steps for result in step.tool_results]
    texts = [step.text for step in steps if step.text]
    text = "" if state.tripwire is not None or not steps else steps[-1].text
    response = state.messages[state.input_count:]
    return FullOutput(
        text=state.edits.get("text", text), transcript="\n\n".join(texts), object=state.edits.get("object"),
        reasoning="\n\n".join([step.reasoning for step in steps if step.reasoning]),
        tool_calls=tuple([call for step in steps for call in step.tool_calls]),
        tool_results=tuple([result for result in results if not result.is_error]),
        tool_errors=tuple([result for result in results if result.is_error]),
        steps=steps, usage=state.usage, cost_usd=state.cost_usd, finish_reason=reason,
        suspensions=tuple(open_suspensions(state)) if reason == "suspended" else (),
        tripwire=state.tripwire or (_limit(state) if reason == "tripwire" else None),
        messages=list(state.messages), response_messages=list(response), sources=tuple(state.sources),
        files=tuple([part for message in response for part in message.parts if isinstance(part, FilePart)]),
        attempts=tuple(state.attempts), run_id=state.run_id, thread_id=state.options.get("thread_id"),
        snapshot=snapshot, warnings=tuple(state.warnings),
        error=(state.ended or {}).get("error") if reason == "error" else None,
        metadata=state.edits.get("metadata") or state.options.get("metadata") or {})


def reason_of(state: RunState) -> str:
    """finish_reason of a run as it stands."""
    if state.tripwire is not None:
        return "tripwire"
    if state.finish_reason is not None:
        return state.finish_reason
    if state.status == "waiting":
        return "suspended"
    signal = (state.ended or {}).get("signal")
    return {"Cancelled": "cancelled", "LimitReached": "tripwire"}.get(signal or "", "error")


def _limit(state: RunState) -> Tripwire:
    return Tripwire.from_dict(dict({"kind": "deadline"}, **(state.ended or {})))


def open_suspensions(state: RunState) -> List[Suspension]:
    """What the run waits for: questions, and background tasks."""
    tasks = [Suspension(id, task["call_id"], task["name"], "background", task["args"],
                        agent_path=(state.agent,), created_at=task["created_at"])
             for id, task in state.background.items()]
    return [*state.suspensions.values(), *tasks]


#: Seconds that closing a stream waits for the run to stop; longer than the grace of its tools.
CLOSE_SECONDS = 3.0


class AgentStream:
    """A run in a thread of its own, watched from this one.

    Iterate it for chunks, or `.text` for pieces of text; `.output` waits for the end.  Use it as a context
    manager: leaving early cancels the run, and so does dropping it.  Only one thread may read it.

    Attributes:
        run_id: The run.
    """

    def __init__(self, run_id: str, sink: QueueSink, work: Callable[[], Any], cancel: Callable[[], Any]):
        self.run_id = run_id
        self._sink = sink
        self._cancel = cancel
        self._ended = False
        self._received: Deque[Chunk] = deque()  # what an iteration that was left early has not shown
        self._box = _Box()
        self._thread = threading.Thread(target=_produce, args=(work, sink, self._box), name="minagent-stream",
                                        daemon=True)
        self._dropped = weakref.finalize(self, _drop, cancel, sink)
        self._dropped.atexit = False
        self._thread.start()

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks, as they come.

        Raises:
            MinagentError: What the run failed with, after its "error" chunk.
        """
        return (chunk for chunk in self._chunks(None) if chunk is not None)

    def with_heartbeats(self, seconds: float = 15.0) -> Iterator[Optional[Chunk]]:
        """The chunks, and None whenever nothing came for so many seconds.

        A web server notices that a client has left only when it writes: write a comment for each None, and a quiet
        tool is told to stop when its client goes.  Raises as iterating does.
        """
        return self._chunks(seconds)

    def _chunks(self, seconds: Optional[float]) -> Iterator[Optional[Chunk]]:
        while not self._ended:
            self._received = self._received or deque(self._sink.receive(seconds))
            chunk = self._received.popleft() if self._received else None
            if chunk is _END:
                self._finish()
            else:
                yield chunk
        if self._box.error is not None:
            raise self._box.error

    def _finish(self, timeout: Optional[float] = None) -> None:
        self._ended = True
        self._thread.join(timeout)
        self._dropped.detach()

    @property
    def text(self) -> Iterator[str]:
        """Pieces of text, as they come.  Pieces of an answer that was then rejected are among them."""
        for chunk in self:
            if chunk.type == "text-delta":
                yield chunk.payload["text"]

    @property
    def output(self) -> FullOutput[Any]:
        """Read the stream to its end and return the run's FullOutput.

        Raises:
            MinagentError: What the run failed with.
        """
        for _ in self:
            pass
        output: FullOutput[Any] = self._box.output
        return output

    def cancel(self) -> None:
        """Stop the run; the stream then ends with an "abort" chunk."""
        self._cancel()

    def close(self) -> None:
        """Stop the run if it goes on, and wait a moment for its thread.  Nothing more can be read.

        A tool that does not heed ``ctx.cancelled`` is not waited for longer than `CLOSE_SECONDS`.
        """
        if not self._ended:
            self._cancel()
            self._sink.leave()
            self._finish(CLOSE_SECONDS)

    def __enter__(self) -> AgentStream:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class _Box:
    """What a stream's thread leaves behind."""

    output: Any = None
    error: Optional[BaseException] = None


_END: Any = Chunk("", "", 0, {}, 0)


def _produce(work: Callable[[], Any], sink: QueueSink, box: _Box) -> None:
    try:
        box.output = work()
    except BaseException as error:
        box.error = error
    finally:
        sink.send([_END])


def _drop(cancel: Callable[[], Any], sink: QueueSink) -> None:
    cancel()
    sink.leave()


def last_chunk(output: FullOutput[Any], state: RunState, error: Optional[BaseException]) -> Mapping[str, Any]:
    """Type and payload of the chunk that a run ends with; one of `chunks.LAST_TYPES`."""
    if error is not None:
        return {"type": "error", "payload": {"error": error}}
    if output.finish_reason == "cancelled":
        return {"type": "abort", "payload": {"reason": (state.ended or {}).get("reason", "cancelled")}}
    return {"type": LAST_TYPES[0], "payload": {"output": output}}
