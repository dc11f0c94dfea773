"""A topology with checkpoints whose process is killed again and again, at any moment."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.effort import SOAK

from squall import StatefulBolt, TopologyBuilder, Tuple
from squall.testing._runs import KillableTopology
from squall_connectors.files import LinesSpout
from squall_connectors.sqlite import TransactionalSqliteSink

WORDS = ("the", "cow", "jumped", "over", "the", "moon", "and", "ran", "away")
LINES = 200_000 if SOAK else 20_000
KILLS_MIN = 20 if SOAK else 3
SEEDS = range(20) if SOAK else range(1)
LIMIT_SECS = 600.0


class Count(StatefulBolt):
    outputs = ["word", "count", "number"]

    def execute(self, tup: Tuple) -> None:
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        time.sleep(0.0001)  # so that it is killed in the middle
        self.emit([tup["word"], count, tup["number"]])


def rows(path: Path) -> list[tuple[str, int, int]]:
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(path, timeout=60)) as database:
            return database.execute("SELECT word, count, number FROM counts").fetchall()
    except sqlite3.OperationalError:  # the process has not come so far
        return []


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    words = [chance.choice(WORDS) for _ in range(LINES)]
    for file in range(3):
        lines = [f'{{"word":"{words[i]}","number":{i}}}\n' for i in range(file, LINES, 3)]
        (tmp_path / f"{file}.jsonl").write_text("".join(lines))
    database = tmp_path / "counts.db"
    builder = TopologyBuilder()
    spout = LinesSpout(f"{tmp_path}/*.jsonl", ["word", "number"], format="json")
    builder.spout("lines", spout, parallelism=2)
    builder.bolt("count", Count(), parallelism=3).fields("lines", "word")
    sink = TransactionalSqliteSink(
        database,
        "counts",
        ["word", "count", "number"],
        create="CREATE TABLE IF NOT EXISTS counts (word TEXT, count INT, number INT)",
    )
    builder.bolt("write", sink, parallelism=2).shuffle("count")
    conf = {
        "topology.state.backend": "disk",  # in memory it is in the tests of clusters
        "topology.state.backend.write.entries": 3,
        "topology.checkpoint.interval.secs": 0.1,
        "topology.state.url": str(tmp_path / "checkpoints"),
    }
    deadline = time.monotonic() + LIMIT_SECS
    kills = 0
    with KillableTopology(builder.build(), tmp_path, conf) as topology:
        while len(written := rows(database)) < LINES:
            # Kill it when it has written a little more: a process takes long to start here.
            goal = len(written) + chance.randrange(1, LINES // (4 * KILLS_MIN))
            wait_secs = chance.uniform(0.0, 0.2)
            while len(rows(database)) < min(goal, LINES):
                assert time.monotonic() < deadline, f"{len(rows(database))} rows"
                topology.check()
                time.sleep(0.02)
            time.sleep(wait_secs)
            topology.kill()
            kills += 1
            topology.start()
    assert kills >= KILLS_MIN
    assert Counter(number for _, _, number in written) == Counter(range(LINES))
    totals = Counter(words)
    expected = Counter((word, at) for word in totals for at in range(1, totals[word] + 1))
    assert Counter((word, count) for word, count, _ in written) == expected
