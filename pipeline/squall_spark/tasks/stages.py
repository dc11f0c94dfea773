"""The functions that Spark calls in its Python workers, once per partition.

They take and return iterators of Arrow record batches (`DataFrame.mapInArrow`) and hold one batch
at a time. From PySpark they use only `TaskContext`, which has the number of the partition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from squall_common.component.state import KeyValueState
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError, describe
from squall_common.names import encode_znode
from squall_engine.embed import section_rows, tune_garbage_collector, value_codec
from squall_spark.data.bad_records import COLUMNS, OnBadRecord, Sorter
from squall_spark.data.bindings import Source
from squall_spark.data.columns import TypeGuess, arrow_to_columns, rows_to_columns
from squall_spark.plan import Sink, SparkPlan
from squall_spark.state.owner import CurrentOwner
from squall_spark.state.place import StateAt
from squall_spark.tasks.arrow import decode, is_arrow
from squall_spark.tasks.code import Code
from squall_spark.tasks.counts import Counts
from squall_spark.tasks.spools import Spools
from squall_spark.tasks.task import TaskRunner, TaskSpec

SECTIONS = pa.schema([("to", pa.int32()), ("data", pa.binary())])
SECTIONS_DDL = "to int, data binary"
GUESSES = pa.schema([("guess", pa.string()), ("bytes", pa.int64())])
GUESSES_DDL = "guess string, bytes long"

Batches = Iterator[pa.RecordBatch]
Stage = Callable[[Batches], Batches]

_WRITE_ROWS = 10_000
_TURN_BYTES = 1024 * 1024  # of a data set that a task gets before the next one of its partition
_PORTION_BYTES = 128 * 1024  # of sections that a task gets at once, at least


class StageError(SquallError):
    """An unexpected error in a task; the message names its component or output."""


# ---- Tasks ----


@dataclass(frozen=True, slots=True)
class DataInput:
    """A data set that replaces a stream of a spout."""

    source: Source
    fields: tuple[str, ...]
    required: tuple[int, ...] = ()  # indexes of the fields that must have a value


def data_stage(
    spec: TaskSpec,
    code: Code | None,
    inputs: Sequence[DataInput],
    on_bad: OnBadRecord,
    counts: Counts | None = None,
    *,
    tasks: int = 1,
) -> Stage:
    """A spout whose streams come from data sets: record batches of its fields in (and of
    `bad_records.COLUMNS` if those are left out), sections out. With several, the first column is
    the index of the input, and the columns of the others are null. A partition has up to `tasks`
    tasks, which take portions of the data in turn; one that gets none is not started."""
    number = len(spec.plan.stage(spec.component).tasks)

    def run(batches: Batches) -> Batches:
        partition = _partition()
        first = partition * tasks % number
        sorters = [
            Sorter(
                str(one.source.stream), one.source.format, one.fields, one.required, on_bad,
                name=f"{encode_znode(str(one.source.stream))}-{partition}",
            )
            for one in inputs
        ]  # fmt: skip
        mine = range(first, min(first + tasks, number))
        yield from _sections([marker for task in mine for marker in _markers(spec, task)])
        with ExitStack() as stack:
            runners: dict[int, TaskRunner] = {}
            turns, task, taken = cycle(mine), first, _TURN_BYTES
            for batch in batches:
                if taken >= _TURN_BYTES:
                    task, taken = next(turns), 0
                if task not in runners:
                    runners[task] = stack.enter_context(_runner(spec, task, code))
                runner = runners[task]
                taken += batch.nbytes
                for index, part in _by_input(batch, inputs, on_bad):
                    columns = sorters[index].good(part)
                    runner.feed_columns(inputs[index].source.stream.stream, columns)
                yield from _sections(runner.take())
            for task, runner in runners.items():
                for rows in runner.finish():
                    yield from _sections(rows)
                _count(counts, runner, partition * tasks + task - first)
        for sorter in sorters:
            sorter.close()
        if counts is not None:
            left_out = sum(sorter.left_out for sorter in sorters)
            counts.add("left out", spec.component, partition, left_out)

    return _named(f"spout {spec.component!r}", run)


def bounded_stage(spec: TaskSpec, code: Code | None, counts: Counts | None = None) -> Stage:
    """A spout that runs to its own end. The input is a row for each task, its index."""

    def run(batches: Batches) -> Batches:
        for index in (index for batch in batches for index in batch.column(0).to_pylist()):
            yield from _sections(_markers(spec, index))
            with _runner(spec, index, code) as runner:
                for rows in runner.finish():
                    yield from _sections(rows)
                _count(counts, runner, index)

    return _named(f"spout {spec.component!r}", run)


def bolt_stage(
    spec: TaskSpec,
    code: Code | None,
    state: StateAt | None = None,
    counts: Counts | None = None,
    now_secs: float | None = None,
    *,
    tasks: int = 1,
) -> Stage:
    """A bolt: sections and a marker in, sections out. `now_secs` is the time of a micro-batch. A
    partition has up to `tasks` tasks, which run one after the other, so that memory holds the data
    of one."""
    first = spec.plan.stage(spec.component).tasks[0]

    def run(batches: Batches) -> Batches:
        if tasks == 1:
            rows = _rows(batches)
            task, section = next(rows)  # there is a marker, at least
            sections = (section for _, section in chain(((task, section),), rows))
            yield from run_task(task - first, sections)
            return
        with Spools() as spools:
            for task, section in _rows(batches):
                spools.add(task, section)
            for task in spools.tasks():
                yield from run_task(task - first, spools.take(task))

    def run_task(index: int, sections: Iterable[bytes | None]) -> Batches:
        yield from _sections(_markers(spec, index))
        if code is not None:
            code.paths()  # the state may hold the user's types
        kept, owner = (None, None) if state is None else state.open(spec.plan, index)
        with _runner(spec, index, code, kept, owner, now_secs) as runner:
            for portion in _portions(sections):
                runner.feed(portion)
                yield from _sections(runner.take())
                if kept is not None:
                    kept.relieve()
            for rows in runner.finish():
                yield from _sections(rows)
                if kept is not None:
                    kept.relieve()
            _count(counts, runner, index)
        if kept is not None:
            kept.commit()

    return _named(f"bolt {spec.component!r}", run)


def _portions(sections: Iterable[bytes | None]) -> Iterator[list[bytes]]:
    """Sections in portions of a useful size: of many tasks they are small."""
    portion: list[bytes] = []
    size = 0
    for section in sections:
        if section is not None:
            portion.append(section)
            size += len(section)
            if size >= _PORTION_BYTES:
                yield portion
                portion, size = [], 0
    if portion:
        yield portion


def _rows(batches: Batches) -> Iterator[tuple[int, bytes | None]]:
    for batch in batches:
        for task, section in zip(batch.column(0), batch.column(1), strict=True):
            yield task.as_py(), section.as_py()


def _markers(spec: TaskSpec, index: int) -> list[tuple[int, bytes | None]]:
    """Rows without a section, for the bolts whose tasks are in the partitions of this component's.
    A bolt knows its task by the first row that it gets, whatever else it gets: Spark's number of
    the partition is of no use, because it counts on where components are united."""
    return [
        (stage.tasks[index], None)
        for stage in spec.plan.stages
        if not stage.moves and spec.component in stage.inputs
    ]


def _count(counts: Counts | None, runner: TaskRunner, number: int) -> None:
    if counts is not None:
        taken, emitted = runner.totals()
        counts.add("taken", runner.component, number, taken)
        counts.add("emitted", runner.component, number, emitted)


def _named(where: str, stage: Stage) -> Stage:
    """The same, but an unexpected error says where it happened."""

    def run(batches: Batches) -> Batches:
        try:
            yield from stage(batches)
        except SquallError:
            raise
        except Exception as error:
            raise StageError(f"{where}: {describe(error)}") from error

    return run


def _runner(
    spec: TaskSpec,
    index: int,
    code: Code | None,
    state: KeyValueState | None = None,
    owner: CurrentOwner | None = None,
    now_secs: float | None = None,
) -> TaskRunner:
    _tune_once()
    folder = None if code is None else code.paths()
    return TaskRunner(spec, index, code_dir=folder, state=state, owner=owner, now_secs=now_secs)


@functools.cache
def _tune_once() -> None:
    """Tune as a worker does: it saves a third of the CPU, since every tuple in flight is a list."""
    tune_garbage_collector()


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "not in a Spark task"
    return context.partitionId()


def _by_input(
    batch: pa.RecordBatch, inputs: Sequence[DataInput], on_bad: OnBadRecord
) -> Iterator[tuple[int, pa.RecordBatch]]:
    if len(inputs) == 1:
        yield 0, batch
        return
    number = batch.column(0)
    first = 1
    for index, one in enumerate(inputs):
        width = len(one.fields) + (len(COLUMNS) if on_bad.keeps_going else 0)
        mine = batch.filter(pc.equal(number, index))
        yield index, mine.select(list(range(first, first + width)))
        first += width


def _sections(rows: Sequence[tuple[int, bytes | None]]) -> Batches:
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

    def portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[Any] | pa.RecordBatch]:
        """The rows of all sections, in portions; columns that are Arrow as they are."""
        waiting: list[Any] = []
        for batch in batches:
            for data in batch.column(1):
                section = data.as_py()
                if is_arrow(section):
                    yield decode(section)
                    continue
                waiting += self.rows(section)
                if len(waiting) >= _WRITE_ROWS:
                    yield waiting
                    waiting = []
        if waiting:
            yield waiting


def guess_stage(plan: SparkPlan, sink: Sink, code: Code | None) -> Stage:
    """The types of a sink's values, if they are not declared, and the size of its sections: one row
    per partition."""

    def run(batches: Batches) -> Batches:
        if code is not None:
            code.paths()
        guess, size = TypeGuess(sink.fields), 0

        def counted() -> Batches:
            nonlocal size
            for batch in batches:
                size += batch.nbytes
                yield batch

        if sink.columns:
            for _ in counted():
                pass
        else:
            for rows in Reader(plan, sink).portions(counted()):
                if isinstance(rows, pa.RecordBatch):
                    guess.add_arrow(rows)
                else:
                    guess.add(rows)
        yield pa.record_batch([[guess.to_json()], [size]], schema=GUESSES)

    return _named(sink.where, run)


def write_stage(
    plan: SparkPlan,
    sink: Sink,
    code: Code | None,
    schema: pa.Schema,
    counts: Counts | None = None,
) -> Stage:
    """The tuples of a sink as typed columns."""

    def run(batches: Batches) -> Batches:
        if code is not None:
            code.paths()
        written = 0
        for rows in Reader(plan, sink).portions(batches):
            written += len(rows)
            if isinstance(rows, pa.RecordBatch):
                yield arrow_to_columns(rows, schema)
            else:
                yield rows_to_columns(rows, schema)
        if counts is not None:
            counts.add("written", sink.name, _partition(), written)

    return _named(sink.where, run)
