"""`storm` killed in mid-stream: driver, JVM and workers end with it, and the restarted query gives
what an undisturbed one gives, in a log of changes and in each kind of current values."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.leftovers import processes_of
from tests.support.postgresql_server import PostgresqlServer
from tests.support.spark_jars import POSTGRESQL, spark_jars

FILES, LINES = 5, 40


def wait_until(condition: Callable[[], bool], timeout_secs: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, "not so in time"
        time.sleep(0.02)


# A count for each kind of output: they are written one after the other.
COUNTS = """
from squall import Bolt, Spout, StatefulBolt, Stream, TopologyBuilder, submit_topology

class Records(Spout):
    outputs = Stream({"text": str})
    def next_tuple(self):
        pass

class Split(Bolt):
    outputs = ["word"]
    stateless = True
    def execute(self, tup):
        for word in tup["text"].split():
            self.emit([word])

class Count(StatefulBolt):
    outputs = Stream({"word": str, "count": int})
    def execute(self, tup):
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        self.emit([tup["word"], count])

if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("records", Records())
    builder.bolt("split", Split(), parallelism=2).shuffle("records")
    for name in ("count", "lake", "table"):
        builder.bolt(name, Count(), parallelism=2).fields("split", "word")
    submit_topology("counts", {}, builder.build())
"""


@pytest.fixture
def postgresql() -> Iterator[PostgresqlServer]:
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with PostgresqlServer.start(Path(name)) as server:
            yield server


def start(folder: Path, server: PostgresqlServer, *options: str) -> subprocess.Popen[bytes]:
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=postgres"
    table = f"spark:jdbc?url={quote(url)}&dbtable=counts"
    command = [
        *(sys.executable, "-m", "squall_cli.main", "spark", "run", "--streaming"),
        *("--checkpoint", "cp", "--master", "local[2]", "--trigger-secs", "0"),
        *("--spark-conf", "spark.driver.memory=512m"),
        *("--spark-conf", f"spark.local.dir={folder}/local"),
        *("--spark-conf", f"spark.jars={spark_jars(POSTGRESQL)}"),
        *("--input", "records=json:in", "--output", "count=out", *options),
        *("--current", "count=now", "--key", "count=word"),
        *("--current", "lake=delta:lake", "--key", "lake=word"),
        *("--current", f"table={table}", "--key", "table=word"),
        *("package", "counts"),
    ]
    with (folder / "messages").open("ab") as messages:
        return subprocess.Popen(command, cwd=folder, stderr=messages, stdout=messages)


def end_all(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End what a failed test left."""
    if process.poll() is None:
        process.kill()
        process.wait(timeout=30)
    for pid in processes_of(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


# Two Sparks start, one after the other.
@pytest.mark.timeout(900)
def test_a_kill_in_mid_stream_ends_everything_and_loses_and_repeats_nothing(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    for name in ("in", "package"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "counts.py").write_text(COUNTS)
    words = [f"w{n % 7}" for n in range(FILES * LINES)]

    def arrive(number: int) -> None:
        lines = words[number * LINES : (number + 1) * LINES]
        text = "".join(json.dumps({"text": f"{word} x"}) + "\n" for word in lines)
        (tmp_path / f".{number}").write_text(text)
        (tmp_path / f".{number}").rename(tmp_path / "in" / f"{number}.json")

    def messages() -> str:
        return (tmp_path / "messages").read_text()

    arrive(0)
    first = start(tmp_path, postgresql)
    try:
        for number in range(1, 3):
            batch = tmp_path / "out" / f"batch={number - 1}"
            wait_until(lambda b=batch: b.exists() or first.poll() is not None)  # type: ignore[misc]
            assert first.poll() is None, messages()
            arrive(number)
        # Its output has begun; whether it has been committed, nobody knows.
        wait_until((tmp_path / "out" / "batch=1").exists)
        second = start(tmp_path, postgresql)  # at once, without a JVM
        assert second.wait(timeout=200) == 1
        assert "--checkpoint" in messages()
        assert re.search(r"cp is in use by process \d+ on ", messages())
        first.kill()  # -9, of `storm` alone
        first.wait(timeout=60)
        # (Within 15 s, on a machine that has nothing else to do.)
        wait_until(lambda: not processes_of(tmp_path), timeout_secs=150)
    finally:
        end_all(first, tmp_path)
    for number in range(3, FILES):
        arrive(number)
    again = start(tmp_path, postgresql, "--available-now")
    try:
        assert again.wait(timeout=400) == 0, messages()
    finally:
        end_all(again, tmp_path)
    rows = [
        tuple(row.values())
        for part in (tmp_path / "out").glob("batch=*")
        for row in pq.read_table(part, partitioning=None).to_pylist()
    ]
    counts = Counter([*words, *["x"] * len(words)])
    assert Counter(rows) == Counter(
        (word, n) for word, most in counts.items() for n in range(1, most + 1)
    )
    with psycopg.connect(postgresql.dsn) as connection:
        table = connection.execute("SELECT word, count FROM counts").fetchall()
    for now in (
        pq.read_table(tmp_path / "now" / "current").to_pylist(),
        DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist(),
        [{"word": word, "count": count} for word, count in table],
    ):
        assert {row["word"]: row["count"] for row in now} == counts
        assert len(now) == len(counts)
