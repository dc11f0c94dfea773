"""Plans on a real Spark: inputs, outputs, groupings, errors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for, run_here

from squall import SquallError, TopologyBuilder
from squall_spark.batch import run_batch
from squall_spark.data.bad_records import OnBadRecord
from squall_spark.entry import spark_error
from squall_spark.plan import SparkPlan

SENTENCES = ["the cow jumped", "over the moon", "the moon", "a cow"]
COUNTS = Counter(" ".join(SENTENCES).split())


def word_count(tasks: int = 3) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless())
    builder.bolt("split", st.Split(), parallelism=2).shuffle("sentences")
    builder.bolt("count", st.Count(), parallelism=tasks).fields("split", "word")
    return builder


def run(spark: Any, plan: SparkPlan) -> dict[str, int]:
    """Rows written by output."""
    return {str(one.sink.stream): one.rows for one in run_batch(spark, plan, None).written}


def write_input(folder: Path, kind: str) -> str:
    """The sentences, stored that way; what --input says of it."""
    if kind == "partitioned parquet":
        for i, sentence in enumerate(SENTENCES):
            part = folder / "in" / f"day={i % 2}"
            part.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"sentence": [sentence], "n": [i]}), part / f"{i}.parquet")
        return str(folder / "in")
    if kind == "json lines":
        lines = "".join(json.dumps({"x": 1, "sentence": s}) + "\n" for s in SENTENCES)
        (folder / "in.jsonl").write_text(lines)
        return str(folder / "in.jsonl")
    if kind == "csv":
        (folder / "in.csv").write_text("id,sentence\n" + "".join(f"1,{s}\n" for s in SENTENCES))
        return str(folder / "in.csv")
    for i, sentence in enumerate(SENTENCES):
        (folder / f"in-{i}.txt").write_text(sentence + "\n")
    return str(folder / "in-*.txt")


@pytest.mark.parametrize("kind", ["partitioned parquet", "json lines", "csv", "text glob"])
def test_word_count_from_every_format(spark: Any, tmp_path: Path, kind: str) -> None:
    where = write_input(tmp_path, kind)
    tasks = 20 if kind == "csv" else 3  # so many share partitions
    plan = plan_for(word_count(tasks), [f"sentences={where}"], [f"count={tmp_path / 'out'}"])
    assert run(spark, plan) == {"count": len(COUNTS)}
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["word"]: row["count"] for row in rows} == COUNTS
    assert len(rows) == len(COUNTS)


def test_streams_as_json_lines_and_as_a_table_of_a_component_that_runs_once(
    spark: Any, tmp_path: Path
) -> None:
    where = write_input(tmp_path, "text glob")
    outputs = [f"split=json:{tmp_path / 'words'}", "count=table:squall_counts"]
    assert run(spark, plan_for(word_count(), [f"sentences={where}"], outputs)) == {
        "split": sum(COUNTS.values()),
        "count": len(COUNTS),
    }
    lines = [
        json.loads(line)
        for file in (tmp_path / "words").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert Counter(line["word"] for line in lines) == COUNTS
    table = spark.table("squall_counts").collect()
    assert {row["word"]: row["count"] for row in table} == COUNTS
    spark.sql("drop table squall_counts")


def test_the_same_tuples_as_without_spark(spark: Any, tmp_path: Path) -> None:
    """Bounded spouts, several streams, two consumers, direct and all, tasks told by emit."""
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(60), parallelism=2)
    builder.bolt("streams", st.Streams(), parallelism=2).local_or_shuffle("numbers")
    odd_and_even = builder.bolt("told", st.Told(), parallelism=3)
    odd_and_even.fields("streams", "number", stream="odd").all("streams", stream="even")
    builder.bolt("direct", st.SendsDirect("target")).global_("streams", stream="even")
    builder.bolt("target", st.Told(), parallelism=2).direct("direct")
    plan = plan_for(builder, outputs=[str(tmp_path / "out")])
    expected = run_here(plan)
    assert run(spark, plan) == {name: len(rows) for name, rows in expected.items()}
    for name, rows in expected.items():
        found = pq.read_table(tmp_path / "out" / name).to_pylist()
        told = Counter(tuple(row.values())[:2] for row in found)
        assert told == Counter(tuple(row)[:2] for row in rows)


def test_a_bolt_without_output_runs_for_its_side_effects(spark: Any, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(10))
    builder.bolt("writes", st.WritesFiles(str(tmp_path)), parallelism=2).shuffle("numbers")
    run_batch(spark, plan_for(builder, outputs=[]), None)
    written = sorted(int(line) for f in tmp_path.iterdir() for line in f.read_text().split())
    assert written == list(range(10))


@pytest.mark.parametrize(
    ("bolt", "message"),
    [
        (st.Raises, r"^component 'b', task \d+: a tuple failed: ValueError: cannot take \d"),
        (st.Prepares, r"^component 'b': prepare\(\) failed: RuntimeError: no database here"),
    ],
)
def test_a_component_that_fails_is_named(
    spark: Any, tmp_path: Path, bolt: type, message: str
) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(10))
    builder.bolt("b", bolt()).shuffle("numbers")
    with pytest.raises(Exception) as caught:
        run_batch(spark, plan_for(builder, outputs=[str(tmp_path / "out")]), None)
    told = spark_error(caught.value, "spark.log")
    with pytest.raises(SquallError, match=message):
        raise told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sentences={}/nowhere/x.csv", "there is no .*/nowhere/x.csv"),
        ("sentences={}/*.nothing", "no file matches"),
        ("sentences={}/empty", "its format is not clear"),
        ("sentences={}/lacks.jsonl", r"no field 'sentence', which the spout emits \(it has 'text'"),
        ("sentences={}/bad.jsonl", "--input sentences=.*bad.jsonl"),
        ("sentences=table:no_such_table", "there is no such table"),
    ],
)
def test_data_that_does_not_fit_is_one_clear_error(
    spark: Any, tmp_path: Path, given: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "lacks.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "bad.jsonl").write_text('{"sentence": "a"}\n{"sentence": \n')
    inputs = [given.format(tmp_path)]
    with pytest.raises(SquallError, match=message):
        run_batch(spark, plan_for(word_count(), inputs, [str(tmp_path / "out")]), None)


def test_an_existing_output_is_not_touched(spark: Any, tmp_path: Path) -> None:
    where = write_input(tmp_path, "csv")
    (tmp_path / "out").mkdir()
    plan = plan_for(word_count(), [f"sentences={where}"], [f"count={tmp_path / 'out'}"])
    with pytest.raises(SquallError, match="already exists") as caught:
        run_batch(spark, plan, None)
    assert caught.value.hint is not None
    assert "--overwrite" in caught.value.hint
    run_batch(spark, plan, None, overwrite=True)
    assert pq.read_table(tmp_path / "out").num_rows == len(COUNTS)


def test_one_task_reads_from_components_of_different_sizes(spark: Any, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(20), parallelism=2)
    target = builder.bolt("told", st.Told())
    for name, tasks in (("a", 2), ("b", 2), ("c", 1)):
        builder.bolt(name, st.Doubles(), parallelism=tasks).shuffle("numbers")
        target.shuffle(name)
    plan = plan_for(builder, outputs=[f"told={tmp_path}/out"])
    assert run(spark, plan) == {"told": 60}


def test_bad_records_of_a_batch_job_are_named_or_left_out(spark: Any, tmp_path: Path) -> None:
    lines = ['{"sentence": "the cow"}', '{"sentence": "the', '{"sentence": "moon"}', "[1]"]
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    plan = plan_for(word_count(), [f"sentences={tmp_path}/in.jsonl"], [f"{tmp_path}/out"])
    with pytest.raises(Exception) as caught:
        run_batch(spark, plan, None)
    error = spark_error(caught.value.__cause__ or caught.value, "spark.log", plan)
    assert error.message.startswith(f"--input sentences: {tmp_path}/in.jsonl, line 2: not JSON: ")
    on_bad = OnBadRecord.parse(str(tmp_path / "bad"))
    done = run_batch(spark, plan, None, overwrite=True, on_bad=on_bad)
    assert done.left_out == {"sentences": 2}
    letters = [
        json.loads(line)
        for file in (tmp_path / "bad").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(one["line"] for one in letters) == [2, 4]
    assert pq.read_table(tmp_path / "out" / "count").num_rows == 3


def test_rows_of_a_data_set_reach_many_tasks_that_share_partitions(
    spark: Any, tmp_path: Path
) -> None:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless(), parallelism=20)
    builder.bolt("split", st.Split(), parallelism=20).local_or_shuffle("sentences")
    builder.bolt("count", st.Count(), parallelism=20).fields("split", "word")
    where = write_input(tmp_path, "text glob")
    out = tmp_path / "out"
    assert run(spark, plan_for(builder, [f"sentences={where}"], [f"count={out}"])) == {
        "count": len(COUNTS)
    }
    rows = pq.read_table(out).to_pylist()
    assert {row["word"]: row["count"] for row in rows} == COUNTS
