"""What can be checked of inputs and outputs on this machine, before a JVM is started."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from squall_common.errors import SquallError
from squall_spark.current.delta import is_table
from squall_spark.current.write import check as check_merged
from squall_spark.data.bindings import Foreign, Format
from squall_spark.data.datasets import not_there
from squall_spark.data.kafka_sink import KafkaPlace, check_client
from squall_spark.data.kafka_source import TopicSoFar
from squall_spark.data.look import is_here
from squall_spark.plan import Sink, SparkPlan


def check_inputs(plan: SparkPlan, *, streaming: bool = False) -> None:
    """Raises SquallError for a topic without a name, for a missing file or folder on this machine,
    and, if `streaming`, for a file where Spark needs the folder in which files arrive."""
    for stage in plan.stages:
        for source in stage.sources:
            if source.format is Format.KAFKA:
                KafkaPlace.parse(source.path, f"--input {source.stream}")
                if not streaming:
                    check_client(f"--input {source.stream}")
            # (Python's patterns have no {a,b}, which Hadoop's have.)
            if not is_here(source.path, source.format) or "{" in source.path:
                continue
            found = glob.glob(source.path)
            if not found:
                raise not_there(source)
            if streaming and os.path.isfile(source.path):
                raise SquallError(
                    f"--input {source.stream}: {source.path} is a file, and a stream reads a folder"
                    " in which files arrive",
                    hint=f"give its folder, {os.path.dirname(source.path)}, or a pattern of names;"
                    " without --streaming the file is read as it is",
                )
            for path in found[:100]:
                if not os.access(path, os.R_OK):
                    raise SquallError(
                        f"--input {source.stream}: {path} cannot be read: permission denied"
                    )


def check_group(plan: SparkPlan, group: str) -> None:
    """Raises SquallError if a consumer group cannot go on where a batch job ends: no input is
    a topic, or it has begun already."""
    sources = [source for stage in plan.stages for source in stage.sources]
    topics = [source for source in sources if source.format is Format.KAFKA]
    if not topics:
        raise SquallError("--commit-group is for Kafka, and no --input is kafka:")
    for source in topics:
        TopicSoFar.find(source).check_group(group)


def check_outputs(sinks: Iterable[Sink], *, overwrite: bool = False) -> None:
    """Raises SquallError for a place that no output can have, and, unless `overwrite`, for one that
    is there, on this machine."""
    for sink in sinks:
        if sink.format is Format.KAFKA:
            KafkaPlace.parse(sink.path, sink.where)
            check_client(sink.where)
        elif sink.key:
            check_merged(sink)
        elif sink.format is Format.SPARK:
            Foreign.parse(sink.path, sink.where)
        elif sink.format is Format.DELTA:
            check_merged(sink)
            if not overwrite and is_table(sink.path):
                raise already_there(sink)
        elif not overwrite and is_here(sink.path, sink.format) and os.path.lexists(sink.path):
            raise already_there(sink)


def already_there(sink: Sink) -> SquallError:
    what = "table" if sink.format in (Format.TABLE, Format.DELTA) else "folder"
    return SquallError(
        f"{sink.where}: the {what} {sink.path} already exists",
        hint="choose another, or replace it: --overwrite",
    )
