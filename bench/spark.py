"""Word count on Spark: a topology against hand-written code for the same job, in one session.

    python -m bench.spark [--sentences 1000000] [--rounds 3] [--parallelism 2]

The hand-written job is what one writes who knows PySpark: two `mapInArrow` functions that go
through their tuples one by one, one row a word, and `repartition("word")` between them. There are
two of it: `bolts` calls an object's execute(tuple) and emit(values) for each, as a topology does,
and `loops` has the loops written out in place. `frame` is the same job without Python, in
DataFrame calls, and `arrow` a topology of bolts on Arrow arrays. Prints one JSON document; each
ratio is of the best rounds, which take turns: by wall time, and by the CPU time of all processes,
which other work on the machine disturbs less. `tasks_64_to_4` is the CPU of the topology with 64
tasks a component over that with 4.
`memory` has the largest resident sizes of a Python worker and of the JVM, whose heap is limited to
1 GiB, at a tenth of the sentences and at all of them, in MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

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
    outputs = ("word", "count")

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


class _Largest:
    """The largest resident sizes that Python workers and the JVM below this process reach."""

    def __enter__(self) -> _Largest:
        self.mib = {"python": 0.0, "java": 0.0}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._end.wait(0.1):
            for child in me.children(recursive=True):
                try:
                    for name in self.mib:
                        if name in child.name():
                            mib = round(child.memory_info().rss / 2**20, 1)
                            self.mib[name] = max(self.mib[name], mib)
                except psutil.Error:
                    continue


def _cpu_secs() -> float:
    """The CPU time of this process, the JVM and its Python workers so far."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # with children that have ended
        except psutil.Error:
            continue
    return total


def _timed(run: Callable[..., None], *arguments: Any) -> float:
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description="Word count on Spark, against hand-written code.")
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    from squall_spark.session import spark_session

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        large, small = folder / "large", folder / "small"
        make_sentences(large, options.sentences)
        make_sentences(small, options.sentences // 10)
        conf = [("spark.driver.memory", "1g"), ("spark.local.dir", scratch)]
        log = folder / "spark.log"
        with spark_session("bench", master="local[2]", conf=conf, log_file=log) as spark:
            p = options.parallelism
            sides = {
                "bolts": bolts,
                "loops": loops,
                "squall": on_squall,
                "frame": frame,
                "arrow": on_arrow,
            }
            memory = {}
            for run in sides.values():  # Python workers and the JVM's compiler warm up
                run(spark, str(small), str(folder / "out"), p)
            with _Largest() as largest:
                on_squall(spark, str(small), str(folder / "out"), p)
            memory["at_a_tenth_mib"] = largest.mib
            secs: dict[str, list[float]] = {name: [] for name in sides}
            cpu: dict[str, list[float]] = {name: [] for name in sides}
            with _Largest() as largest:
                for _ in range(options.rounds):
                    for name, run in sides.items():
                        out = str(folder / f"out-{name}")
                        before = _cpu_secs()
                        secs[name].append(round(_timed(run, spark, str(large), out, p), 2))
                        cpu[name].append(round(_cpu_secs() - before, 2))
            memory["at_all_mib"] = largest.mib
            counts = [_counts(spark, folder / f"out-{name}") for name in sides]
            same = all(each == counts[0] for each in counts)
            tasks: dict[int, list[float]] = {4: [], 64: []}
            for _ in range(options.rounds + 1):  # the first one warms up
                for number, found in tasks.items():
                    before = _cpu_secs()
                    on_squall(spark, str(small), str(folder / "out"), number)
                    found.append(round(_cpu_secs() - before, 2))
        words = options.sentences // 4 * 4 * WORDS
        result = {
            "sentences": options.sentences,
            "parallelism": p,
            "secs": secs,
            "cpu_secs": cpu,
            "tasks_cpu_secs": tasks,
            "words_per_sec": {name: round(words / min(each)) for name, each in secs.items()},
            "ratio_to_bolts": round(min(secs["bolts"]) / min(secs["squall"]), 2),
            "ratio_to_loops": round(min(secs["loops"]) / min(secs["squall"]), 2),
            "ratio_of_arrow_to_frame": round(min(secs["frame"]) / min(secs["arrow"]), 2),
            "cpu_ratio_to_loops": round(min(cpu["loops"]) / min(cpu["squall"]), 2),
            "cpu_ratio_of_arrow_to_frame": round(min(cpu["frame"]) / min(cpu["arrow"]), 2),
            "tasks_64_to_4": round(min(tasks[64][1:]) / min(tasks[4][1:]), 2),
            "memory": memory,
            "same_counts": same,
        }
    print(json.dumps(result, indent=2))
    return 0 if same else 1


def _counts(spark: Any, path: Path) -> dict[str, int]:
    return {row["word"]: row["count"] for row in spark.read.parquet(str(path)).collect()}


if __name__ == "__main__":
    # What Spark's workers import must not be `__main__`.
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    from bench import spark as _spark

    sys.exit(_spark.main())
