"""A node whose processes are stopped until its work runs elsewhere, and that wakes up then."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.devcluster import ROOT, DevCluster, is_alive, wait_for

pytestmark = pytest.mark.integration

QUICK = [
    "storm.zookeeper.session.timeout=4000",
    "supervisor.worker.timeout.secs=4",
    "nimbus.task.timeout.secs=6",
    "nimbus.task.launch.secs=6",
    "nimbus.monitor.freq.secs=1",
    "task.heartbeat.frequency.secs=1",
]
# What was under way when the node was stopped may be finished. A busy worker does 800 a second.
FINISHED_MAX = 100


def test_a_worker_that_wakes_up_after_its_work_was_moved_executes_nothing_more(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()

    def done(pid: int) -> int:
        path = notes / str(pid)
        return path.stat().st_size if path.exists() else 0

    with DevCluster.start(tmp_path, supervisors=2, slots=1, overrides=QUICK) as cluster:
        package = ROOT / "tests" / "topologies" / "sleeper"
        cluster.storm("jar", package, "sleeper_topology.py", "sleeper", str(notes))
        (sleeper,) = cluster.worker_pids(1)
        wait_for("it works", lambda: done(sleeper) > 500, 60)
        supervisor = int(Path(f"/proc/{sleeper}/stat").read_text().rsplit(")", 1)[1].split()[1])
        asleep = [supervisor, sleeper]
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        try:
            (successor,) = wait_for("a successor", lambda: cluster.worker_pids() - {sleeper}, 60)
            wait_for("the successor works", lambda: done(successor) > 100, 60)
            before = done(sleeper)
        finally:
            for pid in asleep:
                os.kill(pid, signal.SIGCONT)
        wait_for("the sleeper is gone", lambda: not is_alive(sleeper), 60)
        assert done(sleeper) - before <= FINISHED_MAX
        assert is_alive(successor)
        cluster.kill("sleeper")
