"""How large values are at least."""

from __future__ import annotations

from typing import Any

import pytest

from squall_engine.core.codec import ValueCodec
from squall_engine.dataflow.large import bytes_at_least


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1, None, 2.5, True],
        ["x" * 100, b"y" * 1_000],
        [["x" * 100] * 50, {"key": "value" * 30}],
        [{"a": [1, (2, "three")]}],
        [list(range(50_000))],
        ["ünïcödé" * 20],
    ],
)
def test_it_is_never_more_than_the_encoded_values_have(values: list[Any]) -> None:
    assert bytes_at_least(values) <= len(ValueCodec().encode_row(values))


def test_large_values_are_found_where_they_are() -> None:
    large = b"x" * 1_000_000
    for values in ([large], [1, [2, {"key": [large]}]], [("a", large)]):
        assert bytes_at_least(values) > 1_000_000


def test_a_bounded_number_is_looked_at() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert bytes_at_least(endless) <= 10_001
    assert bytes_at_least([[["x" * 1_000] * 1_000_000]]) < 12_000_000
