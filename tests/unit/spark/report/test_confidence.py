"""What a sample of keys can tell."""

from __future__ import annotations

import random

from squall_spark.report.confidence import is_hot, wilson


def test_one_sample_of_eleven_is_noise() -> None:
    assert not is_hot(1, 11)
    assert not is_hot(9, 1_000_000), "too few samples of the key"
    assert not is_hot(90, 99), "too few samples"
    assert is_hot(60, 100)
    assert not is_hot(12, 1_000), "it may well be less than one in a hundred"
    assert is_hot(25, 1_000)


def test_the_share_is_in_the_range_nineteen_times_of_twenty() -> None:
    chance = random.Random(7)
    hits = 0
    for _ in range(1_000):
        n = sum(chance.random() < 0.05 for _ in range(200))
        low, high = wilson(n, 200)
        assert 0 <= low <= n / 200 <= high <= 1
        hits += low <= 0.05 <= high
    assert hits >= 930


def test_without_samples_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
