"""Where reports go while Nimbus answers, refuses, hangs, or is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from squall_common.client.reporting import ReportSender, Way
from squall_common.cluster.store import ConnectionLostError
from squall_common.cluster.values import SumsReport, WorkerReport
from squall_common.daemon.clock import ManualClock
from squall_common.errors import NimbusConnectionError
from squall_common.topology.model import Executor, WorkerSlot
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError
from squall_thrift.codec import to_bytes
from squall_thrift.protocol.messages import ApplicationErrorType

SLOT = WorkerSlot("sup-a", 6700)
REPORT = WorkerReport("wc-1-1", SLOT, (Executor(1, 2),), 1_700_000_000, (7, 3), b"beat")


class Nimbus:
    """Stands for all Nimbus nodes: connections to the leader, and what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.connected = 0
        self.closed = 0
        self.away: Exception | None = None
        self.fails: list[Exception] = []
        self.hangs = False
        self.watched: dict[str, float] = {}
        self.nodes: dict[WorkerSlot, bytes] = {}
        self.zookeeper_away = False

    async def connect(self) -> Nimbus:
        if self.away is not None:
            raise self.away
        self.connected += 1
        return self

    async def call(self, method: str, *args: Any) -> dict[str, float]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise self.fails.pop(0)
        self.calls.append((method, args[0]))
        return self.watched

    async def close(self) -> None:
        self.closed += 1

    async def write(self, report: WorkerReport) -> None:
        if self.zookeeper_away:
            raise ConnectionLostError("away")
        self.nodes[report.slot] = report.heartbeat

    def sender(self, clock: ManualClock, **more: Any) -> ReportSender:
        return ReportSender(self.connect, self.write, clock=clock, **more)


@pytest.fixture
def nimbus() -> Nimbus:
    return Nimbus()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def refusal() -> ThriftApplicationError:
    return ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, "not the leader")


async def test_a_supervisor_sends_the_reports_of_its_workers_in_one_call(nimbus, clock) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a")
    other = replace(REPORT, slot=WorkerSlot("sup-a", 6701), topology_id="other-2-1")
    assert await sender.send([REPORT, other]) is Way.NIMBUS
    assert await sender.send([REPORT]) is Way.NIMBUS
    assert nimbus.connected == 1
    method, sent = nimbus.calls[0]
    assert method == "sendSupervisorWorkerHeartbeats"
    assert sent.supervisor_id == "sup-a"
    first, second = sent.worker_heartbeats
    assert (first.storm_id, first.port, first.report) == ("wc-1-1", 6700, b"beat")
    assert (first.assignment_zxid, first.launch, first.time_secs) == (7, 3, 1_700_000_000)
    assert first.executors == [storm.ExecutorInfo(task_start=1, task_end=2)]
    assert (second.storm_id, second.port) == ("other-2-1", 6701)
    assert nimbus.nodes == {}
    await sender.close()
    assert nimbus.closed == 1


async def test_a_supervisor_learns_which_topologies_are_watched(nimbus, clock) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a")
    other = replace(REPORT, slot=WorkerSlot("sup-a", 6701), topology_id="other-2-1")
    nimbus.watched = {"wc-1-1": 0.25}
    await sender.send([REPORT, other])
    assert sender.watched == {"wc-1-1": 0.25}
    nimbus.watched = {}
    await sender.send([other])
    assert sender.watched == {"wc-1-1": 0.25}  # of which this call said nothing
    await sender.send([REPORT])
    assert sender.watched == {}
    nimbus.watched = {"wc-1-1": 0.25}
    await sender.send([REPORT])
    nimbus.away, nimbus.fails = NimbusConnectionError("refused"), [NimbusConnectionError("ended")]
    await sender.send([REPORT])
    assert sender.watched == {}


async def test_a_nimbus_that_knows_of_no_watchers_takes_reports_too(nimbus, clock) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a")
    nothing = ThriftApplicationError(ApplicationErrorType.MISSING_RESULT, "returned nothing")
    nimbus.fails = [nothing]
    assert await sender.send([REPORT]) is Way.NIMBUS
    assert nimbus.nodes == {}


async def test_a_worker_alone_names_its_slot_and_ends_with_its_topology(nimbus, clock) -> None:
    sender = nimbus.sender(clock)
    assert await sender.send([REPORT]) is Way.NIMBUS
    method, sent = nimbus.calls[0]
    assert method == "sendSupervisorWorkerHeartbeat"
    assert (sent.supervisor_id, sent.port) == ("sup-a", 6700)
    nimbus.fails = [storm.NotAliveException(msg="wc-1-1 is not alive")]
    assert await sender.send([REPORT]) is Way.NIMBUS
    assert nimbus.nodes == {}


async def test_a_new_leader_is_found_at_once(nimbus, clock) -> None:
    sender = nimbus.sender(clock)
    await sender.send([REPORT])
    for failure in (NimbusConnectionError("it ended"), refusal()):
        nimbus.fails = [failure]
        assert await sender.send([REPORT]) is Way.NIMBUS
    assert nimbus.connected == 3
    assert nimbus.nodes == {}


async def test_reports_go_to_zookeeper_while_nimbus_is_away_and_no_longer(nimbus, clock) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a")
    nimbus.away = NimbusConnectionError("refused")
    for second in range(40):
        beat = bytes([second])
        assert await sender.send([replace(REPORT, heartbeat=beat)]) is Way.ZOOKEEPER
        assert nimbus.nodes[SLOT] == beat
        clock.advance(1)
    nimbus.away = None
    for _ in range(11):  # the longest pause between two attempts
        if await sender.send([REPORT]) is Way.NIMBUS:
            break
        clock.advance(1)
    assert sender.way is Way.NIMBUS
    nimbus.nodes.clear()
    assert await sender.send([REPORT]) is Way.NIMBUS
    assert nimbus.nodes == {}


async def test_a_nimbus_that_hangs_delays_a_report_by_no_more_than_its_deadline(
    nimbus, clock
) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a", answer_secs=0.05)
    await sender.send([REPORT])
    nimbus.hangs = True
    async with asyncio.timeout(5):
        assert await sender.send([REPORT]) is Way.ZOOKEEPER
        # It is left alone for a while.
        nimbus.hangs = False
        assert await sender.send([REPORT]) is Way.ZOOKEEPER
    clock.advance(1.1)
    assert await sender.send([REPORT]) is Way.NIMBUS


async def test_with_both_away_nothing_is_raised(nimbus, clock) -> None:
    sender = nimbus.sender(clock)
    nimbus.away, nimbus.zookeeper_away = NimbusConnectionError("refused"), True
    assert await sender.send([REPORT]) is Way.NOWHERE
    nimbus.zookeeper_away = False
    assert await sender.send([REPORT]) is Way.ZOOKEEPER


async def test_large_reports_travel_alone_and_absurd_ones_without_their_heartbeat(
    nimbus, clock
) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a", call_bytes_max=600_000)
    sizes = (60_000, 60_000, 60_000, 500_000, 700_000, 10)
    reports = [
        replace(REPORT, slot=WorkerSlot("sup-a", 6700 + i), heartbeat=bytes(size))
        for i, size in enumerate(sizes)
    ]
    assert await sender.send(reports) is Way.NIMBUS
    sent = [[len(one.report or b"") for one in call.worker_heartbeats] for _, call in nimbus.calls]
    assert sent == [[60_000, 60_000], [60_000], [500_000], [0, 10]]
    assert nimbus.calls[3][1].worker_heartbeats[0].executors  # it is alive all the same


async def test_a_nimbus_that_takes_little_gets_no_more_in_one_call(nimbus, clock) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a", call_bytes_max=65_536)
    reports = [
        replace(REPORT, slot=WorkerSlot("sup-a", 6700 + i), heartbeat=bytes(20_000))
        for i in range(5)
    ]
    assert await sender.send(reports) is Way.NIMBUS
    assert [len(to_bytes(call)) < 65_536 for _, call in nimbus.calls] == [True, True]


async def test_thousands_of_executors_are_listed_by_the_heartbeat_alone(nimbus, clock) -> None:
    sender = nimbus.sender(clock, supervisor_id="sup-a")
    many = tuple(Executor(task, task) for task in range(1, 2_001))
    await sender.send([replace(REPORT, executors=many)])
    await sender.send([replace(REPORT, executors=many, heartbeat=b"")])
    assert [len(c.worker_heartbeats[0].executors) for _, c in nimbus.calls] == [0, 2_000]


async def test_sums_travel_over_the_connection_that_takes_reports_and_are_never_kept(
    nimbus: Nimbus,
) -> None:
    clock = ManualClock()
    sender = nimbus.sender(clock, supervisor_id="sup-a", call_bytes_max=50_000)
    sums = [
        SumsReport("wc-1-1", WorkerSlot("sup-a", port), (7, 3), b"s" * 20_000) for port in range(3)
    ]
    await sender.send_sums(sums)
    assert nimbus.calls == []
    nimbus.watched = {"wc-1-1": 1.5}
    await sender.send([REPORT])
    await sender.send_sums(sums)
    batches = [call[1].worker_heartbeats for call in nimbus.calls[1:]]
    assert [[beat.port for beat in batch] for batch in batches] == [[0, 1], [2]]
    assert all(beat.sums and beat.report is None for batch in batches for beat in batch)
    assert sender.watched == {"wc-1-1": 1.5}
    nimbus.fails = [NimbusConnectionError("lost")]
    await sender.send_sums(sums)
    assert nimbus.closed == 1
    assert nimbus.nodes == {}
    assert await sender.send([REPORT]) is Way.NIMBUS
