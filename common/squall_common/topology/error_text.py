"""The text of a component's error, as it is stored: what the component was given, then the error.

    On a tuple of words (task 3), stream default, message id 17:
    Traceback (most recent call last):
      ...
    ValueError: no number

The first line is left out where nothing was given. What follows the line that names the error is
the rest of its message, its notes and what to do about it.
"""

from __future__ import annotations

import re

_GROUP = "  + Exception Group "
_GROUP_MARGIN = "  | "
# (Those of the errors in a group are indented.)
_TRACEBACK = re.compile(rf"^({re.escape(_GROUP)})?Traceback \(most recent call last\):\n", re.M)
_FIRST_LINE = re.compile(r"On ((?:a tuple|\d+ tuple\(s\)) of [^\n]*):\n")


def with_source(text: str, source: str) -> str:
    """The text of an error that was raised on `source`, which may be ""."""
    return f"On {' '.join(source.splitlines())}:\n{text}" if source else text


def split_source(text: str) -> tuple[str, str]:
    """The description of the component's input, "" if unknown, and the rest of the text."""
    found = _FIRST_LINE.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


def headline(text: str) -> str:
    """The line that names the error; "" of an empty text.

    It is the line behind the frames of the last traceback. A message without a traceback begins
    with it.
    """
    error = split_source(text)[1]
    tracebacks = list(_TRACEBACK.finditer(error))
    last = tracebacks[-1] if tracebacks else None
    margin = _GROUP_MARGIN if last is not None and last[1] else ""
    behind = error if last is None else error[last.end() :]
    lines = [line.removeprefix(margin) for line in behind.splitlines() if line.strip()]
    named = (line for line in lines if last is None or not line.startswith(" "))
    return next(named, lines[-1] if lines else "").strip()
