"""A function's signature as JSON Schema, and JSON arguments as the values that the function expects.

What is not here: calling the function, and everything a tool is besides (`minagent.tools`).
"""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from ..errors import SchemaError
from .convert import ConverterBuilder, convert_fields, converted
from .docstrings import class_docstring, parse_docstring
from .hints import resolve
from .records import MISSING, Field, optional_if_none
from .types import SchemaBuilder, object_schema

_CONTEXT_CLASS = "ToolContext"
_CONTEXT_TEXT = re.compile(r"(?:Optional\[)?(?:[\w.]+\.)?%s(?:\]|\s*\|\s*None)?\Z" % _CONTEXT_CLASS)


class FunctionSchema:
    """What a model is told about a function, and how its arguments are read.

    Attributes:
        name: The function's name.
        description: Its docstring without the sections about parameters and exceptions.
        parameters: JSON Schema of the arguments, an object.
        context_parameter: Name of the parameter that takes the ToolContext, or None.
    """

    def __init__(self, name: str, description: str, parameters: Dict[str, Any],
                 context_parameter: Optional[str], bind: Callable[[Any], Dict[str, Any]]):
        self.name = name
        self.description = description
        self.parameters = parameters
        self.context_parameter = context_parameter
        self._bind = bind

    def bind(self, args: Mapping[str, Any]) -> Dict[str, Any]:
        """Convert JSON arguments to the annotated types, as keyword arguments for the function.

        Arguments that are left out stay left out: their defaults are the function's own.

        Raises:
            InvalidArguments: If an argument is missing, unknown or of the wrong kind; `problems` names each.
        """
        result: Dict[str, Any] = converted(self._bind, args)
        return result


def function_schema(function: Callable[..., Any]) -> FunctionSchema:
    """Describe a function, bound method, partial or object with ``__call__``.

    Raises:
        SchemaError: If a parameter cannot be given as JSON by name, or the function is asynchronous.
    """
    return _Reader(function).read()


class _Reader:
    """Reads one callable."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.name = _name(function)
        _refuse_asynchronous(function, self.name)
        self.inner = _innermost(function)
        self.scope = getattr(self.inner, "__globals__", {})
        self.names = _closure(self.inner)

    def read(self) -> FunctionSchema:
        doc = parse_docstring(_doc(self.function))
        parameters = self._parameters()
        context = self._context(parameters)
        fields = [self._field(each, doc.parameters) for each in parameters if each.name != context]
        schemas, converters = SchemaBuilder(self.names), ConverterBuilder(self.names)
        properties, convert = {}, {}
        for field in fields:
            where = self._where(field.name)
            properties[field.name] = schemas.field(field, where)
            convert[field.name] = converters.converter(field.annotation, where)
        required = [field.name for field in fields if field.required]
        schema = schemas.finished(object_schema(properties, required))
        return FunctionSchema(self.name, doc.text, schema, context,
                              lambda args: convert_fields(args, fields, convert))

    def _where(self, parameter: str) -> str:
        return "parameter %r of %s()" % (parameter, self.name)

    def _parameters(self) -> List[Any]:
        """Return the parameters that a model has to fill, and the one for the context."""
        import inspect

        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (ValueError, TypeError) as error:
            raise SchemaError("%s() has no signature that can be read (%s); wrap it in a function with "
                              "annotated parameters" % (self.name, error)) from error
        bound = _bound_names(self.function)
        parameters = [parameter for parameter in parameters if parameter.name not in bound]
        for at, parameter in enumerate(parameters):
            self._refuse(parameter, at)
        return parameters

    def _refuse(self, parameter: Any, at: int) -> None:
        where, kind = self._where(parameter.name), parameter.kind
        if kind == parameter.VAR_POSITIONAL:
            raise SchemaError("%s collects any number of arguments (*%s); name each parameter or take a list"
                              % (where, parameter.name))
        if kind == parameter.VAR_KEYWORD:
            raise SchemaError("%s collects any arguments (**%s); name each parameter, or take one dict"
                              % (where, parameter.name))
        if kind == parameter.POSITIONAL_ONLY:
            raise SchemaError("%s can only be given by position, but a model gives arguments by "
                              "name; remove the `/`, or wrap the function" % where)
        if at == 0 and parameter.name in ("self", "cls") and parameter.annotation is parameter.empty:
            raise SchemaError("%s() is a method without its object; pass the bound method of an instance"
                              % self.name)

    def _context(self, parameters: List[Any]) -> Optional[str]:
        found = [parameter.name for parameter in parameters
                 if parameter.name == "ctx" or _is_context(parameter.annotation)]
        if len(found) > 1:
            raise SchemaError("%s() has %d parameters for the context (%s); keep one and rename the others"
                              % (self.name, len(found), ", ".join(found)))
        return found[0] if found else None

    def _field(self, parameter: Any, texts: Mapping[str, str]) -> Field:
        where = self._where(parameter.name)
        default = MISSING if parameter.default is parameter.empty else parameter.default
        annotation = Any
        if parameter.annotation is not parameter.empty:
            annotation = resolve(parameter.annotation, self.scope, self.names, where)
            annotation = optional_if_none(annotation, default, where)
        text = texts.get(parameter.name, "")
        return Field(parameter.name, annotation, default is MISSING, default, text)


def _name(function: Any) -> str:
    if isinstance(function, type):
        raise SchemaError("%s is a class; pass a function, or the bound method of an instance"
                          % function.__qualname__)
    if not callable(function):
        raise SchemaError("%r cannot be called; pass a function; a static or class method is taken from its "
                          "class, as in Cls.method" % (function,))
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _refuse_asynchronous(function: Any, name: str) -> None:
    import inspect

    while isinstance(function, functools.partial):
        function = function.func
    bodies = [function] if hasattr(function, "__code__") or hasattr(function, "__func__") else \
        [function, type(function).__call__]
    for body in bodies:
        if inspect.iscoroutinefunction(body):
            raise SchemaError("%s() is `async def`, and nothing here awaits; write a plain `def`, which may "
                              "call asyncio.run() itself" % name)
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise SchemaError("%s() is a generator; write a plain `def` that returns a list" % name)


def _innermost(function: Any) -> Any:
    """Return the plain function whose annotations `inspect.signature` reads."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__func__"):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__globals__") or isinstance(function, type):
            return function
        elif hasattr(type(function).__call__, "__globals__"):
            return type(function).__call__
        else:
            return function


def _closure(function: Any) -> Dict[str, Any]:
    """Return the names that a function inside a function takes from around it."""
    code = getattr(function, "__code__", None)
    names = {}
    for name, cell in zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or ()):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    return names


def _bound_names(function: Any) -> List[str]:
    names: List[str] = []
    while isinstance(function, functools.partial):
        names.extend(function.keywords)
        function = function.func
    return names


def _doc(function: Any) -> Optional[str]:
    """Return the docstring; an object with ``__call__`` is described there or by its class."""
    import inspect

    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or "__doc__" in getattr(function, "__dict__", {}):
        return inspect.getdoc(function)
    call: Optional[str] = type(function).__call__.__doc__
    return call or class_docstring(type(function)).text


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return bool(_CONTEXT_TEXT.match(annotation.strip("'\" ")))
    wraps = hasattr(annotation, "__metadata__") or getattr(annotation, "__origin__", None) is Union \
        or type(annotation).__name__ == "UnionType"
    members = annotation.__args__ if wraps else (annotation,)
    return any(_is_context_class(member) for member in members)


def _is_context_class(member: Any) -> bool:
    if isinstance(member, type):
        return member.__name__ == _CONTEXT_CLASS or getattr(member, "__tool_context__", False) is True
    name = getattr(member, "__forward_arg__", "")
    return bool(name) and bool(_CONTEXT_TEXT.match(name))
