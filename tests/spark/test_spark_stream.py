"""Streams on Spark: what is refused, and what an error looks like."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import SquallError, TopologyBuilder
from squall_spark.entry import spark_error
from squall_spark.plan import SparkPlan
from squall_spark.streaming import BatchDone, run_stream


def plan(where: str, out: str, *, tasks: int = 2, bolt: Any = None) -> SparkPlan:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless())
    builder.bolt("split", st.Split()).shuffle("sentences")
    builder.bolt("count", bolt or st.RunningCount(), parallelism=tasks).fields("split", "word")
    return plan_for(builder, [f"sentences={where}"], [f"count={out}"], streaming=True)


def run(spark: Any, stream: SparkPlan, tmp_path: Path) -> list[BatchDone]:
    told: list[BatchDone] = []
    checkpoint = str(tmp_path / "cp")
    run_stream(
        spark, stream, None, checkpoint=checkpoint, available_now=True, on_batch_done=told.append
    )
    return told


def test_a_checkpoint_of_another_number_of_tasks_is_refused(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("the cow\nthe moon\n")
    where, out = f"text:{tmp_path}/in", f"{tmp_path}/out"
    (done,) = run(spark, plan(where, out), tmp_path)
    assert (done.number, done.tuples) == (0, {"count": 4})
    with pytest.raises(SquallError, match="bolt 'count' had 2 tasks in it and now has 3"):
        run(spark, plan(where, out, tasks=3), tmp_path)
    assert run(spark, plan(where, out), tmp_path) == []  # nothing new


def test_a_table_is_refused_as_output_of_a_stream(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SquallError, match="--output count: with --streaming, use files"):
        run(spark, plan(f"text:{tmp_path}", "table:counts"), tmp_path)


def test_a_bolt_that_fails_in_a_stream_is_named(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("the cow\n")
    stream = plan(f"text:{tmp_path}/in", f"{tmp_path}/out", bolt=st.StatelessRaises())
    with pytest.raises(Exception) as caught:
        run(spark, stream, tmp_path)
    told = spark_error(caught.value, "spark.log")
    assert told.message.startswith("component 'count', task ")
    assert "a tuple failed: ValueError: cannot take " in told.message
    assert "Traceback" not in capfd.readouterr().err


def test_a_stream_without_files_says_so(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(SquallError, match="there is no data in it"):
        run(spark, plan(f"json:{tmp_path}/in", f"{tmp_path}/out"), tmp_path)


@pytest.mark.timeout(240)
def test_words_from_a_socket(spark: Any, tmp_path: Path) -> None:
    """A source that Spark cannot read twice: the query runs until it is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        stream = plan(f"socket:127.0.0.1:{port}", f"{tmp_path}/out")
        told: list[BatchDone] = []
        enough = threading.Event()

        def on_batch(done: BatchDone) -> None:
            told.append(done)
            if sum(done.tuples.get("count", 0) for done in told) == 3:
                enough.set()

        def serve() -> None:
            server.settimeout(100)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"the cow\nthe\n")
                enough.wait(100)

        def stop_when_enough() -> None:
            enough.wait(200)
            for query in spark.streams.active:
                query.stop()

        threads = [threading.Thread(target=t) for t in (serve, stop_when_enough)]
        for thread in threads:
            thread.start()
        try:
            run_stream(spark, stream, None, checkpoint=str(tmp_path / "cp"), on_batch_done=on_batch)
        finally:
            enough.set()
            for thread in threads:
                thread.join()
    rows = [
        tuple(row.values())
        for part in (tmp_path / "out").glob("batch=*")
        for row in pq.read_table(part, partitioning=None).to_pylist()
    ]
    assert Counter(rows) == Counter([("the", 1), ("the", 2), ("cow", 1)])
