"""The fixed encodings of Python values as JSON, and what is refused."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import sys
import threading
import types
import typing
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagent.errors import EncodeError
from minagent.schema import encode

PROPERTY = settings(max_examples=80, deadline=None, database=None, derandomize=True)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20)


class Colour(enum.Enum):
    RED = "red"
    NONE = None


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: float
    label: str = ""
    next: typing.Any = None


class Pair(typing.NamedTuple):
    left: int
    right: str


class Money:
    """An object that says itself how it is written."""

    def __init__(self, amount):
        self.amount = amount

    def to_dict(self):
        return {"amount": decimal.Decimal(self.amount)}


class Broken:
    def to_dict(self):
        raise ValueError("no amount")


class Endless:
    def to_dict(self):
        return Endless()


class Text(str):
    def __str__(self):
        return "not the text"


FIXED = [
    (datetime.datetime(2024, 5, 6, 7, 8, 9, 10, datetime.timezone.utc), "2024-05-06T07:08:09.000010+00:00"),
    (datetime.datetime(2024, 5, 6), "2024-05-06T00:00:00"),
    (datetime.date(2024, 5, 6), "2024-05-06"),
    (datetime.time(7, 8), "07:08:00"),
    (datetime.timedelta(days=1, seconds=2), 86402),
    (datetime.timedelta(milliseconds=1500), 1.5),
    (decimal.Decimal("1.20"), "1.20"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (pathlib.PurePosixPath("/a/b"), "/a/b"),
    (Colour.RED, "red"),
    (Colour.NONE, None),
    (Level.LOW, 1),
    (Word.YES, "yes"),
    (b"\x00\xff", "AP8="),
    (bytearray(b"a"), "YQ=="),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset("ba"), ["a", "b"]),
    ({"a", 1, None}, ["a", 1, None]),
    (Point(1.5, "p"), {"x": 1.5, "label": "p", "next": None}),
    (Pair(1, "r"), {"left": 1, "right": "r"}),
    (Money("2.50"), {"amount": "2.50"}),
    (Text("text"), "text"),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    ((1, [2, (3,)]), [1, [2, [3]]]),
    ({2: "a", 2.5: "b", True: "x", None: "c"}, {"2": "a", "true": "x", "2.5": "b", "null": "c"}),
    ({Word.YES: 1, Level.LOW: 2, datetime.date(2024, 1, 2): 3, uuid.UUID(int=2): 4},
     {"yes": 1, "1": 2, "2024-01-02": 3, "00000000-0000-0000-0000-000000000002": 4}),
]


@pytest.mark.parametrize("value, expected", FIXED, ids=[type(value).__name__ for value, _ in FIXED])
def test_each_supported_type_has_one_encoding(value, expected):
    """Every type of the documentation has exactly the encoding that it names."""
    encoded = encode({"it": value})
    assert encoded == {"it": expected}
    assert type(encoded["it"]) is type(expected)
    assert encode(value) == expected


@PROPERTY
@given(JSON)
def test_plain_json_comes_out_equal_and_fresh(value):
    """A JSON value is copied: equal, of the same exact types, and sharing no container with the original."""
    encoded = encode(value)
    assert json.dumps(encoded) == json.dumps(value)
    assert not containers(encoded) & containers(value)


def containers(value):
    """Return the ids of all lists and dicts in a value."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(containers, value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*map(containers, value))
    return set()


@PROPERTY
@given(st.text(max_size=10) | st.text("\ud800\udbff\udc00\udfffa\u20ac\U0001f600", max_size=10))
def test_every_string_can_be_written_as_utf8(text):
    """Unpaired surrogates become U+FFFD, pairs become the character they mean, the rest is untouched."""
    encoded = encode([text, {text: 1}])
    json.dumps(encoded, ensure_ascii=False).encode("utf-8")
    try:
        text.encode("utf-8")
        assert encoded[0] == text
    except UnicodeEncodeError:
        assert len(encoded[0].replace("\ufffd", "")) <= len(text)


def test_surrogates_are_joined_or_replaced():
    """A pair is one character, a single one is the replacement character, and its neighbours stay."""
    assert encode("a\ud83d\ude00b\ud83dc\ude00") == "a\U0001f600b\ufffdc\ufffd"


def test_a_set_is_in_the_same_order_every_time():
    """Sets are sorted, those of mixed types by their text."""
    mixed = {"b", 2, (1, "x"), None, 1.5, "a"}
    assert encode(mixed) == encode({"a", 1.5, None, (1, "x"), 2, "b"}) == ["a", "b", 1.5, 2, [1, "x"], None]


REFUSED = [
    ({"a": [1, {"b": object()}]}, "$.a[1].b", "to_dict()"),
    ([float("nan")], "$[0]", "nan"),
    ({"x y": float("inf")}, "$['x y']", "inf"),
    ([decimal.Decimal("NaN")], "$[0]", "NaN"),
    ({(1, 2): 1}, "$", "key of type tuple"),
    ({b"a": 1}, "$", "key of type bytes"),
    ({"a": {1: "x", "1": "y"}}, "$.a", "two keys"),
    ({"a": {"1": "x", 1: "y"}}, "$.a", "two keys"),
    ({"a": Broken()}, "$.a", "ValueError: no amount"),
    ([int], "$[0]", "return an instance"),
    ([(n for n in ())], "$[0]", "list(...)"),
    ([10 ** 5000], "$[0]", "4300 digits"),
    (Endless(), "$", "100 levels"),
    (Point(1.0, next={"a": object()}), "$.next.a", "object"),
]


@pytest.mark.parametrize("value, path, reason", REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_what_has_no_encoding_is_refused_with_its_path(value, path, reason):
    """The error is an EncodeError and a TypeError, and says where in the value and what is there."""
    with pytest.raises(EncodeError) as caught:
        encode(value)
    assert caught.value.path == path
    assert path in str(caught.value) and reason in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_a_forgotten_await_is_named():
    """A coroutine is refused with the reason that nobody awaits it."""
    async def later():
        return 1

    coroutine = later()
    try:
        with pytest.raises(EncodeError, match="nobody awaits"):
            encode([coroutine])
    finally:
        coroutine.close()


def test_a_cycle_is_an_error_that_names_where_it_begins():
    """A container or object that contains itself is refused, never a RecursionError."""
    cycle = {"a": []}
    cycle["a"].append(cycle)
    point = Point(1.0)
    point.next = [point]
    for value, path in ((cycle, ["$"]), ({"deep": [cycle]}, ["$.deep[0]"]), ([point], ["$[0]", "$[0].next"])):
        with pytest.raises(EncodeError, match="contains itself") as caught:
            encode(value)
        assert caught.value.path in path


def test_one_hundred_levels_are_the_limit():
    """100 levels of lists are encoded, 101 are not, and neither are 100,000."""
    def nested(levels):
        value = []
        for _ in range(levels - 1):
            value = [value]
        return value

    assert encode(nested(100)) == nested(100)
    for levels in (101, 100000):
        value = nested(levels)
        with pytest.raises(EncodeError, match="100 levels"):
            encode(value)
        while value:  # taken apart by hand: dropping a deep nest at once can exhaust the C stack
            value = value.pop()


def test_the_stack_running_out_is_an_encode_error():
    """Called near the end of the stack, encode fails with its own error or not at all."""
    value = []
    for _ in range(60):
        value = [value]

    def at_depth(frames):
        return at_depth(frames - 1) if frames else outcome()

    def outcome():
        try:
            return encode(value) and "encoded"
        except EncodeError as error:
            return str(error)

    seen = []
    for frames in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        try:
            seen.append(at_depth(frames))
        except RecursionError:  # not even the test had enough
            break
    assert seen[0] == "encoded"
    assert "stack" in seen[-1]


def test_a_dict_that_another_thread_changes_is_an_encode_error():
    """A dict that grows while it is read gives an EncodeError, not a RuntimeError."""
    class Growing(dict):
        def items(self):
            for item in super().items():
                yield item
                self[len(self)] = 1

    with pytest.raises(EncodeError, match="another thread"):
        encode(Growing(a=1))


def test_encoding_in_threads_gives_equal_results():
    """Eight threads that encode one value at once get eight equal copies."""
    value = {"a": [Point(1.0), {1, 2}, datetime.date(2024, 1, 1)] * 50}
    results = []
    threads = [threading.Thread(target=lambda: results.append(encode(value))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(result == results[0] for result in results)


def test_numbers_keep_their_exact_type():
    """Subclasses of numbers become the plain number, and a whole float stays a float."""
    class Metres(float):
        pass

    class Count(int):
        pass

    encoded = encode([Metres(2.0), Count(3), True, 1.0])
    assert [type(item) for item in encoded] == [float, int, bool, float]
    assert math.copysign(1, encode(-0.0)) == -1


def test_pydantic_models_are_encoded_by_themselves():
    """A pydantic model, of either major version, is written as its own JSON form."""
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):
        when: datetime.date
        tags: typing.List[str] = []

    assert encode([Item(when=datetime.date(2024, 1, 2))]) == [{"when": "2024-01-02", "tags": []}]
