"""The heartbeat thread, on real time but waiting for conditions only."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from squall_common.cluster.values import (
    ExecutorStats,
    SpoutStats,
    WorkerDrained,
    WorkerHeartbeat,
)
from squall_common.daemon.clock import SystemClock
from squall_common.topology.model import Executor
from squall_common.worker_files.heartbeat_file import Phase, read_heartbeat
from squall_worker.report.heartbeats import HeartbeatThread
from squall_worker.report.statistics import StatsReport


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_beats_carry_phase_pid_and_turn_age_and_go_on_while_the_loop_is_stuck(
    tmp_path: Path,
) -> None:
    path = tmp_path / "heartbeat"
    reports: list[float] = []
    ages = iter([0.0, 1.5])
    thread = HeartbeatThread(
        path, beat_secs=0.01, report_secs=0.05, turn_age_secs=lambda: next(ages, 7.25),
        report=lambda: reports.append(time.monotonic()),
    )  # fmt: skip
    thread.start()
    wait_until(lambda: (beat := read_heartbeat(path)) is not None and beat.turn_age_ms == 7250)
    beat = read_heartbeat(path)
    assert beat is not None
    assert (beat.pid, beat.phase) == (os.getpid(), Phase.STARTING)
    assert reports == []
    thread.enter(Phase.RUNNING)
    wait_until(lambda: len(reports) >= 3)
    # The first at once, the others no earlier than at multiples of the period.
    assert int(reports[0] / 0.05) < int(reports[1] / 0.05) < int(reports[2] / 0.05)
    later = read_heartbeat(path)
    assert later is not None
    assert later.phase is Phase.RUNNING
    assert later.monotonic_ns > beat.monotonic_ns
    thread.enter(Phase.STOPPING)
    wait_until(lambda: (beat := read_heartbeat(path)) is not None and beat.phase is Phase.STOPPING)
    thread.stop()
    assert "heartbeats" not in {t.name for t in threading.enumerate()}


def test_a_disk_without_room_for_the_file_is_reported_at_the_start() -> None:
    """What a full disk says: the thread has not begun, and nothing stays open."""
    before = len(os.listdir("/proc/self/fd"))
    thread = HeartbeatThread(
        Path("/dev/full"), beat_secs=0.01, report_secs=0.01, turn_age_secs=lambda: 0.0,
        report=lambda: None,
    )  # fmt: skip
    with pytest.raises(OSError, match="No space left"):
        thread.start()
    thread.enter(Phase.STOPPING)
    thread.stop()
    assert "heartbeats" not in {t.name for t in threading.enumerate()}
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_report_that_fails_is_logged_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def report() -> None:
        calls.append(1)
        raise OSError("no store")

    thread = HeartbeatThread(
        tmp_path / "heartbeat", beat_secs=0.01, report_secs=0.01, turn_age_secs=lambda: 0.0,
        report=report,
    )  # fmt: skip
    thread.start()
    thread.enter(Phase.RUNNING)
    wait_until(lambda: len(calls) >= 2)
    thread.stop()
    assert "heartbeat_report_failed" in caplog.text


def test_a_look_that_fails_is_logged_and_beats_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def look() -> None:
        calls.append(1)
        raise RuntimeError("can't start new thread")

    thread = HeartbeatThread(
        tmp_path / "heartbeat", beat_secs=0.01, report_secs=60.0, turn_age_secs=lambda: 0.0,
        report=lambda: None, look=look,
    )  # fmt: skip
    thread.start()
    wait_until(lambda: len(calls) >= 2)
    thread.stop()
    assert "heartbeat_look_failed" in caplog.text


def test_a_report_can_be_asked_for_and_may_shorten_the_time_to_the_next(tmp_path: Path) -> None:
    calls: list[int] = []

    def report() -> float | None:
        calls.append(1)
        return 0.01 if len(calls) < 4 else None

    thread = HeartbeatThread(
        tmp_path / "heartbeat", beat_secs=0.01, report_secs=3600, turn_age_secs=lambda: 0.0,
        report=report,
    )  # fmt: skip
    thread.start()
    thread.enter(Phase.RUNNING)
    wait_until(lambda: len(calls) == 4)
    thread.report_soon()
    wait_until(lambda: len(calls) == 5)
    thread.stop()


async def test_only_a_drain_that_was_seen_now_is_reported() -> None:
    drained = WorkerDrained(9, "1-1", 5)
    clock = SystemClock()
    report = StatsReport(
        "wc-1-1", [], dict, loop=asyncio.get_running_loop(), clock=clock, began=clock.monotonic(),
        drained=lambda: drained,
    )  # fmt: skip
    assert (await asyncio.to_thread(report.heartbeat)).drained == drained
    beats: list[WorkerHeartbeat] = []
    thread = threading.Thread(target=lambda: beats.append(report.heartbeat()))
    thread.start()
    thread.join()  # the loop is stuck meanwhile
    assert beats[0].drained is None


async def test_the_stores_failure_is_reported_until_it_is_gone() -> None:
    failure: list[str | None] = ["No space left on device"]
    clock = SystemClock()
    report = StatsReport(
        "wc-1-1", [], dict, loop=asyncio.get_running_loop(), clock=clock, began=clock.monotonic(),
        store_failure=lambda: failure[0],
    )  # fmt: skip
    assert (await asyncio.to_thread(report.heartbeat)).store_failure == failure[0]
    failure[0] = None
    assert (await asyncio.to_thread(report.heartbeat)).store_failure is None


async def test_a_stuck_loop_reports_its_last_statistics() -> None:
    spout, bolt = Executor(1, 1), Executor(2, 3)
    emitted = [1]

    def stats() -> dict[Executor, ExecutorStats]:
        return {spout: ExecutorStats(SpoutStats(), emitted={":all-time": {"default": emitted[0]}})}

    clock = SystemClock()
    report = StatsReport(
        "wc-1-1", [spout, bolt], stats, loop=asyncio.get_running_loop(), clock=clock,
        began=clock.monotonic(),
    )  # fmt: skip
    beat = await asyncio.to_thread(report.heartbeat)
    assert beat.topology_id == "wc-1-1"
    assert beat.executor_stats == {spout: stats()[spout], bolt: None}
    emitted[0] = 2
    # This thread is the loop's: a call from another while we block it finds the loop stuck.
    thread = threading.Thread(target=lambda: beats.append(report.heartbeat()))
    beats: list[object] = []
    thread.start()
    thread.join()
    assert beats[0].executor_stats == beat.executor_stats  # type: ignore[attr-defined]
    fresh = await asyncio.to_thread(report.heartbeat)
    assert fresh.executor_stats[spout] == stats()[spout]
