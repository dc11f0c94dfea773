"""Batches, whole or not at all: bolts with `execute_batch` and `execute_columns`.

A batch is one try. If it fails, all of it is undone, and it is tried again in parts: around the
tuples for which the bolt has called `fail`, or in halves. A part of one tuple is tried as any tuple
is, and what fails to the end is the only one that becomes a dead letter. So one bad tuple of 1,024
costs about ten calls of halves, and the others keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from squall_engine.atomic.tries import HoldingColumnCollector, Tries
from squall_engine.atomic.undo import BatchKeys
from squall_engine.core import Columns, Source, Tuple
from squall_engine.core.values import no_field, no_row

KeysOf = Callable[[Iterable[Tuple]], Iterable[Any]]
ColumnKeysOf = Callable[[Any, Sequence[Sequence[Any]]], Iterable[Any]]
"""(columns, their lists): the key of each row."""


def parts_of(start: int, stop: int, failed: Collection[int]) -> Iterator[tuple[int, int]]:
    """How a batch is tried again whose places from `start` to `stop` have failed together: each
    place in `failed` alone; without any, in halves."""
    if not failed:
        middle = (start + stop) // 2
        yield start, middle
        yield middle, stop
        return
    at = start
    for place in sorted(failed):
        if at < place:
            yield at, place
        yield place, place + 1
        at = place + 1
    if at < stop:
        yield at, stop


def around_batch(
    tries: Tries, execute: Callable[[list[Tuple]], Any], keys_of: KeysOf | None
) -> Callable[[list[Tuple]], None]:
    """`execute_batch`, made atomic. `keys_of` gives the keys of tuples; None: it has no state."""

    def atomic(tuples: list[Tuple]) -> None:
        error = attempt(tuples)
        if error is None:
            return
        if len(tuples) > 1:
            tries.report(error)  # those of its parts are reported where they are one tuple
        part(tuples, error)

    def attempt(tuples: list[Tuple]) -> Exception | None:
        return tries.attempt(execute, tuples[:], keys(tuples))

    def keys(tuples: list[Tuple]) -> BatchKeys | None:
        return None if keys_of is None else BatchKeys(lambda: keys_of(tuples))

    def part(tuples: list[Tuple], error: Exception) -> None:
        """Try again what has failed."""
        if len(tuples) == 1:
            last = tries.again(lambda: attempt(tuples), error)
            if last is not None:
                tries.give_up(tuples[0], last)
            return
        failed = places_of(tuples, tries.failed)
        for start, stop in parts_of(0, len(tuples), failed):
            some = tuples[start:stop]
            again = attempt(some)
            if again is not None:
                part(some, again)

    return atomic


def places_of(tuples: Sequence[Tuple], failed: Sequence[Tuple] | None) -> set[int]:
    """Where the tuples are that the bolt has failed."""
    if not failed:
        return set()
    ids = set(map(id, failed))
    return {place for place, tup in enumerate(tuples) if id(tup) in ids}


class RowView:
    """Some rows of a batch, as `execute_columns` gets them: see
    `squall_common.component.columns.columns.Columns`."""

    def __init__(self, source: Source, lists: list[list[Any]], rows: int, tries: Tries) -> None:
        """`lists` are the view's own."""
        self.source = source
        self.rows = rows
        self._lists = lists
        self._tries = tries

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
        if isinstance(key, str):
            index = self.source.index.get(key)
            if index is None:
                raise no_field(self.source, key)
            return self._lists[index]
        return self._lists[key]

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self._lists)

    def __repr__(self) -> str:
        source = self.source
        return f"Columns({self.rows} rows from {source.component}:{source.task} {source.stream})"

    def ack(self, row: int | None = None) -> None:
        """Every row that does not fail is done when the call returns."""
        self._check(row)

    def fail(self, row: int | None = None) -> None:
        self._check(row)
        for one in range(self.rows) if row is None else (row,):
            self._tries.fail(one)

    def _check(self, row: int | None) -> None:
        if row is not None and not 0 <= row < self.rows:
            raise no_row(row, self.rows)


class AtomicColumns:
    """The calls of `execute_columns` of one task."""

    def __init__(
        self,
        tries: Tries,
        execute: Callable[[Any], Any],
        keys_of: ColumnKeysOf | None,
        give_up: Callable[[Source, Sequence[Any], int, Exception], None],
    ) -> None:
        """`give_up(source, values, row, error)` gets a row whose tries have all failed; `row` is
        that of the core's batch."""
        self.collector: HoldingColumnCollector | None = None
        self._tries = tries
        self._execute = execute
        self._keys_of = keys_of
        self._give_up = give_up

    def run(self, columns: Columns) -> None:
        """Execute a batch."""
        # The lists are the bolt's, which may change them: these stay as they are.
        lists = [column[:] for column in columns]
        view = RowView(columns.source, list(columns), columns.rows, self._tries)
        error = self._attempt(view, lists, 0, columns.rows)
        if error is None:
            return
        if columns.rows > 1:
            self._tries.report(error)
        self._part(columns.source, lists, 0, columns.rows, error)

    def _part(
        self, source: Source, lists: list[list[Any]], start: int, stop: int, error: Exception
    ) -> None:
        if stop - start == 1:
            last = self._last_tries(source, lists, start, error)
            if last is not None:
                self._give_up(source, [column[start] for column in lists], start, last)
            return
        failed = {start + row for row in self._tries.failed or ()}
        for first, end in parts_of(start, stop, failed):
            view = self._view(source, lists, first, end)
            again = self._attempt(view, lists, first, end)
            if again is not None:
                self._part(source, lists, first, end, again)

    def _last_tries(
        self, source: Source, lists: list[list[Any]], row: int, error: Exception
    ) -> Exception | None:
        def attempt() -> Exception | None:
            return self._attempt(self._view(source, lists, row, row + 1), lists, row, row + 1)

        return self._tries.again(attempt, error)

    def _view(self, source: Source, lists: list[list[Any]], start: int, stop: int) -> RowView:
        return RowView(source, [one[start:stop] for one in lists], stop - start, self._tries)

    def _attempt(
        self, view: RowView, lists: list[list[Any]], start: int, stop: int
    ) -> Exception | None:
        self._place(start, stop)
        keys = self._keys(lists, view.source, start, stop)
        return self._tries.attempt(self._execute, view, keys)

    def _place(self, start: int, stop: int) -> None:
        collector = self.collector
        assert collector is not None
        collector.first_row, collector.rows = start, stop - start

    def _keys(
        self, lists: list[list[Any]], source: Source, start: int, stop: int
    ) -> BatchKeys | None:
        keys_of = self._keys_of
        if keys_of is None:
            return None
        return BatchKeys(lambda: keys_of(source, [one[start:stop] for one in lists]))
