"""A job that ends, on a real cluster: `storm wait` returns when all rows are written, and a kill
right afterwards loses none."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LINES = 3_000
WORDS_A_LINE = 4

TOPOLOGY = """
import sys
import time

from squall import Bolt, Spout, StatefulBolt, TopologyBuilder, submit_topology
from squall_connectors.files import LinesSpout
from squall_connectors.sqlite import TransactionalSqliteSink

CREATE = "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INT)"


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tup):
        for word in tup["line"].split():
            self.emit([word])


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup):
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        self.emit([tup["word"], count])


class Untracked(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.left = 100

    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([self.left])

    def exhausted(self):
        return not self.left


class Slow(Bolt):
    outputs = ["n"]

    def execute(self, tup):
        time.sleep(0.03)
        self.emit([tup["n"]], anchors=())


class Write(Bolt):
    def __init__(self, path):
        self.path = path

    def execute(self, tup):
        time.sleep(0.03)
        with open(self.path, "a") as file:
            file.write(f"{tup['n']}\\n")


def counts(folder, follow):
    builder = TopologyBuilder()
    builder.spout("lines", LinesSpout(f"{folder}/*.txt", follow=follow), parallelism=2)
    builder.bolt("split", Split(), parallelism=2).shuffle("lines")
    builder.bolt("count", Count(), parallelism=2).fields("split", "word")
    sink = TransactionalSqliteSink(
        f"{folder}/counts.db", "counts", ["word", "count"], key=["word"], create=CREATE
    )
    builder.bolt("store", sink).fields("count", "word")
    conf = {
        "topology.workers": 3,
        "topology.checkpoint.interval.secs": 1,
        "topology.state.url": f"{folder}/checkpoints",
    }
    return builder.build(), conf


def untracked(folder):
    builder = TopologyBuilder()
    builder.spout("source", Untracked())
    builder.bolt("slow", Slow()).shuffle("source")
    builder.bolt("write", Write(f"{folder}/numbers")).shuffle("slow")
    return builder.build(), {"topology.workers": 3}


if __name__ == "__main__":
    name, kind, folder = sys.argv[1:]
    built, conf = untracked(folder) if kind == "untracked" else counts(folder, kind == "follow")
    submit_topology(name, conf, built)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("wait")
    options = ["supervisor.worker.min.uptime.secs=0"]
    with DevCluster.start(folder / "cluster", supervisors=2, slots=2, overrides=options) as cluster:
        yield cluster
        cluster.kill_all()


def submit(cluster: DevCluster, folder: Path, name: str, kind: str) -> None:
    package = folder / "package"
    package.mkdir(exist_ok=True)
    (package / "job.py").write_text(TOPOLOGY)
    cluster.storm("jar", package, "job.py", name, kind, folder)


def lines_in(folder: Path) -> Counter[str]:
    """Write the input. Returns how often each word is in it."""
    found: Counter[str] = Counter()
    for file in range(3):
        words = [f"w{(file + i * i) % 97}" for i in range(LINES * WORDS_A_LINE // 3)]
        found.update(words)
        lines = [" ".join(words[i : i + WORDS_A_LINE]) for i in range(0, len(words), WORDS_A_LINE)]
        (folder / f"{file}.txt").write_text("\n".join(lines))  # the last one has no end
    return found


def rows(folder: Path) -> dict[str, int]:
    path = f"file:{folder}/counts.db?mode=ro"
    with closing(sqlite3.connect(path, uri=True, timeout=60)) as database:
        return dict(database.execute("SELECT word, count FROM counts"))


def test_all_rows_are_there_when_the_wait_is_over(cluster: DevCluster, tmp_path: Path) -> None:
    """Also if a worker is killed meanwhile, and although the kill does not wait."""
    wanted = lines_in(tmp_path)
    submit(cluster, tmp_path, "rows", "ends")
    wait_for("a checkpoint", lambda: (tmp_path / "counts.db").exists(), 120.0, 0.1)
    os.kill(min(cluster.worker_pids()), signal.SIGKILL)
    cluster.storm("wait", "rows", "--timeout", "240", timeout_secs=300)
    listed = cluster.topologies()["rows"]
    cluster.storm("kill", "rows", "-w", "0", "--wait")
    assert rows(tmp_path) == wanted
    assert listed["status"] == "ACTIVE"


def test_what_nothing_tracks_is_waited_for(cluster: DevCluster, tmp_path: Path) -> None:
    submit(cluster, tmp_path, "untracked", "untracked")
    cluster.storm("wait", "untracked", "--timeout", "120", timeout_secs=180)
    found = (tmp_path / "numbers").read_text().split()
    assert sorted(map(int, found)) == list(range(100))
    status = json.loads(cluster.storm("status", "untracked", "--json").stdout)
    assert status["finished"] is True
    assert [one["kind"] for one in status["findings"] if one["kind"] == "finished"]
    (listed,) = (o for o in cluster.call("getTopologySummaries") if o.name == "untracked")
    assert listed.finished is True
    cluster.storm("kill", "untracked", "-w", "0", "--wait")


def test_a_source_without_an_end_is_not_waited_for(cluster: DevCluster, tmp_path: Path) -> None:
    lines_in(tmp_path)
    submit(cluster, tmp_path, "follows", "follow")
    began = time.monotonic()
    result = cluster.storm("wait", "follows", "--timeout", "90", check=False)
    assert result.returncode == 1
    assert "spout lines does not say whether the source ends" in result.stderr
    assert time.monotonic() - began < 80
    cluster.storm("kill", "follows", "-w", "0", "--wait")
    result = cluster.storm("wait", "follows", check=False)
    assert result.returncode == 1
