"""Rows that are remembered together."""

from __future__ import annotations

from squall_common.component.columns.shared_rows import shared_rows


def test_every_row_is_found_by_its_key() -> None:
    keys = [f"k{number}" for number in range(200)]
    columns = [list(range(200)), [str(number) for number in range(200)]]
    found = {key: rows for some, rows in shared_rows(columns, keys) for key in some}
    columns[0].clear()  # their owner goes on using them
    assert list(found) == keys
    assert [found[key].row(key) for key in keys] == [[n, str(n)] for n in range(200)]


def test_few_rows_are_kept_for_the_sake_of_one() -> None:
    groups = [some for some, _ in shared_rows([list(range(1_000))], range(1_000))]
    assert max(map(len, groups)) <= 64
    assert [key for some in groups for key in some] == list(range(1_000))


def test_no_rows_are_nothing() -> None:
    assert list(shared_rows([], [])) == []
