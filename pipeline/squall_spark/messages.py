"""The messages of Spark's errors, which are chains with stacks, in one line. Pure."""

from __future__ import annotations

import re

_CAUSED_BY = re.compile(r"^Caused by: (?P<cls>[\w.$]+): (?P<message>[^\n]*)", re.MULTILINE)
# What Py4J writes in the line after "An error occurred while calling o7.collect.".
_OUTERMOST = re.compile(r"^: [\w.$]+: (?P<message>[^\n]+)", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z][A-Z_0-9.]+\] [^\n]*")
_MESSAGE_MAX = 2_000


def innermost(text: str) -> str:
    """The innermost error of a chain of Spark's, in one line without its stack; "" for none."""
    causes = _CAUSED_BY.findall(text)
    named = _CONDITION.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for cls, message in reversed(causes):
        if message.strip():
            return one_line(f"{cls.rpartition('.')[2]}: {message}")
    if named:
        return one_line(named[-1])
    outermost = _OUTERMOST.search(text)
    if outermost is not None:
        return one_line(outermost["message"])
    return one_line(lines[0]) if lines else ""


def one_line(text: str) -> str:
    """A message in one line that does not end as if something followed."""
    joined = " ".join(part.strip() for part in text.splitlines() if part.strip())
    return joined[:_MESSAGE_MAX].rstrip(": ")
