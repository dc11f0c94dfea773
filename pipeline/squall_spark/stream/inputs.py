"""The input of a stream: files as they arrive, Kafka, a socket; and how much of it a batch gets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.data import datasets, kafka_source
from squall_spark.data.bad_records import BAD, FAIL, OnBadRecord, keep_broken_files, local_path
from squall_spark.data.bindings import Foreign, Format, Source, StreamName
from squall_spark.plan import SparkPlan, StageKind
from squall_spark.stream.checkpoint import Checkpoint
from squall_spark.traits import Column
from squall_spark.view.progress import Step, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_BYTES = 64 * 1024 * 1024
MAX_ROWS = 500_000
_ARRIVED = "arrived"  # when a row's file was written, or its record sent


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one micro-batch gets of each input; None: Squall's default. A file is never
    divided between two batches."""

    max_rows: int | None = None  # Kafka
    max_files: int | None = None
    max_bytes: int | None = None  # files

    def check(self, sources: Iterable[Source]) -> None:
        """Raises SquallError for a limit that no input has."""
        formats = {source.format for source in sources}
        files = formats - {Format.KAFKA, Format.SOCKET, Format.SPARK, Format.TABLE}
        if self.max_rows is not None and Format.KAFKA not in formats:
            raise SquallError(
                "--max-rows limits Kafka records, and no --input is kafka:",
                hint="files are limited by --max-bytes or --max-files: they are read whole",
            )
        for name, value in (("--max-files", self.max_files), ("--max-bytes", self.max_bytes)):
            if value is not None and not files:
                raise SquallError(f"{name} limits files, and no --input is a folder of files")
        if self.max_files is not None and self.max_bytes is not None:
            raise SquallError("--max-files and --max-bytes exclude each other: Spark takes one")

    def of_files(self) -> tuple[str, int]:
        """The option of Spark's file source."""
        if self.max_files is not None:
            return "maxFilesPerTrigger", self.max_files
        return "maxBytesPerTrigger", self.max_bytes or MAX_BYTES


@dataclass(frozen=True, slots=True)
class StreamReader:
    """Opens the streams of a plan."""

    spark: SparkSession
    checkpoint: Checkpoint
    limits: Limits
    on_bad: OnBadRecord = FAIL
    step: Step = silent

    def read(self, source: Source, fields: tuple[str, ...], columns: Sequence[Column]) -> DataFrame:
        """A stream with the columns `fields`, then `bad_records.COLUMNS` if bad records are not an
        error, then `arrived`. `columns` are those that the spout declares, if any. Raises
        SquallError."""
        try:
            if source.format is Format.SOCKET:
                return self._socket(source, fields)
            if source.format is Format.KAFKA:
                return self._kafka(source, fields)
            if source.format in (Format.TABLE, Format.SPARK):
                return self._foreign(source, fields)
            return self._files(source, fields, columns)
        except SquallError:
            raise
        except Exception as error:  # PySpark's own, or Py4J's
            raise datasets.unreadable(source, error) from error

    def _files(
        self, source: Source, fields: tuple[str, ...], columns: Sequence[Column]
    ) -> DataFrame:
        from pyspark.sql import functions as sf

        format_ = source.format or datasets.sniff(self.spark, source)
        known = Source(source.stream, source.path, format_)
        schema = None
        if format_ is not Format.TEXT:
            # A stream has no types of its own: they are declared, or were found when it was first
            # started.
            schema = datasets.declared_schema(fields, columns) or self._kept_schema(known)
            if schema is None:
                with self.step(f"finding the column types of --input {source.stream}"):
                    schema = datasets.inferred_schema(self.spark, known, self.on_bad)
                self.checkpoint.keep_schema(known, json.loads(schema.json()))
        reader = datasets.with_options(self.spark.readStream, format_, self.on_bad, schema)
        frame = reader.option(*self.limits.of_files()).load(source.path)
        arrived = sf.col("_metadata.file_modification_time").alias(_ARRIVED)
        return datasets.select_fields(frame, known, fields, self.on_bad, arrived)

    def _kept_schema(self, source: Source) -> Any:
        from pyspark.sql.types import StructType

        kept = self.checkpoint.schema(source)
        return None if kept is None else StructType.fromJson(kept)

    def _socket(self, source: Source, fields: tuple[str, ...]) -> DataFrame:
        from pyspark.sql import functions as sf

        host, _, port = source.path.rpartition(":")
        reader = self.spark.readStream.format("socket").option("host", host).option("port", port)
        frame = reader.option("includeTimestamp", True).load()
        arrived = sf.col("timestamp").alias(_ARRIVED)
        return datasets.select_fields(frame, source, fields, self.on_bad, arrived)

    def _foreign(self, source: Source, fields: tuple[str, ...]) -> DataFrame:
        """A table, or a source of Spark's, read as a stream: what is added to it."""
        from pyspark.sql import functions as sf

        if source.format is Format.TABLE:
            frame = self.spark.readStream.table(source.path)
        else:
            foreign = Foreign.parse(source.path, f"--input {source.stream}")
            reader = self.spark.readStream.format(foreign.format).options(**foreign.options)
            frame = reader.load()
        arrived = sf.current_timestamp().alias(_ARRIVED)
        return datasets.select_fields(frame, source, fields, self.on_bad, arrived)

    def _kafka(self, source: Source, fields: tuple[str, ...]) -> DataFrame:
        """`kafka:HOST:PORT/TOPIC`, from the beginning of the topic unless a checkpoint has a
        position."""
        from pyspark.sql import functions as sf

        reader, _ = kafka_source.open_topic(self.spark, source, stream=True)
        reader = reader.option("maxOffsetsPerTrigger", self.limits.max_rows or MAX_ROWS)
        frame = kafka_source.load(reader, self.spark)
        arrived = sf.col("timestamp").alias(_ARRIVED)
        return kafka_source.select(frame, source, fields, self.on_bad, arrived)


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a micro-batch read."""

    rows: int
    bad: int
    oldest_secs: float | None  # since the epoch: when its oldest row arrived


class StreamInput:
    """All the streams of a plan as one, because a query has one input. Column `stream` has the
    index of the stream; the columns of stream i are `i.NAME`."""

    def __init__(self, reader: StreamReader, plan: SparkPlan) -> None:
        from pyspark.sql import functions as sf

        self._on_bad = reader.on_bad
        self._checkpoint = reader.checkpoint
        self._sources: list[Source] = []
        self._columns: list[tuple[str, ...]] = []
        wide: list[DataFrame] = []
        for stage in plan.stages:
            if stage.kind is not StageKind.DATA:
                continue
            for source in stage.sources:
                declared = plan.topology.components[stage.component].streams[source.stream.stream]
                frame = reader.read(source, declared.fields, plan.columns_of(source.stream))
                names = tuple(frame.columns[:-1])
                number = len(wide)
                wide.append(
                    frame.select(
                        sf.lit(number).alias("stream"),
                        sf.col(_ARRIVED),
                        *(frame[f"`{name}`"].alias(f"{number}.{name}") for name in names),
                    )
                )
                self._columns.append(names)
                self._sources.append(source)
        self.frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), wide)

    def split(self, frame: DataFrame) -> dict[StreamName, DataFrame]:
        """A micro-batch by stream."""
        from pyspark.sql import functions as sf

        return {
            source.stream: frame.filter(sf.col("stream") == number).select(
                *(sf.col(f"`{number}.{name}`").alias(name) for name in names)
            )
            for number, (source, names) in enumerate(zip(self._sources, self._columns, strict=True))
        }

    def large_files(self, batch: int, limits: Limits) -> list[tuple[str, int]]:
        """The files of a batch that are larger than a batch should be, and their sizes: those on
        this machine."""
        most = limits.max_bytes or MAX_BYTES
        found = []
        for number, source in enumerate(self._sources):
            if source.format in datasets.FILES and limits.max_files is None:
                for file in self._checkpoint.files_of(number, batch):
                    path = local_path(file)
                    if "://" not in path and os.path.exists(path):
                        size = os.path.getsize(path)
                        found += [(path, size)] if size > most else []
        return found

    def keep_broken_files(self, batch: int, on_bad: OnBadRecord) -> int:
        """Write dead letters for the files of a batch that Spark cannot read, or not to their ends.
        Returns how many these are."""
        if not on_bad.keeps_going:
            return 0
        return sum(
            keep_broken_files(
                on_bad, str(source.stream), self._checkpoint.files_of(number, batch), source.format
            )
            for number, source in enumerate(self._sources)
            if source.format in datasets.FILES
        )

    def measure(self, frame: DataFrame) -> BatchInput:
        """Count a micro-batch. Reads it."""
        from pyspark.sql import functions as sf

        bad = sf.lit(None)
        if self._on_bad.keeps_going:
            bad = sf.coalesce(
                *(sf.col(f"`{number}.{BAD}`") for number in range(len(self._sources)))
            )
        row = frame.agg(
            sf.count("*").alias("rows"),
            sf.count(bad).alias("bad"),
            sf.min(_ARRIVED).cast("double").alias("oldest"),
        ).first()
        assert row is not None
        return BatchInput(row["rows"], row["bad"], row["oldest"])
