"""A plan as a Structured Streaming query: every micro-batch is a small batch job.

Spark's checkpoint records which input belongs to which micro-batch; ours, beside it, holds the
state of stateful bolts after each (`state`). A micro-batch that was cut short runs again with the
same number and the same input: it starts from the state before it and replaces its output, the
folder `batch=N` of each `--output`. So each tuple takes effect once, whichever process is killed.

    CHECKPOINT/spark    Spark's own: offsets, commits
    CHECKPOINT/state    see `state`
    CHECKPOINT/plan     tasks of the stateful components, and column types of the outputs so far
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_spark import datasets
from squall_spark.batch import Frames, write
from squall_spark.bindings import Format, Source
from squall_spark.columns import TypeGuess
from squall_spark.plan import Sink, SparkPlan, Stage, StageKind
from squall_spark.stages import Code
from squall_spark.state import StateAt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAIT_SECS = 1
_KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A micro-batch that has ended."""

    number: int
    tuples: Mapping[str, int]  # the number written, by stream
    secs: float


def run_stream(
    spark: SparkSession,
    plan: SparkPlan,
    code: Code | None,
    *,
    checkpoint: str,
    trigger_secs: float = 1.0,
    available_now: bool = False,
    on_batch_done: Callable[[BatchDone], None] | None = None,
) -> None:
    """Run a plan until it is interrupted, or (with `available_now`) until the data available now is
    processed. Raises SquallError."""
    for sink in plan.sinks:
        if sink.format is Format.TABLE:
            raise SquallError(
                f"--output {sink.stream}: with --streaming, use files instead of a table",
                hint="a batch that runs again replaces its own folder, which a table does not have",
            )
    memory = _Memory(checkpoint)
    memory.check(plan)
    stream = _Input(spark, plan)

    def one_batch(frame: DataFrame, number: int) -> None:
        done = _run_batch(plan, code, stream, frame, number, memory)
        if on_batch_done is not None:
            on_batch_done(done)

    writer = stream.frame.writeStream.foreachBatch(one_batch)
    writer = writer.option("checkpointLocation", f"{checkpoint}/spark").queryName(plan.name)
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(trigger_secs * 1000)} milliseconds")
    query = writer.start()
    try:
        # In short waits, because signals are handled between two of them.
        while not query.awaitTermination(_WAIT_SECS):
            pass
    finally:
        query.stop()


def _run_batch(
    plan: SparkPlan,
    code: Code | None,
    stream: _Input,
    frame: DataFrame,
    number: int,
    memory: _Memory,
) -> BatchDone:
    start = time.monotonic()
    states = {
        stage.component: StateAt(memory.checkpoint, stage.component, number)
        for stage in plan.stages
        if stage.stateful
    }
    frame = frame.persist()  # read once for each spout and pass
    frames = Frames(frame.sparkSession, plan, code, states, stream.split(frame))
    written = {}
    try:
        frames.build()
        for sink in plan.sinks:
            guess, written[str(sink.stream)] = frames.guess(sink)
            known = memory.widen(sink, guess)
            path = f"{sink.path.rstrip('/')}/batch={number}"
            write(frames.typed(sink, known), sink, mode="overwrite", path=path)
        for component in frames.unread():
            frames.of[component].write.format("noop").mode("overwrite").save()
    finally:
        frames.release()
        frame.unpersist()
    return BatchDone(number, written, time.monotonic() - start)


class _Memory:
    """What has to survive between two runs, besides offsets and state."""

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint.rstrip("/")
        self._folder = Folder(f"{self.checkpoint}/plan")
        self._names = set(self._folder.names())

    def check(self, plan: SparkPlan) -> None:
        """Check that the state in the checkpoint belongs to this topology. Raises SquallError."""
        tasks = {s.component: len(s.tasks) for s in plan.stages if s.stateful}
        if "tasks.json" in self._names:
            before: dict[str, int] = json.loads(self._folder.read("tasks.json"))
            for component in sorted(before.keys() | tasks.keys()):
                if before.get(component) != tasks.get(component):
                    raise SquallError(
                        f"--checkpoint {self.checkpoint} is for another topology: stateful bolt "
                        f"{component!r} had {before.get(component, 0)} tasks in it and now has "
                        f"{tasks.get(component, 0)}",
                        hint="state is kept by task: keep the number of tasks, or start with a new "
                        "--checkpoint",
                    )
        else:
            self._folder.write("tasks.json", json.dumps(tasks).encode())

    def widen(self, sink: Sink, guess: TypeGuess) -> TypeGuess:
        """The types of all batches so far, including this one: a column never gets narrower. Raises
        MixedTypesError."""
        name = f"types-{sink.task}.json"
        if name in self._names:
            before = TypeGuess.from_json(sink.fields, self._folder.read(name).decode())
            known = before.to_json()
            before.merge(guess)
            guess = before
        else:
            known = ""
        if guess.to_json() != known:
            self._folder.write(name, guess.to_json().encode())
            self._names.add(name)
        return guess


class _Input:
    """All the streams of a plan as one, because a query has one input. Column `stream` has the
    index of the stream; the fields of stream i are the columns `i.FIELD`."""

    def __init__(self, spark: SparkSession, plan: SparkPlan) -> None:
        from pyspark.sql import functions as sf

        self._fields: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        wide: list[DataFrame] = []
        for stage in plan.stages:
            if stage.kind is not StageKind.DATA:
                continue
            for source in stage.sources:
                fields = _fields_of(plan, stage, source)
                number = len(wide)
                frame = read_stream(spark, source, fields)
                wide.append(
                    frame.select(
                        sf.lit(number).alias("stream"),
                        *(frame[f"`{f}`"].alias(f"{number}.{f}") for f in fields),
                    )
                )
                self._fields.setdefault(stage.component, []).append((number, fields))
        self.frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), wide)

    def split(self, frame: DataFrame) -> dict[str, list[DataFrame]]:
        """A micro-batch by component, a data frame for each of its streams."""
        from pyspark.sql import functions as sf

        return {
            component: [
                frame.filter(sf.col("stream") == number).select(
                    *(sf.col(f"`{number}.{f}`").alias(f) for f in fields)
                )
                for number, fields in streams
            ]
            for component, streams in self._fields.items()
        }


def _fields_of(plan: SparkPlan, stage: Stage, source: Source) -> tuple[str, ...]:
    return plan.topology.components[stage.component].streams[source.stream.stream].fields


def read_stream(spark: SparkSession, source: Source, fields: tuple[str, ...]) -> DataFrame:
    """A stream with the columns `fields`. Raises SquallError."""
    try:
        if source.format is Format.SOCKET:
            host, _, port = source.path.rpartition(":")
            frame = spark.readStream.format("socket").option("host", host).option("port", port)
            return datasets.select_fields(frame.load(), source, fields)
        if source.format is Format.KAFKA:
            return _kafka(spark, source, fields)
        format_ = source.format or datasets.sniff(spark, source)
        reader = datasets.with_options(spark.readStream, format_)
        if format_ is not Format.TEXT:
            # A stream has no types of its own: use those of the existing files.
            there = datasets.with_options(spark.read, format_).load(source.path)
            reader = reader.schema(there.schema)
        known = Source(source.stream, source.path, format_)
        return datasets.select_fields(reader.load(source.path), known, fields)
    except SquallError:
        raise
    except Exception as error:  # PySpark's own, or Py4J's
        raise datasets.unreadable(source, error) from error


def _kafka(spark: SparkSession, source: Source, fields: tuple[str, ...]) -> DataFrame:
    """`kafka:HOST:PORT/TOPIC`, from the beginning of the topic unless a checkpoint has a position.
    The fields are Kafka's columns, by name; a spout with one field of another name gets the value,
    as text."""
    from pyspark.sql import functions as sf

    servers, slash, topic = source.path.partition("/")
    if not slash or not topic:
        raise SquallError(
            f"--input {source.stream}=kafka:{source.path} has no topic",
            hint="write kafka:HOST:PORT/TOPIC",
        )
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    # Otherwise Spark would skip existing data, and --available-now would find nothing.
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    try:
        frame = reader.load()
    except Exception as error:
        if "find the data source: kafka" in str(error) or "DATA_SOURCE_NOT_FOUND" in str(error):
            raise SquallError(
                "Spark has no Kafka connector",
                hint="--spark-conf spark.jars.packages="
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}",
            ) from error
        raise
    if len(fields) == 1 and fields[0] not in _KAFKA_COLUMNS:
        return frame.select(sf.col("value").cast("string").alias(fields[0]))
    return datasets.select_fields(frame, source, fields)


def say_batch(done: BatchDone) -> None:
    """Print one line per micro-batch, on stderr."""
    tuples = ", ".join(f"{stream} {count}" for stream, count in done.tuples.items())
    wrote = f", wrote {tuples}" if tuples else ""
    print(f"batch {done.number}: {done.secs:.1f} s{wrote}", file=sys.stderr, flush=True)
