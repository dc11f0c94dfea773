"""`${name}`, `${ENV-NAME}` and `${name[2]}` in the text of a Flux file, and .properties files.

They are replaced before the YAML is read, as in Storm, so that a value can be a number or a list. A
value stays on its line, and the columns of the replaced text lead back to those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from squall_common.errors import SquallError

_REFERENCE = re.compile(r"\$(\$?)\{([^}\n]*)\}")
_ELEMENT = re.compile(r"(.+)\[(\d{1,6})\]")
_ENVIRONMENT = "ENV-"
_VALUE_CHARS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Filter:
    """The values that references are replaced with. `properties` is None without --filter,
    `environment` without --env-filter."""

    properties: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Substituted:
    """A text, and where its parts come from."""

    text: str
    problems: list[tuple[int, int, str]]  # line and column of the file, from 0
    _shifts: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)

    def column(self, line: int, column: int) -> int:
        """The column in the file of a column in `text`, both from 0."""
        for start, length, original, original_length in reversed(self._shifts.get(line, [])):
            if column >= start + length:
                return column - start - length + original + original_length
            if column >= start:
                return original
        return column


def substitute(text: str, values: Filter) -> Substituted:
    """Replace the references of a text. One without a value is a problem, unless it is in a comment
    that fills its line; `$${name}` stands for the text `${name}`."""
    lines = []
    problems: list[tuple[int, int, str]] = []
    shifts: dict[int, list[tuple[int, int, int, int]]] = {}
    for number, line in enumerate(text.split("\n")):
        if "${" not in line or line.lstrip().startswith("#"):
            lines.append(line)
            continue
        parts, end, length = [], 0, 0
        for match in _REFERENCE.finditer(line):
            before = line[end : match.start()]
            if match[1]:
                value = match[0][1:]
            else:
                try:
                    value = _value_of(match[2], values)
                except SquallError as error:
                    problems.append((number, match.start(), error.message))
                    value = match[0]
            length += len(before)
            shifts.setdefault(number, []).append((length, len(value), match.start(), len(match[0])))
            length += len(value)
            parts += [before, value]
            end = match.end()
        lines.append("".join(parts) + line[end:])
    return Substituted("\n".join(lines), problems, shifts)


def _value_of(name: str, values: Filter) -> str:
    element = _ELEMENT.fullmatch(name)
    if element is not None:
        return _usable(name, _element(name, _text_of(element[1], values), int(element[2])))
    return _usable(name, _text_of(name, values))


def _text_of(name: str, values: Filter) -> str:
    if name.startswith(_ENVIRONMENT):
        variable = name.removeprefix(_ENVIRONMENT)
        if values.environment is None:
            raise SquallError(f"${{{name}}} needs --env-filter")
        if variable not in values.environment:
            raise SquallError(f"${{{name}}}: there is no environment variable {variable!r}")
        return values.environment[variable]
    if values.properties is None:
        raise SquallError(f"${{{name}}} needs --filter FILE, a file of properties")
    if name not in values.properties:
        raise SquallError(f"${{{name}}}: the file of --filter has no property {name!r}")
    return values.properties[name]


def _element(name: str, text: str, index: int) -> str:
    try:
        elements = yaml.safe_load(text) if len(text) <= _VALUE_CHARS_MAX else None
    except (yaml.YAMLError, ValueError, RecursionError):
        elements = None
    if not isinstance(elements, list):
        raise SquallError(f'${{{name}}}: the value is not a list such as ["a", "b"]')
    if index >= len(elements):
        raise SquallError(f"${{{name}}}: the list has {len(elements)} elements")
    return str(elements[index])


def _usable(name: str, value: str) -> str:
    if len(value) > _VALUE_CHARS_MAX:
        raise SquallError(f"${{{name}}}: the value is longer than {_VALUE_CHARS_MAX} characters")
    if any(not c.isprintable() and c != "\t" for c in value):
        raise SquallError(f"${{{name}}}: the value contains a line break or a control character")
    return value


# ---- Files of properties ----

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PROPERTY = re.compile(r"((?:\\.|[^\\:=\s])*)\s*[:=]?\s*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """A .properties file of Java: `key=value`, `key: value` or `key value` a line; `#` and `!`
    begin a comment; a backslash escapes, and continues a line. The last value of a key counts."""
    found = {}
    for line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        if match is not None:
            found[_unescape(match[1])] = _unescape(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    kept = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not kept and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            kept += stripped[:-1]
        else:
            yield kept + stripped
            kept = ""
    if kept:
        yield kept


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPED.sub(character, text)
