"""`storm spark report` over a history of known size, with the JVM options of `storm spark` and with
Spark's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.processes import Tree
from bench.runs import ROOT, RunError
from squall_common.daemon.folders import Folder
from squall_common.history.histogram import bucket_of
from squall_common.history.schema import Row, to_parquet
from squall_common.history.writer import file_name
from squall_common.names import encode_znode

TOPOLOGY = "shop"
_TASKS = 20
_LIFE_SECS = 900


def make_history(folder: Path, files: int, intervals: int) -> int:
    """Write a history of a spout and a bolt of 20 tasks, `intervals` of ten seconds in each file.
    Returns the number of rows."""
    now_ms, id_, rows_written = int(time.time() * 1000), f"{TOPOLOGY}-1-1700000000", 0
    place = Folder(str(folder / encode_znode(id_)))
    for number in range(files):
        rows = []
        for i in range(intervals):
            at = now_ms - 10_000 * (files - number) * intervals + 10_000 * i
            rows += [
                Row(at, "count", "emitted", "orders", 1, 1, "default", 10, 1000),
                Row(at, "latency", "complete", "orders", 1, 1, "default", 10, 990, 99.0,
                    buckets={bucket_of(0.1): 980, bucket_of(5.0): 10}),
                Row(at, "worker", "cpu_secs", secs=10, value=5.0),
                Row(at, "gauge", "pending", "orders", 1, 1, secs=10, value=3),
            ]  # fmt: skip
            for task in range(2, 2 + _TASKS):
                n = 100 + task
                rows += [
                    Row(at, "gauge", "receive", "price", task, task, secs=10, value=3),
                    Row(at, "count", "executed", "price", task, task, "orders:default", 10, n),
                    Row(at, "latency", "execute", "price", task, task, "orders:default", 10, n,
                        n * 0.004, buckets={bucket_of(0.004): n}),
                ]  # fmt: skip
        data = to_parquet(rows, worker="bench:6700", incarnation="1.1")
        place.write(file_name(now_ms - 1_000 * (files - number), "bench:6700-1.1", number), data)
        rows_written += len(rows)
    return rows_written


def report(history: Path, scratch: Path, options: dict[str, str]) -> tuple[float, float]:
    """Make the report once; the seconds of CPU and of time. Raises RunError."""
    made = scratch / "report.json"
    command = [
        *(sys.executable, "-m", "squall_cli.main", "spark", "report", TOPOLOGY),
        *("--history", str(history), "--json", str(made), "--master", "local[2]"),
        *("--log", str(scratch / "report.log"), "--spark-conf", f"spark.local.dir={scratch}"),
        *(part for pair in options.items() for part in ("--spark-conf", "=".join(pair))),
    ]
    start = time.perf_counter()
    with (scratch / "report.out").open("wb") as out, Tree() as tree:
        child = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=dict(os.environ))
        try:
            status = child.wait(_LIFE_SECS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise RunError(f"storm spark report took more than {_LIFE_SECS} s") from None
    secs = time.perf_counter() - start
    if status:
        raise RunError(f"storm spark report: {(scratch / 'report.out').read_text()[-500:]}")
    if "price" not in json.loads(made.read_text())["components"]:
        raise RunError("the report lacks a component")
    return tree.cpu_secs(), secs
