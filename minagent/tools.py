"""Tools: what a model may call, as inert data.

A `Tool` holds a function, its schema and its policy; nothing here runs it or reads the policy (that is
`loop.tool_call`, the only such place).  The schema is made on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union, overload

from .errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

EFFECTS = ("read", "idempotent", "once", "transactional")
UNKNOWN_OUTCOMES = ("tell-model", "suspend", "fail")
ISOLATIONS = ("thread", "process")


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told of a tool.

    Attributes:
        name: 1 to 64 of ``A-Z a-z 0-9 _ -``.
        description: For the model.
        parameters: JSON Schema of the arguments, an object.
        examples: Worked examples: dicts of arguments.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    examples: Tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> Dict[str, Any]:
        data: Dict[str, Any] = {"name": self.name, "description": self.description, "parameters": self.parameters}
        if self.examples:
            data["examples"] = list(self.examples)
        return data


@dataclass(frozen=True)
class ToolPolicy:
    """How a tool may be run.

    Attributes:
        effect: What running it twice means: "read" and "idempotent" may run again after a crash, "once" (default)
            never silently does, "transactional" commits with the journal.
        on_unknown_outcome: What happens to a "once" call that started and has no recorded end: "tell-model" (default),
            "suspend" or "fail"; None takes the agent's.
        require_approval: True, False, or a predicate (args, ctx); a predicate that raises means True.
        background: Whether the loop goes on while it runs.
        timeout: Seconds after which it counts as failed, or None.
        retries: How often a raising call is run again (default 0).
        isolation: "thread" or "process".
        exclusive: Whether no other tool of the run may run beside it.
        max_calls: Calls per run, or None.
    """

    effect: str = "once"
    on_unknown_outcome: Optional[str] = None
    require_approval: Union[bool, Callable[..., Any]] = False
    background: bool = False
    timeout: Optional[float] = None
    retries: int = 0
    isolation: str = "thread"
    exclusive: bool = False
    max_calls: Optional[int] = None

    def __post_init__(self) -> None:
        _one_of("effect", self.effect, EFFECTS)
        _one_of("isolation", self.isolation, ISOLATIONS)
        if self.on_unknown_outcome is not None:
            _one_of("on_unknown_outcome", self.on_unknown_outcome, UNKNOWN_OUTCOMES)
        if not isinstance(self.require_approval, bool) and not callable(self.require_approval):
            raise ConfigError("a tool's require_approval is %r; expected True, False or a predicate (args, ctx)"
                              % (self.require_approval,))
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError("a tool's timeout is %r; expected seconds above 0, or None" % (self.timeout,))
        if self.retries < 0:
            raise ConfigError("a tool's retries is %r; expected 0 or more" % (self.retries,))
        if self.max_calls is not None and self.max_calls < 1:
            raise ConfigError("a tool's max_calls is %r; expected 1 or more, or None" % (self.max_calls,))


def _one_of(what: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError("a tool's %s is %r; expected one of %s" % (what, value, ", ".join(map(repr, allowed))))


class Tool:
    """A function that a model may call.  Calling the tool calls the function.

    Attributes:
        function: The function, or None for a tool given by schema only.
        policy: How it may be run.
    """

    def __init__(self, function: Callable[..., Any], *, name: Optional[str] = None, description: Optional[str] = None,
                 parameters: Optional[Mapping[str, Any]] = None, examples: Sequence[Mapping[str, Any]] = (),
                 policy: Optional[ToolPolicy] = None):
        if not callable(function):
            raise ConfigError("a tool is %r; expected a function or a Tool" % (function,))
        if parameters is None:
            _refuse_asynchronous(function)
        self.function = function
        self.policy = policy or ToolPolicy()
        self._name = name
        self._description = description
        self._parameters = parameters
        self._examples = tuple(examples)
        self._made: Optional[_Made] = None
        self.__doc__ = getattr(function, "__doc__", None)
        self.__name__ = name or _function_name(function)
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return "Tool(%s)" % self.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A decorated method gives the tool of the bound method."""
        if instance is None:
            return self
        return self.renamed(function=self.function.__get__(instance, owner))

    def renamed(self, name: Optional[str] = None, function: Optional[Callable[..., Any]] = None) -> Tool:
        """Return a copy with another name or function."""
        return Tool(function or self.function, name=name or self._name, description=self._description,
                    parameters=self._parameters, examples=self._examples, policy=self.policy)

    @property
    def name(self) -> str:
        """What the model calls it; known without making the schema."""
        return self.__name__

    @property
    def digest(self) -> str:
        """SHA-256 of name and schema, as 16 hexadecimal digits."""
        return self._make().digest

    @property
    def spec(self) -> ToolSpec:
        """What the model is told.

        Raises:
            SchemaError: If the signature cannot be turned into a schema.
        """
        return self._make().spec

    @property
    def context_parameter(self) -> Optional[str]:
        """Name of the parameter that takes the ToolContext, or None."""
        return self._make().context_parameter

    def problems(self, args: Any) -> List[Tuple[str, str]]:
        """Check arguments against the schema; pairs (path, reason), empty if they fit."""
        found: List[Tuple[str, str]] = self._make().validator.problems(args)
        return found

    def call(self, args: Mapping[str, Any], ctx: Any) -> Any:
        """Convert checked arguments to the annotated types and call the function.

        Raises:
            InvalidArguments: If a value cannot be converted.
        """
        made = self._make()
        values = made.bind(dict(args)) if made.bind else dict(args)
        if made.context_parameter:
            values[made.context_parameter] = ctx
        return self.function(**values)

    def _make(self) -> _Made:
        if self._made is None:
            self._made = _make(self, self._description, self._parameters, self._examples)
        return self._made


@dataclass(frozen=True)
class _Made:
    """What is made of a tool on first use."""

    spec: ToolSpec
    validator: Any
    context_parameter: Optional[str] = None
    bind: Optional[Callable[[Dict[str, Any]], Dict[str, Any]]] = None

    @property
    def digest(self) -> str:
        from hashlib import sha256
        from json import dumps

        told = [self.spec.name, self.spec.parameters]
        return sha256(dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _make(tool: Tool, description: Optional[str], parameters: Optional[Mapping[str, Any]],
          examples: Tuple[Mapping[str, Any], ...]) -> _Made:
    from .schema import Validator, function_schema

    if parameters is not None:
        spec = ToolSpec(_checked_name(tool.name), description or "", parameters, examples)
        return _Made(spec, _checked(Validator(parameters)))
    made = function_schema(tool.function)
    spec = ToolSpec(_checked_name(tool.name), made.description if description is None else description,
                    made.parameters, examples)
    return _Made(spec, Validator(spec.parameters), made.context_parameter, made.bind)


def _function_name(function: Any) -> str:
    while hasattr(function, "func") and not hasattr(function, "__name__"):  # functools.partial
        function = function.func
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _refuse_asynchronous(function: Any) -> None:
    """Let the schema refuse at once what it would refuse at the first use."""
    import inspect

    if any(is_kind(function) for is_kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction,
                                             inspect.isasyncgenfunction)):
        from .schema import function_schema

        function_schema(function)


def _checked(validator: Any) -> Any:
    validator.check_schema()
    return validator


def _checked_name(name: str) -> str:
    import re

    if not re.match(r"[A-Za-z0-9_-]{1,64}\Z", name):
        raise ConfigError("a tool has the name %r; expected 1 to 64 of A-Z a-z 0-9 _ -; pass name= to @tool" % (name,))
    return name


def as_tool(item: Any) -> Tool:
    """Return a Tool for what may stand in ``tools=[...]``: a Tool, a function, a method, a partial.

    Raises:
        ConfigError: If it is something else.
    """
    return item if isinstance(item, Tool) else Tool(item)


@overload
def tool(function: F) -> Tool: ...


@overload
def tool(*, name: Optional[str] = None, description: Optional[str] = None, effect: str = "once",
         on_unknown_outcome: Optional[str] = None, require_approval: Union[bool, Callable[..., Any]] = False,
         background: bool = False, timeout: Optional[float] = None, retries: int = 0, isolation: str = "thread",
         exclusive: bool = False, max_calls: Optional[int] = None,
         examples: Sequence[Mapping[str, Any]] = ()) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Any = None, *, name: Optional[str] = None, description: Optional[str] = None,
         examples: Sequence[Mapping[str, Any]] = (), **policy: Any) -> Any:
    """Make a tool of a function; with or without arguments.  The tool can still be called like the function.

    Parameters:
        name: Default: the function's name.
        description: Default: the docstring without its parameter sections.
        examples: Dicts of arguments, shown to models that take examples.
        policy: The attributes of `ToolPolicy`: effect, on_unknown_outcome, require_approval, background, timeout,
            retries, isolation, exclusive, max_calls.

    Raises:
        ConfigError: If an option is unknown or its value is not allowed.
    """
    made = _policy(policy)

    def decorate(function: Callable[..., Any]) -> Tool:
        return Tool(function, name=name, description=description, examples=examples, policy=made)

    return decorate if function is None else decorate(function)


def _policy(members: Mapping[str, Any]) -> ToolPolicy:
    from .errors import UnknownOption, did_you_mean

    known = list(ToolPolicy.__dataclass_fields__)
    for member in members:
        if member not in known:
            raise UnknownOption("unknown option %r for @tool%s" % (member, did_you_mean(
                member, known + ["name", "description", "examples"])))
    return ToolPolicy(**members)


class ToolContext:
    """What a running tool may use.  Annotate a parameter with it, or name one ``ctx``.

    Attributes:
        run_id: The run.
        call_id: The call, as the model named it.
        tool_name: The tool.
        step: Index of the step, from 1.
        attempt: Which run of this call this is, from 1.  The runs of a "read" tool are not recorded, so that it counts
            from 1 again after a crash.
        idempotency_key: The same for every run of this call; hand it to the outside service.
        deps: What was given as ``deps=``.
        request_context: The JSON given as ``request_context=``.
        thread_id: Memory thread, or None.
        resource_id: Its owner, or None.
        messages: The conversation so far (read only).
        usage: Of the run so far.
        logger: A `logging.Logger`.
    """

    __tool_context__ = True

    run_id: str
    call_id: str
    tool_name: str
    step: int
    attempt: int
    idempotency_key: str
    deps: Any
    request_context: Mapping[str, Any]
    thread_id: Optional[str]
    resource_id: Optional[str]

    @property
    def messages(self) -> Sequence[Any]:
        raise NotImplementedError

    @property
    def usage(self) -> Any:
        raise NotImplementedError

    @property
    def logger(self) -> Any:
        raise NotImplementedError

    @property
    def cancelled(self) -> bool:
        """Whether the tool should stop: the run was cancelled, its deadline or the tool's timeout has passed."""
        raise NotImplementedError

    def remaining(self) -> Optional[float]:
        """Seconds left for this call, or None if nothing limits it."""
        raise NotImplementedError

    def suspend(self, payload: Any = None, resume_schema: Optional[Mapping[str, Any]] = None, label: str = "") -> Any:
        """Stop the run until somebody answers, and return the answer.

        The body runs again from its top when the answer is there, and the k-th call of `suspend` returns the
        k-th answer: effects belong after it.

        Parameters:
            payload: JSON value shown to whoever answers.
            resume_schema: JSON Schema that an answer must fit, or None.
            label: A short text for lists.
        """
        raise NotImplementedError

    def emit(self, value: Any) -> None:
        """Show a JSON value to watchers as a ``tool-output`` chunk.  It is not kept."""
        raise NotImplementedError
