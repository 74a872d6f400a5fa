"""Functions as JSON Schema, and JSON arguments as what the functions expect."""

import dataclasses
import datetime
import enum
import functools
import json
import sys
import typing
from typing import Any, Dict, List, Optional, Set, Tuple, Union

import pytest

from minagent.errors import ConfigError, InvalidArguments, SchemaError
from minagent.schema import Validator, function_schema


class ToolContext:
    """Stands for the real one, which is known by its name."""


class Marked:
    __tool_context__ = True


class Size(enum.Enum):
    SMALL = "s"


UNSEEN = object()


@dataclasses.dataclass
class Address:
    street: str
    since: Optional[datetime.date] = None


def order(number: int, to: Address, sizes: Set[Size], note, at: datetime.datetime = None,
          limits: Tuple[int, float] = (1, 2.5), size: Size = Size.SMALL, *, hidden: Any = UNSEEN,
          ctx: ToolContext):
    """Send an order.

    Args:
        number: Order number.
        to: Where it goes.
        note: Anything.
        at: When.
        ctx: Not for the model.

    Returns:
        The receipt.
    """
    return number, to, sizes, note, at, limits, size, ctx


def test_a_function_is_described_by_its_signature_and_docstring():
    """Types, descriptions, defaults, what is required, and definitions; the context is left out."""
    schema = function_schema(order)
    assert schema.name == "order"
    assert schema.description == "Send an order.\n\nReturns:\n    The receipt."
    assert schema.context_parameter == "ctx"
    assert schema.parameters == {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "description": "Order number."},
            "to": {"anyOf": [{"$ref": "#/$defs/Address"}], "description": "Where it goes."},
            "sizes": {"type": "array", "items": {"type": "string", "enum": ["s"]}, "uniqueItems": True},
            "note": {"description": "Anything."},
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
                   "description": "When.", "default": None},
            "limits": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}],
                       "items": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
                       "minItems": 2, "maxItems": 2, "default": [1, 2.5]},
            "size": {"type": "string", "enum": ["s"], "default": "s"},
            "hidden": {}},
        "required": ["number", "to", "sizes", "note"],
        "additionalProperties": False,
        "$defs": {"Address": {
            "type": "object",
            "properties": {"street": {"type": "string"},
                           "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                                     "default": None}},
            "required": ["street"], "additionalProperties": False}}}
    Validator(schema.parameters).check_schema()
    json.dumps(schema.parameters)


def test_arguments_are_bound_as_the_annotated_types():
    """Given arguments are converted; the others are left to the function."""
    args = {"number": 7.0, "to": {"street": "S", "since": "2024-01-02"}, "sizes": ["s"],
            "note": {"any": [1]}, "at": "2024-01-02T03:04:05Z"}
    schema = function_schema(order)
    assert not Validator(schema.parameters).problems(args)
    bound = schema.bind(args)
    assert bound == {
        "number": 7, "to": Address("S", datetime.date(2024, 1, 2)), "sizes": {Size.SMALL},
        "note": {"any": [1]}, "at": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)}
    assert order(ctx=None, **bound)[5] == (1, 2.5)
    assert args["sizes"] == ["s"]


def test_binding_reports_every_argument_that_does_not_fit():
    """Missing, unknown and inconvertible arguments are named together, with paths below the parameter."""
    with pytest.raises(InvalidArguments) as caught:
        function_schema(order).bind({"number": "7", "to": {"street": 1}, "sizes": [], "at": "x", "nots": 1})
    assert dict(caught.value.problems) == {
        "$.number": "expected integer, got string '7'",
        "$.to.street": "expected string, got integer 1",
        "$.at": "expected a date and time such as 2024-12-31T23:59:00+01:00, got 'x'",
        "$.nots": "is not a known name; did you mean 'note'?; expected one of number, to, sizes, note, at, "
                  "limits, size, hidden",
        "$.note": "is required"}
    with pytest.raises(InvalidArguments, match="expected object, got array"):
        function_schema(order).bind([1])
    assert issubclass(InvalidArguments, ValueError)


def test_a_default_of_none_makes_a_parameter_optional():
    """`x: int = None` takes null, on every interpreter."""
    def old_style(x: int = None, y: Optional[int] = None, z: Any = None, a: Address = None):
        pass

    schema = function_schema(old_style)
    assert schema.parameters["properties"]["x"] == schema.parameters["properties"]["y"]
    assert schema.bind({"x": None, "a": None}) == {"x": None, "a": None}
    assert not Validator(schema.parameters).problems({"x": None, "y": None, "z": None, "a": None})


class Desk:
    """Things with a self."""

    def __init__(self, name):
        self.name = name

    def find(self, query: str, limit: int = 3) -> str:
        """Find something.

        :param query: What.
        """
        return "%s %s %d" % (self.name, query, limit)

    @classmethod
    def make(cls, name: str):
        """Make one."""
        return cls(name).name

    @staticmethod
    def add(a: int, b: int):
        """Add."""
        return a + b

    def __call__(self, what: str):
        """Ask the desk."""
        return self.name + what


class Silent:
    """Say nothing."""

    def __call__(self, loud: bool = False):
        return loud


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


@logged
def wrapped(a: int, b: List[Address]):
    """Do it wrapped."""
    return a, b


CALLABLES = [
    (Desk("d").find, "find", "Find something.", {"query"}, {"query": "q"}, "d q 3"),
    (functools.partial(Desk("d").find, "q"), "find", "Find something.", set(), {"limit": 5}, "d q 5"),
    (functools.partial(Desk("d").find, limit=9), "find", "Find something.", {"query"}, {"query": "q"},
     "d q 9"),
    (functools.partial(functools.partial(Desk.add, b=1)), "add", "Add.", {"a"}, {"a": 2}, 3),
    (Desk.make, "make", "Make one.", {"name"}, {"name": "n"}, "n"),
    (Desk.add, "add", "Add.", {"a", "b"}, {"a": 1, "b": 2}, 3),
    (Desk("d").add, "add", "Add.", {"a", "b"}, {"a": 1, "b": 2}, 3),
    (Desk("d"), "Desk", "Ask the desk.", {"what"}, {"what": "?"}, "d?"),
    (Silent(), "Silent", "Say nothing.", set(), {"loud": True}, True),
    (wrapped, "wrapped", "Do it wrapped.", {"a", "b"}, {"a": 1, "b": [{"street": "s"}]},
     (1, [Address("s")])),
    (logged(Desk("d").find), "find", "Find something.", {"query"}, {"query": "q"}, "d q 3"),
    (functools.partial(wrapped, b=[]), "wrapped", "Do it wrapped.", {"a"}, {"a": 1}, (1, [])),
    (lambda: 1, "<lambda>", "", set(), {}, 1),
]


@pytest.mark.parametrize("row", CALLABLES, ids=[str(row[1:3]) for row in CALLABLES])
def test_everything_that_can_be_called_by_name_is_accepted(row):
    """Methods, partials, objects with __call__, wrapped functions: described, bound and really called."""
    function, name, description, required, args, result = row
    schema = function_schema(function)
    assert (schema.name, schema.description) == (name, description)
    assert set(schema.parameters.get("required", ())) == required
    assert not Validator(schema.parameters).problems(args)
    assert function(**schema.bind(args)) == result


def test_bound_arguments_of_a_partial_are_no_parameters():
    """What a partial has fixed is not offered to the model, and refused when it gives it."""
    schema = function_schema(functools.partial(Desk("d").find, limit=9))
    assert list(schema.parameters["properties"]) == ["query"]
    assert Validator(schema.parameters).problems({"query": "q", "limit": 1})[0][0] == "$.limit"


CONTEXTS = [
    (lambda ctx: 0, "ctx"), (lambda ctx=None: 0, "ctx"), (lambda x: 0, None), (lambda: 0, None),
]


@pytest.mark.parametrize("function, expected", CONTEXTS)
def test_a_parameter_named_ctx_is_the_context(function, expected):
    """The name alone is enough."""
    assert function_schema(function).context_parameter == expected


def test_a_parameter_annotated_as_the_context_is_the_context():
    """By the class's name or its mark, plain, optional, annotated or as text, under any parameter name."""
    def plain(a: int, context: ToolContext): ...
    def optional(context: Optional[ToolContext], a: int = 1): ...
    def marked(a: int, *, context: Marked = None): ...
    def text(a: int, context: "ToolContext"): ...
    def dotted(a: int, context: "anywhere.ToolContext"): ...  # noqa: F821
    def optional_text(a: int, context: "Optional[anywhere.ToolContext]" = None): ...  # noqa: F821

    for function in (plain, optional, marked, text, dotted, optional_text):
        schema = function_schema(function)
        assert schema.context_parameter == "context"
        assert list(schema.parameters["properties"]) == ["a"]
    schema = function_schema(function)
    with pytest.raises(InvalidArguments, match=r"\$.context: is not a known name"):
        schema.bind({"a": 1, "context": {}})


def test_a_list_of_contexts_is_no_context():
    """Only the context itself counts, not something that holds it."""
    def strange(x: List[ToolContext]): ...

    with pytest.raises(SchemaError, match="parameter 'x' of strange"):
        function_schema(strange)


def many(*items: int): ...
def any_of(**items: int): ...
def two_contexts(ctx, context: ToolContext): ...
async def later(x: int): ...
def one_by_one(x: int): yield x
async def one_by_one_later(x: int): yield x
def strange(x: complex): ...
def nested(x: Dict[str, List[complex]]): ...
def missing(x: "Nowhere"): ...  # noqa: F821
def half_missing(x: "List[Nowhere]"): ...  # noqa: F821
def not_a_type(x: "the number of it"): ...  # noqa: F722


class LaterObject:
    async def __call__(self, x: int): ...


REFUSED = [
    (many, r"parameter 'items' of many\(\).*\*items.*list"),
    (any_of, r"parameter 'items' of any_of\(\).*\*\*items.*dict"),
    (two_contexts, "2 parameters for the context.*rename"),
    (later, "async def.*plain `def`"),
    (functools.partial(later, x=1), "async def"),
    (LaterObject(), "async def"),
    (one_by_one, "generator.*list"),
    (one_by_one_later, "generator"),
    (strange, r"parameter 'x' of strange\(\) is annotated complex.*use str"),
    (nested, r"parameter 'x' of nested\(\) is annotated complex"),
    (missing, "parameter 'x' of missing.*'Nowhere' does not exist at run time.*TYPE_CHECKING"),
    (half_missing, "parameter 'x' of half_missing.*'Nowhere' does not exist"),
    (not_a_type, "parameter 'x' of not_a_type.*cannot read.*correct"),
    (Desk.find, "find.*method without its object.*bound method"),
    (Desk, "Desk is a class"),
    (5, "5 cannot be called"),
    (vars(Desk)["make"], "cannot be called"),
    (getattr, "by position|no signature"),
    (max, "no signature|collects any"),
]


@pytest.mark.parametrize("function, message", REFUSED, ids=[row[1][:30] for row in REFUSED])
def test_what_a_model_cannot_call_is_refused(function, message):
    """A SchemaError, which is a ConfigError, says what is wrong with which parameter and what to do."""
    with pytest.raises(SchemaError, match=message) as caught:
        function_schema(function)
    assert isinstance(caught.value, ConfigError)


def test_positional_only_parameters_are_refused():
    """A model gives arguments by name."""
    namespace = {}
    exec("def power(x: int, /): ...", namespace)
    with pytest.raises(SchemaError, match="'x' of power.*by position.*remove the `/`"):
        function_schema(namespace["power"])


def test_annotations_as_text_are_resolved():
    """Text is read in the function's module, with the names of the function around it."""
    @dataclasses.dataclass
    class Local:
        value: "List[Local]"

    def inner(a: "Optional[Address]", b: "List['Size']", c: "Local", d: List["Address"]):
        return Local

    schema = function_schema(inner)
    assert schema.parameters["properties"]["a"]["anyOf"][0] == {"$ref": "#/$defs/Address"}
    assert schema.bind({"a": None, "b": ["s"], "c": {"value": [{"value": []}]}, "d": [{"street": "s"}]}) == {
        "a": None, "b": [Size.SMALL], "c": Local([Local([])]), "d": [Address("s")]}


def test_a_field_that_cannot_be_resolved_is_named():
    """The message names the field, its class and the parameter."""
    @dataclasses.dataclass
    class Bad:
        good: int
        bad: "Nowhere"  # noqa: F821

    def function(x: List[Bad]): ...

    with pytest.raises(SchemaError, match="field 'bad' of Bad .parameter 'x' of function"):
        function_schema(function)


def new_union(x: "int | None"): ...
def new_list(x: "list[int]"): ...
def new_dict(x: "dict[str, list[int]]" = None): ...


@pytest.mark.parametrize("function, since, instead", [
    (new_union, (3, 10), r"Optional\[X\] or Union\[X, Y\]"), (new_list, (3, 9), r"typing.List\["),
    (new_dict, (3, 9), r"typing.Dict\[")])
def test_new_syntax_works_where_the_interpreter_has_it(function, since, instead):
    """`int | None` and `list[int]` are read by newer interpreters; older ones say what to write instead."""
    if sys.version_info >= since:
        Validator(function_schema(function).parameters).check_schema()
        return
    with pytest.raises(SchemaError, match="parameter 'x' of new_.*" + instead):
        function_schema(function)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the syntax of Python 3.10")
def test_unions_and_generics_of_new_interpreters():
    """The objects that the new syntax makes mean the same as those of typing."""
    def new(a: int | None, b: list[int] | str, c: dict[str, tuple[int, ...]], d: set["Size"],
            ctx: ToolContext | None):
        pass

    def old(a: Optional[int], b: Union[List[int], str], c: Dict[str, Tuple[int, ...]], d: Set["Size"], ctx):
        pass

    assert function_schema(new).parameters == function_schema(old).parameters
    assert function_schema(new).context_parameter == "ctx"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax of Python 3.12")
def test_type_aliases_of_new_interpreters():
    """A `type` statement is a definition, and may refer to itself."""
    namespace = {}
    exec("type Json = dict[str, Json] | list[Json] | str | None\ndef f(x: Json): ...", namespace)
    schema = function_schema(namespace["f"])
    assert schema.parameters["properties"]["x"] == {"$ref": "#/$defs/Json"}
    assert schema.bind({"x": {"a": [None, "b"]}}) == {"x": {"a": [None, "b"]}}
    assert Validator(schema.parameters).problems({"x": {"a": [1]}})


def test_the_same_function_gives_the_same_schema():
    """Schemas are equal from call to call, and changing one changes no other."""
    first, second = function_schema(order).parameters, function_schema(order).parameters
    assert json.dumps(first) == json.dumps(second)
    first["properties"]["at"]["anyOf"][0]["type"] = "changed"
    first["properties"]["limits"]["default"].append(1)
    assert function_schema(order).parameters == second


def test_typing_names_in_annotations_stay_what_they_are():
    """A Callable that mentions the context is no context parameter but an annotation without JSON form."""
    def function(x: typing.Callable[[ToolContext], int]): ...

    with pytest.raises(SchemaError, match="'x' of function"):
        function_schema(function)
