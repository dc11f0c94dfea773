"""Workers that move and restart under load, by a user's own commands: nothing is lost, and what is
restarted well fails nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import found
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.integration

CONF = {
    "topology.max.spout.pending": 100,
    "topology.acker.executors": 1,  # one for all workers
    # Far above what anything here may take: whoever waits for it is seen.
    "topology.message.timeout.secs": 300,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("moves")
    # A restart needs no profiler.
    quiet = ["worker.profiler.enabled=false"]
    with DevCluster.start(folder, supervisors=2, slots=2, overrides=quiet) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_topology_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()


def test_rebalances_from_two_workers_to_four_to_one_with_tuples_in_flight(
    cluster: DevCluster,
) -> None:
    """Lines flow all the time; each move ends when every task has worked again. The name has a
    blank, as Storm allows it."""
    name = "my ledger"
    with Ledger(text(200_000)) as ledger:
        ledger.pace(400)
        submit_ledger(cluster, ledger, name=name, workers=2, conf=CONF)
        cluster.worker_pids(2)
        ledger.wait_done(100, timeout_secs=60)
        for workers, changes in ((4, ("-e", "split=4")), (1, ())):
            cluster.storm("rebalance", name, "-w", "0", "-n", str(workers), *changes)
            cluster.worker_pids(workers)
            wait_for("ACTIVE", lambda: cluster.topologies()[name]["status"] == "ACTIVE")
            wait_for("its workers", lambda n=workers: cluster.topologies()[name]["workers"] == n)
            ledger.watch(16)
            ledger.wait_watched(60)
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=60)
        ledger.check()
    assert found(cluster.data_dir, f"workers-artifacts/{name}-*/*/worker.log")


def test_a_graceful_restart_fails_nothing(cluster: DevCluster) -> None:
    """`storm rolling-restart`: one worker after the other drains and comes back while the other
    sends to it."""
    with Ledger(text(200_000)) as ledger:
        ledger.pace(400)
        # An acker a worker, as by default: a spout's messages are acked by its own worker.
        conf = {**CONF, "topology.acker.executors": 2}
        submit_ledger(cluster, ledger, workers=2, conf=conf)
        cluster.worker_pids(2)
        ledger.wait_done(100, timeout_secs=60)
        before = cluster.worker_pids(2)
        turns = json.loads(cluster.storm("rolling-restart", "ledger", "--json").stdout)
        assert [(turn["topology"], turn["result"]) for turn in turns] == [
            ("ledger", "restarted"),
            ("ledger", "restarted"),
        ]
        wait_for("two others", lambda: len(cluster.worker_pids() - before) == 2)
        ledger.watch(16)
        ledger.wait_watched(60)
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=60)
        ledger.check()
        assert ledger.fails == 0
