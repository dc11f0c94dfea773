"""Outputs that hold the current value of each key: a view of Parquet, Delta, a database."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support import spark_topologies as st

import squall_spark
from squall import Bolt, Stream, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_spark.batch import run_batch
from squall_spark.current import write
from squall_spark.job import Job
from squall_spark.plan import SparkPlan, make_plan
from squall_spark.stream.query import run_stream
from squall_spark.traits import traits_of

# The first one also waits for the JVM, and each runs several streams.
pytestmark = pytest.mark.timeout(450)


class Orders(st.Endless):
    outputs = Stream({"sku": str, "day": int, "price": int | None})


class Prices(Bolt):
    outputs = Stream({"sku": str, "day": int, "price": int | None})
    stateless = True

    def execute(self, tup: Any) -> None:
        self.emit(list(tup.values))


class GuessedPrices(Prices):
    outputs = ["sku", "day", "price"]


def plan(
    where: Path,
    output: str,
    *,
    key: tuple[str, ...] = ("sku",),
    streaming: bool = False,
    bolt: Any = None,
    tasks: int = 2,
    **job: Any,
) -> SparkPlan:
    """As `storm spark run` makes it."""
    builder = TopologyBuilder()
    builder.spout("orders", Orders())
    builder.bolt("prices", bolt or Prices(), parallelism=tasks).fields("orders", "sku")
    made = builder.build()
    wanted = Job(
        (f"orders=json:{where}",), (), current=(f"prices={output}",), keys=(("prices", key),), **job
    )
    conf = normalize_topology_conf({}, default_conf(), name="test")
    return make_plan(
        "test", made, conf, traits_of(made), wanted.sources(), wanted.targets(),
        streaming=streaming,
    )  # fmt: skip


def arrive(tmp_path: Path, number: int, *rows: tuple[str, int, Any]) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    lines = (json.dumps({"sku": s, "day": d, "price": p}) + "\n" for s, d, p in rows)
    (tmp_path / "in" / f"{number}.json").write_text("".join(lines))


def stream(spark: Any, tmp_path: Path, wanted: SparkPlan) -> None:
    run_stream(spark, wanted, None, checkpoint=f"{tmp_path}/cp", available_now=True)


def in_view(folder: Path) -> dict[str, tuple[Any, ...]]:
    rows = pq.read_table(folder).to_pylist()
    found = {row["sku"]: (row["day"], row["price"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_view_has_the_newest_tuple_of_each_key(spark: Any, tmp_path: Path) -> None:
    wanted = plan(tmp_path / "in", f"{tmp_path}/out", streaming=True, bolt=GuessedPrices())
    many = [(f"s{n % 50}", n // 50, n) for n in range(500)]
    arrive(tmp_path, 0, *many)
    stream(spark, tmp_path, wanted)
    first = squall_spark.view_folder(str(tmp_path / "out"))
    assert in_view(Path(first)) == {f"s{n}": (9, 450 + n) for n in range(50)}
    arrive(tmp_path, 1, ("s1", 10, 2), ("new", 10, 1), ("s1", 10, 3), ("s2", 10, 4))
    stream(spark, tmp_path, wanted)
    assert in_view(tmp_path / "out" / "current")["s1"] == (10, 3)
    assert in_view(Path(first))["s1"] == (9, 451), "a reader of the version before is not disturbed"
    # The same view goes on by another stream, of another number of tasks, and by a batch job.
    shutil.rmtree(tmp_path / "cp")
    shutil.rmtree(tmp_path / "in")
    arrive(tmp_path, 2, ("new", 11, None), ("s3", 11, 5))
    stream(spark, tmp_path, plan(tmp_path / "in", f"{tmp_path}/out", streaming=True, tasks=3))
    now = spark.read.parquet(f"{tmp_path}/out/current")
    assert {row["sku"]: row["price"] for row in now.collect()} == {
        **{f"s{n}": 450 + n for n in range(50)}, "s1": 3, "s2": 4, "s3": 5, "new": None,
    }  # fmt: skip
    run_batch(spark, plan(tmp_path / "in", f"{tmp_path}/out"), None)
    assert len(list((tmp_path / "out" / "_versions").iterdir())) == 3
    run_batch(spark, plan(tmp_path / "in", f"{tmp_path}/out"), None, overwrite=True)
    assert in_view(tmp_path / "out" / "current") == {"new": (11, None), "s3": (11, 5)}


class Gone(Prices):
    """Deletes what has no price."""

    def execute(self, tup: Any) -> None:
        sku, day, price = tup.values
        self.emit([sku, None if price is None else day, price])


class GuessedGone(Gone):
    outputs = ["sku", "day", "price"]


@pytest.mark.parametrize("kind", ["view", "delta", "jdbc"])
def test_a_batch_of_a_stream_that_runs_again_is_there_once(
    spark: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies before the merge, and after it, before Spark knows."""
    spark.sparkContext._jvm.java.lang.System.setProperty(
        "derby.stream.error.file", f"{tmp_path}/derby.log"
    )
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    driver = "org.apache.derby.jdbc.EmbeddedDriver"
    output = {
        "view": f"{tmp_path}/out",
        "delta": f"delta:{tmp_path}/out",
        "jdbc": f"spark:jdbc?url={url.replace(';', '%3B')}&dbtable=prices&driver={driver}"
        "&createTableColumnTypes=sku VARCHAR(20)",
    }[kind]

    def content() -> dict[str, Any]:
        if kind == "jdbc":
            reader = spark.read.format("jdbc").options(url=url, dbtable="prices", driver=driver)
            rows = [row.asDict() for row in reader.load().collect()]
        elif kind == "delta":
            from deltalake import DeltaTable

            rows = DeltaTable(f"{tmp_path}/out").to_pyarrow_table().to_pylist()
        else:
            rows = pq.read_table(tmp_path / "out" / "current").to_pylist()
        assert len({row["sku"] for row in rows}) == len(rows)
        return {row["sku"]: row["price"] for row in rows}

    wanted = plan(tmp_path / "in", output, streaming=True, bolt=GuessedGone())
    arrive(tmp_path, 0, ("a", 1, 1), ("b", 1, 2), ("a", 2, 3))
    stream(spark, tmp_path, wanted)
    assert content() == {"a": 3, "b": 2}
    arrive(tmp_path, 1, ("a", 3, None), ("c", 3, 5), ("never", 3, None))

    merged: list[Any] = []
    real = write.merge

    def dies(*arguments: Any, **options: Any) -> bool:
        merged.append(None)
        if len(merged) == 2:
            real(*arguments, **options)
        raise RuntimeError("killed")

    for expected in ({"a": 3, "b": 2}, {"b": 2, "c": 5}):
        monkeypatch.setattr(write, "merge", dies)
        with pytest.raises(Exception, match="killed"):
            stream(spark, tmp_path, wanted)
        assert content() == expected
    results: list[bool] = []

    def counted(*arguments: Any, **options: Any) -> bool:
        results.append(real(*arguments, **options))
        return results[-1]

    monkeypatch.setattr(write, "merge", counted)
    stream(spark, tmp_path, wanted)
    assert results == [False]
    assert content() == {"b": 2, "c": 5}
    arrive(tmp_path, 2, ("b", 4, 9))
    stream(spark, tmp_path, wanted)
    assert content() == {"b": 9, "c": 5}
    assert results == [False, True]
