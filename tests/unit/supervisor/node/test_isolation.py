"""When a node is cut off: each look is a call, time is a number."""

from __future__ import annotations

import pytest

from squall_supervisor.node.isolation import Isolation
from squall_supervisor.records.neighbours import Neighbours

SESSION_SECS = 20.0
TIMEOUT_SECS = 30.0
LOOK_SECS = 1.5


def _neighbours(count: int, *, supervisors: bool = True) -> Neighbours:
    return Neighbours(tuple((f"10.0.0.{i}", 6628) for i in range(count)), supervisors)


def _run(
    isolation: Isolation, *, start: float, secs: float, reached: int, heard_at: float | None
) -> float | None:
    """Look regularly; when the node became isolated. `heard_at` None: ZooKeeper answers."""
    now = start
    while now < start + secs:
        now += LOOK_SECS
        if isolation.look(now if heard_at is None else heard_at, now):
            isolation.probed(reached, now, now + 1.0)
        if isolation.isolated:
            return now
    return None


def _cluster(neighbours: Neighbours) -> Isolation:
    isolation = Isolation(TIMEOUT_SECS, SESSION_SECS, 0.0)
    isolation.neighbours = neighbours
    return isolation


def test_a_zookeeper_outage_alone_isolates_no_node() -> None:
    isolation = _cluster(_neighbours(4))
    assert _run(isolation, start=0, secs=3600, reached=4, heard_at=0) is None


def test_a_node_that_reaches_nothing_is_isolated_after_the_timeout() -> None:
    isolation = _cluster(_neighbours(4))
    at = _run(isolation, start=0, secs=3600, reached=0, heard_at=0)
    assert at is not None
    assert TIMEOUT_SECS <= at + 1 <= TIMEOUT_SECS + LOOK_SECS + 1


def test_neighbours_that_are_all_away_do_not_isolate_while_zookeeper_answers() -> None:
    isolation = _cluster(_neighbours(4))
    assert _run(isolation, start=0, secs=3600, reached=0, heard_at=None) is None


@pytest.mark.parametrize(
    ("others", "reached", "isolated"),
    [
        (1, 0, False),  # two halves: both run on
        (2, 0, True),
        (3, 1, False),  # 2 of 4
        (4, 1, True),  # cut off together with a minority's Nimbus: 2 of 5
        (4, 2, False),
        (30, 14, True),  # 15 of 31
        (30, 15, False),
    ],
)
def test_the_node_counts_itself_and_half_is_enough(
    others: int, reached: int, isolated: bool
) -> None:
    isolation = _cluster(_neighbours(others))
    at = _run(isolation, start=0, secs=100, reached=reached, heard_at=0)
    assert (at is not None) == isolated


def test_a_node_that_knows_no_other_supervisor_is_never_isolated() -> None:
    isolation = _cluster(_neighbours(3, supervisors=False))
    assert _run(isolation, start=0, secs=3600, reached=0, heard_at=0) is None


def test_time_in_which_the_node_itself_was_stopped_does_not_count() -> None:
    isolation = _cluster(_neighbours(4))
    assert _run(isolation, start=0, secs=20, reached=0, heard_at=0) is None
    # Stopped for an hour: the whole timeout begins anew.
    assert _run(isolation, start=3600, secs=27, reached=0, heard_at=0) is None
    assert _run(isolation, start=3627, secs=6, reached=0, heard_at=0) is not None


def test_looks_that_waited_for_probes_and_readings_do_not_count_as_a_pause() -> None:
    """Each look may wait a whole period for probes, or for ZooKeeper, which is silent."""
    isolation = _cluster(_neighbours(4))
    now = 0.0
    while not isolation.isolated:
        now += 2.5 * LOOK_SECS
        if isolation.look(0, now):
            isolation.probed(0, now, now)
        assert now <= TIMEOUT_SECS + 2.5 * LOOK_SECS


@pytest.mark.parametrize("healed_by", ["zookeeper", "neighbours"])
def test_zookeeper_or_enough_neighbours_end_the_isolation(healed_by: str) -> None:
    isolation = _cluster(_neighbours(4))
    at = _run(isolation, start=0, secs=100, reached=0, heard_at=0)
    assert at is not None
    now = at + LOOK_SECS
    if healed_by == "zookeeper":
        assert not isolation.look(now, now)
    else:
        assert isolation.look(0, now)
        isolation.probed(2, now, now)
    assert not isolation.isolated


def test_a_session_with_a_long_timeout_is_not_mistaken_for_silence() -> None:
    """An idle session gets an answer every third of its timeout, which may be longer than a
    worker's timeout."""
    isolation = Isolation(3.0, SESSION_SECS, 0.0)
    isolation.neighbours = _neighbours(4)
    now = 0.0
    for _ in range(600):
        now += 0.3
        heard_at = now - now % (SESSION_SECS / 3)
        assert not isolation.look(heard_at, now)
    assert not isolation.isolated
