"""How many tuples a spout may emit in a turn."""

from __future__ import annotations

import pytest

from squall_engine.backpressure.turn_size import TurnSize


def size_after(size: TurnSize, *turns: float, used: bool = True, crowded: bool = False) -> int:
    for secs in turns:
        before = size.now
        assert size.ended(secs, used=used, crowded=crowded) == (size.now != before)
    return size.now


@pytest.mark.parametrize(
    ("edges", "least", "most"), [(2, 512, 512), (300, 512, 1_200), (1_000, 1_000, 4_000)]
)
def test_the_size_is_for_the_edges(edges: int, least: int, most: int) -> None:
    size = TurnSize(edges, 0.04)
    assert size.now == least
    assert size_after(size, 0.01, 0.01, 0.01, 0.01) == most


def test_a_larger_turn_must_be_expected_to_end_in_time() -> None:
    size = TurnSize(1_000, 0.04)
    assert size_after(size, 0.021) == 1_000
    assert size_after(size, 0.020) == 2_000
    assert size_after(size, 0.040) == 2_000
    assert size_after(size, 0.041) == 1_000
    assert size_after(size, 0.041) == 1_000  # as many as before, whatever the bolts take


def test_what_is_not_used_does_not_grow() -> None:
    assert size_after(TurnSize(1_000, 0.04), 0.001, 0.001, used=False) == 1_000


def test_a_full_inbox_makes_turns_small_again() -> None:
    size = TurnSize(1_000, 0.04)
    assert size_after(size, 0.001, 0.001) == 4_000
    assert size_after(size, 0.001, crowded=True) == 2_000
    assert size_after(size, 0.001, 0.001, crowded=True) == 1_000
