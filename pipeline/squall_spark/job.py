"""The job of `storm spark run`: parsed on the command line, and passed to the process that runs it
in one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from squall_common.errors import SquallError
from squall_spark.data.bad_records import OnBadRecord
from squall_spark.data.bindings import (
    NAMED,
    Source,
    StreamName,
    Target,
    parse_input,
    parse_output,
    parse_stream,
)

JOB_VARIABLE = "SQUALL_SPARK_JOB"


def absolute(path: str) -> str:
    """A path on this machine made absolute; a URL unchanged."""
    if "://" in path or path.startswith("file:"):
        return path
    return os.path.abspath(os.path.expanduser(path))


def absolute_source(source: Source) -> Source:
    return source if source.format in NAMED else replace(source, path=absolute(source.path))


def absolute_target(target: Target) -> Target:
    return target if target.format in NAMED else replace(target, path=absolute(target.path))


def with_filters(sources: Sequence[Source], filters: Mapping[str, str]) -> list[Source]:
    """Inputs with their filters, which are given by stream. Raises SquallError."""
    wanted = {parse_stream(name): condition for name, condition in filters.items()}
    for stream in wanted:
        if stream not in {source.stream for source in sources}:
            raise SquallError(f"--filter {stream}: there is no --input {stream}")
    return [replace(source, filter=wanted.get(source.stream)) for source in sources]


def with_fields(
    outputs: Sequence[Target],
    current: Sequence[Target],
    partition_by: Mapping[str, Sequence[str]],
    keys: Mapping[str, Sequence[str]],
) -> list[Target]:
    """All outputs, with the fields that divide them, and with the keys of those that hold current
    values; both are given by stream. Raises SquallError."""
    folders = _by_stream("--partition-by", partition_by, "--output", [*outputs, *current])
    key = _by_stream("--key", keys, "--current", current)
    for target in current:
        if target.stream not in key:
            raise SquallError(
                f"--current {target.stream} has no key",
                hint=f"name the fields that are: --key {target.stream}=FIELD,FIELD",
            )
    return [
        *(replace(t, partition_by=folders.get(t.stream, ())) for t in outputs),
        *(replace(t, partition_by=folders.get(t.stream, ()), key=key[t.stream]) for t in current),
    ]


def _by_stream(
    option: str, given: Mapping[str, Sequence[str]], of: str, targets: Sequence[Target]
) -> dict[StreamName | None, tuple[str, ...]]:
    found: dict[StreamName | None, tuple[str, ...]] = {
        parse_stream(name): tuple(fields) for name, fields in given.items()
    }
    for stream in found:
        if stream not in {target.stream for target in targets}:
            raise SquallError(
                f"{option} {stream}: there is no {of} {stream}",
                hint=f"name the stream: {of} {stream}=PATH",
            )
    return found


@dataclass(frozen=True, slots=True)
class Job:
    """One run. Paths of files on this machine are absolute."""

    inputs: tuple[str, ...]  # as on the command line; see `bindings`
    outputs: tuple[str, ...] = ()
    master: str = "local[*]"
    spark_conf: tuple[tuple[str, str], ...] = ()
    log_file: str = "spark.log"
    overwrite: bool = False
    streaming: bool = False
    checkpoint: str | None = None  # not None when streaming
    trigger_secs: float = 1.0  # streaming: the interval of micro-batches
    available_now: bool = False  # streaming: process the data available now, then end
    max_rows: int | None = None  # streaming: of a micro-batch, from Kafka
    max_files: int | None = None  # streaming: of a micro-batch
    max_bytes: int | None = None  # streaming: of the files of a micro-batch
    on_bad_record: str = "fail"  # or "skip", or a folder
    parallelism: tuple[tuple[str, int], ...] = ()  # numbers of tasks, by component
    filters: tuple[tuple[str, str], ...] = ()  # SQL conditions, by input
    partition_by: tuple[tuple[str, tuple[str, ...]], ...] = ()  # fields, by output
    current: tuple[str, ...] = ()  # outputs of current values, as on the command line
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()  # fields, by output of current values
    commit_group: str | None = None  # batch: the consumer group that goes on from Kafka's end
    explain: bool = False  # print the plan instead of running it

    def sources(self) -> list[Source]:
        """Raises SquallError."""
        sources = [absolute_source(parse_input(text)) for text in self.inputs]
        return with_filters(sources, dict(self.filters))

    def targets(self) -> list[Target]:
        """Raises SquallError."""
        targets = [absolute_target(parse_output(text)) for text in self.outputs]
        current = [absolute_target(parse_output(text, "--current")) for text in self.current]
        return with_fields(targets, current, dict(self.partition_by), dict(self.keys))

    def on_bad(self) -> OnBadRecord:
        if self.on_bad_record in ("fail", "skip"):
            return OnBadRecord.parse(self.on_bad_record)
        return OnBadRecord.parse(absolute(self.on_bad_record))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        values: dict[str, Any] = json.loads(text)
        for name in ("inputs", "outputs", "current"):
            values[name] = tuple(values.get(name, ()))
        for name in ("spark_conf", "parallelism", "filters", "partition_by", "keys"):
            values[name] = tuple((key, value) for key, value in values.get(name, ()))
        return cls(**values)
