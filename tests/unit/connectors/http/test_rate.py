from __future__ import annotations

import pytest

from squall_connectors.http.rate import RateLimit


def test_a_seconds_worth_may_come_at_once_and_the_rest_evenly() -> None:
    rate = RateLimit(10.0)
    waits = [rate.wait_secs(100.0) for _ in range(13)]
    assert waits[:10] == pytest.approx([0.0] * 10, abs=1e-9)
    assert waits[10:] == pytest.approx([0.1, 0.2, 0.3])


def test_time_that_was_not_used_is_not_saved_for_long() -> None:
    rate = RateLimit(10.0)
    rate.wait_secs(0.0)
    waits = [rate.wait_secs(1_000.0) for _ in range(12)]
    assert sum(wait == 0.0 for wait in waits) <= 11


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        RateLimit(0)
