from __future__ import annotations

import pytest

from squall_connectors.base.backoff import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)
    longest = [backoff.secs(attempt, 0.999999) for attempt in range(1, 7)]
    assert longest == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0], rel=1e-4)


def test_a_wait_is_at_least_half_of_its_range() -> None:
    assert Backoff(0.1, 1.0).secs(3, 0.0) == pytest.approx(0.2)
    assert all(0.5 <= Backoff(1.0, 1.0).secs(1) <= 1.0 for _ in range(100))


def test_any_number_of_attempts_is_possible() -> None:
    assert Backoff(0.1, 5.0).secs(100_000, 0.0) == 2.5


@pytest.mark.parametrize(("first", "longest"), [(0, 1), (-1, 1), (2, 1)])
def test_waits_that_cannot_be_are_refused(first: float, longest: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Backoff(first, longest)
