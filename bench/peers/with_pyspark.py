"""PySpark, local[2], its native word count: nothing of it is Python. With SQUALL_BENCH_STREAMING=1
it is Structured Streaming (a micro-batch for each file, state in a checkpoint), else one batch
query over the same files. A small query warms the session up first."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import peer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

_scratch = tempfile.TemporaryDirectory()
spark = (
    SparkSession.builder.master("local[2]")
    .appName("word count")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.local.dir", _scratch.name)
    .config("spark.sql.warehouse.dir", f"{_scratch.name}/warehouse")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


_FILES = 10
_streaming = os.environ.get("SQUALL_BENCH_STREAMING") == "1"


def _count(lines: DataFrame) -> DataFrame:
    return lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").count()


def _query(folder: Path) -> dict[str, int]:
    if not _streaming:
        rows = _count(spark.read.text(str(folder))).collect()
        return {row["word"]: row["count"] for row in rows}
    counts: dict[str, int] = {}

    def take(batch: DataFrame, number: int) -> None:
        counts.update({row["word"]: row["count"] for row in batch.collect()})

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    query = _count(lines).writeStream.outputMode("update").foreachBatch(take)
    started = (
        query.trigger(availableNow=True).option("checkpointLocation", f"{folder}.state").start()
    )
    started.awaitTermination()
    return counts


def warm_up(lines: list[str]) -> None:
    rounds = int(sys.argv[2])
    text = "\n".join(lines) + "\n"
    for name, times in (("small", 1), ("lines", rounds)):
        folder = Path(_scratch.name) / name
        folder.mkdir()
        for number in range(min(_FILES, times)):
            each = len(range(number, times, _FILES))
            (folder / f"{number}.txt").write_text(text * each)
    _query(Path(_scratch.name) / "small")


def count(lines: list[str], rounds: int) -> dict[str, int]:
    return _query(Path(_scratch.name) / "lines")


if __name__ == "__main__":
    peer.main(count, warm_up)
    spark.stop()
