"""JSON Schema for Python: describing functions and types, checking values, converting both ways.

What is not here: anything about tools, models or messages.  jsonschema is loaded with the first check.
"""

from .convert import from_json
from .docstrings import Docstring, parse_docstring
from .encode import encode
from .function import FunctionSchema, function_schema
from .types import json_schema
from .validate import Validator

__all__ = ["Docstring", "FunctionSchema", "Validator", "encode", "from_json", "function_schema",
           "json_schema", "parse_docstring"]
