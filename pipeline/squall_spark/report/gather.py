"""The job on Spark: reads the files of a history, and sums up their rows.

Files are read by pyarrow in Spark's tasks, through the same code that wrote them, so that every URL
that fsspec supports works without a Spark connector; an unreadable file becomes a row with the
error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from squall_common.daemon.folders import Folder
from squall_common.history.schema import arrow_schema
from squall_spark.report.choose import Chosen
from squall_spark.report.files import rows_of
from squall_spark.report.fold import (
    AHEAD_SECS,
    EVENTS_MAX,
    KEYS_MAX,
    OF_A_KIND_MAX,
    OTHER_VERSION,
    TROUBLES_MAX,
    UNREADABLE,
    check_span,
    fold_counted,
    fold_events,
    fold_keys,
    fold_latencies,
    fold_spans,
    fold_tasks,
    fold_workers,
)
from squall_spark.report.sums import Sums, step_ms
from squall_spark.view.progress import Step, silent

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

_FILES_A_TASK = 64
_TASKS_MAX = 256


def spark_schema() -> Any:
    from pyspark.sql.types import (
        DoubleType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    kinds: dict[str, Any] = {
        "int64": LongType(),
        "int32": IntegerType(),
        "double": DoubleType(),
        "map<int32, int64>": MapType(IntegerType(), LongType()),
    }
    return StructType(
        [StructField(f.name, kinds.get(str(f.type), StringType())) for f in arrow_schema()]
    )


def reader(url: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for mapInArrow, from names of files to their rows."""

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        folder = Folder(url)
        for batch in batches:
            for name in batch.column("name").to_pylist():
                yield from rows_of(folder, name).to_batches()

    return read


def gather(
    spark: SparkSession,
    chosen: Chosen,
    since: float | None,
    *,
    now: float | None = None,
    step: Step = silent,
) -> Sums:
    """Everything that the report needs. Raises HistoryNotFoundError when no rows are left, and
    SquallError when all files were written by another version."""
    from pyspark.sql import functions as F

    now_ms = int((time.time() if now is None else now) * 1000)
    parts = max(1, min(_TASKS_MAX, len(chosen.names) // _FILES_A_TASK, 4 * _cores(spark)))
    names = spark.createDataFrame([(name,) for name in chosen.names], "name string")
    everything = names.repartition(parts).mapInArrow(reader(chosen.folder.url), spark_schema())
    everything = everything.persist()
    try:
        with step("reading the history"):
            span = _span(everything, since, now_ms)
        check_span(span, chosen, since)
        interval_ms = int(1000 * (span["interval"] or 0))
        sums = Sums(
            span["from_ms"],
            span["to_ms"],
            step_ms(span["to_ms"] - span["from_ms"], interval_ms),
            interval_ms=interval_ms,
            ahead=span["ahead"],
            unreadable=[row["text"] for row in span["trouble"]],
        )
        rows = everything.where(_wanted(F.col("at_ms"), since, now_ms))
        rows = rows.withColumn("t", F.col("at_ms") - F.col("at_ms") % F.lit(sums.step_ms))
        with step("summing up"):
            _tasks(rows, sums)
            _latencies(rows, sums)
            _workers(rows, sums)
            _keys(rows, sums)
            _events_and_metrics(rows, sums)
        return sums
    finally:
        everything.unpersist()


def _rows(frame: DataFrame) -> Iterator[dict[str, Any]]:
    return (row.asDict() for row in frame.collect())


def _cores(spark: SparkSession) -> int:
    return int(spark.sparkContext.defaultParallelism)


def _wanted(at: Column, since: float | None, now_ms: int) -> Column:
    wanted = (at > 0) & (at <= now_ms + int(AHEAD_SECS * 1000))
    return wanted if since is None else wanted & (at >= int(since * 1000))


def _span(everything: DataFrame, since: float | None, now_ms: int) -> dict[str, Any]:
    from pyspark.sql import functions as F

    at = F.col("at_ms")
    wanted = _wanted(at, since, now_ms)
    began = at - (F.col("secs") * 1000).cast("long")
    gauge = F.when(wanted & (F.col("kind") == "gauge"), F.col("secs"))
    found = everything.agg(
        F.min(F.when(wanted, began)).alias("from_ms"),
        F.max(F.when(wanted, at)).alias("to_ms"),
        F.percentile_approx(gauge, 0.5).alias("interval"),
        F.sum(F.when(at > now_ms + int(AHEAD_SECS * 1000), 1).otherwise(0)).alias("ahead"),
        F.count(F.when(F.col("kind").isin(UNREADABLE, OTHER_VERSION), 1)).alias("troubles"),
    ).first()
    assert found is not None
    span: dict[str, Any] = found.asDict()
    span["trouble"] = []
    if span.pop("troubles"):
        trouble = everything.where(F.col("kind").isin(UNREADABLE, OTHER_VERSION))
        span["trouble"] = (
            trouble.select("kind", "text").orderBy("text").limit(TROUBLES_MAX).collect()
        )
    if since is not None and span["from_ms"] is not None:
        span["from_ms"] = max(span["from_ms"], int(since * 1000))
    return span


def _count(name: str) -> Any:
    """Events of a count; ticks of a bolt are left out, as they do not come from its sources."""
    from pyspark.sql import functions as F

    is_it = (F.col("kind") == "count") & (F.col("name") == name)
    if name != "emitted":
        is_it &= ~F.col("stream").startswith("__system:")
    return F.sum(F.when(is_it, F.col("n")).otherwise(0)).cast("long").alias(name)


def _counted() -> list[Any]:
    from pyspark.sql import functions as F

    busy = (F.col("kind") == "latency") & (F.col("name") == "execute")
    return [
        *(_count(name) for name in ("emitted", "executed", "acked", "failed")),
        F.sum(F.when(busy, F.col("value")).otherwise(0.0)).alias("busy_secs"),
        F.sum(F.when(F.col("kind") == "gauge", F.col("secs")).otherwise(0.0)).alias("secs"),
    ]


def _tasks(rows: DataFrame, sums: Sums) -> None:
    """Tasks and steps: the sums of each task in each step, summed up both ways."""
    from pyspark.sql import functions as F

    of_tasks = rows.where(F.col("kind").isin("count", "latency", "gauge"))
    gauge = F.col("kind") == "gauge"
    found = of_tasks.groupBy("component", "task", "t").agg(
        *_counted(),
        F.max_by("executor", F.when(gauge, F.col("at_ms"))).alias("executor"),
        F.max(F.when(gauge, F.col("at_ms"))).alias("last_ms"),
        F.max(F.when(gauge, F.col("value")).otherwise(0.0)).alias("waiting"),
        F.max(F.when(gauge, F.col("n")).otherwise(0)).alias("calls_max"),
        F.max(F.when(F.col("name").isin("pending", "complete"), 1).otherwise(0)).alias("spout"),
    )
    fold_tasks(_rows(found), sums)


def _latencies(rows: DataFrame, sums: Sums) -> None:
    from pyspark.sql import functions as F

    timed = rows.where((F.col("kind") == "latency") & ~F.col("stream").startswith("__system:"))
    found = (
        timed.select("component", "name", "t", F.explode("buckets").alias("bucket", "events"))
        .groupBy("component", "name", "t", "bucket")
        .agg(F.sum("events").alias("events"))
    )
    fold_latencies(_rows(found), sums)


def _workers(rows: DataFrame, sums: Sums) -> None:
    from pyspark.sql import functions as F

    cpu = F.col("name") == "cpu_secs"
    found = (
        rows.where(F.col("kind") == "worker")
        .groupBy("worker", "t")
        .agg(
            F.sum(F.when(cpu, F.col("value")).otherwise(0.0)).alias("cpu_secs"),
            F.sum(F.when(cpu, F.col("secs")).otherwise(0.0)).alias("secs"),
            F.max(F.when(~cpu, F.col("value")).otherwise(0.0)).alias("rss_bytes"),
            F.max("n").alias("poll_ms"),
        )
    )
    fold_workers(_rows(found), sums)
    spans = (
        rows.where(F.col("kind") == "gauge")
        .groupBy("worker", "incarnation")
        .agg(
            F.min(F.col("at_ms") - (F.col("secs") * 1000).cast("long")).alias("from_ms"),
            F.max("at_ms").alias("to_ms"),
            F.collect_set("component").alias("components"),
        )
    )
    fold_spans(_rows(spans), sums)


def _keys(rows: DataFrame, sums: Sums) -> None:
    """The samples of each grouping, and its most frequent keys."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = ("kind", "component", "stream", "name")
    summed = (
        rows.where(F.col("kind").isin("key", "keys"))
        .groupBy(*place, "text")
        .agg(
            F.sum("n").alias("samples"),
            F.sum("error").alias("error"),
            F.max_by("value", "at_ms").alias("rate"),
            F.max_by("task", "at_ms").alias("task"),
        )
    )
    order = Window.partitionBy(*place).orderBy(F.desc("samples"), "text")
    ranked = summed.withColumn("rank", F.row_number().over(order))
    found = ranked.where(F.col("rank") <= KEYS_MAX).orderBy("rank")
    unreported = {
        (row["component"], row["stream"], row["name"]): int(row["unreported"])
        for row in _rows(_unreported(rows))
    }
    fold_keys(_rows(found), unreported, sums)


def _unreported(rows: DataFrame) -> DataFrame:
    """How many samples of one key the workers of each grouping may have left out: they report only
    the heaviest keys of an interval, so any other key has at most as many as the lightest."""
    from pyspark.sql import functions as F

    place = ("component", "stream", "name")
    key = F.col("kind") == "key"
    intervals = (
        rows.where(F.col("kind").isin("key", "keys"))
        .groupBy(*place, "worker", "incarnation", "at_ms")
        .agg(
            F.sum(F.when(key, F.col("n")).otherwise(0)).alias("reported"),
            F.sum(F.when(key, 0).otherwise(F.col("n"))).alias("samples"),
            F.min(F.when(key, F.col("n"))).alias("lightest"),
        )
    )
    cut = intervals.where(F.col("reported") < F.col("samples"))
    return (
        cut.groupBy(*place)
        .agg(F.sum("lightest").alias("unreported"))
        .where("unreported is not null")
    )


def _events_and_metrics(rows: DataFrame, sums: Sums) -> None:
    """Events, errors, users' metrics, and the numbers of lost rows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    events = rows.where(F.col("kind") == "event").orderBy(F.desc("at_ms")).limit(EVENTS_MAX)
    fold_events(_rows(events), sums)
    # The last line of an error's traceback says what happened.
    line = F.substring_index(F.rtrim(F.col("text")), "\n", -1)
    message = F.when(F.col("kind") == "error", line).otherwise("")
    summed = (
        rows.where(F.col("kind").isin("error", "metric", "lost"))
        .groupBy("kind", "component", "name", message.alias("message"))
        .agg(
            F.sum("n").alias("n"),
            F.count("*").alias("rows"),
            F.sum("value").alias("total"),
            F.min("at_ms").alias("first"),
            F.max("at_ms").alias("last"),
        )
    )
    order = Window.partitionBy("kind").orderBy(F.desc("n"), "component", "name", "message")
    ranked = summed.withColumn("rank", F.row_number().over(order))
    found = ranked.where(F.col("rank") <= OF_A_KIND_MAX).orderBy("rank")
    fold_counted(_rows(found), sums)
