"""Windows in words, out of what is stored of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from squall_common.state.stored_windows import StoredWindows, WaitingTuple, windows_in


def decode(data: bytes) -> list[list[Any]]:
    try:
        found: list[list[Any]] = msgspec.msgpack.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    return found


def entry(plan: str, *tuples: list[Any]) -> bytes:
    data = msgspec.msgpack.encode([[1, f"WindowPlan({plan})", tuples, b"12345"]])
    return msgspec.msgpack.encode([[data, [["words", 3, 2], ["lines", 5, 1]]]])


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("length_count=3, slide_count=3, key=()", "tumbling windows of 3 tuples"),
        (
            "length_count=3, slide_count=1, key=('a', 'b')",
            "windows of 3 tuples every 1 tuple by a, b",
        ),
        ("length_ms=500, slide_ms=500, key=('a',)", "tumbling windows of 0.5 s by a"),
        ("length_ms=60000, slide_count=10", "windows of 60 s every 10 tuples"),
        ("gap_ms=1500, slide_ms=None", "sessions with a gap of 1.5 s"),
    ],
)
def test_a_plan_in_words(plan: str, words: str) -> None:
    found = windows_in("$windows", entry(plan), decode)
    assert found == StoredWindows(words, [], 5)
    assert repr(found) == f"<{words}: 0 tuples, 5 bytes more>"


def test_tuples_have_the_names_of_their_components() -> None:
    rows = [[4, "default", ["x", 1]], [5, "late", [2]], [6, "default", [3]]]
    found = windows_in(("$windows", 7), entry("gap_ms=1", *rows), decode)
    assert found is not None
    assert found.tuples == [
        WaitingTuple("words", "default", ["x", 1]),
        WaitingTuple("lines", "late", [2]),
        WaitingTuple(None, "default", [3]),
    ]
    assert repr(found).endswith(": 3 tuples, 5 bytes more: ['x', 1], [2], [3]>")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("words", entry("gap_ms=1")),
        (("$windows",), entry("gap_ms=1")),
        ("$windows", "text"),
        ("$windows", b"\xc1"),
        ("$windows", msgspec.msgpack.encode([[1, 2, 3]])),
        ("$windows", msgspec.msgpack.encode([[b"", []]])),
        ("$windows", entry("gap_ms=")),  # no Python
        ("$windows", entry("gap_ms=print()")),  # that would be executed
        ("$windows", entry("gap_ms='long'")),
        ("$windows", entry("gap_ms=1", [1])),
    ],
)
def test_anything_else_is_not_an_entry_of_windows(key: Any, value: Any) -> None:
    assert windows_in(key, value, decode) is None
