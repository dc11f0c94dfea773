"""The text of a component's error, as it is stored: what the component was given, then the error.

    On a tuple of words (task 3), stream default, message id 17:
    Traceback (most recent call last):
      ...
    ValueError: no number

The first line is left out where nothing was given, and the last line names the error.
"""

from __future__ import annotations

import re

_FIRST_LINE = re.compile(r"On ((?:a tuple|\d+ tuple\(s\)) of [^\n]*):\n")


def with_source(text: str, source: str) -> str:
    """The text of an error that was raised on `source`, which may be ""."""
    return f"On {' '.join(source.splitlines())}:\n{text}" if source else text


def split_source(text: str) -> tuple[str, str]:
    """The description of the component's input, "" if unknown, and the rest of the text."""
    found = _FIRST_LINE.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)
