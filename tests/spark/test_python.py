"""`squall_spark.run`: data frames in, data frames out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import spark_topologies as st

import squall_spark
from squall import SquallError, Stream, TopologyBuilder

SENTENCES = ["the cow jumped", "over the moon", "the moon", "a cow"]
COUNTS = Counter(" ".join(SENTENCES).split())


def word_count(count: Any = None) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless())
    builder.bolt("split", st.Split(), parallelism=2).shuffle("sentences")
    builder.bolt("count", count or st.Count(), parallelism=2).fields("split", "word")
    return builder


def counted(frame: Any) -> dict[str, int]:
    return {row["word"]: row["count"] for row in frame.collect()}


def inputs(spark: Any, kind: str, folder: Path) -> Any:
    if kind == "spark":
        return spark.createDataFrame([(s, 1) for s in SENTENCES], "sentence string, other int")
    if kind == "pandas":
        return pd.DataFrame({"sentence": SENTENCES})
    if kind == "arrow":
        return pa.table({"n": [1, 2, 3, 4], "sentence": SENTENCES})
    (folder / "in.txt").write_text("".join(f"{s}\n" for s in SENTENCES))
    return folder / "in.txt"


@pytest.mark.parametrize("kind", ["spark", "arrow", "path"])
def test_frames_and_files_in_frames_out(spark: Any, tmp_path: Path, kind: str) -> None:
    given = inputs(spark, kind, tmp_path)
    with squall_spark.run(word_count(), {"sentences": given}, spark=spark) as result:
        assert list(result) == ["count"]
        assert counted(result["count"]) == COUNTS
        # The result is a data frame like any other.
        assert result["count"].filter("count > 2").count() == 1
        words = sum(COUNTS.values())
        assert result.totals == {
            "sentences": (0, 4), "split": (4, words), "count": (words, len(COUNTS))
        }  # fmt: skip


class TypedCount(st.Count):
    outputs = Stream({"word": str, "count": int})


def test_a_stream_of_declared_types_is_lazy_and_a_session_may_be_adaptive(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = inputs(spark, "spark", tmp_path)
    adaptive = spark.newSession()
    adaptive.conf.set("spark.sql.adaptive.enabled", "true")
    adaptive.conf.set("spark.sql.shuffle.partitions", "7")
    data = adaptive.createDataFrame(frame.toPandas())
    builder = word_count(TypedCount())
    result = squall_spark.run(
        builder, {"sentences": data}, "count", spark=adaptive, parallelism={"count": 5},
        progress=True,
    )  # fmt: skip
    assert result.totals["count"] == (0, 0)
    assert len(result.plan.stage("count").tasks) == 5
    assert result["count"].dtypes == [("word", "string"), ("count", "bigint")]
    assert counted(result["count"]) == COUNTS
    assert "opening the inputs: done in " in capfd.readouterr().err
    # Results of one topology are the inputs of another.
    doubled = TopologyBuilder()
    doubled.spout("counts", st.Numbers(0))
    doubled.bolt("double", st.Doubles()).shuffle("counts")
    numbers = result["count"].select(result["count"]["count"].alias("number"))
    again = squall_spark.run(doubled, {"counts": numbers}, spark=adaptive)["double"]
    assert Counter(row["value"] for row in again.collect()) == Counter(
        2 * n for n in COUNTS.values()
    )


def test_outputs_are_written_too(spark: Any, tmp_path: Path) -> None:
    given = {"sentences": inputs(spark, "pandas", tmp_path)}
    places = {"count": f"{tmp_path}/counts", "split": f"json:{tmp_path}/words"}
    result = squall_spark.run(word_count(), given, places, spark=spark)
    assert counted(result["count"]) == COUNTS
    assert pq.read_table(tmp_path / "counts").num_rows == len(COUNTS)
    lines = [json.loads(x) for f in (tmp_path / "words").glob("*.json")
             for x in f.read_text().splitlines()]  # fmt: skip
    assert Counter(line["word"] for line in lines) == COUNTS
    with pytest.raises(SquallError, match="already exists"):
        squall_spark.run(word_count(), given, places, spark=spark)


def test_a_notebook_draws_topology_outputs_and_plan(spark: Any, tmp_path: Path) -> None:
    given = {"sentences": inputs(spark, "pandas", tmp_path)}
    result = squall_spark.run(word_count(), given, spark=spark)
    page = result._repr_html_()
    assert "<svg" in page
    assert f"{sum(COUNTS.values())} emitted" in page
    assert "<code>word string, count bigint</code>" in page
    assert "split -&gt; count moves: fields: word" in page
    assert "output of count" not in page
    assert repr(result) == "Result(count: DataFrame[word: string, count: bigint])"


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"sentences": 7}, {}, r"inputs\['sentences'\]: a int does not become a DataFrame"),
        ({"sentences": pd.DataFrame({"x": [1]})}, {}, "no field 'sentence', which the spout emits"),
        ({"sentence": pd.DataFrame({"x": [1]})}, {}, "'sentence' is not a component"),
        (
            {"sentences": pd.DataFrame({"sentence": ["a"]})},
            {"outputs": "cnt"},
            "no component 'cnt'",
        ),
        ({}, {"parallelism": {"cnt": 2}}, "--parallelism cnt: there is no component 'cnt'"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(
    spark: Any, given: Any, options: Any, message: str
) -> None:
    with pytest.raises(SquallError, match=message):
        squall_spark.run(word_count(), given, spark=spark, **options)


def test_an_output_that_is_there_is_found_before_another_is_written(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    outputs = {"split": f"json:{tmp_path}/words", "count": f"json:file://{tmp_path}/there"}
    given = {"sentences": inputs(spark, "pandas", tmp_path)}
    with pytest.raises(SquallError, match=r"/there already exists"):
        squall_spark.run(word_count(), given, outputs, spark=spark)
    assert not (tmp_path / "words").exists()


def test_a_bolt_that_fails_is_named(spark: Any, tmp_path: Path) -> None:
    given = {"sentences": inputs(spark, "pandas", tmp_path)}

    def kept() -> int:
        return int(spark.sparkContext._jsc.sc().getPersistentRDDs().size())

    before = kept()
    with pytest.raises(SquallError, match=r"component 'count', task \d+: a tuple failed: ValueErr"):
        squall_spark.run(word_count(st.Raises()), given, spark=spark)
    assert kept() == before


NOTEBOOK = """
import sys
del sys.modules["__main__"].__file__
from squall import Bolt, Spout, TopologyBuilder
import squall_spark
class Sentences(Spout):
    outputs = ["sentence"]
    def next_tuple(self): pass
def words(text): return text.split()
class Split(Bolt):
    outputs = ["word"]
    def execute(self, tup):
        for word in words(tup["sentence"]): self.emit([word])
builder = TopologyBuilder()
builder.spout("sentences", Sentences())
builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
import pyarrow as pa
frame = squall_spark.run(builder, {"sentences": pa.table({"sentence": ["the cow"]})})["split"]
print(sorted(row["word"] for row in frame.collect()))
"""


@pytest.mark.timeout(400)
def test_classes_of_a_notebook_travel_and_a_session_is_started(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(NOTEBOOK)
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['cow', 'the']\n"
    assert "WARN" not in done.stderr
