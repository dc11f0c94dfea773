"""The functions that Spark calls in its Python workers, once per partition.

They take and return iterators of Arrow record batches (`DataFrame.mapInArrow`) and hold one batch
at a time. From PySpark they use only `TaskContext`, which has the number of the partition.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from squall_common.component.state import KeyValueState
from squall_common.config.options.typed import TopologyOptions
from squall_common.packaging.package import code_paths, unpack_package
from squall_engine.embed import section_rows, tune_garbage_collector, value_codec
from squall_spark.columns import TypeGuess, rows_to_columns
from squall_spark.plan import Sink, SparkPlan
from squall_spark.state import StateAt
from squall_spark.task import Row, TaskRunner, TaskSpec

SECTIONS = pa.schema([("to", pa.int32()), ("data", pa.binary())])
SECTIONS_DDL = "to int, data binary"
GUESSES = pa.schema([("guess", pa.string()), ("rows", pa.int64())])
GUESSES_DDL = "guess string, rows long"

Batches = Iterator[pa.RecordBatch]
Stage = Callable[[Batches], Batches]

_WRITE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Code:
    """The user's package: unpacked on this machine, or an archive that Spark distributes."""

    folder: str | None  # None: the worker may be on another machine
    archive_name: str
    digest: str

    def paths(self) -> Path:
        """Make it importable in this process; returns the folder that holds it."""
        folder = self._unpacked() if self.folder is None else Path(self.folder)
        for path in reversed(code_paths(folder)):
            if path not in sys.path:
                sys.path.insert(0, path)
                importlib.invalidate_caches()
        return folder

    def _unpacked(self) -> Path:
        from pyspark import SparkFiles

        archive = Path(SparkFiles.get(self.archive_name))
        place = Path(SparkFiles.getRootDirectory(), f"squall-{self.digest}")
        place.mkdir(exist_ok=True)
        # Several Python workers of an executor may get here at once.
        with (place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code = place / "code"
            if not _mark(code, self.digest).exists():
                with tempfile.TemporaryDirectory(dir=place) as temporary:
                    unpacked = unpack_package(archive, Path(temporary))
                    os.replace(unpacked, code)
                _mark(code, self.digest).touch()
        return code


def code_of(folder: Path, archive: Path, *, sent: bool) -> Code:
    """The package of a session, for every Python worker of a job. `sent`: workers use the archive
    among Spark's files instead of the folder."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    return Code(None if sent else str(folder), archive.name, digest)


def _mark(folder: Path, digest: str) -> Path:
    return folder.with_name(f"{folder.name}.{digest}")


# ---- Tasks ----


def data_stage(spec: TaskSpec, code: Code | None, streams: list[tuple[str, int]]) -> Stage:
    """A spout whose streams come from a data set: record batches of its fields in, sections out.
    `streams` are (stream, number of fields); with several, the first column is the index."""

    def run(batches: Batches) -> Batches:
        tasks = spec.plan.stage(spec.component).tasks
        with _runner(spec, _partition() % len(tasks), code) as runner:
            for batch in batches:
                for stream, columns in _columns_by_stream(batch, streams):
                    runner.feed_columns(stream, columns)
                yield from _sections(runner.take())
            for rows in runner.finish():
                yield from _sections(rows)

    return run


def bounded_stage(spec: TaskSpec, code: Code | None) -> Stage:
    """A spout that runs to its own end. The input is ignored."""

    def run(batches: Batches) -> Batches:
        for _ in batches:
            pass
        with _runner(spec, _partition(), code) as runner:
            for rows in runner.finish():
                yield from _sections(rows)

    return run


def bolt_stage(spec: TaskSpec, code: Code | None, state: StateAt | None = None) -> Stage:
    """A bolt: sections in, sections out."""

    def run(batches: Batches) -> Batches:
        index = _partition()
        if code is not None:
            code.paths()  # the state may hold the user's types
        kept = None
        if state is not None:
            plan = spec.plan
            kept = state.open(index, value_codec(plan.topology, plan.conf, allow_pickle=False))
        with _runner(spec, index, code, kept) as runner:
            for batch in batches:
                for section in batch.column(1):
                    runner.feed((section.as_py(),))
                    yield from _sections(runner.take())
            for rows in runner.finish():
                yield from _sections(rows)
        if kept is not None:
            kept.commit()

    return run


def _runner(
    spec: TaskSpec, index: int, code: Code | None, state: KeyValueState | None = None
) -> TaskRunner:
    _tune_once()
    folder = None if code is None else code.paths()
    return TaskRunner(spec, index, code_dir=folder, state=state)


@functools.cache
def _tune_once() -> None:
    """Tune as a worker does: it saves a third of the CPU, since every tuple in flight is a list."""
    tune_garbage_collector()


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "not in a Spark task"
    return context.partitionId()


def _columns_by_stream(
    batch: pa.RecordBatch, streams: list[tuple[str, int]]
) -> Iterator[tuple[str, list[list[Any]]]]:
    if len(streams) == 1:
        yield streams[0][0], [_values(column) for column in batch.columns]
        return
    # With several streams: the index of the stream, then the columns of each, null for the others.
    number = batch.column(0)
    first = 1
    for i, (stream, fields) in enumerate(streams):
        mine = batch.filter(pa.compute.equal(number, i))
        yield stream, [_values(mine.column(first + f)) for f in range(fields)]
        first += fields


def _values(column: pa.Array) -> list[Any]:
    return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _sections(rows: list[Row]) -> Batches:
    if rows:
        to, data = zip(*rows, strict=True)
        yield pa.record_batch(
            [pa.array(to, pa.int32()), pa.array(data, pa.binary())], schema=SECTIONS
        )


# ---- Outputs ----


class Reader:
    """Reads the tuples sent to a sink."""

    def __init__(self, plan: SparkPlan, sink: Sink) -> None:
        pickled = TopologyOptions.read(plan.conf).topology_fall_back_on_pickle
        self._codec = value_codec(plan.topology, plan.conf, allow_pickle=pickled)
        self._sink = sink

    def rows(self, section: bytes) -> list[Any]:
        """The values of each tuple."""
        sink = self._sink
        return section_rows(section, self._codec, sink.stream.component, sink.fields)

    def portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[Any]]:
        """The rows of all sections, in portions."""
        waiting: list[Any] = []
        for batch in batches:
            for section in batch.column(1):
                waiting += self.rows(section.as_py())
                if len(waiting) >= _WRITE_ROWS:
                    yield waiting
                    waiting = []
        if waiting:
            yield waiting


def guess_stage(plan: SparkPlan, sink: Sink, code: Code | None) -> Stage:
    """The types of a sink's values: one row per partition."""

    def run(batches: Batches) -> Batches:
        if code is not None:
            code.paths()
        guess, count = TypeGuess(sink.fields), 0
        for rows in Reader(plan, sink).portions(batches):
            guess.add(rows)
            count += len(rows)
        yield pa.record_batch([[guess.to_json()], [count]], schema=GUESSES)

    return run


def write_stage(plan: SparkPlan, sink: Sink, code: Code | None, schema: pa.Schema) -> Stage:
    """The tuples of a sink as typed columns."""

    def run(batches: Batches) -> Batches:
        if code is not None:
            code.paths()
        for rows in Reader(plan, sink).portions(batches):
            yield rows_to_columns(rows, schema)

    return run
