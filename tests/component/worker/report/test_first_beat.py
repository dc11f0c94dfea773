"""The first heartbeats of a real worker process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from squall_common.worker_files.heartbeat_file import Phase, read_heartbeat


def test_nothing_of_ours_is_imported_before_the_first_beat() -> None:
    code = (
        "import sys, squall_worker.report.first_beat\n"
        "print(sorted(name for name in sys.modules if name.startswith('squall')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    ours = ["squall_worker", "squall_worker.report", "squall_worker.report.first_beat"]
    assert printed.strip() == str(ours)


def test_a_worker_that_hangs_at_its_launch_file_has_beaten(tmp_path: Path) -> None:
    """It waits for a pipe that nothing is written to: the very first thing that can take long."""
    launch_file = tmp_path / "launch.json"
    os.mkfifo(launch_file)
    arguments = ["words-1-1", "sup", "6700", "w", str(launch_file)]
    with subprocess.Popen([sys.executable, "-m", "squall_worker", *arguments]) as worker:
        try:
            deadline = time.monotonic() + 20
            while (beat := read_heartbeat(tmp_path / "heartbeat")) is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            worker.kill()
    assert (beat.pid, beat.phase) == (worker.pid, Phase.STARTING)
