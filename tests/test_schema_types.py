"""Annotations as JSON Schema, and JSON values converted back to what the annotations say."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import sys
import typing
import uuid
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagent.errors import InvalidArguments, SchemaError
from minagent.schema import Validator, encode, from_json, json_schema

try:
    from typing import Annotated
except ImportError:
    from typing_extensions import Annotated

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)
REFERENCE = {"$ref": "#/$defs/Point"}


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Odd(enum.Enum):
    ONE = 1
    TWO = "two"
    PAIR = (1, 2)


@dataclasses.dataclass(frozen=True)
class Point:
    """A place.

    Attributes:
        x: To the right.
    """

    x: float
    y: float = dataclasses.field(default=0.0, metadata={"description": "Upwards."})
    tags: Tuple[str, ...] = dataclasses.field(default_factory=tuple)
    computed: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Tree:
    name: str
    children: List["Tree"] = dataclasses.field(default_factory=list)
    parent: Optional["Tree"] = None


@dataclasses.dataclass
class Checked:
    amount: int

    def __post_init__(self):
        if self.amount < 0:
            raise ValueError("an amount is not negative")


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Whole(typing.TypedDict):
    """A whole thing."""

    id: int


class Partial(Whole, total=False):
    note: str


UserId = typing.NewType("UserId", int)
Untyped = collections.namedtuple("Untyped", "a b")

SCHEMAS = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (list, {"type": "array", "items": {}}),
    (List, {"type": "array", "items": {}}),
    (List[int], {"type": "array", "items": {"type": "integer"}}),
    (typing.Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (Set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    (FrozenSet[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (tuple, {"type": "array", "items": {}}),
    (Tuple, {"type": "array", "items": {}}),
    (Tuple[()], {"type": "array", "items": {}, "minItems": 0, "maxItems": 0}),
    (Tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (Tuple[float, float], {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
    (Tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}],
                       "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                       "minItems": 2, "maxItems": 2}),
    (dict, {"type": "object", "additionalProperties": {}}),
    (Dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (typing.Mapping[int, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
    (Dict[Colour, int], {"type": "object", "additionalProperties": {"type": "integer"},
                         "propertyNames": {"enum": ["red", "blue"]}}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (typing.Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (typing.Literal[1, "b", None], {"enum": [1, "b", None]}),
    (typing.Literal[typing.Literal[1], 2], {"type": "integer", "enum": [1, 2]}),
    (typing.Literal[False], {"type": "boolean", "enum": [False]}),
    (Colour, {"type": "string", "enum": ["red", "blue"], "description": "What it looks like."}),
    (Level, {"type": "integer", "enum": [1, 2], "description": "1 = LOW, 2 = HIGH"}),
    (Right, {"type": "integer", "description": "Sum of 1 = READ, 2 = WRITE"}),
    (datetime.datetime, {"type": "string", "format": "date-time"}),
    (datetime.date, {"type": "string", "format": "date"}),
    (datetime.time, {"type": "string", "format": "time"}),
    (datetime.timedelta, {"type": "number", "description": "Duration in seconds."}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (pathlib.Path, {"type": "string"}),
    (bytes, {"type": "string", "contentEncoding": "base64"}),
    (UserId, {"type": "integer"}),
    (Annotated[int, "How many.", object()], {"type": "integer", "description": "How many."}),
    (Optional[Annotated[int, "How many."]],
     {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "How many."}),
    (Annotated[Annotated[int, "inner"], "outer"], {"type": "integer", "description": "outer"}),
    (typing.TypeVar("Bound", bound=int), {"type": "integer"}),
    (typing.TypeVar("Free"), {}),
]


@pytest.mark.parametrize("annotation, expected", SCHEMAS, ids=[str(annotation) for annotation, _ in SCHEMAS])
def test_each_annotation_has_its_schema(annotation, expected):
    """Every annotation of the documentation has exactly this schema, which is a valid one."""
    assert json_schema(annotation) == expected
    Validator(json_schema(annotation)).check_schema()


def test_a_decimal_may_be_text_or_number():
    """Text keeps all digits; a number is what models write anyway."""
    assert json_schema(decimal.Decimal)["anyOf"] == [{"type": "string"}, {"type": "number"}]


def test_a_dataclass_is_an_object():
    """Fields have descriptions from the docstring or their metadata, and defaults; init=False is left out."""
    assert json_schema(Point) == {
        "type": "object",
        "properties": {"x": {"type": "number", "description": "To the right."},
                       "y": {"type": "number", "description": "Upwards.", "default": 0.0},
                       "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["x"], "additionalProperties": False, "description": "A place."}


def test_a_class_inside_something_is_a_definition():
    """A class that is met twice is defined once, and a description stands beside an anyOf, not a $ref."""
    schema = json_schema(Dict[str, Tuple[Annotated[Point, "From."], Optional[Point]]])
    assert list(schema["$defs"]) == ["Point"]
    assert schema["additionalProperties"]["prefixItems"] == [
        {"anyOf": [REFERENCE], "description": "From."}, {"anyOf": [REFERENCE, {"type": "null"}]}]


def test_a_recursive_class_refers_to_itself():
    """The root is an object all the same, and keeps its definition."""
    schema = json_schema(Tree)
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert set(schema["$defs"]) == {"Tree"}
    value = {"name": "a", "children": [{"name": "b", "children": [], "parent": None}]}
    assert not Validator(schema).problems(value)
    assert from_json(Tree, value) == Tree("a", [Tree("b")])
    assert Validator(schema).problems({"name": "a", "children": [{"name": 1}]}) == [
        ("$.children[0].name", "expected string, got integer 1")]


def test_two_classes_of_one_name_are_two_definitions():
    """The second class called Point gets a name of its own."""
    other = dataclasses.make_dataclass("Point", [("z", int)])
    schema = json_schema(List[Union[Point, other]])
    assert set(schema["$defs"]) == {"Point", "Point_2"}
    assert from_json(List[Union[Point, other]], [{"z": 1}, {"x": 1}]) == [other(1), Point(1.0)]


def test_typed_dicts_know_what_is_required():
    """Keys of a total TypedDict are required, those of a total=False one are not; others are refused."""
    schema = json_schema(Whole)
    assert schema == {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
                      "additionalProperties": False, "description": "A whole thing."}
    assert set(json_schema(Partial)["properties"]) == {"id", "note"}
    if sys.version_info >= (3, 9):  # 3.8 does not remember which class a key came from
        assert json_schema(Partial)["required"] == ["id"]
    assert from_json(Partial, {"id": 1}) == {"id": 1}


def test_required_and_not_required_are_seen():
    """The qualifiers of typing_extensions count, wherever Annotated stands."""
    extensions = pytest.importorskip("typing_extensions")
    mixed = extensions.TypedDict("mixed", {
        "a": extensions.Required[int], "b": extensions.NotRequired[Annotated[int, "B."]],
        "c": Annotated[extensions.NotRequired[int], "C."], "d": int})
    schema = json_schema(mixed)
    assert schema["required"] == ["a", "d"]
    assert schema["properties"]["b"] == {"type": "integer", "description": "B."}


def test_named_tuples_are_objects():
    """A NamedTuple is written and read by name, also an untyped one."""
    assert json_schema(Pair)["properties"] == {"left": {"type": "integer"},
                                               "right": {"type": "string", "default": "r"}}
    assert json_schema(Pair)["required"] == ["left"]
    assert from_json(Pair, {"left": 1}) == Pair(1)
    assert from_json(Untyped, {"a": [1], "b": None}) == Untyped([1], None)


@pytest.mark.parametrize("annotation", [
    typing.Callable[[int], int], complex, typing.Type[int], typing.IO, range, List[complex],
    Dict[Tuple[int, int], str], Dict[str, "Nowhere"], enum.Enum("Empty", {}), 5,  # noqa: F821
    typing.Generator[int, None, None]])
def test_what_has_no_json_form_is_a_schema_error(annotation):
    """The message names the annotation's owner and says what to write instead."""
    with pytest.raises(SchemaError, match="the place .*(use|write|give)"):
        json_schema(annotation, "the place")


def test_generic_classes_are_refused():
    """A class with parameters is a clear error, not a schema without them."""
    item = typing.TypeVar("item")

    @dataclasses.dataclass
    class Box(typing.Generic[item]):
        content: item

    with pytest.raises(SchemaError, match="generic"):
        json_schema(Box[int])


def test_an_init_var_is_refused():
    """A dataclass with an InitVar cannot be described by its fields."""
    @dataclasses.dataclass
    class Secret:
        seed: dataclasses.InitVar[int]

    with pytest.raises(SchemaError, match="'seed' of Secret"):
        json_schema(Secret)


# Values.

VALUES = [
    (int, 3.0, 3),
    (float, 3, 3.0),
    (Union[float, int], 3, 3),
    (Union[int, float], 3.5, 3.5),
    (Union[int, str], "3", "3"),
    (Union[datetime.date, str], "2024-01-02", datetime.date(2024, 1, 2)),
    (Union[datetime.date, str], "soon", "soon"),
    (Union[Pair, Point], {"x": 1}, Point(1.0)),
    (Odd, [1, 2], Odd.PAIR),
    (typing.Literal[1, True], True, True),
    (typing.Literal[1], 1.0, 1),
    (Right, 3, Right.READ | Right.WRITE),
    (Dict[int, Level], {"1": 2}, {1: Level.HIGH}),
    (Dict[Level, int], {"2": 0}, {Level.HIGH: 0}),
    (Dict[bool, int], {"true": 1}, {True: 1}),
    (Dict[datetime.date, int], {"2024-01-02": 1}, {datetime.date(2024, 1, 2): 1}),
    (Dict[Optional[int], int], {"null": 1, "2": 3}, {None: 1, 2: 3}),
    (datetime.datetime, "2024-01-02T03:04:05Z",
     datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)),
    (datetime.datetime, "2024-01-02t03:04:05.123456789z",
     datetime.datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=datetime.timezone.utc)),
    (datetime.datetime, "2024-01-02 03:04:05.1+0100",
     datetime.datetime(2024, 1, 2, 3, 4, 5, 100000, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))),
    (datetime.datetime, "2024-01-02T03:04", datetime.datetime(2024, 1, 2, 3, 4)),
    (datetime.datetime, "2024-01-02", datetime.datetime(2024, 1, 2)),
    (datetime.time, "03:04:05.5Z", datetime.time(3, 4, 5, 500000, datetime.timezone.utc)),
    (decimal.Decimal, 0.1, decimal.Decimal("0.1")),
    (decimal.Decimal, 7, decimal.Decimal(7)),
    (bytearray, "YQ==", bytearray(b"a")),
    (collections.OrderedDict, {"b": 1, "a": 2}, collections.OrderedDict(b=1, a=2)),
    (typing.Deque[int], [1, 2], collections.deque([1, 2])),
]


@pytest.mark.parametrize("annotation, value, expected", VALUES, ids=[str(row[:2]) for row in VALUES])
def test_values_become_what_the_annotation_says(annotation, value, expected):
    """A JSON value becomes exactly this, of this type."""
    converted = from_json(annotation, value)
    assert converted == expected
    assert type(converted) is type(expected)


UNFIT = [
    (int, True, "$", "expected integer, got boolean"),
    (int, 1.5, "$", "expected integer, got number 1.5"),
    (float, "1", "$", "expected number, got string '1'"),
    (float, 10 ** 400, "$", "refused"),
    (float, float("nan"), "$", "finite"),
    (bool, 1, "$", "expected boolean"),
    (str, None, "$", "expected string, got null"),
    (List[int], [1, "x"], "$[1]", "expected integer"),
    (Tuple[int, str], [1], "$", "exactly 2 items"),
    (Tuple[int, str], [1, 2], "$[1]", "expected string"),
    (Set[Any], [[1]], "$", "unhashable"),
    (Dict[int, int], {"x": 1}, "$.x", "expected integer"),
    (Dict[str, int], {"a b": "x"}, "$['a b']", "expected integer"),
    (Colour, "green", "$", "expected one of ['red', 'blue'], got 'green'"),
    (typing.Literal[1], True, "$", "expected one of [1], got True"),
    (datetime.datetime, "yesterday", "$", "expected a date and time such as 2024"),
    (datetime.date, "2024-13-01", "$", "expected a date such as"),
    (datetime.time, "25:00", "$", "expected a time such as"),
    (datetime.timedelta, 1e30, "$", "refused"),
    (uuid.UUID, "x", "$", "expected a UUID"),
    (decimal.Decimal, "a lot", "$", "expected a decimal number"),
    (decimal.Decimal, "NaN", "$", "finite"),
    (decimal.Decimal, True, "$", "expected a decimal number"),
    (bytes, "?", "$", "expected base64"),
    (Right, 8, "$", "refused"),
    (Point, {"x": 1, "z": 2}, "$.z", "not a known name"),
    (Point, {}, "$.x", "is required"),
    (Point, [1], "$", "expected object, got array"),
    (Checked, {"amount": -1}, "$", "ValueError: an amount is not negative"),
    (List[Union[int, Point]], [{"x": "far"}], "$[0].x", "expected number"),
]


@pytest.mark.parametrize("annotation, value, path, reason", UNFIT, ids=[str(row[:2])[:60] for row in UNFIT])
def test_values_that_do_not_fit_are_refused(annotation, value, path, reason):
    """The error names the place and says what was expected and what was found."""
    with pytest.raises(InvalidArguments) as caught:
        from_json(annotation, value)
    found = dict(caught.value.problems)
    assert path in found and reason in found[path]
    assert path in str(caught.value)


def test_all_problems_of_an_object_are_reported_together():
    """One attempt is enough for a model to learn everything that is wrong with an object."""
    with pytest.raises(InvalidArguments) as caught:
        from_json(Point, {"y": "up", "tags": [1], "w": 0})
    assert [path for path, _ in caught.value.problems] == ["$.y", "$.tags[0]", "$.w", "$.x"]


def test_endless_nesting_is_not_a_recursion_error():
    """A value nested 100,000 deep in a recursive class is refused like any other."""
    value = {"name": "leaf"}
    for _ in range(100000):
        value = {"name": "n", "children": [value]}
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        from_json(Tree, value)
    while "children" in value:  # taken apart by hand: dropping a deep nest at once can exhaust the C stack
        value = value.pop("children").pop()


# Properties: there and back again, for generated types.

TEXT = st.text(max_size=6)
ZONES = st.none() | st.integers(-1439, 1439).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m)))
HASHABLE = [
    (str, TEXT), (int, st.integers()), (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()), (datetime.datetime, st.datetimes(timezones=ZONES)), (datetime.date, st.dates()),
    (datetime.time, st.times()), (uuid.UUID, st.uuids()), (bytes, st.binary(max_size=6)),
    (decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (datetime.timedelta, st.integers(-9 ** 9, 9 ** 9).map(lambda n: datetime.timedelta(milliseconds=n))),
    (pathlib.PurePosixPath, TEXT.map(pathlib.PurePosixPath)), (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (typing.Literal["a", 2, None, True], st.sampled_from(["a", 2, None, True])),
]
LEAVES = st.sampled_from(HASHABLE + [(type(None), st.none()), (Odd, st.sampled_from(Odd))])


def composed(inner):
    """Build pairs of an annotation and a strategy for its values from smaller such pairs."""
    def record(kind):
        return lambda parts: kind([("f%d" % at, annotation) for at, (annotation, _) in enumerate(parts)],
                                  [values for _, values in parts])

    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda pair: (List[pair[0]], st.lists(pair[1], max_size=3))),
        inner.map(lambda pair: (Optional[pair[0]], st.none() | pair[1])),
        inner.map(lambda pair: (Tuple[pair[0], ...], st.lists(pair[1], max_size=3).map(tuple))),
        st.sampled_from(HASHABLE).map(lambda pair: (FrozenSet[pair[0]], st.frozensets(pair[1], max_size=3))),
        several.map(lambda parts: (Tuple[tuple(p[0] for p in parts)], st.tuples(*(p[1] for p in parts)))),
        st.tuples(st.sampled_from(HASHABLE[:2] + HASHABLE[3:8] + HASHABLE[12:14]), inner).map(
            lambda two: (Dict[two[0][0], two[1][0]], st.dictionaries(two[0][1], two[1][1], max_size=3))),
        *(several.map(record(kind)) for kind in (as_dataclass, as_named_tuple, as_typed_dict)))


def as_dataclass(fields, values):
    cls = dataclasses.make_dataclass("Made", fields)
    return cls, st.tuples(*values).map(lambda given: cls(*given))


def as_named_tuple(fields, values):
    cls = NamedTuple("Made", fields)
    return cls, st.tuples(*values).map(lambda given: cls(*given))


def as_typed_dict(fields, values):
    cls = typing.TypedDict("Made", dict(fields))  # noqa: UP013
    return cls, st.fixed_dictionaries({name: value for (name, _), value in zip(fields, values)})


@st.composite
def typed_values(draw):
    """Draw an annotation and a value of it."""
    annotation, values = draw(st.recursive(LEAVES, composed, max_leaves=6))
    return annotation, draw(values)


@PROPERTY
@given(typed_values())
def test_every_value_comes_back_from_json(drawn):
    """Encoded, written, read, checked against its own schema and converted, a value is what it was."""
    annotation, value = drawn
    written = json.loads(json.dumps(encode(value)))
    schema = json_schema(annotation)
    assert Validator(schema).problems(written) == []
    back = from_json(annotation, written)
    assert back == value
    assert type(back) is type(value)
    assert encode(back) == encode(value)


PLAIN = st.sampled_from([str, int, float, bool, type(None), Any, typing.Literal["a", 2], Point, Tree, Pair,
                         Whole, Level])
PLAIN_TYPES = st.recursive(PLAIN, lambda inner: st.one_of(
    inner.map(lambda a: List[a]), inner.map(lambda a: Dict[str, a]), inner.map(lambda a: Optional[a]),
    st.tuples(inner, inner).map(lambda two: Union[two]), st.tuples(inner, inner).map(lambda two: Tuple[two])),
    max_leaves=4)
NAMES = st.sampled_from(["x", "y", "name", "children", "left", "right", "id", "f"])
JSON = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, 1.0, 1.5, "a", "b", -3, 1e300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)


@settings(PROPERTY, max_examples=250)
@given(PLAIN_TYPES, JSON)
def test_checking_and_converting_agree(annotation, value):
    """What the schema of a plain type accepts can be converted, and what it refuses cannot."""
    problems = Validator(json_schema(annotation)).problems(value)
    try:
        from_json(annotation, value)
        converted = True
    except InvalidArguments:
        converted = False
    assert converted == (not problems)


# pydantic, by its looks only.


def test_pydantic_models_are_described_and_read():
    """A model's schema is taken over with its definitions, its values are made and refused by it."""
    pydantic = pytest.importorskip("pydantic")

    class Leaf(pydantic.BaseModel):
        when: datetime.date
        weight: int = pydantic.Field(1, gt=0, description="In grams.")

    class Branch(pydantic.BaseModel):
        leaves: List[Leaf]

    schema = json_schema(Dict[str, Union[Branch, Leaf]])
    assert set(schema["$defs"]) == {"Leaf", "Branch"}
    assert schema["$defs"]["Branch"]["properties"]["leaves"]["items"] == {"$ref": "#/$defs/Leaf"}
    assert "definitions" not in json.dumps(schema)
    made = from_json(Branch, {"leaves": [{"when": "2024-01-02"}]})
    assert made == Branch(leaves=[Leaf(when=datetime.date(2024, 1, 2))])
    assert Validator(json_schema(Branch)).problems(encode(made)) == []
    with pytest.raises(InvalidArguments) as caught:
        from_json(List[Branch], [{"leaves": [{"when": "2024-01-02", "weight": 0}]}])
    assert caught.value.problems[0][0] == "$[0].leaves[0].weight"


def test_recursive_pydantic_models():
    """A model that refers to itself is an object at the root, with a definition."""
    pydantic = pytest.importorskip("pydantic")
    node = pydantic.create_model("Node", name=(str, ...), next=(Any, None))
    chain = pydantic.create_model("Chain", next=(Optional["Chain"], None), links=(List["Chain"], []))  # noqa: F821
    if hasattr(chain, "model_rebuild"):
        chain.model_rebuild(_types_namespace={"Chain": chain})
    else:
        chain.update_forward_refs(Chain=chain)
    for schema in (json_schema(chain), json_schema(Dict[str, Tuple[chain, node]])):
        assert schema["type"] == "object"
        assert "Chain" in schema["$defs"]
        Validator(schema).check_schema()
    assert not Validator(json_schema(chain)).problems({"next": {"links": [{}]}})
    assert Validator(json_schema(chain)).problems({"links": [{"next": 1}]})[0][0] == "$.links[0].next"


def test_a_pydantic_model_and_a_dataclass_of_one_name():
    """Definitions that mean different things get different names, and their references follow."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Point", deep=(List[pydantic.create_model("Tree", a=(int, ...))], ...))
    schema = json_schema(Tuple[Point, Tree, model])
    assert set(schema["$defs"]) == {"Point", "Tree", "Point_2", "Tree_2"}
    assert schema["$defs"]["Point_2"]["properties"]["deep"]["items"] == {"$ref": "#/$defs/Tree_2"}
    assert not Validator(schema).problems([{"x": 1}, {"name": "n"}, {"deep": [{"a": 1}]}])


def test_the_description_of_a_pydantic_field_is_a_description():
    """Annotated[int, Field(description=...)] describes a parameter."""
    pydantic = pytest.importorskip("pydantic")
    assert json_schema(Annotated[int, pydantic.Field(description="How many.")]) == {
        "type": "integer", "description": "How many."}
