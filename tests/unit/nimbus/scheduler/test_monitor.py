"""Which executors are dead, on paper: times are seconds on Nimbus' own clock."""

import pytest

from squall_common.cluster.values import WorkerHeartbeat
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.monitor import Monitor

E1, E2 = Executor(1, 1), Executor(2, 2)
SLOT = WorkerSlot("node-a", 6700)
OTHER = WorkerSlot("node-b", 6700)
THERE = {"node-a", "node-b"}
PORTS = {6700, 6701}
PLACEMENT = {E1: SLOT, E2: OTHER}


def beat(zxid: int, *executors: Executor) -> tuple[WorkerHeartbeat, int]:
    """A heartbeat that transaction `zxid` wrote. The worker's clock stands still."""
    return WorkerHeartbeat("wc-1-1", dict.fromkeys(executors), 1_700_000_000, 0), zxid


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor(task_timeout_secs=45, launch_secs=120, session_timeout_secs=20)
    monitor.resume(0)
    return monitor


def observe(monitor: Monitor, now: float, *, e1: int | None = None, e2: int | None = None) -> None:
    beats = {}
    if e1 is not None:
        beats[SLOT] = beat(e1, E1)
    if e2 is not None:
        beats[OTHER] = beat(e2, E2)
    monitor.observe("wc-1-1", PLACEMENT, beats, now)


def dead(monitor: Monitor, now: float, there: set[str] = THERE) -> frozenset[Executor]:
    return monitor.dead("wc-1-1", dict.fromkeys(there, PORTS), now)


def test_an_executor_without_new_heartbeats_is_dead_after_the_task_timeout(monitor) -> None:
    observe(monitor, 0, e1=100, e2=100)
    observe(monitor, 10, e1=110, e2=110)
    observe(monitor, 54, e1=110, e2=150)
    assert dead(monitor, 54.9) == frozenset()
    assert dead(monitor, 55) == {E1}


def test_a_launched_executor_has_the_launch_timeout_until_its_first_heartbeat(monitor) -> None:
    monitor.put("wc-1-1", PLACEMENT, {E1, E2}, {}, 0)
    observe(monitor, 60, e2=1)
    assert dead(monitor, 104.9) == frozenset()
    assert dead(monitor, 105) == {E2}  # beat once, then stood still
    assert dead(monitor, 120) == {E1, E2}


def test_the_heartbeat_of_an_earlier_worker_on_the_slot_does_not_count(monitor) -> None:
    monitor.put("wc-1-1", PLACEMENT, {E1}, {SLOT: beat(99, E1)}, 0)
    observe(monitor, 10, e1=99, e2=1)
    assert E1 in dead(monitor, 120)


def test_a_worker_that_does_not_run_the_executor_does_not_keep_it_alive(monitor) -> None:
    monitor.put("wc-1-1", PLACEMENT, {E1}, {}, 0)
    for now in range(0, 130, 10):
        monitor.observe("wc-1-1", PLACEMENT, {SLOT: beat(now, E2)}, now)
    assert E1 in dead(monitor, 120)


def test_a_lost_supervisor_shortens_even_the_launch_timeout(monitor) -> None:
    monitor.put("wc-1-1", PLACEMENT, {E1, E2}, {}, 0)
    assert dead(monitor, 19.9, {"node-b"}) == frozenset()
    assert dead(monitor, 20, {"node-b"}) == {E1}


def test_workers_of_a_supervisor_that_is_only_away_are_left_alone(monitor) -> None:
    for now in range(0, 600, 10):
        observe(monitor, now, e1=now, e2=now)
        assert dead(monitor, now, {"node-b"}) == frozenset()


def test_nothing_is_dead_while_nimbus_is_not_connected(monitor) -> None:
    observe(monitor, 0, e1=1, e2=1)
    monitor.pause()
    assert dead(monitor, 1_000, set()) == frozenset()


def test_a_reconnection_grants_one_full_timeout(monitor) -> None:
    observe(monitor, 0, e1=1, e2=1)
    monitor.pause()
    monitor.resume(1_000)
    assert dead(monitor, 1_019, {"node-b"}) == frozenset()
    assert dead(monitor, 1_020, {"node-b"}) == {E1}
    assert dead(monitor, 1_044) == frozenset()
    assert dead(monitor, 1_045) == {E1, E2}


def test_a_new_leader_grants_the_launch_timeout_to_executors_without_a_heartbeat(monitor) -> None:
    monitor.resume(500)
    observe(monitor, 505, e2=1)
    assert dead(monitor, 550) == {E2}
    assert dead(monitor, 625) == {E1, E2}


def test_heartbeats_over_thrift_count(monitor) -> None:
    observe(monitor, 0, e1=1, e2=1)
    monitor.heard("wc-1-1", "node-a", {E1, E2}, 77, 40)  # E2 is not on node-a
    assert dead(monitor, 50) == {E2}
    monitor.heard("wc-1-1", "node-a", {E1}, 77, 80)  # the same one again is no new sign
    observe(monitor, 80, e1=1, e2=1)
    assert dead(monitor, 85) == {E1, E2}


def test_a_forgotten_topology_is_no_longer_watched(monitor) -> None:
    observe(monitor, 0, e1=1, e2=1)
    monitor.forget("wc-1-1")
    assert dead(monitor, 1_000) == frozenset()
    assert monitor.topologies() == set()


def test_a_port_that_its_supervisor_no_longer_offers_is_dead_at_once(monitor: Monitor) -> None:
    """Rule (c): nothing will ever run there again."""
    observe(monitor, 1, e1=5, e2=5)
    assert monitor.dead("wc-1-1", {"node-a": {9999}, "node-b": PORTS}, 2) == {E1}
