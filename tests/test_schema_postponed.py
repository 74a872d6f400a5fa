"""Schemas of functions in a module whose annotations are all text."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Dict, List, Optional

import pytest

from minagent.errors import SchemaError
from minagent.schema import Validator, function_schema, json_schema

if TYPE_CHECKING:
    from decimal import Decimal

    from minagent.tools import ToolContext


@dataclasses.dataclass
class Node:
    name: str
    children: List[Node] = dataclasses.field(default_factory=list)
    index: Dict[str, Node] = dataclasses.field(default_factory=dict)


class Options(typing.TypedDict, total=False):
    depth: int
    node: Node


def walk(node: Node, ctx: ToolContext, options: Optional[Options] = None, limit: int = 1): ...


def typed_only(amount: Decimal): ...


def context_under_another_name(x: int, where: ToolContext): ...


def test_all_annotations_are_text_and_are_read():
    """Classes, recursion and the context work, also a context that only type checkers see."""
    schema = function_schema(walk)
    assert schema.context_parameter == "ctx"
    assert set(schema.parameters["$defs"]) == {"Node", "Options"}
    bound = schema.bind({"node": {"name": "a", "index": {"b": {"name": "b"}}},
                         "options": {"node": {"name": "c"}}})
    assert bound == {"node": Node("a", index={"b": Node("b")}), "options": {"node": Node("c")}}
    Validator(schema.parameters).check_schema()
    assert function_schema(context_under_another_name).context_parameter == "where"


def test_a_name_that_only_type_checkers_see_is_named():
    """The message says which name is missing at run time, and what to do."""
    with pytest.raises(SchemaError, match="'amount' of typed_only.*'Decimal' does not exist.*import it"):
        function_schema(typed_only)


def test_required_keys_in_text_are_seen():
    """NotRequired counts although it was only text when the class was made."""
    extensions = pytest.importorskip("typing_extensions")
    namespace = {"TypedDict": extensions.TypedDict, "__name__": __name__}
    exec("class Movie(TypedDict):\n    title: str\n    year: 'NotRequired[int]'", namespace)
    globals()["NotRequired"] = extensions.NotRequired
    try:
        assert json_schema(namespace["Movie"])["required"] == ["title"]
    finally:
        del globals()["NotRequired"]
