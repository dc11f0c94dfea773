"""A plan as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import Stream, TopologyBuilder
from squall_spark.view.explain import explain, groups


class TypedCount(st.Count):
    outputs = Stream({"word": str, "count": int})


def word_count() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless(), parallelism=2)
    builder.bolt("split", st.Split(), parallelism=2).local_or_shuffle("sentences")
    builder.bolt("count", TypedCount(), parallelism=4).fields("split", "word")
    return builder


def test_inputs_stages_moves_and_outputs(tmp_path: Path) -> None:
    for part in range(2):
        table = pa.table({"sentence": ["the cow"], "host": ["a"]})
        pq.write_table(table, tmp_path / f"{part}.parquet")
    outputs = ["count=/out/counts", "split=json:/out/words"]
    text = explain(plan_for(word_count(), [f"sentences={tmp_path}/*.parquet"], outputs), "local[2]")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert lines == [
        "topology 'test' as a batch job on Spark at local[2]",
        "",
        "inputs",
        f"sentences parquet:{tmp_path}/*.parquet (2 files, {size / 1000:.1f} kB)",
        "reads sentence string; not read: host",
        "",
        "stages",
        "1 sentences (a task for each part of the data), split (2 tasks)",
        "split is kept on disk: it is read 3 times",
        "2 count (4 tasks)",
        "split -> count moves: fields: word",
        "",
        "outputs",
        "count parquet:/out/counts: word string, count bigint",
        "split json:/out/words: word (types are found in a pass of their own)",
    ]


def test_components_between_which_nothing_moves_are_one_stage() -> None:
    plan = plan_for(word_count(), ["sentences=text:/in"])
    names = [[stage.component for stage in group] for group in groups(plan)]
    assert names == [["sentences", "split"], ["count"]]


def test_problems_of_the_data_are_shown(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    text = explain(plan_for(word_count(), [f"sentences={tmp_path}/in.jsonl"]), "local[2]")
    assert f"missing in {tmp_path}/in.jsonl: sentence" in text
    assert "types are found by reading it once more" in text
    (tmp_path / "in.jsonl").write_text("{")
    text = explain(plan_for(word_count(), [f"sentences={tmp_path}/in.jsonl"]), "local[2]")
    assert f"{tmp_path}/in.jsonl cannot be read" in text


def test_bolts_without_output_and_bounded_spouts() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(5), parallelism=2)
    builder.bolt("silent", st.Silent(), parallelism=3).all("numbers")
    text = explain(plan_for(builder, outputs=[]), "local[2]")
    assert "numbers      runs itself, to its end" in text
    assert "numbers -> silent moves: all (each tuple to 3 tasks)" in text
    assert "silent       runs for what it does itself" in text


def test_a_filter_on_the_columns_of_folders_says_what_it_leaves(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"sentence": ["the cow"]}), tmp_path / f"day={day}" / "a.parquet")
    plan = plan_for(word_count(), [f"sentences=parquet:{tmp_path}"])
    (source,) = plan.stage("sentences").sources
    stage = replace(plan.stage("sentences"), sources=(replace(source, filter="day = 2"),))
    text = explain(replace(plan, stages=(stage, *plan.stages[1:])), "local[2]")
    assert "only where day = 2: at most 1 of the 2 files" in text


def test_current_values_name_their_key() -> None:
    plan = plan_for(word_count(), ["sentences=text:/in"], ["count=/out"])
    (sink,) = plan.sinks
    text = explain(replace(plan, sinks=(replace(sink, key=("word",)),)), "local[2]", streaming=True)
    assert "/out: word string, count bigint; the newest tuple of each word" in text
