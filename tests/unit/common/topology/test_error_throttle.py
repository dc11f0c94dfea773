"""Errors of a component that fails all the time."""

from __future__ import annotations

from squall_common.topology.error_throttle import ErrorThrottle


def test_a_component_passes_up_to_the_limit_in_an_interval() -> None:
    throttle = ErrorThrottle(limit=2, secs=10)
    assert [throttle.passes("a", t) for t in (0, 1, 2, 9.9)] == [True, True, False, False]
    assert throttle.passes("b", 2)
    assert throttle.components_missed() == ["a"]
    assert [throttle.passes("a", t) for t in (10, 10, 10)] == [True, True, False]
    assert throttle.take_missed("a") == 3
    assert throttle.missed("a") == 0
