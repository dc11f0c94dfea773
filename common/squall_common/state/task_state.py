"""The state of a task as whoever takes snapshots sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class RowCodec(Protocol):
    """Encodes rows of values as tuples are encoded (`squall_engine.core.codec.ValueCodec`). Not
    for several threads at once."""

    def encode_rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        """Raises ValueError for a value that cannot be encoded."""
        ...

    def surely_encodes(self, value: Any) -> bool:
        """Whether a value has an encoding, for all values of common types, and lists, dicts and the
        like of these; False for others, which may have one. It costs a few ns for each value in
        it."""
        ...

    def group_packer(self, groups: int) -> RowPacker:
        """What encodes many rows of plain values at once, and finds the groups of their keys."""
        ...

    def merge_blocks(self, blocks: list[bytes]) -> tuple[bytes, int] | None:
        """The block of a base that has what all these leave together, the oldest first, which are
        of one key group; and the number of its rows. Without any rows b"". None: they cannot be
        merged, as some keys are neither text, bytes nor whole numbers."""
        ...

    def decode_rows(self, data: bytes) -> list[list[Any]]:
        """Raises ValueError for bytes that are not encoded rows."""
        ...


class RowPacker(Protocol):
    """Encodes rows by key group."""

    def add(self, rows: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Take rows (key, value) of plain values, and return the others."""
        ...

    def add_dict(self, values: dict[Any, Any], count: int) -> Iterable[list[tuple[Any, Any]]]:
        """Take all entries of a dict, so many at a time; it must not change meanwhile. Yields those
        that it does not take."""
        ...

    def frames(self) -> dict[int, bytes]:
        """The encoded rows of each group that has any, as `encode_rows` encodes them. Once."""
        ...


Blocks = Mapping[int, bytes] | Iterable[tuple[int, bytes]]
"""Encoded entries with their key group. If there is no mapping, they may not all fit into memory:
they are read each time that they are iterated over, and a group comes several times."""


class Changes(Protocol):
    """What a snapshot holds. It does not change any more, whatever the task does next."""

    @property
    def epoch(self) -> int: ...

    @property
    def is_base(self) -> bool:
        """Whether it is the whole state, so that no older segment is needed with it."""
        ...

    @property
    def entries(self) -> int:
        """The number of its entries, deletions included."""
        ...

    @property
    def keys(self) -> int:
        """The number of keys of the whole state."""
        ...

    @property
    def bound(self) -> int:
        """How many of the keys of the whole state belong to their task, not to a key group. With
        any, the number of tasks cannot change."""
        ...

    def encode(self, codec: RowCodec) -> Blocks:
        """The encoded entries, by key group. From any thread, once; with a codec of that thread's
        own. Raises StateValueError, which names the key of a value that cannot be encoded."""
        ...


class StoredState(Protocol):
    """An open segment, as far as restoring needs it (`segment.Segment`)."""

    def blocks(self, groups: Iterable[int]) -> Iterable[tuple[int, bytes]]:
        """The encoded entries of these groups, those that it has, with their group. Raises
        StateDamagedError."""
        ...


class TaskState(Protocol):
    """The state of a task, for taking snapshots and restoring them.

    A task's life with epochs:

        state.restore(parts, groups, bound=True)     before the first tuple
        changes = state.snapshot(7)         at the barrier, on the task's own thread
        ... changes.encode(codec)           on a thread of the writer's
        state.completed(7)                  once epoch 7 can be restored

    Changes are kept until an epoch that contains them has completed. An epoch that is given up
    needs no call: the next snapshot contains its changes.
    """

    def snapshot(self, epoch: int, *, base: bool = False) -> Changes:
        """The entries that have changed since the last *completed* snapshot; with `base`, all
        entries. It takes microseconds, for a base about 15 ns a key: values are encoded later, or
        before the task can change them. Epochs only rise. Call it between two calls of the bolt,
        on the bolt's thread."""
        ...

    def completed(self, epoch: int) -> None:
        """Note that this epoch, and so all before it, has completed."""
        ...

    def restore(
        self, parts: Iterable[Iterable[StoredState]], groups: Iterable[int], *, bound: bool
    ) -> None:
        """Read the entries of these groups. A part is what one task has left: its segments, the
        oldest first. `bound`: also the entries that belong to their task; then there is one part,
        of the task with this index of the same number of tasks. Only for a new state. Raises
        StateDamagedError, and StateError if two parts have the same key."""
        ...
