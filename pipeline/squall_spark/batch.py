"""A plan as a batch job: builds a data frame for each stage, and runs those that are needed.

Data frames are lazy: a chain of components is one job of Spark's, a stage between two shuffles. A
component that is read more than once (two consumers, an output) is kept on the executors' disks, so
that it is computed once; it is as large as its sections.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from squall_spark.before import already_there
from squall_spark.current import write as current
from squall_spark.current.delta import is_table
from squall_spark.data import datasets
from squall_spark.data.bad_records import FAIL, OnBadRecord, keep_broken_files
from squall_spark.data.bindings import Foreign, Format, StreamName
from squall_spark.data.columns import TypeGuess
from squall_spark.data.kafka_sink import KafkaPlace, KafkaSink
from squall_spark.data.kafka_source import TopicSoFar
from squall_spark.plan import Sink, SparkPlan, Stage, StageKind
from squall_spark.state.place import StateAt
from squall_spark.tasks.code import Code
from squall_spark.tasks.counts import Counts
from squall_spark.tasks.stages import (
    GUESSES_DDL,
    SECTIONS_DDL,
    DataInput,
    bolt_stage,
    bounded_stage,
    data_stage,
    guess_stage,
    write_stage,
)
from squall_spark.tasks.task import TaskSpec
from squall_spark.view.progress import Step, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FILE_BYTES = 64 * 1024 * 1024  # of sections in one file of an output

_PARTITIONS_A_CORE = 2  # that a bolt has at most; what Spark's tuning guide advises


@dataclass(slots=True)
class Written:
    """The result of writing an output."""

    sink: Sink
    rows: int


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a sink's tuples before they are written."""

    types: TypeGuess
    files: int | None  # how many files they are worth; None: not known, one for each task


@dataclass(slots=True)
class Frames:
    """The data frames of a plan's stages."""

    spark: SparkSession
    plan: SparkPlan
    code: Code | None = None
    states: Mapping[str, StateAt] = field(default_factory=dict)
    now_secs: float | None = None  # the time of a micro-batch
    # Data frames of a spout's fields, which are used instead of reading the data sets of --input.
    data: Mapping[StreamName, DataFrame] = field(default_factory=dict)
    on_bad: OnBadRecord = FAIL
    counts: Counts = field(init=False)
    topics: dict[StreamName, TopicSoFar] = field(default_factory=dict)  # of a batch job
    broken_files: dict[str, int] = field(default_factory=dict)  # left out, by spout
    of: dict[str, DataFrame] = field(default_factory=dict)
    kept: list[DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = Counts.make(self.spark.sparkContext)

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def build(self) -> None:
        """Describe every stage; nothing runs. Raises SquallError for data that does not exist or
        lacks a field."""
        from pyspark import StorageLevel

        aligned = {i for stage in self.plan.stages if not stage.moves for i in stage.inputs}
        for stage in self.plan.stages:
            if stage.kind is StageKind.DATA:
                frame = self._data(stage, stage.component in aligned)
            elif stage.kind is StageKind.BOUNDED or not stage.inputs:
                frame = self._bounded(stage)
            else:
                frame = self._bolt(stage)
            # A state is written when its stage ends: once per batch.
            if stage.readers > 1 or (stage.readers and stage.component in self.states):
                frame = frame.persist(StorageLevel.DISK_ONLY)
                self.kept.append(frame)
            self.of[stage.component] = frame

    def left_out(self) -> dict[str, int]:
        """Bad records and damaged files that were left out, by spout."""
        return {
            stage.component: self.counts.total("left out", stage.component)
            + self.broken_files.get(stage.component, 0)
            for stage in self.plan.stages
            if stage.kind is StageKind.DATA
        }

    def totals(self) -> dict[str, tuple[int, int]]:
        """The tuples that each component has taken and emitted so far."""
        return {
            stage.component: (
                self.counts.total("taken", stage.component),
                self.counts.total("emitted", stage.component),
            )
            for stage in self.plan.stages
        }

    def release(self) -> None:
        """Release the data frames that were kept."""
        for frame in self.kept:
            frame.unpersist()

    def _data(self, stage: Stage, aligned: bool) -> DataFrame:
        from pyspark.sql import functions as sf

        component = self.plan.topology.components[stage.component]
        streams = [
            (s.stream.stream, component.streams[s.stream.stream].fields) for s in stage.sources
        ]
        frames, broken = [], 0
        for source, (_, fields) in zip(stage.sources, streams, strict=True):
            given = self.data.get(source.stream)
            if given is not None:
                frames.append(given)
                continue
            if source.format is Format.KAFKA:
                self.topics[source.stream] = topic = TopicSoFar.find(source)
                frames.append(topic.read(self.spark, source, fields, self.on_bad))
                continue
            columns = self.plan.columns_of(source.stream)
            frames.append(datasets.read(self.spark, source, fields, columns, self.on_bad))
            if self.on_bad.keeps_going:
                files = frames[-1].inputFiles()
                broken += keep_broken_files(self.on_bad, str(source.stream), files, source.format)
        self.broken_files[stage.component] = broken
        if len(frames) == 1:
            frame = frames[0]
        else:
            # One frame of all: the number of the stream, and the columns of each, null elsewhere.
            wide = [
                f.select(
                    sf.lit(i).alias("stream"),
                    *(f[f"`{name}`"].alias(f"{i}.{name}") for name in f.columns),
                )
                for i, f in enumerate(frames)
            ]
            frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), wide)
        together = self._tasks_together(stage) if aligned else 1
        if aligned:
            partitions = math.ceil(len(stage.tasks) / together)
            enough = frame.rdd.getNumPartitions() >= partitions
            frame = frame.coalesce(partitions) if enough else frame.repartition(partitions)
        spec = TaskSpec(self.plan, stage.component, from_data=True)
        inputs = [
            DataInput(
                source,
                fields,
                tuple(
                    i
                    for i, column in enumerate(self.plan.columns_of(source.stream))
                    if column.required
                ),
            )
            for source, (_, fields) in zip(stage.sources, streams, strict=True)
        ]
        return frame.mapInArrow(
            data_stage(spec, self.code, inputs, self.on_bad, self.counts, tasks=together),
            SECTIONS_DDL,
        )

    def _bounded(self, stage: Stage) -> DataFrame:
        tasks = len(stage.tasks)
        spec = TaskSpec(self.plan, stage.component, from_data=False)
        frame = self.spark.range(0, tasks, 1, math.ceil(tasks / self._tasks_together(stage)))
        return frame.mapInArrow(bounded_stage(spec, self.code, self.counts), SECTIONS_DDL)

    def _bolt(self, stage: Stage) -> DataFrame:
        from pyspark.sql import functions as sf

        first, last = stage.tasks[0], stage.tasks[-1]
        parts = [self.of[i].filter(sf.col("to").between(first, last)) for i in stage.inputs]
        if stage.moves:
            # A row in each partition, which names its task.
            # (Not `range`, whose rows Spark counts as rows that were read.)
            markers = self.spark.sql(f"select explode(sequence({first}, {last})) as to")
            nothing = sf.lit(None).cast("binary").alias("data")
            parts.append(markers.select(sf.col("to"), nothing))
        frame = reduce(lambda a, b: a.union(b), parts)
        together = self._tasks_together(stage)
        if stage.moves:
            number = sf.col("to") - sf.lit(first)
            if together > 1:
                number = (number / sf.lit(together)).cast("int")
            frame = frame.repartitionById(math.ceil(len(stage.tasks) / together), number)
        spec = TaskSpec(self.plan, stage.component, from_data=False)
        state = self.states.get(stage.component) if stage.stateful else None
        return frame.mapInArrow(
            bolt_stage(spec, self.code, state, self.counts, self.now_secs, tasks=together),
            SECTIONS_DDL,
        )

    def _tasks_together(self, stage: Stage) -> int:
        """How many tasks of a component share a partition: a task of Spark's costs more than a
        small one of ours. (Components whose tuples stay in their partition have as many tasks, so
        it is the same number for both.)"""
        partitions = _PARTITIONS_A_CORE * self.spark.sparkContext.defaultParallelism
        return math.ceil(len(stage.tasks) / partitions)

    def sections(self, sink: Sink) -> DataFrame:
        """The sections that were sent to a sink."""
        from pyspark.sql import functions as sf

        return self.of[sink.stream.component].filter(sf.col("to") == sink.task)

    def look(self, sink: Sink) -> Look:
        """The types of a sink's values, and what it takes to write them. Computes the component,
        unless the types are declared and its tasks are few."""
        types = TypeGuess(sink.fields)
        if sink.columns:
            types = TypeGuess.declared(sink.fields, (column.type for column in sink.columns))
        if not sink.measured:
            return Look(types, None)
        stage, size = guess_stage(self.plan, sink, self.code), 0
        for row in self.sections(sink).mapInArrow(stage, GUESSES_DDL).collect():
            if not sink.columns:
                types.merge(TypeGuess.from_json(sink.fields, row["guess"]))
            size += row["bytes"]
        return Look(types, max(1, math.ceil(size / _FILE_BYTES)))

    def typed(self, sink: Sink, look: Look) -> DataFrame:
        """A sink's tuples as columns."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = look.types.schema()
        types: Any = from_arrow_schema(schema)
        stage = write_stage(self.plan, sink, self.code, schema, self.counts)
        sections = self.sections(sink)
        if look.files is not None:
            # What is written is on the executors' disks: only the writing has fewer tasks.
            sections = sections.coalesce(look.files)
        return sections.mapInArrow(stage, types)

    def unread(self) -> list[str]:
        """Components without readers that must run for their side effects."""
        return [stage.component for stage in self.plan.stages if not stage.readers]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcome of a batch job."""

    written: tuple[Written, ...]
    left_out: Mapping[str, int]  # bad records, by spout
    totals: Mapping[str, tuple[int, int]]  # by component: tuples taken and emitted
    topics: Mapping[StreamName, TopicSoFar]  # of Kafka, and where their reading ended


def run_batch(
    spark: SparkSession,
    plan: SparkPlan,
    code: Code | None,
    *,
    overwrite: bool = False,
    on_bad: OnBadRecord | None = None,
    step: Step = silent,
    commit_group: str | None = None,
) -> BatchResult:
    """Run a plan to its end. `commit_group` is the consumer group that goes on where the reading of
    Kafka topics ends. Raises SquallError: for data, for an output that already exists
    (unless `overwrite`), and with the component's error when a tuple fails."""
    modes = {sink: write_mode(spark, sink, overwrite=overwrite) for sink in plan.sinks}
    frames = Frames(spark, plan, code, on_bad=on_bad or FAIL)
    written = []
    with current.held(plan.sinks), frames:
        with step("opening the inputs"):
            frames.build()
        for sink in plan.sinks:
            with step(sink.name):
                look = frames.look(sink)
            with step(f"writing {sink.shown}"):
                write_output(frames, sink, look, mode=modes[sink])
            written.append(Written(sink, frames.counts.total("written", sink.name)))
        for component in frames.unread():
            with step(component):
                compute(frames.of[component])
    # After everything else: a job that fails commits nothing.
    for topic in frames.topics.values():
        if commit_group is not None:
            topic.commit(commit_group)
    return BatchResult(tuple(written), frames.left_out(), frames.totals(), frames.topics)


def compute(frame: DataFrame) -> None:
    """Compute a data frame for what its tasks do besides: nothing of it is kept."""
    frame.write.format("noop").mode("overwrite").save()


def write_mode(spark: SparkSession, sink: Sink, *, overwrite: bool) -> str:
    """How a batch job writes an output. Raises SquallError if it is there already."""
    if overwrite:
        return "overwrite"
    if sink.key:
        return "append"
    if _is_there(spark, sink):
        raise already_there(sink)
    return "error"


def write_to_kafka(frame: DataFrame, sink: Sink, name: str, batch: int) -> int | None:
    """Write typed columns as one transaction, through the driver. Returns the number of records;
    None: batch `batch` of the job `name` was written before."""
    place = KafkaPlace.parse(sink.path, sink.where)
    sink_ = KafkaSink(place, f"{name}/{sink.stream}")
    return sink_.write(sink.fields, frame.toLocalIterator, batch)


def write_output(frames: Frames, sink: Sink, look: Look, *, mode: str) -> DataFrame:
    """Write an output of a batch job. Returns its tuples as columns. Raises SquallError."""
    anew = mode == "overwrite"
    look = replace(look, types=current.widen(sink, look.types, anew=anew))
    frame = frames.typed(sink, look)
    if current.merges(sink):
        current.merge(frame, sink, look.types, files=look.files, anew=anew)
    else:
        write(frame, sink, mode=mode)
    return frame


def write(frame: DataFrame, sink: Sink, *, mode: str, path: str | None = None) -> None:
    """Write typed columns to the sink's output, or to `path`."""
    path = path or sink.path
    if sink.format is Format.KAFKA:
        write_to_kafka(frame, sink, f"batch job {uuid.uuid4()}", 0)
        return
    writer = frame.write.mode(mode)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.format is Format.TABLE:
        writer.saveAsTable(path)
    elif sink.format is Format.SPARK:
        foreign = Foreign.parse(path, sink.where)
        writer.format(foreign.format).options(**foreign.options).save()
    elif sink.format is Format.CSV:
        writer.option("header", True).csv(path)
    elif sink.format is Format.JSON:
        # A field without a value is null, not absent: every line has the same keys.
        writer.option("ignoreNullFields", False).json(path)
    else:
        writer.parquet(path)


def _is_there(spark: SparkSession, sink: Sink) -> bool:
    if sink.format is Format.TABLE:
        return bool(spark.catalog.tableExists(sink.path))
    if sink.format in (Format.KAFKA, Format.SPARK):
        return False  # a topic is added to; Spark's own sinks know by themselves
    if sink.format is Format.DELTA:
        return is_table(sink.path)
    return datasets.exists(spark, sink.path)
