"""Refused rows are found by halves, and told with their fields."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from squall import InvalidTopologyError, RowBatch
from squall_connectors.base import refused
from squall_connectors.base.refused import Refused

WHY = ValueError("too\0long")


def found_in(
    count: int, bad: Collection[int], most: int = 1_000
) -> tuple[list[int], list[int], int]:
    """The rows that were written, in that order, the refused ones, and the number of parts."""
    search, written, parts = refused.search(count, most), list[int](), 0
    try:
        part = next(search)
        while True:
            parts += 1
            rows = range(part.start, part.end)
            if any(row in bad for row in rows):
                part = search.send(WHY)
            else:
                written += rows
                part = search.send(None)
    except StopIteration as end:
        return written, [one.position for one in end.value], parts


@pytest.mark.parametrize(
    ("count", "bad"),
    [(0, ()), (1, ()), (1, (0,)), (7, (0,)), (7, (6,)), (8, (2, 3, 5)), (9, range(9)), (100, ())],
)
def test_all_rows_but_the_refused_ones_are_written_in_order(
    count: int, bad: Collection[int]
) -> None:
    written, found, _ = found_in(count, bad)
    assert (written, found) == ([row for row in range(count) if row not in bad], list(bad))


def test_one_row_of_many_costs_few_parts() -> None:
    assert found_in(1_024, [700])[1:] == ([700], 21)


def test_the_search_ends_with_the_last_that_may_be_refused() -> None:
    written, found, _ = found_in(1_000, range(1_000), most=3)
    assert (written, found) == ([], [0, 1, 2])


def test_a_refused_row_is_stored_as_plain_text() -> None:
    loop: list[object] = []
    loop.append(loop)
    batch = RowBatch("w@1/s/0", 7, [["a\0\ud800", {1}], [loop, 2]])
    first = refused.refused_values(batch, Refused(0, WHY), "t", ["word", "n"])
    assert first[:4] == ("w@1/s/0", 7, 0, "t")
    assert json.loads(first[4]) == {"word": "a\0\ud800", "n": "{1}"}
    assert first[5] == "ValueError: too\\0long"
    assert all(isinstance(text, str) and "\0" not in text and text.isascii() for text in first[3:])
    second = refused.refused_values(batch, Refused(1, WHY), "t", ["word", "n"])
    assert json.loads(second[4]) == {"word": "[[...]]", "n": "2"}


def test_the_errors_name_the_row_and_what_to_do() -> None:
    batch = RowBatch("w@1/s/0", 7, [["a", -1], ["x" * 1_000, 1]])
    held = refused.refused_error(batch, Refused(0, ValueError("n > 0")), "t", ["word", "n"])
    assert str(held).startswith(
        "table 't' refuses the row {'word': 'a', 'n': -1} of checkpoint 7: n > 0\n"
    )
    assert "refused_table" in str(held)
    pairs = [(batch, Refused(1, WHY)), (batch, Refused(0, WHY))]
    aside = str(refused.put_aside_error(pairs, "t", "bad", ["word", "n"]))
    assert aside.startswith("table 't' refused 2 rows, now in 'bad'; the first one is {'word': 'xx")
    assert len(aside) < 400


def test_a_table_does_not_take_its_own_refused_rows() -> None:
    assert refused.checked_table("Sink", "t", "bad") == "bad"
    for name in ("", "t"):
        with pytest.raises(InvalidTopologyError, match="Sink: refused_table is"):
            refused.checked_table("Sink", "t", name)
