"""The job of `storm spark run`: parsed on the command line, and passed to the process that runs it
in one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from squall_spark.data.bad_records import OnBadRecord
from squall_spark.data.bindings import Format, Source, Target, parse_input, parse_output

JOB_VARIABLE = "SQUALL_SPARK_JOB"
# What stands in place of a path is a name.
_NAMED = frozenset({Format.TABLE, Format.KAFKA, Format.SOCKET, Format.SPARK, Format.FRAME})


def absolute(path: str) -> str:
    """A path on this machine made absolute; a URL unchanged."""
    if "://" in path or path.startswith("file:"):
        return path
    return os.path.abspath(os.path.expanduser(path))


def absolute_source(source: Source) -> Source:
    return source if source.format in _NAMED else replace(source, path=absolute(source.path))


def absolute_target(target: Target) -> Target:
    return target if target.format in _NAMED else replace(target, path=absolute(target.path))


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
    commit_group: str | None = None  # batch: the consumer group that goes on from Kafka's end
    explain: bool = False  # print the plan instead of running it

    def sources(self) -> list[Source]:
        """Raises SquallError."""
        return [absolute_source(parse_input(text)) for text in self.inputs]

    def targets(self) -> list[Target]:
        """Raises SquallError."""
        return [absolute_target(parse_output(text)) for text in self.outputs]

    def on_bad(self) -> OnBadRecord:
        if self.on_bad_record in ("fail", "skip"):
            return OnBadRecord.parse(self.on_bad_record)
        return OnBadRecord.parse(absolute(self.on_bad_record))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        values: dict[str, Any] = json.loads(text)
        for name in ("inputs", "outputs"):
            values[name] = tuple(values[name])
        for name in ("spark_conf", "parallelism"):
            values[name] = tuple((key, value) for key, value in values[name])
        return cls(**values)
