"""Streams on Spark: what is refused, and what an error looks like."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import SquallError, Stream, TopologyBuilder
from squall_spark.data import datasets
from squall_spark.data.bad_records import OnBadRecord
from squall_spark.entry import spark_error
from squall_spark.plan import SparkPlan
from squall_spark.stream import query
from squall_spark.stream.inputs import Limits
from squall_spark.stream.query import BatchDone, describe_batch, run_stream


def plan(where: str, out: str, *, tasks: int = 2, bolt: Any = None, spout: Any = None) -> SparkPlan:
    builder = TopologyBuilder()
    builder.spout("sentences", spout or st.Endless())
    builder.bolt("split", st.Split()).shuffle("sentences")
    builder.bolt("count", bolt or st.RunningCount(), parallelism=tasks).fields("split", "word")
    return plan_for(builder, [f"sentences={where}"], [f"count={out}"], streaming=True)


def run(spark: Any, stream: SparkPlan, tmp_path: Path, **options: Any) -> list[BatchDone]:
    done: list[BatchDone] = []
    checkpoint = str(tmp_path / "cp")
    run_stream(
        spark, stream, None, checkpoint=checkpoint, available_now=True, on_batch_done=done.append,
        **options,
    )  # fmt: skip
    return done


def results(tmp_path: Path) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for part in sorted((tmp_path / "out").glob("batch=*"))
        for row in pq.read_table(part, partitioning=None).to_pylist()
    ]


def arrive(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / name).write_text(text)


def test_state_follows_its_keys_to_another_number_of_tasks(spark: Any, tmp_path: Path) -> None:
    where, out = f"text:{tmp_path}/in", f"{tmp_path}/out"
    words = [f"w{n}" for n in range(20)]
    # 10 tasks share partitions.
    for number, tasks in enumerate((2, 10, 3)):
        arrive(tmp_path, f"{number}.txt", " ".join(words) + "\n")
        (done,) = run(spark, plan(where, out, tasks=tasks), tmp_path)
        assert (done.number, done.tuples, done.state_keys) == (number, {"count": 20}, 20)
    assert Counter(results(tmp_path)) == Counter((w, n) for w in words for n in (1, 2, 3))


class TypedCount(st.RunningCount):
    outputs = Stream({"word": str, "count": int})


def test_a_batch_that_is_in_kafka_still_writes_its_state(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that dies between Kafka's commit and Spark's is started with more tasks."""

    def counting(tasks: int) -> SparkPlan:
        builder = TopologyBuilder()
        builder.spout("sentences", st.Endless())
        builder.bolt("split", st.Split()).shuffle("sentences")
        builder.bolt("count", TypedCount(), parallelism=tasks).fields("split", "word")
        where, out = f"sentences=text:{tmp_path}/in", "count=kafka:nowhere:1/counts"
        return plan_for(builder, [where], [out], streaming=True)

    def then_dies(frame: Any, *_: Any) -> None:
        frame.collect()
        raise RuntimeError("killed")

    arrive(tmp_path, "a.txt", " ".join(f"w{n}" for n in range(20)) + "\n")
    monkeypatch.setattr(query, "write_to_kafka", then_dies)
    with pytest.raises(Exception, match="killed"):
        run(spark, counting(2), tmp_path)
    monkeypatch.setattr(query, "write_to_kafka", lambda *_: None)
    (done,) = run(spark, counting(3), tmp_path)
    assert (done.number, done.tuples, done.state_keys) == (0, {"count": 20}, 20)


def test_keys_that_belong_to_a_task_keep_the_number_of_tasks(spark: Any, tmp_path: Path) -> None:
    """A state that is changed in place is kept, too."""
    where, out = f"text:{tmp_path}/in", f"{tmp_path}/out"
    arrive(tmp_path, "a.txt", "the cow\nthe moon\n")
    run(spark, plan(where, out, bolt=st.Totals(), tasks=1), tmp_path)
    arrive(tmp_path, "b.txt", "the end\n")
    run(spark, plan(where, out, bolt=st.Totals(), tasks=1), tmp_path)
    assert [total for _, total in sorted(results(tmp_path), key=lambda row: row[1])] == [
        *(1, 2, 3, 4, 5, 6)
    ]
    with pytest.raises(SquallError, match=r"had 1 tasks and now has 2, but 1 of the 1 keys"):
        run(spark, plan(where, out, bolt=st.Totals(), tasks=2), tmp_path)


def test_a_checkpoint_that_lost_a_half_is_refused(spark: Any, tmp_path: Path) -> None:
    where, out = f"text:{tmp_path}/in", f"{tmp_path}/out"
    for number in range(2):
        arrive(tmp_path, f"{number}.txt", "the cow\n")
        run(spark, plan(where, out), tmp_path)
    checkpoint = tmp_path / "cp"
    kept = {name: tmp_path / f"kept-{name}" for name in ("spark", "plan", "state")}
    for name, folder in kept.items():
        shutil.copytree(checkpoint / name, folder)

    def refused(message: str) -> None:
        with pytest.raises(SquallError, match=message):
            run(spark, plan(where, out), tmp_path)
        for name, folder in kept.items():
            shutil.rmtree(checkpoint / name, ignore_errors=True)
            shutil.copytree(folder, checkpoint / name)

    shutil.rmtree(checkpoint / "spark")
    refused(r"Spark's half of --checkpoint .* is missing: .*the state of batch 1 is there")
    shutil.rmtree(checkpoint / "plan")
    refused(r"squall's half of --checkpoint .* is missing: .* committed batch 1")
    shutil.rmtree(checkpoint / "state")
    refused(r"the state of 'count' after batch 1 is missing")
    for name in ("offsets/1", "commits/1"):
        (checkpoint / "spark" / name).unlink()
    refused(r"is older than its state: it ends at batch 0, and the state at batch 1")
    assert run(spark, plan(where, out), tmp_path) == []  # nothing new


def test_a_micro_batch_has_a_limit(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        arrive(tmp_path, f"{number}.txt", "the cow\n" * 10)
    stream = plan(f"text:{tmp_path}/in", f"{tmp_path}/out")
    done = run(spark, stream, tmp_path, limits=Limits(max_files=2))
    assert [one.input.rows for one in done] == [20, 10]
    arrive(tmp_path, "large.txt", "the cow\n" * 10)
    large: list[tuple[str, int]] = []
    run(
        spark, stream, tmp_path, limits=Limits(max_bytes=50),
        on_large_file=lambda path, size: large.append((path, size)),
    )  # fmt: skip
    assert large == [(f"{tmp_path}/in/large.txt", 80)]
    line = describe_batch(done[1])
    assert re.fullmatch(
        r"batch 1: 10 rows in \d+\.\d s \(\d+ rows/s\), lag \d+\.\d s, wrote count 20, "
        r"state 2 keys, \d+(\.\d)? (B|KiB)",
        line,
    ), line


def records(tmp_path: Path, name: str, *lines: str) -> None:
    arrive(tmp_path, name, "".join(f"{line}\n" for line in lines))


def test_a_damaged_record_is_an_error_with_file_and_line(spark: Any, tmp_path: Path) -> None:
    stream = plan(f"json:{tmp_path}/in", f"{tmp_path}/out")
    records(tmp_path, "a.json", '{"sentence": "the cow"}')
    run(spark, stream, tmp_path)
    records(tmp_path, "b.json", '{"sentence": "the moon"}', '{"sentence": "over the')
    with pytest.raises(Exception) as caught:
        run(spark, stream, tmp_path)
    error = spark_error(caught.value, "spark.log", stream)
    assert re.match(r"--input sentences: .*/in/b\.json, line 2: not JSON: ", error.message)
    assert "--on-bad-record" in (error.hint or "")
    # The same stream can leave it out, and goes on.
    on_bad = OnBadRecord.parse(f"{tmp_path}/bad")
    records(tmp_path, "c.json", '{"sentence": "the end"}')
    done = run(spark, stream, tmp_path, on_bad=on_bad)
    assert sum(one.input.bad for one in done) == 1
    assert {row[0] for row in results(tmp_path)} == {"the", "cow", "moon", "end"}
    (file,) = (tmp_path / "bad").rglob("*.jsonl")
    letter = json.loads(file.read_text())
    assert (letter["input"], letter["line"]) == ("sentences", 2)
    assert letter["file"].endswith("/in/b.json")
    assert letter["record"] == '{"sentence": "over the'
    assert letter["reason"].startswith("not JSON: Unterminated string")


def test_a_half_written_parquet_file_is_named_or_left_out(spark: Any, tmp_path: Path) -> None:
    stream = plan(f"parquet:{tmp_path}/in", f"{tmp_path}/out")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"sentence": ["the cow"]}), tmp_path / "in" / "a.parquet")
    run(spark, stream, tmp_path)
    whole = (tmp_path / "in" / "a.parquet").read_bytes()
    (tmp_path / "in" / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Exception) as caught:
        run(spark, stream, tmp_path)
    error = spark_error(caught.value, "spark.log", stream)
    assert re.match(r"--input sentences: .*/in/b\.parquet: .*[^:]$", error.message), error.message
    pq.write_table(pa.table({"sentence": ["the end"]}), tmp_path / "in" / "c.parquet")
    done = run(spark, stream, tmp_path, on_bad=OnBadRecord.parse(f"{tmp_path}/bad"))
    assert sum(one.input.bad for one in done) == 1
    assert ("end", 1) in results(tmp_path)
    (file,) = (tmp_path / "bad").rglob("*.jsonl")
    assert "the file is damaged" in json.loads(file.read_text())["reason"]


def test_a_missing_column_is_a_problem_of_the_data(spark: Any, tmp_path: Path) -> None:
    stream = plan(f"json:{tmp_path}/in", f"{tmp_path}/out")
    records(tmp_path, "a.json", '{"sentence": "the cow"}')
    run(spark, stream, tmp_path)
    records(tmp_path, "b.json", '{"text": "the moon"}')
    with pytest.raises(Exception) as caught:
        run(spark, stream, tmp_path)
    error = spark_error(caught.value, "spark.log", stream)
    assert re.match(
        r"--input sentences: .*/b\.json has no column 'sentence', .* "
        r"\(component 'split', task \d+: a tuple failed: AttributeError: ",
        error.message,
    ), error.message


def test_declared_types_need_no_look_at_the_data(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("the data was read for its types")

    monkeypatch.setattr(datasets, "inferred_schema", never)
    stream = plan(f"json:{tmp_path}/in", f"{tmp_path}/out", spout=st.TypedSentences())
    (tmp_path / "in").mkdir()
    assert run(spark, stream, tmp_path) == []  # nor any data
    records(tmp_path, "a.json", '{"sentence": "the cow"}', '{"text": "no sentence"}')
    with pytest.raises(Exception) as caught:
        run(spark, stream, tmp_path)
    error = spark_error(caught.value, "spark.log", stream)
    assert "has no value for field 'sentence', which the spout declares" in error.message
    run(spark, stream, tmp_path, on_bad=OnBadRecord.parse(f"{tmp_path}/bad"))
    assert len(results(tmp_path)) == 2
    (file,) = (tmp_path / "bad").rglob("*.jsonl")
    assert json.loads(file.read_text())["reason"] == "no value for field 'sentence'"


def test_types_that_were_found_are_kept(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = plan(f"json:{tmp_path}/in", f"{tmp_path}/out")
    records(tmp_path, "a.json", '{"sentence": "the cow"}')
    run(spark, stream, tmp_path)

    def never(*_: Any) -> Any:
        raise AssertionError("the data was read for its types")

    monkeypatch.setattr(datasets, "inferred_schema", never)
    records(tmp_path, "b.json", '{"sentence": "the moon"}')
    (done,) = run(spark, stream, tmp_path)
    assert done.input.rows == 1


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


@pytest.mark.timeout(450)
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
    assert Counter(results(tmp_path)) == Counter([("the", 1), ("the", 2), ("cow", 1)])
