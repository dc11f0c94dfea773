"""The text of a component's error."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from squall_common.errors import SquallError
from squall_common.topology.error_text import headline, split_source, with_source

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


def plain() -> None:
    raise ValueError("no")


def with_lines() -> None:
    raise ValueError("no\nnot at all")


def with_a_note() -> None:
    error = ValueError("no")
    error.add_note("in map(int), jobs.py:12, for the value 'x'")
    raise error


def with_a_hint() -> None:
    raise SquallError("no", hint="try yes")


def chained() -> None:
    try:
        with_lines()
    except ValueError as error:
        raise KeyError("key") from error


def grouped() -> None:
    raise ExceptionGroup("two", [ValueError("a"), ValueError("b")])


def because_of_a_group() -> None:
    try:
        grouped()
    except ExceptionGroup as error:
        raise KeyError("key") from error


def group_because_of_another() -> None:
    try:
        with_lines()
    except ValueError:
        grouped()


def as_syntax() -> None:
    compile("a b", "user.py", "exec")


NAMED = {
    plain: "ValueError: no",
    with_lines: "ValueError: no",
    with_a_note: "ValueError: no",
    with_a_hint: "squall_common.errors.SquallError: no",
    chained: "KeyError: 'key'",
    grouped: "ExceptionGroup: two (2 sub-exceptions)",
    because_of_a_group: "KeyError: 'key'",
    group_because_of_another: "ExceptionGroup: two (2 sub-exceptions)",
    as_syntax: "SyntaxError: invalid syntax",
}


@pytest.mark.parametrize("source", ["", *SOURCES])
@pytest.mark.parametrize("fail", NAMED, ids=lambda fail: fail.__name__)
def test_the_headline_names_the_error(fail: Callable[[], None], source: str) -> None:
    with pytest.raises(Exception) as caught:
        fail()
    text = "".join(traceback.format_exception(caught.value))
    assert headline(with_source(text, source)) == NAMED[fail]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", ""),
        ("\n", ""),
        ("no such package", "no such package"),
        (" indented\nmore", "indented"),
        (
            "StateDamagedError: a part is missing\nrestore it",
            "StateDamagedError: a part is missing",
        ),
        (RAISED.replace("\nValueError: no", ""), 'File "a.py", line 1, in f'),
    ],
)
def test_a_message_begins_with_its_headline(text: str, named: str) -> None:
    assert headline(text) == named
