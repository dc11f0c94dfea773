"""Checkpoints on a real cluster whose workers, supervisors and Nimbus are killed, and whose tasks
are moved: an external ledger has each message once, with the count that a run without faults would
have given it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.effort import SOAK
from tests.support.ledger import nothing_lost

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3000 if SOAK else 900)]

MESSAGES, KEYS = 200_000, 10_000
FAULTS = ["worker"] * 20 + ["leader"] * 3 + ["supervisor"] * 3 + ["rebalance"] * 2
SEEDS = range(3) if SOAK else range(1)
LIMIT_SECS = 180.0

TOPOLOGY = """
import sys
import time

from squall import StatefulBolt, TopologyBuilder, submit_topology
from squall_connectors.files import LinesSpout
from squall_connectors.sqlite import TransactionalSqliteSink

COLUMNS = ["key", "count", "number"]
CREATE = "CREATE TABLE IF NOT EXISTS counts (key TEXT, count INT, number INT)"


class Count(StatefulBolt):
    outputs = COLUMNS

    def execute(self, tup):
        count = self.state.get(tup["key"], 0) + 1
        self.state.put(tup["key"], count)
        time.sleep(0.0005)  # so that it is killed in the middle
        self.emit([tup["key"], count, tup["number"]])


if __name__ == "__main__":
    folder = sys.argv[1]
    builder = TopologyBuilder()
    lines = LinesSpout(f"{folder}/*.jsonl", ["key", "number"], format="json")
    builder.spout("lines", lines, parallelism=2)
    builder.bolt("count", Count(), parallelism=3).fields("lines", "key")
    sink = TransactionalSqliteSink(f"{folder}/ledger.db", "counts", COLUMNS, create=CREATE)
    builder.bolt("write", sink, parallelism=2).shuffle("count")
    conf = {
        "topology.workers": 3,
        "topology.max.spout.pending": 500,  # what has to drain for each checkpoint
        "topology.checkpoint.interval.secs": 0.2,
        "topology.state.url": f"{folder}/checkpoints",
    }
    submit_topology("ledger", conf, builder.build())
"""


def asked(path: Path, query: str) -> list[Any]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as database:
            return database.execute(query).fetchall()
    except sqlite3.OperationalError:  # no sink has come so far
        return []


def rows(ledger: Path) -> list[tuple[str, int, int]]:
    return asked(ledger, "SELECT key, count, number FROM counts")


def wait_for_rows(ledger: Path, count: int) -> None:
    def enough() -> bool:
        return any(found >= count for (found,) in asked(ledger, "SELECT count(*) FROM counts"))

    wait_for(f"{count} rows", enough, LIMIT_SECS, 0.1)


def disturb(cluster: DevCluster, fault: str, chance: random.Random) -> int:
    """How many workers it killed."""
    if fault == "rebalance":
        parallelism = chance.choice(["count=5", "count=2"])
        command = ("rebalance", "ledger", "-w", "0", "-e", parallelism)
        # Nimbus may have been killed just now.
        wait_for("the move", lambda: cluster.storm(*command, check=False).returncode == 0, 60)
        return 0
    if fault == "leader":
        wait_for("the leader", lambda: end(cluster.state()["nimbus"]["pid"]), 60)
        return 0
    if fault == "supervisor":
        supervisors = cluster.state()["supervisors"]
        wait_for("a supervisor", lambda: end(chance.choice(supervisors)["pid"]), 60)
    pids = sorted(wait_for("a worker", cluster.worker_pids, 60))
    return sum(end(pid) for pid in chance.sample(pids, min(len(pids), chance.randint(1, 2))))


def end(pid: int | None) -> bool:
    """Kill a process, if it is there just now."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    keys = [f"k{chance.randrange(KEYS)}" for _ in range(MESSAGES)]
    for file in range(3):
        lines = [f'{{"key":"{keys[i]}","number":{i}}}\n' for i in range(file, MESSAGES, 3)]
        (tmp_path / f"{file}.jsonl").write_text("".join(lines))
    package, ledger = tmp_path / "package", tmp_path / "ledger.db"
    package.mkdir()
    (package / "ledger.py").write_text(TOPOLOGY)
    faults = chance.sample(FAULTS, len(FAULTS))
    options = ["supervisor.worker.min.uptime.secs=0"]  # no back-off: it would only take time
    with DevCluster.start(
        tmp_path / "cluster", supervisors=2, slots=2, overrides=options
    ) as cluster:
        cluster.storm("jar", package, "ledger.py", tmp_path)
        killed = 0
        for number, fault in enumerate(faults):
            wait_for_rows(ledger, MESSAGES * (number + 1) // (len(faults) + 2))
            time.sleep(chance.uniform(0.0, 0.3))
            killed += disturb(cluster, fault, chance)
        wait_for_rows(ledger, MESSAGES)
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")
    assert killed >= 20
    written = rows(ledger)
    with nothing_lost():
        assert Counter(number for _, _, number in written) == Counter(range(MESSAGES))
    totals = Counter(keys)
    expected = Counter((key, at) for key in totals for at in range(1, totals[key] + 1))
    with nothing_lost():
        assert Counter((key, count) for key, count, _ in written) == expected
