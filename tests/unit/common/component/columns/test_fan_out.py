"""Counts that read as the list of origins they stand for."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.component.columns.fan_out import FanOut

places = st.one_of(st.none(), st.integers(-12, 12))
slices = st.builds(slice, places, places, places.filter(lambda step: step != 0))


def expanded(counts: list[int]) -> list[int]:
    return [row for row, count in enumerate(counts) for _ in range(count)]


@given(st.lists(st.integers(0, 4), max_size=6), slices, st.integers(0, 7))
def test_it_reads_as_the_list_of_origins(counts: list[int], part: slice, row: int) -> None:
    fan_out, origins = FanOut(counts), expanded(counts)
    assert len(fan_out) == len(origins)
    assert list(fan_out) == origins
    assert list(reversed(fan_out)) == origins[::-1]
    assert [fan_out[place] for place in range(len(origins))] == origins
    assert [fan_out[~place] for place in range(len(origins))] == origins[::-1]
    assert fan_out[part] == origins[part]
    assert fan_out.count(row) == origins.count(row)
    assert (row in fan_out) == (row in origins)
    if row in origins:
        assert fan_out.index(row) == origins.index(row)
    assert bool(fan_out) == bool(origins)


@pytest.mark.parametrize("place", [3, -4])
def test_a_place_beyond_the_tuples_is_an_index_error(place: int) -> None:
    with pytest.raises(IndexError):
        FanOut([2, 0, 1])[place]


def test_later_changes_of_the_list_change_nothing() -> None:
    counts = [1, 2]
    fan_out = FanOut(counts)
    counts[:] = [5]
    assert fan_out.counts == (1, 2)
    assert list(fan_out) == [0, 1, 1]


def test_any_iterable_of_counts_will_do() -> None:
    assert FanOut(map(len, ["ab", "", "c"])) == FanOut([2, 0, 1])


def test_it_equals_only_the_same_counts() -> None:
    assert FanOut([2, 0]) == FanOut((2, 0))
    assert hash(FanOut([2, 0])) == hash(FanOut((2, 0)))
    others: list[Any] = [FanOut([2]), FanOut([0, 2]), [0, 0], (2, 0)]
    assert all(FanOut([2, 0]) != other for other in others)


def test_it_shows_its_counts_and_is_copied_with_them() -> None:
    fan_out = FanOut([2, 0, 1])
    assert repr(fan_out) == "FanOut([2, 0, 1])"
    assert fan_out[2] == 2
    for other in (copy.deepcopy(fan_out), pickle.loads(pickle.dumps(fan_out))):
        assert other == fan_out
        assert list(other) == [0, 0, 2]
