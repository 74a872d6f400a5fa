"""Checking JSON values against a JSON Schema: quickly if they fit, with jsonschema if they may not.

Any schema may come here, also one from a stranger's server: nothing is ever fetched.  What is not here: the
words for what is wrong (`reasons`), and conversion to Python types (`convert`).
"""

from __future__ import annotations

import functools
import itertools
import threading
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

from ..errors import SchemaError
from .document import Document
from .encode import encode
from .fits import Check, quick_check
from .paths import json_path, preview, shortened
from .reasons import MAX_PROBLEMS, explained

#: How many errors are looked at to find the most relevant ones, which are the outermost.
MAX_ERRORS = 10000

_Keyword = Callable[..., Any]  # how jsonschema checks one keyword: (validator, its value, instance, schema)


class Validator:
    """A schema, compiled once on first use.  Safe to use from any number of threads.

    The dialect is what ``$schema`` says, otherwise the newest one that the installed jsonschema knows; where
    that is draft 7, ``prefixItems`` and keywords beside a ``$ref`` are checked as well.
    """

    def __init__(self, schema: Any):
        self.schema = schema
        self._document: Optional[Document] = None
        self._quick: Optional[Check] = None
        self._compiled: Any = None
        self._lock = threading.Lock()  # guards the making of these three

    def problems(self, value: Any) -> List[Tuple[str, str]]:
        """Return what is wrong with a JSON value, as pairs (path, reason).

        The most relevant comes first; at most 10 are returned, none if the value fits.

        Raises:
            SchemaError: If the schema cannot be used.
        """
        if self._document is None:
            self._read()
        try:
            if self._quick is not None and self._quick(value):
                return []
            errors = _outermost(self._compile().iter_errors(value))
        except RecursionError:
            return self._endless(value)
        except Exception as error:  # an invalid schema breaks jsonschema in many ways
            self.check_schema()
            reason = "%s: %s" % (type(error).__name__, preview(str(error), 200))
            raise SchemaError("the schema cannot be used: %s" % reason) from error
        return explained(errors) if errors else []

    def check_schema(self) -> None:
        """Check the schema itself.

        Raises:
            SchemaError: If it is not a JSON Schema, or refers to something outside itself.  The message names
                the place.
        """
        compiled = self._compile()
        import jsonschema

        try:
            type(compiled).check_schema(compiled.schema)
        except jsonschema.exceptions.SchemaError as error:
            place = json_path(error.absolute_path)
            reason = shortened(error.message)
            raise SchemaError("the schema is invalid at %s: %s" % (place, reason)) from error

    def _read(self) -> Document:
        with self._lock:
            if self._document is None:
                document = Document(self.schema)
                self._quick = quick_check(document)
                self._document = document
            return self._document

    def _compile(self) -> Any:
        if self._compiled is None:
            document = self._read()
            with self._lock:
                self._compiled = self._compiled or _compile(document)
        return self._compiled

    def _endless(self, value: Any) -> List[Tuple[str, str]]:
        try:
            encode(value)
        except Exception:
            return [("$", "is nested too deeply to be checked")]
        raise SchemaError("the schema is a circle of references; let each $ref lead into a part of the value")


# The validator of jsonschema, on any of its versions.


def _outermost(errors: Iterable[Any]) -> List[Any]:
    found = list(itertools.islice(errors, MAX_ERRORS))
    found.sort(key=lambda error: len(error.absolute_path))
    return found[:20 * MAX_PROBLEMS]


def _compile(document: Document) -> Any:
    import jsonschema

    known = getattr(jsonschema, document.dialect + "Validator", None)
    cls = known or jsonschema.Draft7Validator
    if not known or not document.declared or document.dialect == "Draft202012":
        cls = _extended(cls)
    try:
        import referencing

        return cls(document.schema, registry=referencing.Registry())
    except (ImportError, TypeError):  # jsonschema before 4.18, perhaps with a referencing that nobody uses
        return cls(document.schema, resolver=_Resolver(document))


class _Resolver:
    """Follows pointers inside one document, for jsonschema before 4.18.  Keeps no state, fetches nothing."""

    resolution_scope = base_uri = ""

    def __init__(self, document: Document):
        self.resolve_pointer = document.resolve

    def resolve(self, reference: str) -> Tuple[str, Any]:
        return "", self.resolve_pointer(reference)

    def push_scope(self, scope: str) -> None:
        """There is one scope."""

    def pop_scope(self) -> None:
        """There is one scope."""


@functools.lru_cache(maxsize=None)
def _extended(cls: Any) -> Any:
    """Return a validator that checks prefixItems with their places, and in draft 7 keywords beside a $ref."""
    from jsonschema import Draft7Validator, validators

    words = {"prefixItems": _prefix_items}
    if cls is Draft7Validator:
        words["items"] = functools.partial(_items, cls.VALIDATORS["items"])
        words["$ref"] = functools.partial(_ref, cls.VALIDATORS["$ref"])
    extend: Any = validators.extend
    return extend(cls, words)


def _prefix_items(validator: Any, prefix: Any, value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for at, (item, inner) in enumerate(zip(value, prefix)):
            yield from validator.descend(item, inner, path=at, schema_path=at)


def _items(original: _Keyword, validator: Any, items: Any, value: Any, schema: Any) -> Iterator[Any]:
    prefix = schema.get("prefixItems")
    if prefix is None or isinstance(items, list):
        yield from original(validator, items, value, schema) or ()
    elif isinstance(value, list):
        for at, item in enumerate(value[len(prefix):], len(prefix)):
            yield from validator.descend(item, items, path=at)


def _ref(original: _Keyword, validator: Any, reference: Any, value: Any, schema: Any) -> Iterator[Any]:
    yield from original(validator, reference, value, schema) or ()
    beside = {word: item for word, item in schema.items() if word != "$ref"}
    if beside:
        yield from validator.descend(value, beside)


