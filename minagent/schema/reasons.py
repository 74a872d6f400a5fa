"""What jsonschema found, in words that a model can act on, the same with every version of jsonschema.

What is not here: finding it (`validate`).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .convert import unknown_name
from .paths import json_path, preview, shortened, type_name

#: How many problems are reported.
MAX_PROBLEMS = 10

Parts = Tuple[Any, ...]


def explained(errors: Iterable[Any]) -> List[Tuple[str, str]]:
    found: List[Tuple[Parts, str]] = []
    for error in errors:
        found.extend(problem for problem in _problems(error) if problem not in found)
    # What is wrong further out is more relevant than what is wrong deep inside.
    found.sort(key=lambda problem: len(problem[0]))
    return [(json_path(parts), reason) for parts, reason in found[:MAX_PROBLEMS]]


def _problems(error: Any) -> List[Tuple[Parts, str]]:
    place = tuple(error.absolute_path)
    if error.validator in ("anyOf", "oneOf") and error.context:
        return _best_branch(error)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [(place + (name,), "is required") for name in missing]
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        unknown = _unknown(error.instance, error.schema)
        return [(place + (name,), unknown_name(name, known)) for name in unknown]
    write = _REASONS.get(error.validator)
    return [(place, write(error.validator_value, error.instance) if write else shortened(error.message))]


def _unknown(instance: Dict[str, Any], schema: Dict[str, Any]) -> List[str]:
    known, patterns = schema.get("properties", ()), list(schema.get("patternProperties", ()))
    return [name for name in instance
            if name not in known and not any(re.search(pattern, name) for pattern in patterns)]


def _best_branch(error: Any) -> List[Tuple[Parts, str]]:
    """Return the problems of the branch that was most likely meant."""
    branches: Dict[Any, List[Any]] = {}
    for inner in error.context:
        branches.setdefault(tuple(inner.schema_path)[:1], []).append(inner)
    place = tuple(error.absolute_path)
    strange = [inner for inner in error.context if _other_type(inner, place)]
    meant = [branch for branch in branches.values() if not any(inner in strange for inner in branch)]
    if not meant:
        return [(place, _type_reason(_flat(_expected_type(inner) for inner in strange), error.instance))]
    problems = [[problem for inner in branch for problem in _problems(inner)] for branch in meant]
    wrong_kind = [sum(inner.validator in ("const", "enum") for inner in branch) for branch in meant]
    best = min(range(len(meant)), key=lambda at: (wrong_kind[at], len(problems[at]), -_deepest(problems[at])))
    return problems[best]


def _deepest(problems: List[Tuple[Parts, str]]) -> int:
    return max((len(parts) for parts, _ in problems), default=0)


def _other_type(error: Any, place: Parts) -> bool:
    """Say whether a branch is out of the question because the value is of another type altogether."""
    if tuple(error.absolute_path) != place:
        return False
    if error.validator in ("anyOf", "oneOf") and error.context:
        return all(_other_type(inner, place) for inner in error.context)
    return bool(error.validator == "type")


def _expected_type(error: Any) -> Any:
    if error.validator in ("anyOf", "oneOf"):
        return _flat(_expected_type(inner) for inner in error.context)
    return error.validator_value


def _flat(types: Iterable[Any]) -> List[Any]:
    flat: List[Any] = []
    for item in types:
        flat.extend(inner for inner in (item if isinstance(item, list) else [item]) if inner not in flat)
    return flat


def _type_reason(expected: Any, value: Any) -> str:
    names = [str(name) for name in (expected if isinstance(expected, list) else [expected])]
    return "expected %s, got %s %s" % (" or ".join(names), type_name(value), preview(value))


def _bound_reason(word: str) -> Callable[[Any, Any], str]:
    return lambda expected, value: "must be %s %s, got %s" % (word, preview(expected), preview(value))


def _size_reason(word: str, thing: str) -> Callable[[Any, Any], str]:
    return lambda expected, value: "must have %s %s %s, has %d" % (word, expected, thing, len(value))


_REASONS: Dict[str, Callable[[Any, Any], str]] = {
    "type": _type_reason,
    "enum": lambda expected, value: "expected one of %s, got %s" % (preview(expected, 300), preview(value)),
    "const": lambda expected, value: "expected %s, got %s" % (preview(expected), preview(value)),
    "minimum": _bound_reason("at least"),
    "maximum": _bound_reason("at most"),
    "exclusiveMinimum": _bound_reason("greater than"),
    "exclusiveMaximum": _bound_reason("less than"),
    "multipleOf": _bound_reason("a multiple of"),
    "minLength": _size_reason("at least", "characters"),
    "maxLength": _size_reason("at most", "characters"),
    "minItems": _size_reason("at least", "items"),
    "maxItems": _size_reason("at most", "items"),
    "minProperties": _size_reason("at least", "properties"),
    "maxProperties": _size_reason("at most", "properties"),
    "pattern": _bound_reason("text that matches"),
    "uniqueItems": lambda expected, value: "must not have the same item twice",
    "not": lambda expected, value: ("must not be %s" if expected else "is not allowed, got %s") % preview(value),
}
