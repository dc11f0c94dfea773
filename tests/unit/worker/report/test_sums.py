"""The sums by component that a worker lays out while its topology is watched."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from squall_common.daemon.clock import SystemClock
from squall_common.telemetry.sums import ComponentSums, decode_sums
from squall_common.worker_files.sums_file import take_sums
from squall_worker.report.sums import SumsReport


class Counting:
    """A worker whose only component counts up with each reading."""

    def __init__(self, folder: Path) -> None:
        self.readings = 0
        clock = SystemClock()
        self.report = SumsReport(
            folder,
            self._read,
            loop=asyncio.get_running_loop(),
            clock=clock,
            began=clock.monotonic(),
        )

    def _read(self) -> dict[str, ComponentSums]:
        self.readings += 1
        return {"split": ComponentSums(executed=self.readings)}


async def test_they_are_read_once_a_period(tmp_path: Path) -> None:
    one = Counting(tmp_path)
    rest = await asyncio.to_thread(one.report.report, 60.0)
    assert 50.0 < rest <= 60.0
    assert 50.0 < await asyncio.to_thread(one.report.report, 60.0) <= 60.0
    found = take_sums(tmp_path)
    assert found is not None
    assert decode_sums(found).components == {"split": ComponentSums(executed=1)}
    assert one.readings == 1


async def test_a_stuck_loop_has_done_nothing_since(tmp_path: Path) -> None:
    one = Counting(tmp_path)
    await asyncio.to_thread(one.report.report, 0.0)
    first = decode_sums(take_sums(tmp_path) or b"")
    # This thread is the loop's: it is stuck while we wait.
    while True:
        thread = threading.Thread(target=one.report.report, args=(0.0,))
        thread.start()
        thread.join()
        if (found := take_sums(tmp_path)) is not None:
            break
    later = decode_sums(found)
    assert later.components == first.components
    assert later.stats_ms > first.stats_ms


async def test_a_loop_that_was_stuck_reads_once_for_all_that_it_has_missed(tmp_path: Path) -> None:
    one = Counting(tmp_path)
    for _ in range(3):  # this thread is the loop's
        thread = threading.Thread(target=one.report.report, args=(0.0,))
        thread.start()
        thread.join()
        one.report._next_read = 0.0
    assert one.readings == 0
    for _ in range(3):
        await asyncio.sleep(0)  # all that waits for the loop
    assert one.readings == 1


async def test_a_folder_that_takes_none_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Counting(tmp_path / "gone")
    for _ in range(3):
        await asyncio.to_thread(one.report.report, 0.0)
        one.report._next_read = 0.0
    assert caplog.text.count("sums_not_written") == 1
