"""The heartbeats that workers report to the leader, on paper: whose count, and what is kept."""

from __future__ import annotations

import gzip
import threading
from dataclasses import replace

import pytest

from squall_common.cluster import codec, paths
from squall_common.cluster.slot_reports import digest
from squall_common.cluster.state import UndecodedBeat
from squall_common.cluster.values import (
    Assignment,
    HeardWorker,
    SumsReport,
    TopologyHeartbeats,
    WorkerEnd,
    WorkerHeartbeat,
    WorkerReport,
)
from squall_common.daemon.clock import ManualClock
from squall_common.telemetry.sums import SUMS_BYTES_MAX
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.heartbeats import (
    TOPOLOGY_SUMS_BYTES_MAX,
    WRITE_SECS,
    Heartbeats,
    ReportedEnd,
    launched,
    plain_bytes_max,
)
from squall_nimbus.scheduler.monitor import Monitor

ID = "wc-1-1"
E1, E2 = Executor(1, 1), Executor(2, 2)
SLOT, OTHER = WorkerSlot("node-a", 6700), WorkerSlot("node-b", 6700)
PORTS = {"node-a": {6700}, "node-b": {6700}}
PLACEMENT = {E1: SLOT, E2: OTHER}


def report(
    slot: WorkerSlot = SLOT,
    *executors: Executor,
    time_secs: int = 1,
    run: tuple[int, int] = (7, 1),
    beat: bytes = b"beat",
    topology_id: str = ID,
) -> WorkerReport:
    return WorkerReport(topology_id, slot, executors or (E1,), time_secs, run, beat)


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor(task_timeout_secs=45, launch_secs=120, session_timeout_secs=20)
    monitor.resume(0)
    monitor.observe(ID, PLACEMENT, {}, 0)
    return monitor


@pytest.fixture
def heartbeats(monitor: Monitor) -> Heartbeats:
    return Heartbeats(monitor)


def data(heartbeats: Heartbeats, now: float = 0.0, node: bytes | None = None) -> bytes:
    """The heartbeat that is shown for SLOT; `node`: the one in ZooKeeper."""
    nodes = {} if node is None else {SLOT: UndecodedBeat("", node)}
    return heartbeats.merged(ID, nodes, now)[SLOT].data


def test_a_report_keeps_the_executors_of_its_slot_alive(monitor, heartbeats) -> None:
    for now in range(0, 200, 3):
        assert heartbeats.take(report(time_secs=now), now)
    assert monitor.dead(ID, PORTS, 200) == {E2}  # never seen
    assert monitor.dead(ID, PORTS, 198 + 44.9) == {E2}
    assert monitor.dead(ID, PORTS, 198 + 45) == {E1, E2}


def test_the_same_heartbeat_again_is_not_a_sign_of_life(monitor, heartbeats) -> None:
    """A worker whose heartbeat thread is stuck, and a supervisor that repeats what it has."""
    for now in range(50):
        heartbeats.take(report(time_secs=5), now)
    assert monitor.dead(ID, PORTS, 50) == {E1}


@pytest.mark.parametrize(
    "wrong",
    [
        report(OTHER, E1),  # not its slot
        report(WorkerSlot("node-a", 6701), E1),
        report(SLOT, E2),
        report(topology_id="other-2-2"),
        report(topology_id="../storms"),
    ],
)
def test_a_worker_reports_only_for_what_it_was_given(monitor, heartbeats, wrong) -> None:
    assert not heartbeats.take(wrong, 1)
    assert heartbeats.reports(wrong.topology_id) == []
    assert monitor.dead(ID, PORTS, 120) == {E1, E2}


def test_a_worker_that_was_replaced_is_not_listened_to(heartbeats) -> None:
    assert heartbeats.take(report(run=(7, 2), beat=b"new"), 1)
    assert not heartbeats.take(report(run=(7, 1), beat=b"old", time_secs=2), 2)
    assert data(heartbeats) == b"new"
    assert heartbeats.take(report(run=(8, 3), beat=b"newer"), 3)
    assert data(heartbeats) == b"newer"


def test_a_made_up_run_does_not_silence_a_worker_forever(heartbeats) -> None:
    heartbeats.take(report(run=(2**62, 1), beat=b"made up"), 0)
    assert not heartbeats.take(report(time_secs=2), 9)
    assert heartbeats.take(report(time_secs=3), 10)
    assert data(heartbeats) == b"beat"


def test_statistics_that_unfold_to_too_much_are_left_out_but_the_worker_lives(
    monitor, heartbeats
) -> None:
    bomb = gzip.compress(bytes(plain_bytes_max(1) + 1))
    assert len(bomb) < 2_000
    assert heartbeats.take(report(beat=bomb), 100)
    assert heartbeats.merged(ID, {}, 100) == {}
    assert monitor.dead(ID, PORTS, 120) == {E2}
    assert plain_bytes_max(10**9) == codec.UNZIPPED_BYTES_MAX


def test_a_bomb_that_lies_about_its_size_is_refused_before_it_unfolds() -> None:
    bomb = gzip.compress(bytes(20_000_000))
    lie = bomb[:-4] + (100).to_bytes(4, "little")
    with pytest.raises(codec.CorruptStateError, match="more than"):
        codec.decode_heartbeat("/p", lie)


def test_the_newer_of_two_heartbeats_is_shown(heartbeats) -> None:
    """A worker that does not reach Nimbus for a while writes to ZooKeeper."""
    assert heartbeats.merged(ID, {SLOT: UndecodedBeat("", b"node")}, 0)[SLOT].data == b"node"
    heartbeats.take(report(beat=b"reported"), 100)
    assert data(heartbeats, 105, node=b"node") == b"reported"
    assert data(heartbeats, 110, node=b"node") == b"node"
    assert data(heartbeats, 110) == b"reported"
    beat = heartbeats.merged(ID, {}, 105)[SLOT]
    assert beat.path == paths.workerbeat(ID, SLOT)


def _node(zxid: int):
    return {SLOT: (WorkerHeartbeat(ID, {E1: None}, 1, 1), zxid)}


def test_a_node_that_its_worker_no_longer_writes_is_superseded(heartbeats) -> None:
    assert heartbeats.superseded(ID, _node(5), 0) == set()  # nobody reports: an older version
    heartbeats.take(report(), 1)
    assert heartbeats.superseded(ID, _node(6), 10) == set()
    assert heartbeats.superseded(ID, _node(7), 20) == set()  # it is still written
    assert heartbeats.superseded(ID, _node(7), 30) == set()  # and nothing was reported since
    heartbeats.take(report(time_secs=2), 31)
    assert heartbeats.superseded(ID, _node(7), 40) == {SLOT}


def test_the_node_of_a_topology_is_written_at_most_once_in_a_while(heartbeats) -> None:
    assert heartbeats.due(ID, 1_000, 0) is None  # nothing is known
    heartbeats.take(report(run=(7, 4)), 1)
    assert heartbeats.due(ID, 1_000, 3) == TopologyHeartbeats(
        1_000, (HeardWorker(SLOT, digest((E1,)), 2, (7, 4)),)
    )
    heartbeats.take(report(run=(7, 4), time_secs=2), 4)
    assert heartbeats.due(ID, 1_030, 3 + WRITE_SECS - 0.1) is None
    assert heartbeats.due(ID, 1_030, 3 + WRITE_SECS) is not None
    assert heartbeats.due(ID, 1_060, 3 + 2 * WRITE_SECS) is None  # nothing was heard since


def test_what_the_leader_writes_is_read_by_the_next() -> None:
    written = TopologyHeartbeats(5, (HeardWorker(SLOT, digest((E1,)), 2, (7, 4)),))
    data = codec.encode_topology_heartbeats(written)
    assert codec.decode_topology_heartbeats("/p", data) == written
    assert launched(written, Assignment("", executor_slot=PLACEMENT)) == {SLOT}
    # The slot has got other executors since: they may not have been launched.
    moved = Assignment("", executor_slot={E1: SLOT, E2: SLOT})
    assert launched(written, moved) == set()


def test_a_thousand_workers_take_little_room() -> None:
    workers = tuple(
        HeardWorker(WorkerSlot(f"4a1a5b9e-{node:04d}", 6700 + port), 2**31 + node, 1, (7, 4))
        for node in range(100)
        for port in range(10)
    )
    assert len(codec.encode_topology_heartbeats(TopologyHeartbeats(5, workers))) < 10_000


def test_workers_of_other_slots_and_topologies_are_forgotten(heartbeats) -> None:
    heartbeats.take(report(), 1)
    heartbeats.take(report(OTHER, E2), 1)
    heartbeats.keep(ID, {OTHER})
    assert [one.slot for one in heartbeats.reports(ID)] == [OTHER]
    heartbeats.forget_others({"x-1-1"})
    assert heartbeats.reports(ID) == []


def test_a_new_leader_gives_workers_that_reported_the_task_timeout() -> None:
    """Without what the last leader wrote they would count as not launched yet."""
    monitor = Monitor(task_timeout_secs=45, launch_secs=120, session_timeout_secs=20)
    monitor.resume(100)
    monitor.observe(ID, PLACEMENT, {}, 100, launched={SLOT})
    assert monitor.dead(ID, PORTS, 144.9) == set()
    assert monitor.dead(ID, PORTS, 145) == {E1}
    assert monitor.dead(ID, PORTS, 220) == {E1, E2}


def test_a_stop_of_nimbus_itself_counts_for_nobody() -> None:
    monitor = Monitor(task_timeout_secs=45, launch_secs=120, session_timeout_secs=20)
    monitor.resume(0)
    monitor.observe(ID, PLACEMENT, {}, 0, launched={SLOT, OTHER})
    assert not monitor.awake(1000, 0)
    for second in range(1, 40, 5):
        assert not monitor.awake(1000 + second, second)  # it is only slow
    assert monitor.awake(1100, 100)
    assert monitor.dead(ID, PORTS, 144.9) == set()
    assert monitor.dead(ID, PORTS, 145) == {E1, E2}
    monitor.pause()
    assert monitor.awake(1200, 200)
    assert monitor.dead(ID, PORTS, 900) == set()  # no verdict while it is not connected


def test_sums_are_those_of_the_worker_that_is_heard_and_not_for_long(heartbeats) -> None:
    def sums(data: bytes | None, run: tuple[int, int] = (7, 1)) -> SumsReport:
        return SumsReport(ID, SLOT, run, data)

    assert not heartbeats.take_sums(sums(b"one"), 0)
    assert heartbeats.sums(ID, 0) == []
    heartbeats.take(report(), 0)
    assert heartbeats.sums(ID, 0) == [sums(None)]
    assert heartbeats.take_sums(sums(b"one"), 1)
    assert not heartbeats.take_sums(sums(b"other", (8, 1)), 1)
    assert not heartbeats.take_sums(sums(b"x" * (SUMS_BYTES_MAX + 1)), 1)
    assert heartbeats.sums(ID, 1) == [sums(None)]
    assert heartbeats.take_sums(sums(b"one"), 1)
    heartbeats.take(report(time_secs=2), 2)
    assert heartbeats.sums(ID, 10) == [sums(b"one")]
    assert heartbeats.sums(ID, 11) == [sums(None)]
    heartbeats.take(report(time_secs=3, run=(8, 1)), 3)
    assert heartbeats.sums(ID, 3) == [sums(None, (8, 1))]


def test_the_sums_of_a_topology_have_a_bound_that_its_workers_share(monitor, heartbeats) -> None:
    count = 4 * (TOPOLOGY_SUMS_BYTES_MAX // SUMS_BYTES_MAX)
    slots = [WorkerSlot("node-a", 6700 + port) for port in range(count)]
    executors = [Executor(task, task) for task in range(1, count + 1)]
    monitor.observe(ID, dict(zip(executors, slots, strict=True)), {}, 0)
    for slot, executor in zip(slots, executors, strict=True):
        assert heartbeats.take(report(slot, executor), 0)
    share = SUMS_BYTES_MAX // 4
    for slot in slots:
        assert not heartbeats.take_sums(SumsReport(ID, slot, (7, 1), b"x" * (share + 1)), 1)
    assert all(one.sums is None for one in heartbeats.sums(ID, 1))
    for slot in slots:
        assert heartbeats.take_sums(SumsReport(ID, slot, (7, 1), b"x" * share), 1)
    kept = sum(len(one.sums or b"") for one in heartbeats.sums(ID, 1))
    assert kept == TOPOLOGY_SUMS_BYTES_MAX


def test_sums_are_no_sign_of_life(monitor, heartbeats) -> None:
    heartbeats.take(report(), 0)
    for now in range(1, 60):
        heartbeats.take_sums(SumsReport(ID, SLOT, (7, 1), b"%d" % now), now)
    assert monitor.dead(ID, PORTS, 60) == {E1}


async def test_the_end_of_sources_is_read_once_from_each_report(
    heartbeats: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    beat = WorkerHeartbeat(ID, {E1: None}, 1, 60, rest_ms=500, says_end=True)
    heartbeats.take(report(beat=codec.encode_heartbeat(beat)), clock.monotonic())
    heartbeats.take(report(OTHER, E2, beat=b"damaged"), clock.monotonic())
    clock.advance(2.0)
    expected = {
        SLOT: ReportedEnd(2.0, WorkerEnd(500, says_end=True)),
        OTHER: ReportedEnd(2.0, WorkerEnd()),
    }
    assert await heartbeats.ends([ID, "another"], clock) == {ID: expected, "another": {}}
    with monkeypatch.context() as patched:
        patched.setattr(codec, "decode_worker_end", None)
        assert await heartbeats.ends([ID], clock) == {ID: expected}
    later = replace(beat, rest_ms=None)
    heartbeats.take(report(beat=codec.encode_heartbeat(later)), clock.monotonic())
    found = await heartbeats.ends([ID], clock)
    assert found[ID][SLOT] == ReportedEnd(0.0, WorkerEnd(None, says_end=True))


@pytest.mark.parametrize(("size", "on_loop"), [(100_000, True), (100_001, False)])
async def test_the_end_in_large_heartbeats_is_read_off_the_loop(
    heartbeats: Heartbeats, monkeypatch: pytest.MonkeyPatch, size: int, on_loop: bool
) -> None:
    readers: list[int] = []

    def read(path: str, data: bytes) -> WorkerEnd:
        readers.append(threading.get_ident())
        return WorkerEnd()

    monkeypatch.setattr(codec, "decode_worker_end", read)
    heartbeats.take(report(beat=b"x" * size), 0.0)
    await heartbeats.ends([ID], ManualClock())
    (reader,) = readers
    assert (reader == threading.get_ident()) is on_loop
