"""Docstrings in the Google, NumPy and Sphinx styles: what a function is for, and what each parameter is.

What is not here: types.  Annotations decide those; a type named in a docstring is skipped.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

_PARAMETERS = ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments",
               "keyword parameters", "other parameters", "other args", "attributes")
#: Sections that say nothing to whoever calls the function over JSON.
_SILENT = ("raises", "raise", "warns", "yields", "yield", "see also", "todo", "references")
_GOOGLE_HEADER = re.compile(r"([A-Za-z][A-Za-z ]*):\s*\Z")
_NAMES = r"\*{0,2}`{0,2}\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)`{0,2}"
_GOOGLE_ENTRY = re.compile(r"(?:[-*]\s+)?" + _NAMES + r"\s*(?:\(.*?\))?\s*:(?:\s+|\Z)(.*)\Z")
_NUMPY_ENTRY = re.compile(_NAMES + r"\s*(?::.*)?\Z")
_SPHINX_FIELD = re.compile(r":([a-z]+)(?:\s+([^:]*?))?\s*:(?:\s+|\Z)(.*)\Z")
_SPHINX_PARAMETERS = ("param", "parameter", "arg", "argument", "key", "keyword", "var", "ivar", "cvar")
_SPHINX_SILENT = ("type", "vartype", "rtype", "raises", "raise", "except", "exception", "meta")


class Docstring(NamedTuple):
    """What a docstring says.

    Attributes:
        text: Everything but the sections about parameters and exceptions, dedented.
        parameters: Text of each described parameter, by name, each on one line.
    """

    text: str
    parameters: Dict[str, str]


def parse_docstring(doc: Optional[str]) -> Docstring:
    """Take a docstring apart.  Unknown sections stay part of the text; nothing is an error."""
    if not doc:
        return Docstring("", {})
    import inspect

    lines = inspect.cleandoc(doc).split("\n")
    text: List[str] = []
    parameters: Dict[str, str] = {}
    at = 0
    while at < len(lines):
        at = _take(lines, at, text, parameters)
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip(), parameters)


def class_docstring(cls: Any) -> Docstring:
    """Take a class's own docstring apart, leaving out those that Python makes up by itself."""
    doc = cls.__dict__.get("__doc__") or ""
    made_up = doc.startswith(cls.__name__ + "(") or doc == "An enumeration."
    return parse_docstring(None if made_up else doc)


def _take(lines: List[str], at: int, text: List[str], parameters: Dict[str, str]) -> int:
    """Read what begins at one line and return where the next thing begins."""
    field = _SPHINX_FIELD.match(lines[at])
    if field:
        return _take_field(lines, at, field.groups(), text, parameters)
    name, body, end = _section(lines, at)
    if name in _PARAMETERS:
        parameters.update(_entries(body))
    elif name not in _SILENT:
        text.append(lines[at])
        return at + 1
    return end


def _section(lines: List[str], at: int) -> Tuple[str, List[str], int]:
    """Return name, body and end of a section that begins at a line; no name if none does."""
    if at + 1 < len(lines) and re.match(r"-{3,}\s*\Z", lines[at + 1]) and lines[at].strip():
        end = at + 2
        while end < len(lines) and not (end + 1 < len(lines) and re.match(r"[-=]{3,}\s*\Z", lines[end + 1])):
            end += 1
        return lines[at].strip().lower(), lines[at + 2:end], end
    header = _GOOGLE_HEADER.match(lines[at])
    if not header:
        return "", [], at
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t"):
        end += 1
    return header.group(1).lower(), lines[at + 1:end], end


def _entries(body: List[str]) -> Dict[str, str]:
    """Return the described names of a section's body, Google or NumPy style."""
    filled = [line for line in body if line.strip()]
    if not filled:
        return {}
    margin = _indent(filled[0])
    # Google entries hang below their header; NumPy entries stand at the margin, with their text below them.
    pattern = _GOOGLE_ENTRY if margin else _NUMPY_ENTRY
    found: Dict[str, List[str]] = {}
    names: List[str] = []
    for line in filled:
        entry = pattern.match(line.strip()) if _indent(line) <= margin else None
        if entry:
            names = [name.strip(" *") for name in entry.group(1).split(",")]
            found.update((name, [entry.group(2)] if margin else []) for name in names)
            continue
        for name in names:
            found[name].append(line.strip())
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}


def _take_field(lines: List[str], at: int, field: Tuple[Any, ...], text: List[str],
                parameters: Dict[str, str]) -> int:
    """Read a Sphinx field with its indented lines."""
    word, argument, first = field
    end = at + 1
    while end < len(lines) and lines[end].strip() and lines[end][0] in " \t":
        end += 1
    words = " ".join([first.strip()] + [line.strip() for line in lines[at + 1:end]]).strip()
    if word in _SPHINX_PARAMETERS and argument:
        parameters[argument.split()[-1].lstrip("*")] = words
    elif word in ("return", "returns"):
        text.append("Returns: " + words)
    elif word not in _SPHINX_SILENT:
        text.extend(lines[at:end])
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
