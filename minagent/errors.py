"""Everything that minagent raises: one root for errors, one family of signals.

An error says that something went wrong and what to do about it.  A signal says that nothing went wrong but
the run has to leave the place where it is; it derives from BaseException so that a tool's own
``except Exception`` cannot swallow it.  What is not here: any decision about what to do with either.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple


def did_you_mean(word: str, candidates: Iterable[str], likeness: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest candidate, or an empty string if none is that alike."""
    import difflib

    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=likeness)
    return "; did you mean %r?" % close[0] if close else ""


class MinagentError(Exception):
    """Root of all errors.

    Attributes:
        run_id: The run that failed, or None if no run was involved.  Such a run can be resumed.
        output: The FullOutput so far, or None.
    """

    run_id: Optional[str] = None
    output: Any = None


# Asked for wrongly: nothing was done.


class ConfigError(MinagentError, ValueError):
    """The call, the agent or a tool was set up wrongly.  Nothing was done; correct the arguments."""


class UnknownOption(ConfigError, TypeError):
    """An option that does not exist.  The message names the nearest one that does."""


class SchemaError(ConfigError, TypeError):
    """A signature or a JSON Schema cannot be used.  The message names the function and the parameter."""


class EncodeError(MinagentError, TypeError):
    """A value cannot be written as JSON.  The message holds the path inside the value.

    Attributes:
        path: Where in the value, such as ``$.items[2].owner``.
    """

    def __init__(self, message: str, path: str = "$"):
        super().__init__(message)
        self.path = path


class InvalidArguments(MinagentError, ValueError):
    """A value does not fit its JSON Schema.

    Attributes:
        problems: Pairs (path, reason), most relevant first.
    """

    def __init__(self, message: str, problems: Sequence[Tuple[str, str]] = ()):
        super().__init__(message)
        self.problems: List[Tuple[str, str]] = list(problems)


# Runs and their stores.


class RunError(MinagentError):
    """Root of what can go wrong with a recorded run."""

    def __init__(self, message: str, run_id: Optional[str] = None, output: Any = None):
        super().__init__(message)
        self.run_id = run_id
        self.output = output


class RunNotFound(RunError, LookupError):
    """No run of that id was recorded in this store.  Check the id, and that the store is the one it ran in."""


class RunBusy(RunError):
    """Another thread or process owns the run.  A decision that came along was kept; try again later."""


class RunFinished(RunError):
    """The run has ended; there is nothing to resume.  `output` is its FullOutput."""


class RunConflict(RunError):
    """A run of that id exists with other input.  Choose another run_id."""


class RunCorrupt(RunError):
    """The journal is damaged in its middle.

    Attributes:
        offset: First damaged byte of the journal.
    """

    def __init__(self, message: str, run_id: Optional[str] = None, offset: int = 0):
        super().__init__(message, run_id)
        self.offset = offset


class RunTooNew(RunError):
    """The run was recorded by a newer minagent.  Resume it with that version."""


class RunPoisoned(RunError):
    """The run was started too often without progress.  Find the cause, then resume with a higher max_recoveries."""


class ResumeMismatch(RunError, ValueError):
    """Something live that the run was started with was not given again.  The message names it."""


class UnknownSuspension(RunError, LookupError):
    """No open suspension of that id.  `output.suspensions` lists the ids that wait."""


class InvalidDecision(RunError, ValueError):
    """A decision does not fit the suspension that it answers.  The suspension stays open; decide again.

    Attributes:
        problems: Pairs (path, reason) where a schema was not met.
    """

    def __init__(self, message: str, run_id: Optional[str] = None, problems: Sequence[Tuple[str, str]] = ()):
        super().__init__(message, run_id)
        self.problems: List[Tuple[str, str]] = list(problems)


class AlreadyDecided(RunError):
    """The suspension was decided before; decisions are single-use.

    Attributes:
        decision: The first decision, as a dict.
    """

    def __init__(self, message: str, run_id: Optional[str] = None, decision: Optional[Mapping[str, Any]] = None,
                 output: Any = None):
        super().__init__(message, run_id, output)
        self.decision: Dict[str, Any] = dict(decision or {})


class RunNotFinished(RunError):
    """Raised by `FullOutput.raise_unless_finished` for a run that waits or was interrupted."""


class OwnershipLost(RunError):
    """This process no longer owns the run it was driving (the lock was lost or taken after a fork)."""


# What runs inside a run.


class ToolError(MinagentError):
    """Raise it in a tool to give the model exactly this message as the call's error result."""


class UnknownOutcome(MinagentError):
    """A call was started before and has no recorded end, and its policy is "fail".  Find out how it ended."""


class ProcessorError(MinagentError):
    """A processor's hook raised.  The run stopped (guardrails fail closed) and can be resumed.

    Attributes:
        processor: Id of the processor.
        hook: Name of the hook, such as ``process_llm_request``.
    """

    def __init__(self, message: str, processor: str = "", hook: str = ""):
        super().__init__(message)
        self.processor = processor
        self.hook = hook


class ObjectInvalid(MinagentError, ValueError):
    """The model's answer did not fit the asked structure, and all repairs were spent."""


# Models.


class ModelError(MinagentError):
    """A provider refused, failed or could not be reached.

    Attributes:
        status: HTTP status, or None when no answer came.
        code: The provider's own error code, as a string, or None.
        request_id: The provider's id of the request, for their support, or None.
        retry_after: Seconds the provider asked us to wait, or None.
        body: The raw error body, cut at 64 KiB.
        retryable: Whether the same request may work later.
    """

    retryable = False

    def __init__(self, message: str, *, status: Optional[int] = None, code: Optional[str] = None,
                 request_id: Optional[str] = None, retry_after: Optional[float] = None, body: str = ""):
        super().__init__(message)
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.body = body


class BadRequest(ModelError):
    """The provider refused the request as it is.  The message holds the provider's reason; change the request."""


class AuthenticationFailed(ModelError):
    """The key is missing, wrong or not allowed to do this.  Check the key's environment variable."""


class ContextLengthExceeded(BadRequest):
    """The conversation does not fit the model's context.  Shorten it or choose a larger model."""


class ContentFiltered(ModelError):
    """The provider's content filter refused the request.  Rephrase it."""


class QuotaExhausted(ModelError):
    """The account's quota or credit is used up.  Waiting a moment does not help; raise the quota."""


class RateLimited(ModelError):
    """Too many requests.  Safe to retry after `retry_after` seconds."""

    retryable = True


class Overloaded(ModelError):
    """The provider is overloaded or failed on its side (5xx, 529).  Safe to retry later."""

    retryable = True


class ModelUnreachable(ModelError, ConnectionError):
    """No connection to the provider.  Check base_url, the network and the proxy settings."""

    retryable = True


class ModelTimeout(ModelError, TimeoutError):
    """The provider was too slow to connect, to send the first byte, or between two events."""

    retryable = True


class TruncatedStream(ModelError):
    """The stream ended without its end marker; the answer is not complete.  Resume to ask again."""

    retryable = True


class BadResponse(ModelError):
    """The provider's answer is not what its API describes.  The body is in `body`."""


# Signals: nothing went wrong, the run leaves its place.


class Signal(BaseException):
    """Leaves a run from any depth.  The engine records it at the leaf where it was raised.

    Attributes:
        status: Status of the record: "suspended", "done" or "noted".
        rank: Precedence among signals of parallel calls; the highest one is raised on.
        changes: Changes written with the record.
        output: JSON value written with the record.
    """

    status = "noted"
    rank = 0
    default_changes: Sequence[Mapping[str, Any]] = ()

    def __init__(self, reason: str = "", output: Any = None, changes: Sequence[Mapping[str, Any]] = ()):
        super().__init__(reason)
        self.reason = reason
        self.output = output
        self.changes: List[Mapping[str, Any]] = list(changes or self.default_changes)


class Suspend(Signal):
    """The run waits for decisions.

    Attributes:
        suspensions: All open suspensions, as dicts with at least an `id`.
    """

    status = "suspended"
    rank = 1

    def __init__(self, suspensions: Sequence[Mapping[str, Any]] = ()):
        super().__init__("suspended")
        self.suspensions: List[Mapping[str, Any]] = list(suspensions)


class LimitReached(Signal):
    """A limit of tokens, cost, tool calls or time was reached; the run can be resumed with a new one."""

    rank = 2
    default_changes = ({"type": "ended-early"},)


class Abort(Signal):
    """A processor blocked the run: it is finished with finish_reason "tripwire"."""

    status = "done"
    rank = 3


class Cancelled(Signal):
    """Somebody cancelled the run; it can be resumed."""

    rank = 4
    default_changes = ({"type": "ended-early"},)
