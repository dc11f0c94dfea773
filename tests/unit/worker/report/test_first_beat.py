"""A worker beats before it imports anything of size, so that its supervisor can watch its start."""

from __future__ import annotations

import os
import time
from pathlib import Path

from squall_common.worker_files.heartbeat_file import HeartbeatWriter, Phase, read_heartbeat
from squall_worker.report.first_beat import FirstBeats


def test_the_first_beats_are_heartbeats_and_outlive_the_change_of_the_writer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "heartbeat"
    beats = FirstBeats(str(path), beat_secs=0.005)
    first = read_heartbeat(path)
    assert first is not None
    assert (first.pid, first.phase, first.turn_age_ms) == (os.getpid(), Phase.STARTING, 0)
    deadline = time.monotonic() + 10
    while (later := read_heartbeat(path)) is None or later.monotonic_ns == first.monotonic_ns:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    beats.stop()
    last = read_heartbeat(path)
    writer = HeartbeatWriter(path)
    assert last is not None
    assert read_heartbeat(path) == last
    writer.close()


def test_a_folder_that_cannot_take_the_file_does_not_cause_a_failure(tmp_path: Path) -> None:
    FirstBeats(str(tmp_path / "gone" / "heartbeat")).stop()
