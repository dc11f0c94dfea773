"""A random storm over a cluster under load: workers killed, frozen and asked to stop, rebalances
over one, two and four workers, supervisors killed; an external ledger proves that nothing accepted
is lost.

The seed is drawn for each run and printed with the faults and the recovery figures, and with
whatever fails. SQUALL_STORM_SEED repeats a run (as far as processes can),
SQUALL_STORM_SECS makes it longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.effort import STORM_SECS
from tests.support.ledger import Ledger, text
from tests.support.seeds import drawn_seed
from tests.support.submit import submit_ledger

from squall_thrift import storm as thrift

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(STORM_SECS + 450)]

LINES_PER_SEC = 200.0
# Twice the tasks of the largest component: all of them have worked on a watched line.
WATCHED = 8
# Nothing may wait for the message timeout, which is ten times this: what a fault took is failed
# and replayed as soon as it is known (R5), and a hung worker is replaced after 3 s.
RECOVERY_SECS_MAX = 60.0

FAULTS = {"kill": 5, "freeze": 1, "hang": 1, "stop": 2, "rebalance": 2, "supervisor": 1}

CONF = {
    "topology.max.spout.pending": 50,
    "topology.acker.executors": 1,  # one for all workers
    "topology.message.timeout.secs": 600,
}
QUICK = [
    "supervisor.worker.timeout.secs=3",
    "nimbus.monitor.freq.secs=2",
    # Kills in quick succession are no crash loop.
    "supervisor.worker.min.uptime.secs=0",
]


def test_nothing_is_lost_in_a_random_storm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = int(LINES_PER_SEC * (4 * STORM_SECS + 60))  # more than are handed out
    lines = text(9 * count)[:count]  # of 8 words each
    with (
        drawn_seed("SQUALL_STORM_SEED") as seed,
        Ledger(lines) as ledger,
        DevCluster.start(tmp_path, supervisors=2, slots=2, overrides=QUICK) as cluster,
    ):
        ledger.pace(LINES_PER_SEC)
        submit_ledger(cluster, ledger, workers=2, conf=CONF)
        ledger.wait_done(100, timeout_secs=60)
        storm = _Storm(cluster, ledger, seed)
        try:
            storm.rage(STORM_SECS)
            # What was handed out is all there is to wait for.
            ledger.serve_up_to(ledger.handed_out())
            ledger.pace(None)
            ledger.wait_done(ledger.handed_out(), timeout_secs=RECOVERY_SECS_MAX)
        finally:
            with capsys.disabled():
                print("\n" + json.dumps(storm.report()))
        ledger.check()
        assert storm.recoveries, "no worker was killed"
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")


class _Storm:
    """One fault after the other, each waited for until the topology works again."""

    def __init__(self, cluster: DevCluster, ledger: Ledger, seed: int) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._seed = seed
        self._random = random.Random(seed)
        self.faults: list[tuple[str, float]] = []
        self.recoveries: list[float] = []  # seconds from a SIGKILL to all tasks working

    def rage(self, secs: float) -> None:
        """Let it rage for about that long, and until it has killed a worker."""
        until = time.monotonic() + secs
        while time.monotonic() < until or not self.recoveries:
            (name,) = self._random.choices(list(FAULTS), weights=list(FAULTS.values()))
            getattr(self, f"_{name}")()
            try:
                took = self._ledger.wait_watched(RECOVERY_SECS_MAX)
            except AssertionError as error:
                raise AssertionError(f"after {name}: {error}") from None
            self.faults.append((name, round(took, 2)))
            if name == "kill":
                self.recoveries.append(took)
            time.sleep(self._random.uniform(0, 0.5))

    def _victim(self) -> int:
        def pick() -> int | None:
            pids = sorted(self._cluster.worker_pids())
            return self._random.choice(pids) if pids else None

        return wait_for("a worker", pick)

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _kill(self) -> None:
        victim = self._victim()
        self._ledger.watch(WATCHED)
        self._signal(victim, signal.SIGKILL)

    def _stop(self) -> None:
        victim = self._victim()
        self._ledger.watch(WATCHED)
        self._signal(victim, signal.SIGTERM)

    def _freeze(self) -> None:
        """Shorter than the worker timeout: it goes on where it was."""
        victim = self._victim()
        self._ledger.watch(WATCHED)
        self._signal(victim, signal.SIGSTOP)
        time.sleep(self._random.uniform(0.2, 2.0))
        self._signal(victim, signal.SIGCONT)

    def _hang(self) -> None:
        """For good: it is replaced."""
        victim = self._victim()
        self._ledger.watch(WATCHED)
        self._signal(victim, signal.SIGSTOP)

    def _rebalance(self) -> None:
        workers = self._random.choice([1, 2, 4])
        self._ledger.watch(WATCHED)
        self._cluster.call(
            "rebalance", "ledger", thrift.RebalanceOptions(wait_secs=0, num_workers=workers)
        )

    def _supervisor(self) -> None:
        pids = [s["pid"] for s in self._cluster.state()["supervisors"] if s["pid"] is not None]
        self._ledger.watch(WATCHED)
        if pids:
            self._signal(self._random.choice(pids), signal.SIGKILL)

    def report(self) -> dict[str, object]:
        """The figures of R4 and what was done."""
        kills = sorted(self.recoveries)
        quantiles = statistics.quantiles(kills, n=20) if len(kills) > 1 else kills * 19
        return {
            "seed": self._seed,
            "faults": Counter(name for name, _ in self.faults),
            "kill_to_processing_secs": {
                "n": len(kills),
                "p50": round(statistics.median(kills), 2) if kills else None,
                "p95": round(quantiles[-1], 2) if kills else None,
                "max": round(kills[-1], 2) if kills else None,
            },
            "acked": self._ledger.done,
            "fails": self._ledger.fails,
            "duplicates": self._ledger.duplicates(),
            "schedule": self.faults,
        }
