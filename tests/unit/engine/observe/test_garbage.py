"""The time that Python's garbage collector took."""

from __future__ import annotations

import gc
import time

from squall_engine.observe.garbage import Collections


def test_a_collection_is_part_of_the_time_in_which_it_was() -> None:
    seen = Collections()
    try:
        began = time.perf_counter()
        many = [[number] for number in range(300_000)]
        before = time.perf_counter()
        gc.collect()
        after = time.perf_counter()
        taken = seen.secs_of_last(time.perf_counter() - before)
        assert 0.5 * (after - before) < taken <= after - before
        assert seen.secs_of_last(time.perf_counter() - after) == 0.0
        assert taken <= seen.secs_of_last(time.perf_counter() - began) <= after - began
        assert len(many) == 300_000
    finally:
        gc.callbacks.remove(seen.seen)


def test_a_collection_counts_as_far_as_it_is_in_the_time() -> None:
    seen = Collections()
    gc.callbacks.remove(seen.seen)
    seen.seen("start", {})
    time.sleep(0.05)
    seen.seen("stop", {})
    assert 0.0 < seen.secs_of_last(0.01) <= 0.011
    assert seen.secs_of_last(10.0) >= 0.05


def test_short_ones_are_not_noted() -> None:
    seen = Collections()
    gc.callbacks.remove(seen.seen)
    for _ in range(1_000):
        seen.seen("start", {})
        seen.seen("stop", {})
    assert seen.secs_of_last(10.0) < 0.1
