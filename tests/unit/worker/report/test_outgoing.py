"""When a worker leaves its reports to its supervisor, and when it reports alone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from squall_common.client.reporting import ReportSender
from squall_common.cluster.values import WorkerReport
from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.report_file import REPORT_FILE, read_report
from squall_worker.report.outgoing import AloneThread, OutgoingReports, patience_secs

PERIOD_SECS = 3.0


def report(time_secs: int) -> WorkerReport:
    slot = WorkerSlot("sup-a", 6700)
    return WorkerReport("wc-1-1", slot, (Executor(1, 1),), time_secs, (7, 1), b"beat")


class Alone:
    def __init__(self) -> None:
        self.sent: list[int] = []
        self.rested = 0

    def send(self, report: WorkerReport) -> None:
        self.sent.append(report.time_secs)

    def rest(self) -> None:
        self.rested += 1

    def stop(self) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def outgoing(tmp_path: Path, clock: ManualClock, alone: Alone) -> OutgoingReports:
    return OutgoingReports(tmp_path, period_secs=PERIOD_SECS, clock=clock, alone=alone)


def test_reports_are_left_to_a_supervisor_that_takes_them(
    tmp_path: Path, outgoing, alone, clock
) -> None:
    for number in range(20):
        outgoing.report(report(number))
        found = read_report(tmp_path)
        assert found is not None
        assert found.time_secs == number
        (tmp_path / REPORT_FILE).unlink()  # the supervisor
        clock.advance(PERIOD_SECS)
    assert alone.sent == []


def test_a_worker_reports_alone_while_its_reports_lie_there(
    tmp_path: Path, outgoing, alone, clock
) -> None:
    for number in range(5):
        outgoing.report(report(number))
        clock.advance(PERIOD_SECS)
    assert alone.sent == [2, 3, 4]  # after 5.5 s
    (tmp_path / REPORT_FILE).unlink()
    outgoing.report(report(5))
    assert (alone.sent, alone.rested) == ([2, 3, 4], 1)
    clock.advance(PERIOD_SECS)
    outgoing.report(report(6))  # late once: that happens
    assert alone.sent == [2, 3, 4]


def test_a_worker_is_silent_for_less_than_the_session_timeout() -> None:
    """Else Nimbus would move the workers of a node whose supervisor has died."""
    for period_secs in (1.0, 3.0, 6.0):
        late = period_secs * (1 + int(patience_secs(period_secs) / period_secs))
        assert period_secs + late + 1.0 < 20.0


def test_a_worker_on_a_full_disk_reports_alone(tmp_path: Path, clock, alone) -> None:
    folder = tmp_path / "gone"
    outgoing = OutgoingReports(folder, period_secs=PERIOD_SECS, clock=clock, alone=alone)
    outgoing.report(report(1))
    assert alone.sent == [1]
    folder.mkdir()
    outgoing.report(report(2))
    assert alone.sent == [1]


def test_reports_are_sent_on_a_thread_one_at_a_time(clock) -> None:
    begun, go_on, hanging = threading.Event(), threading.Event(), threading.Event()
    sent: list[tuple[int, str]] = []

    class Sender:
        async def send(self, reports: list[WorkerReport]) -> None:
            sent.append((reports[0].time_secs, threading.current_thread().name))
            begun.set()
            go_on.wait(10)
            if hanging.is_set():
                await asyncio.Event().wait()
            if reports[0].time_secs == 3:
                raise OSError("unexpected")

        async def close(self) -> None:
            closed.set()

    closed = threading.Event()
    made: list[ReportSender] = []

    def make() -> ReportSender:
        made.append(Sender())  # type: ignore[arg-type]
        return made[0]

    alone = AloneThread(make)
    alone.rest()
    alone.stop()  # it has never begun
    alone.send(report(1))
    assert begun.wait(10)
    alone.send(report(2))  # one is under way
    go_on.set()
    for number in (3, 4):
        begun.clear()
        while not begun.is_set():
            alone.send(report(number))
            begun.wait(0.01)
    alone.rest()
    assert closed.wait(10)
    hanging.set()
    begun.clear()
    alone.send(report(5))
    assert begun.wait(10)
    alone.stop()  # it does not wait for one that hangs
    assert [number for number, _ in dict.fromkeys(sent)] == [1, 3, 4, 5]
    assert {name for _, name in sent} == {"report alone"}
    assert len(made) == 1
    assert "report alone" not in {thread.name for thread in threading.enumerate()}


def test_a_process_that_may_have_no_more_threads_tries_again_with_the_next_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = threading.Event()

    class Sender:
        async def send(self, reports: list[WorkerReport]) -> None:
            sent.set()

        async def close(self) -> None:
            pass

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    alone = AloneThread(Sender)  # type: ignore[arg-type]
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            alone.send(report(1))
    alone.send(report(2))
    assert sent.wait(10)
    alone.stop()
