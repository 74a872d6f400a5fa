"""Schemas made wide enough for a grammar compiler."""

import json

from minagent.llm.grammar import ANYTHING, for_grammar, sketch


def test_references_are_put_in_place():
    """The schema becomes part of another one, where its own references would point nowhere."""
    schema = {"type": "object", "properties": {"to": {"$ref": "#/$defs/a~1b"}, "cc": {"$ref": "#/definitions/x"}},
              "$defs": {"a/b": {"type": "string"}}, "definitions": {"x": {"type": "integer"}}}

    made = for_grammar(schema)

    assert made["properties"] == {"to": {"type": "string"}, "cc": {"type": "integer"}}
    assert "$" not in json.dumps(made)


def test_a_schema_inside_itself_ends_in_any_value():
    """A tree is as deep as it is written here; deeper values are free."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}

    made = for_grammar({"$ref": "#/$defs/node", "$defs": {"node": node}})

    assert made["properties"]["next"] == ANYTHING


def test_words_that_compilers_do_not_know_are_left_out():
    """What remains accepts more than before, never less."""
    made = for_grammar({"type": "string", "format": "email", "pattern": "^a+$", "maxLength": 10 ** 6, "minLength": 2,
                        "title": "T", "default": "x"})

    assert made == {"type": "string", "minLength": 2}


def test_bounds_stay_for_integers_only():
    """Bounds of other numbers are no matter for a grammar."""
    bounded = {"type": "integer", "minimum": 1, "maximum": 9}

    assert for_grammar(bounded) == bounded
    assert for_grammar({"type": "number", "minimum": 0.5}) == {"type": "number"}


def test_alternatives_lists_and_maps_are_kept():
    """Each inner schema is widened too."""
    schema = {"type": "object", "properties": {
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "x"}, "minItems": 1},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "free": True,
        "more": {"type": "object", "additionalProperties": {"type": "integer"}}}}

    assert for_grammar(schema)["properties"] == {
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "free": ANYTHING,
        "more": {"type": "object", "additionalProperties": {"type": "integer"}}}


def test_an_object_takes_no_members_that_it_does_not_list():
    """A small model would go on inventing them."""
    assert for_grammar({"type": "object", "properties": {}})["additionalProperties"] is False


def test_one_schema_in_all_of_is_the_schema():
    """Generators write a described reference like that."""
    schema = {"allOf": [{"$ref": "#/$defs/c"}], "description": "d", "$defs": {"c": {"enum": ["red", "blue"]}}}

    assert for_grammar(schema) == {"enum": ["red", "blue"]}


def test_a_sketch_is_what_a_person_would_write():
    """It is the words in which a model is told of a schema."""
    schema = {"type": "object", "properties": {
        "name": {"type": "string"}, "size": {"enum": ["S", "L"]},
        "ages": {"type": "array", "items": {"type": "integer"}},
        "boss": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "rest": {}}}

    assert sketch(schema) == ('{"name": string, "size": "S" | "L", "ages": [integer, ...], "boss": string | null, '
                              '"rest": any}')
