"""What a filter saves, as far as the names of folders say it: pure.

Data in folders `day=1/sku=a/` is read only where the conditions on these columns hold. Conditions
that are joined by AND are looked at one by one; one that is not a simple comparison is left to
Spark, so the files found here are those that are read at most.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

_FOLDER = re.compile(r"(?P<name>[^/=]+)=(?P<value>[^/]*)")
_LITERAL = r"'(?:[^'\\]|'')*'|-?\d+(?:\.\d+)?"
_COMPARISON = re.compile(
    rf"\s*`?(?P<name>\w+)`?\s*(?P<operator>==?|<=|>=|<>|!=|<|>)\s*(?P<value>{_LITERAL})\s*"
)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_NOT_SIMPLE = re.compile(r"[()]|\b(or|between|case)\b", re.IGNORECASE)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NULL = "__HIVE_DEFAULT_PARTITION__"


def folders_of(file: str) -> dict[str, str]:
    """The columns that the folders of a file name, and their values."""
    parts = (_FOLDER.fullmatch(part) for part in file.split("/")[:-1])
    return {part["name"]: unquote(part["value"]) for part in parts if part is not None}


def remaining(files: Iterable[str], condition: str) -> list[str]:
    """The files that are read with a filter, at most."""
    comparisons = _comparisons(condition)
    return [file for file in files if not _excluded(folders_of(file), comparisons)]


def _comparisons(condition: str) -> list[tuple[str, str, str]]:
    quoted = re.findall(r"'[^']*'", condition)
    # (What is in quotes may look like anything.)
    if any(_AND.search(text) for text in quoted) or _NOT_SIMPLE.search(
        re.sub(r"'[^']*'", "''", condition)
    ):
        return []
    found = map(_COMPARISON.fullmatch, _AND.split(condition))
    return [(one["name"].lower(), one["operator"], one["value"]) for one in found if one]


def _excluded(folders: dict[str, str], comparisons: Sequence[tuple[str, str, str]]) -> bool:
    values = {name.lower(): value for name, value in folders.items()}
    return any(
        name in values and not _holds(values[name], sign, literal)
        for name, sign, literal in comparisons
    )


def _holds(value: str, sign: str, literal: str) -> bool:
    """Whether a folder may have rows for which a comparison is true."""
    if value == _NULL:
        return False  # a comparison with null is never true
    if literal.startswith("'"):
        if sign not in ("=", "==", "<>", "!=") or re.fullmatch(r"-?\d+(\.\d+)?", value):
            return True  # by the column's type, which is Spark's to find
        return _OPERATORS[sign](value, literal[1:-1].replace("''", "'"))
    try:
        return _OPERATORS[sign](float(value), float(literal))
    except ValueError:
        return True
