"""The text of a component's error."""

from __future__ import annotations

import pytest

from squall_common.topology.error_text import split_source, with_source

RAISED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no'
SOURCES = ["a tuple of words (task 3), stream default, message id 17", "20 tuple(s) of w, stream s"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("text", [RAISED, "no such package"])
def test_what_was_put_before_a_text_is_found_again(text: str, source: str) -> None:
    stored = with_source(text, source)
    assert stored == f"On {source}:\n{text}"
    assert split_source(stored) == (source, text)


@pytest.mark.parametrize("text", [RAISED, "", "On a tuple of words", "On second thought:\nno"])
def test_a_text_without_a_source_stays(text: str) -> None:
    assert with_source(text, "") == text
    assert split_source(text) == ("", text)


def test_a_source_keeps_to_one_line() -> None:
    assert with_source("no", "a tuple of w, message id <a\nb>").count("\n") == 1
