"""A plan as a batch job: builds a data frame for each stage, and runs those that are needed.

Data frames are lazy: a chain of components is one job of Spark's, a stage between two shuffles. A
component that is read more than once (two consumers, an output) is kept on the executors' disks, so
that it is computed once; it is as large as its sections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from squall_spark.before import already_there
from squall_spark.data import datasets
from squall_spark.data.bad_records import FAIL, OnBadRecord, keep_broken_files
from squall_spark.data.bindings import Format
from squall_spark.data.columns import TypeGuess
from squall_spark.plan import Sink, SparkPlan, Stage, StageKind
from squall_spark.progress import Step, silent
from squall_spark.stages import (
    GUESSES_DDL,
    SECTIONS_DDL,
    Code,
    DataInput,
    bolt_stage,
    bounded_stage,
    data_stage,
    guess_stage,
    write_stage,
)
from squall_spark.state.place import StateAt
from squall_spark.task import TaskSpec

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class Written:
    """The result of writing an output."""

    sink: Sink
    rows: int


@dataclass(slots=True)
class Frames:
    """The data frames of a plan's stages."""

    spark: SparkSession
    plan: SparkPlan
    code: Code | None = None
    states: Mapping[str, StateAt] = field(default_factory=dict)
    # Replaces the data sets of --input: by component, one data frame for each of its streams.
    data: Mapping[str, Sequence[DataFrame]] = field(default_factory=dict)
    on_bad: OnBadRecord = FAIL
    # How many bad records each spout has left out (a task that runs again counts again).
    left_out: dict[str, Accumulator[int]] = field(default_factory=dict)
    broken_files: dict[str, int] = field(default_factory=dict)  # left out, by spout
    of: dict[str, DataFrame] = field(default_factory=dict)
    kept: list[DataFrame] = field(default_factory=list)

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
        given = self.data.get(stage.component)
        frames = given or [
            datasets.read(
                self.spark, source, fields, self.plan.columns_of(source.stream), self.on_bad
            )
            for source, (_, fields) in zip(stage.sources, streams, strict=True)
        ]
        if self.on_bad.keeps_going and not given:
            self.broken_files[stage.component] = sum(
                keep_broken_files(
                    self.on_bad, str(source.stream), frame.inputFiles(), source.format
                )
                for source, frame in zip(stage.sources, frames, strict=True)
            )
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
        if aligned:
            tasks = len(stage.tasks)
            enough = frame.rdd.getNumPartitions() >= tasks
            frame = frame.coalesce(tasks) if enough else frame.repartition(tasks)
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
        left_out = self.left_out.get(stage.component)
        if self.on_bad.keeps_going and left_out is None:
            left_out = self.left_out[stage.component] = self.spark.sparkContext.accumulator(0)
        return frame.mapInArrow(
            data_stage(spec, self.code, inputs, self.on_bad, left_out), SECTIONS_DDL
        )

    def _bounded(self, stage: Stage) -> DataFrame:
        tasks = len(stage.tasks)
        spec = TaskSpec(self.plan, stage.component, from_data=False)
        frame = self.spark.range(0, tasks, 1, tasks)
        return frame.mapInArrow(bounded_stage(spec, self.code), SECTIONS_DDL)

    def _bolt(self, stage: Stage) -> DataFrame:
        from pyspark.sql import functions as sf

        first, last = stage.tasks[0], stage.tasks[-1]
        parts = [self.of[i].filter(sf.col("to").between(first, last)) for i in stage.inputs]
        if stage.moves:
            # A row in each partition, which names its task.
            markers = self.spark.range(first, last + 1, 1, 1)
            nothing = sf.lit(None).cast("binary").alias("data")
            parts.append(markers.select(sf.col("id").cast("int").alias("to"), nothing))
        frame = reduce(lambda a, b: a.union(b), parts)
        if stage.moves:
            frame = frame.repartitionById(len(stage.tasks), sf.col("to") - sf.lit(first))
        spec = TaskSpec(self.plan, stage.component, from_data=False)
        state = self.states.get(stage.component) if stage.stateful else None
        return frame.mapInArrow(bolt_stage(spec, self.code, state), SECTIONS_DDL)

    def sections(self, sink: Sink) -> DataFrame:
        """The sections that were sent to a sink."""
        from pyspark.sql import functions as sf

        return self.of[sink.stream.component].filter(sf.col("to") == sink.task)

    def guess(self, sink: Sink) -> tuple[TypeGuess, int]:
        """The types of a sink's values, and the number of tuples. Computes the component."""
        stage = guess_stage(self.plan, sink, self.code)
        merged, rows = TypeGuess(sink.fields), 0
        for row in self.sections(sink).mapInArrow(stage, GUESSES_DDL).collect():
            merged.merge(TypeGuess.from_json(sink.fields, row["guess"]))
            rows += row["rows"]
        return merged, rows

    def typed(self, sink: Sink, guess: TypeGuess) -> DataFrame:
        """A sink's tuples as columns."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = guess.schema()
        types: Any = from_arrow_schema(schema)
        stage = write_stage(self.plan, sink, self.code, schema)
        return self.sections(sink).mapInArrow(stage, types)

    def unread(self) -> list[str]:
        """Components without readers that must run for their side effects."""
        return [stage.component for stage in self.plan.stages if not stage.readers]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcome of a batch job."""

    written: tuple[Written, ...]
    left_out: Mapping[str, int]  # bad records, by spout


def run_batch(
    spark: SparkSession,
    plan: SparkPlan,
    code: Code | None,
    *,
    overwrite: bool = False,
    on_bad: OnBadRecord | None = None,
    step: Step = silent,
) -> BatchResult:
    """Run a plan to its end. Raises SquallError: for data, for an output that already exists
    (unless `overwrite`), and with the component's error when a tuple fails."""
    for sink in plan.sinks:
        if not overwrite and _is_there(spark, sink):
            raise already_there(sink)
    frames = Frames(spark, plan, code, on_bad=on_bad or FAIL)
    with step("opening the inputs"):
        frames.build()
    written = []
    try:
        for sink in plan.sinks:
            with step(str(sink.stream)):
                guess, rows = frames.guess(sink)
            with step(f"writing {sink.path}"):
                write(frames.typed(sink, guess), sink, mode="overwrite" if overwrite else "error")
            written.append(Written(sink, rows))
        for component in frames.unread():
            with step(component):
                frames.of[component].write.format("noop").mode("overwrite").save()
    finally:
        frames.release()
    left_out = {
        component: count.value + frames.broken_files.get(component, 0)
        for component, count in frames.left_out.items()
    }
    return BatchResult(tuple(written), left_out)


def write(frame: DataFrame, sink: Sink, *, mode: str, path: str | None = None) -> None:
    """Write typed columns to the sink's output, or to `path`."""
    path = path or sink.path
    writer = frame.write.mode(mode)
    if sink.format is Format.TABLE:
        writer.saveAsTable(path)
    elif sink.format is Format.JSON:
        # A field without a value is null, not absent: every line has the same keys.
        writer.option("ignoreNullFields", False).json(path)
    else:
        writer.parquet(path)


def _is_there(spark: SparkSession, sink: Sink) -> bool:
    if sink.format is Format.TABLE:
        return bool(spark.catalog.tableExists(sink.path))
    return datasets.exists(spark, sink.path)
