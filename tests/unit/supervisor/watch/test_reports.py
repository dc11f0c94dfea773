"""How a supervisor passes its workers' reports on."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall_common.client.reporting import Way
from squall_common.cluster.values import SumsReport, WorkerReport
from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_common.worker_files.report_file import REPORT_FILE, has_report, write_report
from squall_common.worker_files.sums_file import SUMS_FILE, write_sums
from squall_common.worker_files.watch_file import Pace, read_watch
from squall_supervisor.watch.reports import WorkerReports


class Sender:
    def __init__(self) -> None:
        self.sent: list[Sequence[WorkerReport]] = []
        self.sums: list[SumsReport] = []
        self.way = Way.NIMBUS
        self.watched: dict[str, float] = {}
        self.has_questions = False

    async def send(self, reports: Sequence[WorkerReport]) -> Way:
        self.sent.append(reports)
        return self.way

    async def send_sums(self, sums: Sequence[SumsReport]) -> None:
        self.sums += sums

    async def close(self) -> None:
        pass


def runner(worker_id: str, topology_id: str) -> Any:
    return SimpleNamespace(
        process=SimpleNamespace(worker_id=worker_id),
        incarnation=Incarnation(17, 4),
        slot=SimpleNamespace(
            assignment=SimpleNamespace(topology_id=topology_id, executors=(Executor(1, 2),))
        ),
    )


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runners() -> dict[int, Any]:
    idle = runner("w3", "x-1-1")
    idle.process = None
    return {6700: runner("w1", "a-1-1"), 6701: runner("w2", "b-2-1"), 6702: idle}


@pytest.fixture
def reports(
    tmp_path: Path, sender: Sender, clock: ManualClock, runners: dict[int, Any]
) -> WorkerReports:
    for worker_id in ("w1", "w2"):
        (tmp_path / worker_id).mkdir()
    return WorkerReports(
        runners,
        sender,  # type: ignore[arg-type]
        supervisor_id="sup-a",
        workers_dir=tmp_path,
        period_secs=3.0,
        clock=clock,
    )


async def test_reports_are_sent_as_what_the_supervisor_started_and_then_removed(
    tmp_path: Path, reports, sender
) -> None:
    await reports.look()
    assert sender.sent == []
    write_report(tmp_path / "w1", 100, b"one")
    write_report(tmp_path / "w2", 101, b"two")
    await reports.look()
    executors = (Executor(1, 2),)
    slots = [WorkerSlot("sup-a", port) for port in (6700, 6701)]
    assert sender.sent == [
        [
            WorkerReport("a-1-1", slots[0], executors, 100, (17, 4), b"one"),
            WorkerReport("b-2-1", slots[1], executors, 101, (17, 4), b"two"),
        ]
    ]
    await reports.look()
    assert len(sender.sent) == 1


@pytest.mark.parametrize(
    ("way", "stays"), [(Way.NIMBUS, False), (Way.ZOOKEEPER, False), (Way.NOWHERE, True)]
)
async def test_a_report_stays_until_it_was_delivered(
    tmp_path: Path, reports, sender, way: Way, stays: bool
) -> None:
    sender.way = way
    write_report(tmp_path / "w1", 100, b"one")
    await reports.look()
    assert has_report(tmp_path / "w1") is stays


async def test_a_worker_of_a_watched_topology_is_let_know_as_long_as_it_is_watched(
    tmp_path: Path, reports, sender, clock
) -> None:
    w1, w2 = tmp_path / "w1", tmp_path / "w2"

    async def report() -> None:
        for folder in (w1, w2):
            write_report(folder, 100, b"beat")
        await reports.look()

    await report()
    assert read_watch(w1, clock.monotonic()) is None
    sender.watched = {"a-1-1": 0.25}
    for _ in range(10):
        await report()
        assert read_watch(w1, clock.monotonic()) == Pace(0.25)
        assert read_watch(w2, clock.monotonic()) is None
        clock.advance(2.0)
    sender.watched = {}
    await report()
    assert read_watch(w1, clock.monotonic()) == Pace(0.25)
    clock.advance(8.0)
    assert read_watch(w1, clock.monotonic()) is None


async def test_of_thousands_of_small_workers_none_reports_more_often(
    tmp_path: Path, reports, sender, clock
) -> None:
    sender.watched = {"a-1-1": 8.5}
    write_report(tmp_path / "w1", 100, b"beat")
    await reports.look()
    assert read_watch(tmp_path / "w1", clock.monotonic()) is None


async def test_a_large_worker_that_is_watched_reports_sums_which_are_passed_on(
    tmp_path: Path, reports, sender, runners, clock
) -> None:
    runners[6700].slot.assignment.executors = tuple(Executor(n, n) for n in range(1, 1001))
    sender.watched = {"a-1-1": 8.5}
    w1, w2 = tmp_path / "w1", tmp_path / "w2"
    write_report(w1, 100, b"beat")
    await reports.look()
    assert read_watch(w1, clock.monotonic()) == Pace(8.5, 0.25)
    assert reports._pause_secs() == pytest.approx(0.25 / 3)
    write_sums(w1, b"sums")
    write_sums(w2, b"of what is not watched")
    await reports.look()
    await reports.look()
    assert sender.sums == [SumsReport("a-1-1", WorkerSlot("sup-a", 6700), (17, 4), b"sums")]
    assert (w2 / SUMS_FILE).exists()
    (w1 / SUMS_FILE).write_bytes(b"damaged")
    await reports.look()
    assert len(sender.sums) == 1


async def test_reports_of_watched_topologies_are_looked_for_more_often(
    tmp_path: Path, reports, sender
) -> None:
    sender.watched = {"a-1-1": 0.25}
    running = asyncio.create_task(reports.run())
    began = time.monotonic()
    while len(sender.sent) < 12:
        write_report(tmp_path / "w1", len(sender.sent), b"beat")
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < 20
    running.cancel()
    # (Six looks a period, which is 3 s, would have taken six seconds.)
    assert time.monotonic() - began < 5.5


async def test_a_topology_that_has_ended_is_not_looked_for_any_more(
    reports: WorkerReports, sender: Sender
) -> None:
    """Nimbus said that it is watched, and says nothing of it since."""
    sender.watched = {"ended-9-9": 0.25}
    assert reports._pause_secs() == 0.5
    sender.watched = {"ended-9-9": 0.25, "a-1-1": 0.3}
    assert reports._pause_secs() == pytest.approx(0.1)


async def test_what_one_worker_puts_there_does_not_concern_the_others(
    tmp_path: Path, reports, sender, caplog
) -> None:
    os.mkfifo(tmp_path / "w1" / REPORT_FILE)
    for number in range(3):
        write_report(tmp_path / "w2", number, b"two")
        await reports.look()
    assert [[one.time_secs for one in sent] for sent in sender.sent] == [[0], [1], [2]]
    assert caplog.text.count("report_not_read") == 1
