"""The ledger finds what it is there for: faults are put into the product (`tests/support/bugs`),
and a test that passed then would prove nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.bugs import bug_environment
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, TuplesLost, text
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.chaos


def test_a_spout_that_mistakes_fails_for_acks_is_detected(tmp_path: Path) -> None:
    """What a killed worker took with it counts as done: words are missing at the end."""
    conf = {
        "topology.max.spout.pending": 200,
        "topology.environment": bug_environment("fails are acks"),
    }
    with Ledger(text(200_000)) as ledger, DevCluster.start(tmp_path, slots=2) as cluster:
        ledger.pace(1000)
        submit_ledger(cluster, ledger, workers=2, conf=conf)
        ledger.wait_done(100, timeout_secs=60)
        for _ in range(10):
            victim = min(cluster.worker_pids(2))  # the older one: each in turn
            os.kill(victim, signal.SIGKILL)
            wait_for("it to be gone", lambda v=victim: v not in cluster.worker_pids())
            ledger.wait_done(ledger.done + 500, timeout_secs=60)
            if ledger.account()["lost"]:
                break
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=60)
        with pytest.raises(TuplesLost):
            ledger.check()
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")
