"""Processes killed under load: an external ledger proves that nothing accepted is lost.

The ledger (`tests/support/ledger.py`) is the source and the sink: it keeps each line until its ack,
and records each word by its place. Duplicates are allowed, loss is not.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, text
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.chaos

# Few lines in flight: each kill meets some, and none waits long for its turn.
SLOWLY = {"topology.max.spout.pending": 50}


def test_every_word_is_recorded_although_the_only_worker_is_killed(tmp_path: Path) -> None:
    """One of two and of six is killed in test_cluster."""
    with Ledger(text(100_000)) as ledger, DevCluster.start(tmp_path, slots=2) as cluster:
        lines = len(ledger.lines)
        ledger.pace(lines / 20)
        submit_ledger(cluster, ledger, workers=1, conf=SLOWLY)
        for share in (10, 4, 2):
            ledger.wait_done(lines // share, timeout_secs=120)
            (victim,) = cluster.worker_pids(1)
            os.kill(victim, signal.SIGKILL)
            wait_for(
                "the killed worker to be back",
                lambda victim=victim: len(now := cluster.worker_pids()) == 1 and victim not in now,
            )
        assert ledger.done < lines, "all was done before the last kill"
        ledger.pace(None)
        ledger.wait_done(timeout_secs=180)
        ledger.check()
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")


def test_daemons_killed_and_started_again_disturb_no_worker(tmp_path: Path) -> None:
    with (
        Ledger(text(100_000)) as ledger,
        DevCluster.start(tmp_path, supervisors=2, slots=1) as cluster,
    ):
        ledger.serve_up_to(500)
        submit_ledger(cluster, ledger, workers=2, conf=SLOWLY)
        ledger.wait_done(500, timeout_secs=60)
        workers = cluster.worker_pids(2)
        for part in ("nimbus", "supervisor", "both"):
            state = cluster.state()
            victims = []
            if part in ("nimbus", "both"):
                victims.append(state["nimbus"]["pid"])
            if part in ("supervisor", "both"):
                victims += [s["pid"] for s in state["supervisors"]]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            served = ledger.done + 500
            ledger.serve_up_to(served)  # while they are away
            wait_for("the daemons to be back", lambda v=victims: _back(cluster, set(v)), 90)
            ledger.wait_done(served, timeout_secs=60)
            assert cluster.worker_pids() == workers
        ledger.serve_up_to(None)
        ledger.wait_done(timeout_secs=180)
        ledger.check()
        assert ledger.fails == 0
        assert ledger.duplicates() == 0
        assert cluster.worker_pids() == workers
        # The supervisors that came back are in charge of the workers that they found.
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")
        wait_for("the workers to end", lambda: not cluster.worker_pids(), 60)


def _back(cluster: DevCluster, killed: set[int]) -> bool:
    state = cluster.state()
    now = {state["nimbus"]["pid"], *(s["pid"] for s in state["supervisors"])}
    if None in now or now & killed:
        return False
    if cluster.storm("list", check=False).returncode != 0:
        return False
    return len(cluster.call("getClusterInfo").supervisors) == 2


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    """A worker that hangs (SIGSTOP) misses its heartbeats and is started anew in place."""
    quick = ["supervisor.worker.timeout.secs=3"]
    with (
        Ledger(text(50_000)) as ledger,
        DevCluster.start(tmp_path, slots=1, overrides=quick) as cluster,
    ):
        ledger.serve_up_to(200)
        submit_ledger(cluster, ledger, conf=SLOWLY)
        ledger.wait_done(100, timeout_secs=60)
        (victim,) = cluster.worker_pids(1)
        os.kill(victim, signal.SIGSTOP)
        wait_for(
            "a new worker",
            lambda: victim not in (now := cluster.worker_pids()) and len(now) == 1,
            60,
        )
        ledger.serve_up_to(None)
        ledger.wait_done(timeout_secs=120)
        ledger.check()
