"""What a table on disk has of an entry with a plain key and value: the core reads and writes it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, Protocol

from squall_common.state.task_state import RowCodec


class Batch(Protocol):
    """Entries that are written together."""

    def __len__(self) -> int: ...

    def add(self, name: bytes, data: bytes) -> None:
        """Take an entry. The names of all are different."""
        ...

    def add_dict(
        self, entries: dict[Any, Any], skipped: Container[Any] | None
    ) -> list[tuple[Any, Any]]:
        """Take what is plain and not skipped. Each entry belongs to its key. Returns the others
        (key, value)."""
        ...

    def portions(self, bytes_max: int) -> Iterator[Iterable[tuple[bytes, bytes]]]:
        """All of it by name, once: each portion ends with the entry that makes it larger than this.
        It is to be iterated over before the next one is taken."""
        ...


class PlainRows(Protocol):
    """See `squall_engine.core.pure.table_rows`. Not for several threads at once."""

    def name(self, key: Any) -> bytes | None:
        """`keys.key_bytes` of a plain key; None: it is another."""
        ...

    def value(self, key: Any, data: bytes, default: Any) -> Any:
        """The value in an entry, if both are plain and its owner is its key; else `default`."""
        ...

    def batch(self) -> Batch:
        """What is to be written."""
        ...


class TableCodec(RowCodec, Protocol):
    """A codec of rows that knows those of tables."""

    def table_rows(self, groups: int) -> PlainRows: ...
