"""Columns that stay Arrow between two tasks: no tuple is made of them.

A stream whose consumers all take columns (`plan.arrow_streams`) travels as Arrow batches, if its
values are of plain types (bool, int of 64 bits, float, str, bytes, None). One row of Spark's is
then not a section of tuples but

    0xFF            no section begins with it
    Arrow IPC       one record batch; its metadata name the stream and the task that emitted it

Groupings choose the same tasks as the engine's. Everything that does not fit (values of other or
of mixed types, single tuples by `emit`) goes through the engine as a section, to the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from squall_common.component.collector import ColumnCollector, DelegatingColumnCollector
from squall_common.component.groupings import stable_hash_of_fields
from squall_common.topology.model import GlobalStreamId, Grouping, GroupingKind
from squall_spark.plan import SparkPlan, near_tasks

MARK = b"\xff"
Row = tuple[int, bytes]

# Of a stream, before they are sent: whichever comes first.
_ROWS = 64 * 1024
_BYTES = 8 * 1024 * 1024
_CACHED_MAX = 100_000
_PLAIN = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
_DECLARED = {
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
_TYPES = frozenset(_PLAIN.values())


def is_arrow(section: bytes) -> bool:
    """Whether a row's data are columns instead of a section of tuples."""
    return section[:1] == MARK


def encode(stream: str, task: int, batch: pa.RecordBatch) -> bytes:
    metadata = {b"stream": stream.encode(), b"task": str(task).encode()}
    batch = batch.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    sink.write(MARK)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode(data: bytes) -> pa.RecordBatch:
    """The record batch, with the metadata `stream` and `task`."""
    with pa.ipc.open_stream(pa.py_buffer(data)[1:]) as reader:
        return reader.read_next_batch()


def plain_array(values: Any) -> pa.Array | None:
    """Values as an array of a plain type; None if they are not of one such type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return _plain_of_arrow(values)
    types = set(map(type, values))
    types.discard(type(None))
    if not types:
        return pa.nulls(len(values))
    if len(types) > 1:
        return None
    type_ = _PLAIN.get(types.pop())
    if type_ is None:
        return None
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _plain_of_arrow(array: pa.Array) -> pa.Array | None:
    type_ = array.type
    if type_ in _TYPES or pa.types.is_null(type_):
        return array
    wanted = None
    if pa.types.is_dictionary(type_):
        return _plain_of_arrow(array.dictionary_decode())
    if pa.types.is_integer(type_):
        wanted = pa.int64()
    elif pa.types.is_floating(type_):
        wanted = pa.float64()
    elif pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        wanted = pa.string()
    elif pa.types.is_large_binary(type_):
        wanted = pa.binary()
    if wanted is None:
        return None
    try:
        return array.cast(wanted)
    except pa.ArrowException:
        return None


# ---- groupings ----


class _Edge:
    """From a stream to one consumer: which rows go to which of its tasks."""

    def __init__(
        self, grouping: Grouping, fields: Sequence[str], tasks: Sequence[int], near: frozenset[int]
    ) -> None:
        local = [task for task in tasks if task in near]
        is_local = grouping.kind is GroupingKind.LOCAL_OR_SHUFFLE
        self._tasks = local if is_local and local else list(tasks)
        self._kind = grouping.kind
        self._keys = [fields.index(name) for name in grouping.fields]
        if grouping.kind is GroupingKind.FIELDS and not self._keys:
            self._kind = GroupingKind.GLOBAL
        self._next = 0
        self._known: dict[Any, int] = {}

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._kind is GroupingKind.ALL:
            yield from ((task, batch) for task in self._tasks)
        elif len(self._tasks) == 1 or self._kind is GroupingKind.GLOBAL:
            yield self._tasks[0], batch
        elif self._kind is GroupingKind.FIELDS:
            yield from self._by_fields(batch)
        else:
            yield from self._in_turn(batch)

    def _in_turn(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Equal slices, beginning where the last batch ended."""
        count, rows = len(self._tasks), batch.num_rows
        for index in range(count):
            start, end = rows * index // count, rows * (index + 1) // count
            if end > start:
                yield self._tasks[(self._next + index) % count], batch.slice(start, end - start)
        self._next = (self._next + rows) % count

    def _by_fields(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        chosen = self._chosen(batch)
        sorted_ = batch.take(pc.sort_indices(chosen))  # stable
        rows = {int(n["values"]): int(n["counts"]) for n in chosen.value_counts().to_pylist()}
        start = 0
        for index, task in enumerate(self._tasks):
            if index in rows:
                yield task, sorted_.slice(start, rows[index])
                start += rows[index]

    def _chosen(self, batch: pa.RecordBatch) -> pa.Array:
        """For each row the index of its task."""
        if len(self._keys) == 1:
            encoded = batch.column(self._keys[0]).dictionary_encode(null_encoding="encode")
            targets = pa.array([self._target((v,)) for v in encoded.dictionary.to_pylist()])
            return targets.take(encoded.indices)
        keys = zip(*(batch.column(i).to_pylist() for i in self._keys), strict=True)
        return pa.array([self._target(key) for key in keys])

    def _target(self, key: tuple[Any, ...]) -> int:
        # (1, 1.0 and True are equal keys of a dict, and have equal hashes.)
        found = self._known.get(key)
        if found is None:
            found = stable_hash_of_fields(key) % len(self._tasks)
            if len(self._known) < _CACHED_MAX:
                self._known[key] = found
        return found


class ArrowOutput:
    """The arrow streams of one task."""

    def __init__(self, plan: SparkPlan, component: str, task: int) -> None:
        self._task = task
        self._streams: dict[str, tuple[list[_Edge], tuple[str, ...], list[pa.DataType | None]]] = {}
        self._required: dict[str, list[bool]] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self.emitted = 0
        near = near_tasks(plan, task)
        for name in plan.arrow_streams:
            if name.component != component:
                continue
            fields = plan.topology.components[component].streams[name.stream].fields
            edges = [
                _Edge(grouping, fields, plan.tasks_of(consumer.id), near)
                for consumer in plan.topology.components.values()
                for source, grouping in consumer.inputs.items()
                if source == GlobalStreamId(component, name.stream)
            ]
            declared = [_DECLARED.get(c.type or "") for c in plan.columns_of(name)]
            required = [c.required for c in plan.columns_of(name)]
            self._streams[name.stream] = (edges, fields, declared)
            self._required[name.stream] = required

    def __bool__(self) -> bool:
        return bool(self._streams)

    def takes(self, stream: str, columns: Sequence[Any]) -> bool:
        """Send columns as Arrow. False if they have to go through the engine, which also finds what
        is wrong with them."""
        known = self._streams.get(stream)
        if known is None:
            return False
        _, fields, declared = known
        if isinstance(columns, str | bytes) or len(columns) != len(fields):
            return False
        arrays = []
        for values in columns:
            array = None if isinstance(values, str | bytes) else plain_array(values)
            if array is None:
                return False
            arrays.append(array)
        if len({len(array) for array in arrays}) > 1 or not _fits(
            arrays, declared, self._required[stream]
        ):
            return False
        if len(arrays[0]):
            batch = pa.record_batch(arrays, names=list(fields))
            self.emitted += batch.num_rows
            self._waiting.setdefault(stream, []).append(batch)
        return True

    def take(self, *, end: bool = False) -> list[Row]:
        """What is to be sent: of the streams that have enough rows, at the end of all."""
        rows: list[Row] = []
        for stream, batches in self._waiting.items():
            if not batches or not (end or _is_enough(batches)):
                continue
            for batch in _together(batches):
                for edge in self._streams[stream][0]:
                    rows += (
                        (task, encode(stream, self._task, part)) for task, part in edge.parts(batch)
                    )
            batches.clear()
        return rows


def _is_enough(batches: Sequence[pa.RecordBatch]) -> bool:
    rows, size = sum(b.num_rows for b in batches), sum(int(b.nbytes) for b in batches)
    return rows >= _ROWS or size >= _BYTES


def _fits(
    arrays: Sequence[pa.Array],
    declared: Sequence[pa.DataType | None],
    required: Sequence[bool],
) -> bool:
    """Whether arrays are of the types that their stream declares, if any."""
    return all(
        (array.type == type_ or pa.types.is_null(array.type)) and not (needed and array.null_count)
        for array, type_, needed in zip(arrays, declared, required, strict=False)
    )


def _together(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as few, by their types."""
    if len({batch.schema for batch in batches}) == 1:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
    else:
        yield from batches


# ---- a bolt's side ----


class ArrowColumns:
    """A `Columns` over a record batch. There are no acks on Spark."""

    is_tick = False

    def __init__(self, batch: pa.RecordBatch, component: str, fail: Callable[[], None]) -> None:
        metadata = batch.schema.metadata
        self.arrow = batch.replace_schema_metadata(None)
        self.rows = batch.num_rows
        self.fields = tuple(batch.schema.names)
        self.source_component = component
        self.source_stream = metadata[b"stream"].decode()
        self.source_task = int(metadata[b"task"])
        self._fail = fail

    def __getitem__(self, key: str | int) -> list[Any]:
        if isinstance(key, str) and key not in self.fields:
            raise KeyError(key)
        return self.arrow.column(key).to_pylist()  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[list[Any]]:
        return (column.to_pylist() for column in self.arrow.columns)

    def ack(self, row: int | None = None) -> None:
        """Nothing waits for it."""

    def fail(self, row: int | None = None) -> None:
        self._fail()


class ArrowCollector(DelegatingColumnCollector[Any]):
    """Sends columns as Arrow where it can."""

    def __init__(
        self,
        inner: ColumnCollector[Any],
        output: ArrowOutput,
        check: Callable[[Any, int], None],
    ) -> None:
        self._output, self._check = output, check
        super().__init__(inner)

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        origins: Sequence[int] | None = None,
        stream: str = "default",
    ) -> None:
        if self._output.takes(stream, columns):
            self._check(origins, len(columns[0]))
        else:
            super().emit_columns(columns, origins, stream)

    def emit_arrow(self, columns: Sequence[Any], origins: Any, stream: str) -> None:
        if self._output.takes(stream, columns):
            self._check(origins, len(columns[0]))
            return
        plain = [c.to_pylist() if hasattr(c, "to_pylist") else list(c) for c in columns]
        rows = origins.to_pylist() if hasattr(origins, "to_pylist") else origins
        super().emit_columns(plain, rows, stream)
