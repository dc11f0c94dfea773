"""Inputs and outputs beyond files of Spark's own: JDBC, any format, CSV, tables, filters,
partitioned folders, few files."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support import spark_topologies as st

import squall_spark
from squall import ArrowBolt, Bolt, SquallError, Stream, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_spark.batch import run_batch
from squall_spark.job import Job
from squall_spark.plan import SparkPlan, make_plan
from squall_spark.stream.query import run_stream
from squall_spark.traits import traits_of


class Orders(st.Endless):
    outputs = ["sku", "price"]


class Cheaper(Bolt):
    outputs = Stream({"sku": str, "price": int})
    stateless = True

    def execute(self, tup: Any) -> None:
        self.emit([tup["sku"], tup["price"] - 1])


class ArrowCheaper(ArrowBolt):
    outputs = Stream({"sku": str, "price": int})
    stateless = True

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        self.emit_arrow([batch["sku"], pc.subtract(batch["price"], 1)])


def topology(bolt: Any = None, tasks: int = 2) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("orders", Orders())
    builder.bolt("cheaper", bolt or Cheaper(), parallelism=tasks).fields("orders", "sku")
    return builder


def plan(inputs: str, outputs: str, *, streaming: bool = False, **job: Any) -> SparkPlan:
    """As `storm spark run` makes it."""
    made = topology(tasks=job.pop("tasks", 2)).build()
    wanted = Job((inputs,), (outputs,), **job)
    conf = normalize_topology_conf({}, default_conf(), name="test")
    return make_plan(
        "test", made, conf, traits_of(made), wanted.sources(), wanted.targets(),
        streaming=streaming,
    )  # fmt: skip


ROWS = [(f"s{n}", n) for n in range(20)]
CHEAPER = Counter((sku, price - 1) for sku, price in ROWS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for day in range(2):
        folder = tmp_path / "in" / f"day={day}"
        folder.mkdir(parents=True)
        skus, prices = zip(*ROWS[day::2], strict=True)
        pq.write_table(pa.table({"sku": skus, "price": prices}), folder / "a.parquet")
    return tmp_path / "in"


def test_through_a_database_and_a_format_of_sparks(spark: Any, data: Path, tmp_path: Path) -> None:
    """Derby is in Spark's own jars."""
    properties = spark.sparkContext._jvm.java.lang.System
    properties.setProperty("derby.stream.error.file", f"{tmp_path}/derby.log")
    url = f"jdbc:derby:{tmp_path}/db;create=true".replace(";", "%3B")
    jdbc = f"spark:jdbc?url={url}&dbtable=orders&driver=org.apache.derby.jdbc.EmbeddedDriver"
    run_batch(spark, plan(f"orders={data}", f"cheaper={jdbc}"), None)
    orc = f"spark:orc?path={tmp_path}/orc&compression=zlib"
    run_batch(spark, plan(f"orders={jdbc}", f"cheaper={orc}"), None)
    rows = Counter(tuple(row) for row in spark.read.orc(f"{tmp_path}/orc").collect())
    assert rows == Counter((sku, price - 2) for sku, price in ROWS)
    with pytest.raises(SquallError, match="Spark has no such data source") as caught:
        run_batch(spark, plan("orders=spark:nonsense?a=b", f"cheaper={tmp_path}/x"), None)
    assert "spark.jars.packages" in (caught.value.hint or "")


def test_csv_in_folders_by_value_of_what_a_filter_lets_through(
    spark: Any, data: Path, tmp_path: Path
) -> None:
    wanted = plan(
        f"orders={data}", f"cheaper=csv:{tmp_path}/out",
        filters=(("orders", "day = 1 and price < 6"),), partition_by=(("cheaper", ("sku",)),),
    )  # fmt: skip
    run_batch(spark, wanted, None)
    found = {
        file.parent.name: list(csv.reader(file.read_text().splitlines()))
        for file in (tmp_path / "out").glob("*/*.csv")
    }
    assert found == {f"sku=s{n}": [["price"], [str(n - 1)]] for n in (1, 3, 5)}
    read = spark.read.parquet(str(data)).filter("day = 1 and price < 6")
    assert len(read.inputFiles()) == 2  # of which Spark reads one: the filter names the folder
    with pytest.raises(SquallError, match=r"--filter orders=nowhere > 1: .*nowhere"):
        run_batch(
            spark,
            plan(f"orders={data}", f"cheaper={tmp_path}/x", filters=(("orders", "nowhere > 1"),)),
            None,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filters": (("order", "true"),)}, "--filter order: there is no --input order"),
        ({"partition_by": (("split", ("a",)),)}, "--partition-by split: there is no --output"),
        ({"partition_by": (("cheaper", ("day",)),)}, "the stream has no field 'day'"),
        ({"partition_by": (("cheaper", ("sku", "price")),)}, "no field is left to write"),
    ],
)
def test_filters_and_folders_that_do_not_fit(options: Any, message: str) -> None:
    with pytest.raises(SquallError, match=message):
        plan("orders=/in", "cheaper=/out", **options)


def test_many_tasks_write_few_files(spark: Any, data: Path, tmp_path: Path) -> None:
    run_batch(spark, plan(f"orders={data}", f"cheaper={tmp_path}/out", tasks=12), None)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert Counter(tuple(row.values()) for row in rows) == CHEAPER


def test_a_table_as_a_stream(spark: Any, data: Path, tmp_path: Path) -> None:
    frame = spark.read.parquet(str(data)).select("sku", "price")
    frame.write.saveAsTable("squall_orders")
    try:
        wanted = plan("orders=table:squall_orders", f"cheaper={tmp_path}/out", streaming=True)
        for _ in range(2):
            run_stream(spark, wanted, None, checkpoint=f"{tmp_path}/cp", available_now=True)
        rows = [
            tuple(row.values())
            for part in (tmp_path / "out").glob("batch=*")
            for row in pq.read_table(part, partitioning=None).to_pylist()
        ]
        assert Counter(rows) == CHEAPER
    finally:
        spark.sql("drop table squall_orders")


def test_columns_stay_arrow_from_the_input_to_the_output(spark: Any, data: Path) -> None:
    builder = topology(ArrowCheaper(), tasks=3)
    frame = spark.read.parquet(str(data))
    with squall_spark.run(
        builder, {"orders": frame}, spark=spark, filters={"orders": "price >= 10"}
    ) as result:
        assert len(result.plan.arrow_streams) == 2
        rows = Counter(tuple(row) for row in result["cheaper"].collect())
    assert rows == Counter((sku, price - 1) for sku, price in ROWS if price >= 10)
    assert result.totals == {"orders": (0, 10), "cheaper": (10, 10)}
