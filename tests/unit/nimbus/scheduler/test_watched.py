"""Which topologies somebody looks at, and how often their workers report meanwhile."""

from __future__ import annotations

from squall_nimbus.scheduler.watched import WatchedTopologies


def test_only_what_is_watched_reports_more_often_and_not_for_long() -> None:
    watched = WatchedTopologies(lambda _: 16)
    assert watched.periods({"a", "b"}, 100.0) == {}
    watched.watch("a", 100.0)
    assert watched.periods({"a", "b"}, 105.9) == {"a": 0.25}
    watched.watch("a", 105.9)
    assert watched.periods({"a", "b"}, 110.0) == {"a": 0.25}
    assert watched.periods({"a", "b"}, 112.0) == {}


def test_the_more_is_watched_the_less_often_it_reports() -> None:
    """A page of thousands of executors must not keep Nimbus busy."""
    watched = WatchedTopologies({"small": 100, "large": 5_000}.__getitem__)
    watched.watch("small", 100.0)
    assert watched.periods({"small"}, 100.0) == {"small": 0.25}
    watched.watch("large", 100.0)
    found = watched.periods({"small", "large"}, 100.0)
    assert found == dict.fromkeys(("small", "large"), 8.5)
    assert watched.periods({"small"}, 100.0) == {"small": 8.5}


def test_their_number_is_bounded() -> None:
    watched = WatchedTopologies(lambda _: 1)
    names = [f"t-{number}" for number in range(200)]
    for name in names:
        watched.watch(name, 100.0)
    assert len(watched.periods(names, 101.0)) == 100
    watched.watch("later", 110.0)
    assert watched.periods(["later", *names], 110.0) == {"later": 0.25}
