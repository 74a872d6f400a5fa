"""JSON Schema for Python: describing functions and types, checking values, converting both ways.

What is not here: anything about tools, models or messages.  jsonschema is loaded when a value may not fit.
"""

from __future__ import annotations

import typing

# `encode` is also the name of its module; bound here before anyone can load that, it is always the function.
from .._lazy import lazy
from .encode import encode

if typing.TYPE_CHECKING:
    from .convert import from_json
    from .docstrings import Docstring, parse_docstring
    from .function import FunctionSchema, function_schema
    from .types import json_schema
    from .validate import Validator

__all__ = ["Docstring", "FunctionSchema", "Validator", "encode", "from_json", "function_schema",
           "json_schema", "parse_docstring"]

_ROOMS = {"from_json": "convert", "Docstring": "docstrings", "parse_docstring": "docstrings",
          "FunctionSchema": "function", "function_schema": "function", "json_schema": "types",
          "Validator": "validate"}

__getattr__, __dir__ = lazy(__name__, _ROOMS)
