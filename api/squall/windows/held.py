"""The tuples that wait in the windows of one task: how many, which of them twice, and which of them
on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from logging import Logger, LoggerAdapter
from typing import TYPE_CHECKING, Any

from squall.windows.on_disk import DiskRow, DiskRows, put_values

if TYPE_CHECKING:
    from squall_common.component.tuples import Tuple


class Held:
    """Counts what is held, and knows its message ids. The tuples themselves are in the windows."""

    def __init__(
        self,
        id_field: str | None,
        key_of: Callable[[Tuple], Hashable],
        log: Logger | LoggerAdapter[Any],
        *,
        disk: DiskRows | None = None,
        in_memory_max: int = 0,
    ) -> None:
        """`id_field` has the message id of a tuple; None: no field has. `disk` is for the values of
        tuples above `in_memory_max`; None: all are in memory."""
        self.count = 0
        self.on_disk = 0  # of those that are held
        self.ids: set[Hashable] | None = None if id_field is None else set()
        self.disk = disk
        self._id_field = id_field
        self._key_of = key_of
        self._log = log
        self._in_memory_max = in_memory_max
        self._warned = False  # that a value cannot be on disk

    def recount(self, tuples: Iterable[Tuple]) -> None:
        """Count those on disk anew, among all that are held."""
        if self.disk is not None:
            self.on_disk = sum(type(tup.values) is DiskRow for tup in tuples)

    def release(self, tuples: Sequence[Tuple]) -> None:
        """Count tuples that are held no longer."""
        self.count -= len(tuples)
        if self.disk is not None:
            self.on_disk -= sum(type(tup.values) is DiskRow for tup in tuples)

    # -- message ids --

    def forget(self, tup: Tuple) -> None:
        """Another tuple with this one's message id is no replay."""
        if self.ids is not None:
            self.ids.discard(self.id_of(tup))

    def id_of(self, tup: Tuple) -> Hashable:
        """The message id of a tuple."""
        values = tup.values
        if type(values) is DiskRow:
            return values.message_id
        found: Hashable = tup.get(self._id_field or "")
        return found

    # -- the bound of what is in memory --

    @property
    def room(self) -> int:
        """How many more tuples may have their values in memory."""
        return max(0, self._in_memory_max - (self.count - self.on_disk))

    def put_on_disk(self, tuples: Sequence[Tuple]) -> None:
        """Put the values of tuples that are about to be held on disk. Those that cannot be stored
        stay in memory. Raises StateStoreError; then all do."""
        if not tuples:
            return
        assert self.disk is not None
        id_field = self._id_field
        rows = [
            (tup.values, self._key_of(tup), None if id_field is None else tup.get(id_field))
            for tup in tuples
        ]
        for tup, row in zip(tuples, self.disk.add(rows), strict=True):
            if isinstance(row, DiskRow):
                put_values(tup, row)
                self.on_disk += 1
            elif not self._warned:
                self._warned = True
                self._log.warning("tuples stay in memory that cannot be on disk: %s", row)
