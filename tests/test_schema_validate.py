"""Checking JSON values against JSON Schemas, with the same reasons on every version of jsonschema."""

import json
import select
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagent.errors import ConfigError, SchemaError
from minagent.schema import Validator

PROPERTY = settings(max_examples=120, deadline=None, database=None, derandomize=True)

ITEM = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
        "required": ["name"], "additionalProperties": False}
SHAPES = {"anyOf": [
    {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
     "required": ["kind", "radius"]},
    {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
     "required": ["kind", "side"]},
    {"type": "array", "items": {"type": "number"}}]}

REASONS = [
    ({"type": "integer"}, "3", "$", "expected integer, got string '3'"),
    ({"type": "integer"}, True, "$", "expected integer, got boolean True"),
    ({"type": "number"}, False, "$", "expected number, got boolean False"),
    ({"type": "array"}, {}, "$", "expected array, got object {}"),
    ({"type": ["integer", "null"]}, "x", "$", "expected integer or null, got string 'x'"),
    ({"enum": [1, "a"]}, 2, "$", "expected one of [1, 'a'], got 2"),
    ({"enum": [1]}, True, "$", "expected one of [1], got True"),
    ({"const": "a"}, "b", "$", "expected 'a', got 'b'"),
    (ITEM, {}, "$.name", "is required"),
    (ITEM, {"nam": "x", "name": "y"}, "$.nam",
     "is not a known name; did you mean 'name'?; expected one of name, size"),
    (ITEM, {"name": "x", "size": 0}, "$.size", "must be at least 1, got 0"),
    ({"additionalProperties": False}, {"a": 1}, "$.a", "is not a known name; expected no names at all"),
    ({"properties": {"items": {"type": "array", "items": ITEM}}}, {"items": [{"name": "a"}, {"name": 1}]},
     "$.items[1].name", "expected string, got integer 1"),
    ({"patternProperties": {"^x": {"type": "null"}}, "additionalProperties": False}, {"xa": None, "y z": 1},
     "$['y z']", "is not a known name; expected no names at all"),
    ({"maximum": 5}, 6, "$", "must be at most 5, got 6"),
    ({"exclusiveMinimum": 5}, 5, "$", "must be greater than 5, got 5"),
    ({"exclusiveMaximum": 5}, 5, "$", "must be less than 5, got 5"),
    ({"multipleOf": 2}, 3, "$", "must be a multiple of 2, got 3"),
    ({"minLength": 2}, "a", "$", "must have at least 2 characters, has 1"),
    ({"maxLength": 2}, "abc", "$", "must have at most 2 characters, has 3"),
    ({"minItems": 1}, [], "$", "must have at least 1 items, has 0"),
    ({"maxItems": 1}, [1, 2], "$", "must have at most 1 items, has 2"),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, "$", "must have at most 1 properties, has 2"),
    ({"pattern": "^a"}, "b", "$", "must be text that matches '^a', got 'b'"),
    ({"uniqueItems": True}, [1, 1], "$", "must not have the same item twice"),
    ({"not": {"type": "string"}}, "s", "$", "must not be 's'"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "$", "expected integer or null, got string 'x'"),
    ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}, 1, "$", "must be at least 3, got 1"),
    ({"anyOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "null"}]}, [], "$",
     "expected integer or string or null, got array []"),
    (SHAPES, {"kind": "square", "side": "long"}, "$.side", "expected number, got string 'long'"),
    (SHAPES, {"kind": "square"}, "$.side", "is required"),
    (SHAPES, [1, "x"], "$[1]", "expected number, got string 'x'"),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, 2], "$[1]", "expected string, got integer 2"),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [1, 2], "$[1]",
     "expected string, got integer 2"),
    ({"items": [{"type": "integer"}], "additionalItems": False}, ["x"], "$[0]",
     "expected integer, got string 'x'"),
    ({"$defs": {"a": {"type": "object"}}, "$ref": "#/$defs/a", "required": ["x"]}, {}, "$.x", "is required"),
    ({"properties": {"a": False}}, {"a": 1}, "$.a", "is not allowed, got 1"),
    ({"prefixItems": [True, False]}, [1, 2], "$[1]", "is not allowed, got 2"),
    ({"anyOf": [False, {"type": "string"}]}, 1, "$", "is not allowed, got 1"),
    (False, 1, "$", "False schema does not allow 1"),
]


@pytest.mark.parametrize("schema, value, path, reason", REASONS, ids=[row[3][:50] for row in REASONS])
def test_each_problem_has_a_path_and_a_reason(schema, value, path, reason):
    """The place and the words are the same, whichever jsonschema found the problem."""
    assert Validator(schema).problems(value)[0] == (path, reason)
    Validator(schema).check_schema()


@pytest.mark.parametrize("schema, value", [
    (True, {"any": "thing"}), ({}, None), (ITEM, {"name": "a", "size": 1}), ({"type": "integer"}, 3.0),
    (SHAPES, {"kind": "circle", "radius": 1}), ({"prefixItems": [{"type": "integer"}]}, [1, "more"]),
    ({"prefixItems": [{"type": "integer"}], "items": False}, [1]), ({"prefixItems": [{"type": "integer"}]}, {}),
    ({"format": "date"}, "not checked"),
])
def test_what_fits_has_no_problems(schema, value):
    """An empty list, and the schema is a good one."""
    assert Validator(schema).problems(value) == []
    Validator(schema).check_schema()


def test_at_most_ten_problems_come_and_the_outermost_first():
    """A model is not flooded, and learns first what is wrong with the whole."""
    schema = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}},
              "required": ["id", "rows"]}
    problems = Validator(schema).problems({"rows": ["x"] * 1000})
    assert len(problems) == 10
    assert problems[0] == ("$.id", "is required")
    assert problems[1][0] == "$.rows[0]"


def test_reasons_stay_short_whatever_the_value():
    """A value of megabytes is not repeated to the model."""
    for schema in ({"type": "integer"}, {"maxLength": 3}, {"enum": ["a"]}, {"contains": {"const": 1}}, False):
        for value in ("x" * 10 ** 6, ["y" * 1000] * 1000, {"k" * 10 ** 5: {"k": ["z"] * 10 ** 5}}):
            assert all(len(reason) < 500 for _, reason in Validator(schema).problems(value))


BAD = [
    ({"type": "strin"}, r"invalid at \$.type.*strin"),
    ({"properties": {"a": {"required": "name"}}}, r"invalid at \$.properties.a.required"),
    ({"properties": []}, r"invalid at \$.properties"),
    ({"$ref": "#/$defs/none"}, r"'#/\$defs/none' at \$\['\$ref'\], where nothing is"),
    ({"items": {"$ref": "#none"}}, "'#none' at .*where nothing is"),
    ({"pattern": "("}, r"pattern at \$ that Python cannot read"),
    ({"patternProperties": {"(": {}}}, "pattern at"),
    ({"default": {1, 2, object()}}, "not JSON"),
    ("string", "a JSON Schema is a dict, got string"),
    ([], "a JSON Schema is a dict, got array"),
    ({"minimum": "low"}, r"invalid at \$.minimum"),
]


@pytest.mark.parametrize("schema, message", BAD, ids=[row[1][:40] for row in BAD])
def test_a_bad_schema_is_a_schema_error(schema, message):
    """check_schema says where; a value checked against it never brings a foreign error."""
    with pytest.raises(SchemaError, match=message) as caught:
        Validator(schema).check_schema()
    assert isinstance(caught.value, ConfigError)
    try:
        Validator(schema).problems({"a": {}, "b": [1, "x"]})
        Validator(schema).problems(1)
    except SchemaError:
        pass


def test_endless_schemas_and_values_come_to_an_end():
    """A circle of references is the schema's fault, a value nested 10,000 deep is the value's."""
    for schema in ({"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
                                   "$ref": "#/$defs/a"}):
        with pytest.raises(SchemaError, match="circle of references"):
            Validator(schema).problems({"a": 1})
    value = []
    for _ in range(10000):
        value = [value]
    problems = Validator({"type": "array", "items": {"$ref": "#"}}).problems(value)
    assert problems == [("$", "is nested too deeply to be checked")]
    while value:  # taken apart by hand: dropping a deep nest at once can exhaust the C stack
        value = value.pop()


# Nothing is fetched.


@pytest.fixture
def trap():
    """Give the address of a server that must never be called, and check that it was not."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(5)
    yield "http://127.0.0.1:%d/schema.json" % server.getsockname()[1]
    called, _, _ = select.select([server], [], [], 0)
    server.close()
    assert not called, "the schema was fetched"


def remote(url):
    """Build schemas that try to leave their document."""
    return [
        {"$ref": url},
        {"$ref": url + "#/definitions/a"},
        {"properties": {"a": {"items": {"anyOf": [{"$ref": url}]}}}},
        {"$id": url, "$ref": "other.json"},
        {"$id": url, "properties": {"a": {"$ref": "other.json#/x"}}},
        {"$defs": {"a": {"$id": url, "$ref": "x.json"}}, "$ref": "#/$defs/a"},
        {"$dynamicRef": url},
        {"$recursiveRef": url},
        {"unknown": {"deep": [{"$ref": url}]}, "$ref": "#/unknown/deep/0"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$ref": url}}},
        {"dependentSchemas": {"a": {"$ref": url}}},
        {"if": {"$ref": url}},
        {"allOf": [True, {"not": {"$ref": url}}]},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "ftp://127.0.0.1/x"},
        {"$ref": "schema.json"},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"$ref": 5},
    ]


@pytest.mark.parametrize("number", range(18))
def test_a_reference_out_of_the_document_is_refused_and_never_fetched(number, trap):
    """Each is a SchemaError naming the reference, both when it is checked and when a value is."""
    schema = remote(trap)[number]
    for use in (Validator(schema).check_schema, lambda: Validator(schema).problems({"a": [1]})):
        with pytest.raises(SchemaError, match="nothing is fetched"):
            use()


@pytest.mark.parametrize("schema, fits, unfit", [
    ({"$schema": "{url}", "type": "integer"}, 1, "x"),
    ({"properties": {"a": {"$schema": "{url}", "type": "integer"}}}, {"a": 1}, {"a": "x"}),
    ({"$id": "{url}", "$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"}, 1, "x"),
    ({"properties": {"a": {"$id": "{url}", "type": "integer"}}}, {"a": 1}, {"a": "x"}),
    ({"enum": [{"$ref": "{url}"}]}, {"$ref": "{url}"}, {"$ref": 1}),
    ({"properties": {"$ref": {"type": "integer"}}}, {"$ref": 1}, {"$ref": "{url}"}),
])
def test_names_of_other_documents_are_only_names(schema, fits, unfit, trap):
    """$id, $schema and data that look like references cause no fetch and no warning, and the rest counts."""
    schema, fits, unfit = (json.loads(json.dumps(item).replace("{url}", trap)) for item in (schema, fits, unfit))
    validator = Validator(schema)
    validator.check_schema()
    assert validator.problems(fits) == []
    assert validator.problems(unfit)


def test_no_network_call_is_even_tried():
    """In a process where looking up a host is fatal, remote references are refused like anywhere else."""
    code = ("import os, sys, warnings\n"
            "warnings.simplefilter('error')\n"
            "sys.addaudithook(lambda e, a: e.startswith(('socket.', 'urllib.')) and e != 'socket.__new__'"
            " and os._exit(3))\n"
            "from minagent.schema import Validator\n"
            "from minagent.errors import SchemaError\n"
            "for ref in ('http://example.invalid/a', 'https://example.invalid/a#/b', '//example.invalid/c'):\n"
            "    for schema in ({'$ref': ref}, {'$id': ref, '$ref': 'd.json'}, {'items': {'$ref': ref}}):\n"
            "        try:\n"
            "            Validator(schema).problems([[1]])\n"
            "        except SchemaError:\n"
            "            continue\n"
            "        sys.exit(4)\n")
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("schema", [
    {"$defs": {"n": {"$anchor": "node", "type": "integer"}}, "items": {"$ref": "#node"}},
    {"$defs": {"n": {"$dynamicAnchor": "node", "type": "integer"}}, "items": {"$dynamicRef": "#node"}},
    {"$defs": {"a/b~c d%": {"type": "integer"}}, "items": {"$ref": "#/$defs/a~1b~0c%20d%25"}},
    {"definitions": {"n": {"type": "integer"}}, "items": {"$ref": "#/definitions/n"}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"n": {"type": "integer"}},
     "items": {"$ref": "#/definitions/n"}},
    {"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"n": {"type": "integer"}},
     "items": {"$ref": "#/definitions/n"}},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "integer"}]},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "integer"}]},
    {"unknown": {"n": {"type": "integer"}}, "items": {"$ref": "#/unknown/n"}},
    {"$defs": {"n": {"type": "integer"}, "m": {"$ref": "#/$defs/n"}}, "items": {"$ref": "#/$defs/m"}},
    {"unknown": {"l": [{"type": "integer"}]}, "items": {"$ref": "#/unknown/l/0"}},
])
def test_every_kind_of_local_reference_and_dialect_works(schema):
    """Pointers, anchors and dynamic references lead to the same place on every version of jsonschema."""
    assert Validator(schema).problems([1]) == []
    assert Validator(schema).problems(["x"]) == [("$[0]", "expected integer, got string 'x'")]


def test_the_schema_that_was_given_is_not_changed():
    """References are rewritten in a copy."""
    schema = {"$id": "http://example.invalid/", "$defs": {"n": {"$anchor": "a"}}, "$ref": "#a", "$schema": "x:y"}
    before = json.dumps(schema)
    Validator(schema).problems(1)
    Validator(schema).check_schema()
    assert json.dumps(schema) == before


def test_one_validator_serves_many_threads():
    """Eight threads use a fresh validator with recursive references at once; all see the same problems."""
    tree = {"$defs": {"t": {"type": "object", "properties": {"kids": {"items": {"$ref": "#/$defs/t"}}},
                            "additionalProperties": False}}, "$ref": "#/$defs/t"}
    value = {"kids": [{"kids": [{"kids": [{}] * 20}] * 10 + [{"bad": 1}]}] * 3}
    expected = Validator(tree).problems(value)
    assert [path for path, _ in expected] == ["$.kids[%d].kids[10].bad" % at for at in range(3)]
    validator, start, results = Validator(tree), threading.Barrier(8), []

    def work():
        start.wait()
        results.extend(validator.problems(value) for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 24


def test_jsonschema_is_loaded_for_values_that_may_not_fit_only():
    """Importing, describing, encoding, converting, and checking what fits need no jsonschema and no requests."""
    code = ("import sys\n"
            "there = set(sys.modules)\n"
            "import minagent.schema as s\n"
            "heavy = {'jsonschema', 'requests', 'inspect', 'dataclasses', 'urllib.parse', 'asyncio'}\n"
            "assert not heavy & (set(sys.modules) - there), heavy & set(sys.modules)\n"
            "def f(a: int = 1): pass\n"
            "assert not [m for m in sys.modules if m.endswith(('.function', '.validate', '.types', '.convert'))\n"
            "            and 'schema' in m]\n"
            "assert set(s.__all__) <= set(dir(s))\n"
            "made = s.function_schema(f); made.bind({'a': 2}); s.encode({1: {2}}); v = s.Validator(made.parameters)\n"
            "assert v.problems({'a': 3}) == v.problems({}) == []\n"
            "assert not {'jsonschema', 'requests'} & set(sys.modules)\n"
            "assert v.problems({'a': 'x'})\n"
            "assert 'jsonschema' in sys.modules and 'requests' not in sys.modules\n")
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# Agreement with jsonschema itself.

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, "", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def schemas(inner):
    """Build schemas from smaller ones, with keywords that mean the same in every draft since 6."""
    keywords = st.fixed_dictionaries({}, optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3), "const": VALUES, "minimum": st.integers(-1, 2),
        "maxLength": st.integers(0, 2), "minItems": st.integers(0, 2), "uniqueItems": st.booleans(),
        "properties": st.dictionaries(NAMES, inner, max_size=2), "additionalProperties": inner,
        "required": st.lists(NAMES, max_size=2, unique=True), "items": inner, "contains": inner, "not": inner,
        "anyOf": st.lists(inner, min_size=1, max_size=3), "oneOf": st.lists(inner, min_size=1, max_size=3),
        "allOf": st.lists(inner, min_size=1, max_size=2)})
    return keywords | st.just({"$ref": "#/$defs/d"})


SCHEMAS = st.recursive(st.booleans() | TYPES.map(lambda name: {"type": name}), schemas, max_leaves=6)


@PROPERTY
@given(SCHEMAS, SCHEMAS, VALUES)
def test_a_value_has_problems_exactly_if_jsonschema_refuses_it(schema, definition, value):
    """Neither the quick check nor the words for what is wrong lose a problem or invent one."""
    import jsonschema

    reference = json.dumps(definition).replace('{"$ref": "#/$defs/d"}', "true")
    whole = {"allOf": [schema], "$defs": {"d": json.loads(reference)}}
    expected = jsonschema.Draft7Validator(whole).is_valid(value)
    problems = Validator(whole).problems(value)
    assert expected == (not problems), problems
    # The quick check does not understand oneOf, so this is jsonschema's answer in our words.
    slow = Validator({"oneOf": [{"allOf": whole["allOf"]}], "$defs": whole["$defs"]}).problems(value)
    assert expected == (not slow), slow
    assert all(path.startswith("$") and reason for path, reason in problems)
    Validator(whole).check_schema()


@PROPERTY
@given(st.lists(TYPES, max_size=3), TYPES | st.none(), st.lists(VALUES, max_size=4))
def test_prefix_items_mean_the_same_everywhere(prefix, rest, value):
    """Where jsonschema knows only draft 7, prefixItems and items are checked as in 2020-12."""
    schema = {"prefixItems": [{"type": name} for name in prefix]}
    if rest:
        schema["items"] = {"type": rest}
    expected = [at for at, item in enumerate(value)
                if (at < len(prefix) or rest)
                and Validator({"type": prefix[at] if at < len(prefix) else rest}).problems(item)]
    assert sorted(path for path, _ in Validator(schema).problems(value)) == ["$[%d]" % at for at in expected]
