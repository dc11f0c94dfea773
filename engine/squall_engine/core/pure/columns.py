"""The column API: a batch as one list for each field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any

from squall_common.names import DEFAULT_STREAM
from squall_engine.core.pure.acking import Ledger
from squall_engine.core.pure.bolts import CarefulCalls
from squall_engine.core.pure.emitting import Emitter
from squall_engine.core.pure.tuples import Batch, Source, Tuple
from squall_engine.core.stats import TaskCounts
from squall_engine.core.values import (
    changed_row,
    checked_origins,
    no_field,
    no_row,
    rows_of,
    settled_error,
)


class Columns:
    """See `squall_common.component.columns.columns.Columns`."""

    __slots__ = ("_calls", "_columns", "_tuples", "source")

    def __init__(self, batch: Batch, calls: ColumnCalls) -> None:
        self.source: Source = batch.source
        self._tuples = batch.as_tuples()
        self._calls = calls
        self._columns: list[list[Any]] = []

    def _fill(self, batch: Batch) -> int:
        """Make the columns, which the bolt may change. Returns the place of the first row that was
        changed after it was emitted, so that there are none; -1: no row was."""
        rows = batch.rows()
        for place, row in enumerate(rows):
            if len(row) != len(self.source.fields):
                return place
        self._columns = list(map(list, zip(*rows, strict=True)))
        return -1

    @property
    def rows(self) -> int:
        return len(self._tuples)

    @property
    def fields(self) -> tuple[str, ...]:
        return self.source.fields

    @property
    def source_component(self) -> str:
        return self.source.component

    @property
    def source_task(self) -> int:
        return self.source.task

    @property
    def source_stream(self) -> str:
        return self.source.stream

    @property
    def is_tick(self) -> bool:
        return self.source.is_tick

    def __getitem__(self, key: str | int) -> list[Any]:
        if type(key) is str:
            index = self.source.index.get(key)
            if index is None:
                raise no_field(self.source, key)
            return self._columns[index]
        return self._columns[key]  # type: ignore[index]

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self._columns)

    def __repr__(self) -> str:
        source = self.source
        return f"Columns({self.rows} rows from {source.component}:{source.task} {source.stream})"

    def ack(self, row: int | None = None) -> None:
        for tup in self._chosen(row):
            self._calls.ack(tup)

    def fail(self, row: int | None = None) -> None:
        for tup in self._chosen(row):
            self._calls.fail(tup)

    def _chosen(self, row: int | None) -> Sequence[Tuple]:
        if row is None:
            return [tup for tup in self._tuples if not tup.settled]
        if not 0 <= row < len(self._tuples):
            raise no_row(row, len(self._tuples))
        return (self._tuples[row],)


class ColumnCalls(CarefulCalls):
    """The calls of a bolt that is fed with columns, and the loop that feeds it."""

    def __init__(
        self,
        emitter: Emitter,
        ledger: Ledger,
        counts: TaskCounts,
        execute_columns: Callable[[Columns], Any],
        *,
        auto_ack: bool,
        auto_anchor: bool,
        default_anchors: Callable[[], tuple[Tuple, ...]],
        on_error: Callable[[BaseException], None],
        on_settled: Callable[[Tuple, bool], None] | None = None,
        notes_acks: bool = True,
        on_outside: Callable[[], None] | None = None,
        on_changed_row: Callable[[Tuple, Exception], bool] | None = None,
    ) -> None:
        """`on_outside()` is called after each call that is made while no batch is executed,
        because there is something for a turn to do; `on_changed_row(tup, error)` for a tuple that
        cannot be a row, as its list was changed after it was emitted. It returns whether the tuple
        is done; otherwise, or when it raises, that fails."""
        super().__init__(
            emitter,
            ledger,
            counts,
            default_anchors=default_anchors,
            on_error=on_error,
            on_settled=on_settled,
            notes_acks=notes_acks,
            on_change=on_outside,
        )
        self._execute = execute_columns
        self._auto_ack = auto_ack
        self._auto_anchor = auto_anchor
        self._on_changed_row = on_changed_row
        self._current: Columns | None = None

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        origins: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple for each row. `origins[i]` is the row of the current batch to which tuple
        `i` is anchored; None: its own; (): to none."""
        output = self._emitter._find(stream)
        rows = rows_of(output.source, columns)
        anchors: list[tuple[Tuple, ...]] = [()] * len(rows)
        current = self._current
        if current is not None and self._auto_anchor:
            chosen = checked_origins(origins, len(rows), current.rows)
            if chosen is not None:
                anchors = [(current._tuples[origin],) for origin in chosen]
        for some in anchors:
            for anchor in some:
                if anchor.settled:
                    raise settled_error(anchor, "emit_columns")
        for row, some in zip(rows, anchors, strict=True):
            self._emitter._send(output, self._emitter._edges(output, row), row, some)
        self._changed()

    def run(self, batch: Batch, count: int) -> None:
        """Execute the first `count` tuples, which are then no longer in the batch; those of each
        source task in a call of their own."""
        for part in batch.take(count)._by_source():
            self._run_source(part)

    def _run_source(self, batch: Batch) -> None:
        """All of a batch, which is of one source; around each row that was changed."""
        while (changed := self._run_whole(batch)) >= 0:
            if changed:
                self._run_source(batch.take(changed))
            self._refuse(batch.take(1).as_tuples()[0])
            if not len(batch):
                return

    def _run_whole(self, batch: Batch) -> int:
        """Returns the place of the first row that was changed, and executes nothing if there is
        one; otherwise -1."""
        columns = self._current = Columns(batch, self)
        changed = -1
        try:
            changed = columns._fill(batch)
            if changed < 0:
                self._execute(columns)
        except Exception as error:
            columns.fail()
            self.report_error(error)
        else:
            if self._auto_ack and changed < 0:
                columns.ack()
        finally:
            self._current = None
        return changed

    def _refuse(self, tup: Tuple) -> None:
        """A tuple that cannot be a row."""
        source = tup.source
        error: Exception = changed_row(
            source.component, source.stream, len(source.fields), tup.values
        )
        is_done = False
        try:
            if self._on_changed_row is not None:
                is_done = self._on_changed_row(tup, error)
        except Exception as raised:
            error = raised
        if is_done:
            self.ack(tup)
        else:
            self.fail(tup)
            self.report_error(error)

    def _changed(self) -> None:
        if self._current is None:
            super()._changed()


def held_origins(origins: Sequence[int] | None, emitted: int, rows: int, first: int) -> list[int]:
    """The `origins` of an `emit_columns` that waits for the end of its call, as they are now: rows
    of the batch of which the bolt has `rows`, from row `first` on; empty: from none. Raises
    EmitError, and TypeError for what is not a whole number."""
    chosen = checked_origins(origins, emitted, rows)
    return [] if chosen is None else [first + index(row) for row in chosen]
