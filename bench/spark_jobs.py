"""Word count on Spark, written in five ways for the same data.

A topology of plain bolts, and one of bolts on Arrow arrays; two jobs that one writes who knows
PySpark: two `mapInArrow` functions that go through their tuples one by one, one row a word, and
`repartition("word")` between them, where `bolts` calls an object's execute(tuple) and emit(values)
for each, as a topology does, and `loops` has the loops written out in place; and `frame`, the same
job in DataFrame calls, without Python. Spark's workers import this module.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import ArrowBolt, Bolt, Spout, Stream, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import Topology

WORDS = 8  # a sentence
VOCABULARY = 5_000


class Sentences(Spout):
    outputs = ("sentence",)

    def next_tuple(self) -> None:
        """Never called: --input stands for it."""


class Split(Bolt):
    outputs = ("word",)

    def execute(self, tup: Any) -> None:
        for word in tup["sentence"].split():
            self.emit([word])


class Count(Bolt):
    outputs = Stream({"word": str, "count": int})

    def prepare(self, conf: Any, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Any) -> None:
        self.counts[tup["word"]] += 1

    def flush(self) -> None:
        for word, count in self.counts.items():
            self.emit([word, count])


def topology(parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.spout("sentences", Sentences(), parallelism=parallelism)
    builder.bolt("split", Split(), parallelism=parallelism).local_or_shuffle("sentences")
    builder.bolt("count", Count(), parallelism=parallelism).fields("split", "word")
    return builder.build()


class ArrowSplit(ArrowBolt):
    outputs = Stream({"word": str})

    def execute_arrow(self, batch: Any) -> None:
        import pyarrow.compute as pc

        words = pc.split_pattern(batch["sentence"], " ")
        self.emit_arrow([pc.list_flatten(words)], origins=pc.list_parent_indices(words))


class ArrowCount(ArrowBolt):
    outputs = Stream({"word": str, "count": int})

    def prepare(self, conf: Any, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute_arrow(self, batch: Any) -> None:
        found = batch["word"].value_counts()
        values, counts = found.field("values").to_pylist(), found.field("counts").to_pylist()
        for word, count in zip(values, counts, strict=True):
            self.counts[word] += count

    def flush(self) -> None:
        self.emit_columns([list(self.counts), list(self.counts.values())], origins=())


def arrow_topology(parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.spout("sentences", Sentences(), parallelism=parallelism)
    builder.bolt("split", ArrowSplit(), parallelism=parallelism).local_or_shuffle("sentences")
    builder.bolt("count", ArrowCount(), parallelism=parallelism).fields("split", "word")
    return builder.build()


class PlainSplit:
    """A bolt by hand."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def emit(self, values: list[Any]) -> None:
        self.rows.append(values)

    def execute(self, tup: dict[str, Any]) -> None:
        for word in tup["sentence"].split():
            self.emit([word])


class PlainCount:
    """The other."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: dict[str, Any]) -> None:
        self.counts[tup["word"]] += 1


def bolts(spark: Any, path: str, out: str, parallelism: int) -> None:
    """The same without squall: a call of a bolt a tuple."""
    import pyarrow as pa

    def split(batches: Iterator[Any]) -> Iterator[Any]:
        bolt = PlainSplit()
        for batch in batches:
            for tup in batch.to_pylist():
                bolt.execute(tup)
            words = [row[0] for row in bolt.rows]
            bolt.rows.clear()
            yield pa.record_batch([pa.array(words, pa.string())], names=["word"])

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        bolt = PlainCount()
        for batch in batches:
            for tup in batch.to_pylist():
                bolt.execute(tup)
        yield pa.record_batch(
            [pa.array(bolt.counts.keys(), pa.string()), pa.array(bolt.counts.values(), pa.int64())],
            names=["word", "count"],
        )

    words = spark.read.parquet(path).mapInArrow(split, "word string")
    counted = words.repartition(parallelism, "word").mapInArrow(count, "word string, count long")
    counted.write.mode("overwrite").parquet(out)


def loops(spark: Any, path: str, out: str, parallelism: int) -> None:
    """The same without squall: loops in place."""
    import pyarrow as pa

    def split(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            words: list[str] = []
            for sentence in batch.column(0).to_pylist():
                for word in sentence.split():
                    words.append(word)
            yield pa.record_batch([pa.array(words)], names=["word"])

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        counts: Counter[str] = Counter()
        for batch in batches:
            for word in batch.column(0).to_pylist():
                counts[word] += 1
        yield pa.record_batch(
            [pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64())],
            names=["word", "count"],
        )

    words = spark.read.parquet(path).mapInArrow(split, "word string")
    counted = words.repartition(parallelism, "word").mapInArrow(count, "word string, count long")
    counted.write.mode("overwrite").parquet(out)


def frame(spark: Any, path: str, out: str, parallelism: int) -> None:
    """The same in DataFrame calls, in the JVM alone."""
    from pyspark.sql import functions as sf

    words = spark.read.parquet(path).select(sf.explode(sf.split("sentence", " ")).alias("word"))
    counted = words.repartition(parallelism, "word").groupBy("word").count()
    counted.write.mode("overwrite").parquet(out)


def on_squall(spark: Any, path: str, out: str, parallelism: int) -> None:
    """The topology."""
    _run_topology(spark, topology(parallelism), path, out)


def on_arrow(spark: Any, path: str, out: str, parallelism: int) -> None:
    """The topology on Arrow arrays."""
    _run_topology(spark, arrow_topology(parallelism), path, out)


def _run_topology(spark: Any, made: Topology, path: str, out: str) -> None:
    from squall_spark.batch import run_batch
    from squall_spark.data.bindings import parse_input, parse_output
    from squall_spark.plan import make_plan
    from squall_spark.traits import traits_of

    conf = normalize_topology_conf({}, default_conf(), name="wordcount")
    inputs, outputs = [parse_input(f"sentences={path}")], [parse_output(f"count={out}")]
    plan = make_plan("wordcount", made, conf, traits_of(made), inputs, outputs)
    run_batch(spark, plan, None, overwrite=True)


def make_sentences(path: Path, count: int) -> None:
    """A Parquet file of `count` sentences, in row groups, the same every time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chooser = random.Random(1)
    words = [f"w{i}" for i in range(VOCABULARY)]
    path.mkdir()
    for part in range(4):
        rows = [" ".join(chooser.choices(words, k=WORDS)) for _ in range(count // 4)]
        pq.write_table(pa.table({"sentence": rows}), path / f"part-{part}.parquet")


def expected_counts(path: Path) -> dict[str, int]:
    """The count of each word, without Spark."""
    import pyarrow.parquet as pq

    counts: Counter[str] = Counter()
    for sentence in pq.read_table(path)["sentence"].to_pylist():
        counts.update(sentence.split())
    return counts
