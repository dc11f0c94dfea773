"""`DiskState`: the state of a task whose entries are in a table on disk.

In memory is what has changed lately: it is written to the table when there is enough of it, by key
and at once, between two calls of the bolt. The entries that no epoch contains yet are in memory as
well, as in any `KeyedState`. A base is read from the table, as it was at the snapshot, while it is
written: it is never in memory as a whole.

An entry in the table is its key group (`_GROUP`) and its row, as it is in a segment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from squall_common.component.groupings import NoStableHashError, stable_hash
from squall_common.component.state import begins_with
from squall_common.state.disk.keys import is_plain, key_bytes
from squall_common.state.disk.rows import PlainRows, TableCodec
from squall_common.state.disk.table import PORTION_BYTES, DiskTable, TableView
from squall_common.state.errors import StateError, StateStoreError, StateValueError
from squall_common.state.key_checks import ALWAYS_TAKEN, SHOWN_CHARS, not_storable
from squall_common.state.key_groups import BOUND
from squall_common.state.keyed import (
    ABSENT,
    BOUND_OWNER,
    IMMUTABLE,
    LENGTH,
    MILLIS,
    SCALARS,
    SELF,
    Hot,
    KeyedState,
    MakeHot,
    frames_of,
)
from squall_common.state.task_state import Changes, RowCodec, StoredState

WRITE_ENTRIES = 100_000
_HELD_FACTOR = 2
_CHUNK_BYTES = 32 * 1024 * 1024  # of a base, or of what is restored, that is in memory
_GROUP = struct.Struct("<i")
_NO_DELETIONS = LENGTH.pack(0)
_plain_row = msgspec.msgpack.Encoder().encode
_MISSING: Any = object()
_Hot = TypeVar("_Hot", bound=Hot)


class _Entries:
    """The entries: what is newer than the table, and the table."""

    def __init__(self, table: DiskTable, codec: RowCodec, rows: PlainRows) -> None:
        self.table = table
        self.newer: dict[Hashable, Any] = {}  # ABSENT: deleted
        self.owners: dict[Hashable, Any] = {}  # of those, where they are not the key itself
        self.count = 0
        self.owned = 0  # entries whose owner is not their key
        self.owned_by: dict[str, int] = {}  # the same; empty: there is none
        self._decode = codec.decode_rows
        self._name_of, self._plain_value = rows.name, rows.value
        self._read: tuple[Any, Any, Any] = (_MISSING, ABSENT, SELF)  # last: key, value, owner

    def look(self, key: Hashable) -> Any:
        """The value of a key, or ABSENT. What can be changed in place is in `newer` from then on,
        so that it is the same object each time, and is written again. Keys of other types are
        refused, also where one that is equal is there: a segment would have them as they are."""
        if type(key) not in SCALARS and not is_plain(key):
            _bytes_of(key)
        value = self.newer.get(key, _MISSING)
        if value is not _MISSING:
            return value
        if self._read[0] == key:
            return self._read[1]
        data = self.table.get(self._name_of(key) or _bytes_of(key))
        if data is None:
            self._read = (key, ABSENT, SELF)
            return ABSENT
        value = self._plain_value(key, data, _MISSING)
        if value is not _MISSING:
            self._read = (key, value, SELF)
            return value
        value, owner = self.decoded(data)[1:]
        if type(value) not in IMMUTABLE:
            self._keep(key, value, owner)
        else:
            self._read = (key, value, owner)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        """An entry is in `newer`, with the owner that it has."""
        if self.look(key) is ABSENT:
            self.count += 1
        elif self.owned:
            self.pull(key)
        self.newer[key] = value

    def own(self, more: int) -> None:
        """So many entries more have an owner that is not their key."""
        self.owned += more
        self.owned_by.clear()
        if self.owned:
            self.owned_by["others"] = self.owned

    def decoded(self, data: bytes) -> tuple[Any, Any, Any]:
        """Key, value and owner of an entry in the table."""
        (row,) = self._decode(data[_GROUP.size :])
        if data[: _GROUP.size] == _BOUND_GROUP:
            return row[0], row[1], BOUND_OWNER
        return row[0], row[1], row[3] if len(row) > 3 else SELF

    def pull(self, key: Hashable) -> None:
        """Have an entry in `newer`, with its owner, if there is one."""
        if key not in self.newer:
            value = self.look(key)
            if value is not ABSENT and key not in self.newer:
                self._keep(key, value, self._read[2])

    def _keep(self, key: Hashable, value: Any, owner: Any) -> None:
        self.newer[key] = value
        if owner is not SELF:
            self.owners[key] = owner

    def written(self, *, keep: Mapping[Hashable, Any]) -> None:
        """What is not to be kept is in the table."""
        self.owners = {key: self.owners[key] for key in keep if key in self.owners}
        self.newer.clear()  # in place: a `Hot` has it as well
        self.newer.update(keep)
        self._read = (_MISSING, ABSENT, SELF)

    def scan(self) -> Iterator[tuple[Any, Any]]:
        """All entries as they are now, while they are changed. Those of the table are copies."""
        newer, view = dict(self.newer), self.table.view()
        try:
            for key, value in newer.items():
                if value is not ABSENT:
                    yield key, value
            for _, data in view:
                key, value, _ = self.decoded(data)
                if key not in newer:
                    yield key, value
        finally:
            view.close()


_BOUND_GROUP = _GROUP.pack(BOUND)


@dataclass(frozen=True, slots=True)
class _Table:
    """A `Beyond`."""

    look: Callable[[Any], Any]
    make_room: Callable[[], None]
    values_max: int


class _Values:
    """The values by key, as `KeyedState` uses its dict."""

    def __init__(self, entries: _Entries, full: Callable[[], None], held_max: int) -> None:
        self._entries = entries
        self._full = full
        self._held_max = held_max

    def get(self, key: Hashable, default: Any = None) -> Any:
        value = self._entries.look(key)
        return default if value is ABSENT else value

    def __getitem__(self, key: Hashable) -> Any:
        value = self._entries.look(key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: Hashable) -> bool:
        return self._entries.look(key) is not ABSENT

    def __setitem__(self, key: Hashable, value: Any) -> None:
        entries = self._entries
        entries.put(key, value)
        if len(entries.newer) > self._held_max:
            self._full()

    def pop(self, key: Hashable, default: Any = None) -> Any:
        entries = self._entries
        value = entries.look(key)
        if value is ABSENT:
            return default
        entries.pull(key)
        entries.newer[key] = ABSENT
        entries.count -= 1
        return value

    def __len__(self) -> int:
        return self._entries.count

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries.scan())

    def keys(self) -> set[Any]:
        return set(self)


class _Owners:
    """The owners by key, where they are not the key itself."""

    def __init__(self, entries: _Entries) -> None:
        self._entries = entries

    def __bool__(self) -> bool:
        return self._entries.owned > 0

    def get(self, key: Hashable, default: Any = None) -> Any:
        entries = self._entries
        if key not in entries.newer and entries.owned:
            entries.pull(key)
        return entries.owners.get(key, default)

    def __getitem__(self, key: Hashable) -> Any:
        owner = self.get(key, _MISSING)
        if owner is _MISSING:
            raise KeyError(key)
        return owner

    def __contains__(self, key: Hashable) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __setitem__(self, key: Hashable, owner: Any) -> None:
        self._entries.pull(key)
        self._entries.own(key not in self._entries.owners)
        self._entries.owners[key] = owner

    def pop(self, key: Hashable, default: Any = None) -> Any:
        self._entries.pull(key)
        owner = self._entries.owners.pop(key, _MISSING)
        if owner is _MISSING:
            return default
        self._entries.own(-1)
        return owner


class DiskState(KeyedState):
    """A `KeyedState` in a table.

    Values that `iterate` and `prefix` return are copies: what is changed in them counts only once
    it is put. Keys are text, bytes, numbers, dates, UUIDs and tuples of these.
    """

    def __init__(
        self,
        max_parallelism: int,
        codec: TableCodec,
        *,
        table: DiskTable,
        write_entries: int = WRITE_ENTRIES,
        **options: Any,
    ) -> None:
        """At a snapshot, `write_entries` changed entries are written to the table together. If
        there are twice as many, those that cannot be changed in place are written at once.
        `options`: as of `KeyedState`."""
        super().__init__(max_parallelism, codec, **options)
        self._rows = codec.table_rows(max_parallelism)
        self._on_disk = _Entries(table, codec, self._rows)
        self._is_full = False  # what a call has changed could not be written
        self._write_entries = write_entries
        self._try_at = 0  # entries in memory: with fewer, little of them can be written now
        self._held_max = _HELD_FACTOR * write_entries
        self._values: Any = _Values(self._on_disk, self._write_immutable, self._held_max)
        self._owners: Any = _Owners(self._on_disk)

    def share(self, make: MakeHot[_Hot]) -> _Hot | None:
        if self._ttl_secs is not None:
            return None
        entries = self._on_disk
        beyond = _Table(entries.look, self._write_immutable, self._held_max)
        return self._shared(make(entries.newer, entries.owned_by, beyond))

    # ---- for bolts ----

    def check(self, key: Hashable, value: Any) -> None:
        _bytes_of(key)
        super().check(key, value)

    def check_value(self, key: Hashable) -> None:
        value = self._on_disk.newer.get(key)  # what is in the table has an encoding
        if type(value) not in IMMUTABLE and value is not ABSENT:
            self._check(key, value)

    def get(self, key: Hashable, default: Any = None) -> Any:
        if self._ttl_secs is not None:
            self._expire()
        entries = self._on_disk
        value = entries.newer.get(key, _MISSING) if type(key) in SCALARS else _MISSING
        if value is _MISSING:
            try:
                value = entries.look(key)
            except StateValueError as error:
                raise self.key_checks.named(key, self.current, error) from error
        if value is ABSENT:
            return default
        if key != self.current or entries.owned:
            self._used(key)
        if type(value) not in IMMUTABLE:
            self._hand_out(key, value)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        entries = self._on_disk
        if self._ttl_secs is not None or key != self.current or entries.owned:
            if self._ttl_secs is not None:
                _bytes_of(key)  # may refuse the key, so nothing of it is noted before
            super().put(key, value)
            return
        # As in the base, without the calls: that is what nearly all puts are.
        if type(key) not in ALWAYS_TAKEN:
            self.key_checks.check(key, self.current)
        if type(value) not in SCALARS:
            self._check(key, value)
        entries.put(key, value)
        self._changed[key] = value
        if len(entries.newer) > self._held_max:
            self._write_immutable()

    def glance(self, key: Hashable, default: Any = None) -> Any:
        """As of `KeyedState`, and a value that is in the table alone is not kept in memory."""
        value = self._on_disk.newer.get(key, _MISSING)
        if value is _MISSING:
            try:
                data = self._on_disk.table.get(_bytes_of(key))
            except StateValueError:  # no key of a table
                return default
            value = ABSENT if data is None else self._on_disk.decoded(data)[1]
        return default if value is ABSENT or self._has_expired(key) else value

    def newer_keys(self) -> list[Any]:
        """Those keys whose entries are newer than the table, or are not in it."""
        return [key for key, value in self._on_disk.newer.items() if value is not ABSENT]

    def rows_after(
        self, at: bytes, *, rows_max: int, bytes_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Some rows of the table, encoded, and where to go on: None at its end. The first are at
        b"". For a listing in pieces, between which the state may change."""
        found = self._on_disk.table.after(at, entries_max=rows_max, bytes_max=bytes_max)
        rows = [data[_GROUP.size :] for _, data in found]
        return rows, found[-1][0] if found else None

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        return self._scanned(lambda _: True)

    def prefix(self, prefix: str | bytes | tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        return self._scanned(begins_with(prefix))

    def _scanned(self, wanted: Callable[[Any], bool]) -> Iterator[tuple[Any, Any]]:
        self.expire()
        for key, value in self._on_disk.scan():
            if wanted(key):
                if type(value) not in IMMUTABLE and self._on_disk.newer.get(key) is value:
                    self._hand_out(key, value)
                yield key, value

    def set_ttl(self, secs: float | None) -> None:
        """As of `KeyedState`. Entries whose times it sets or forgets are written again, as a base
        has the rows of the table. Raises StateStoreError."""
        before = self._put_at
        super().set_ttl(secs)
        if before.keys() == self._put_at.keys():
            return
        self._write_newer()
        entries, at = self._on_disk, b""
        while True:
            rows = entries.table.after(at, entries_max=self._write_entries, bytes_max=_CHUNK_BYTES)
            if not rows:
                return
            at = rows[-1][0]
            batch = self._rows.batch()
            for name, data in rows:
                key, value, owner = entries.decoded(data)
                if (key in before) != (key in self._put_at):
                    batch.add(name, self._entry_bytes(key, value, owner))
            entries.table.write(batch.portions(PORTION_BYTES))

    # ---- the table ----

    def _write_immutable(self) -> None:
        """In the middle of a call, which may still change the mutable values that it has got. A
        full disk does not fail the call, but the next snapshot."""
        newer = self._on_disk.newer
        if self._is_full or len(newer) < self._try_at:
            return
        keep = {
            key: value
            for key, value in newer.items()
            if type(value) not in IMMUTABLE and value is not ABSENT
        }
        if len(keep) > len(newer) // 2:
            self._try_at = len(newer) * 3 // 2
            return
        try:
            self._write_newer(keep)
        except StateStoreError:
            self._is_full = True

    def _write_newer(self, keep: Mapping[Hashable, Any] = {}) -> None:
        """Write what is newer than the table to it. Raises StateStoreError, StateValueError."""
        entries = self._on_disk
        batch, gone = self._rows.batch(), []
        rest: Iterable[tuple[Any, Any]]
        if entries.owners or self._put_at:
            rest = (row for row in entries.newer.items() if row[0] not in keep)
        else:
            rest = batch.add_dict(entries.newer, keep or None)
        for key, value in rest:
            if value is ABSENT:
                gone.append(_bytes_of(key))
            else:
                owner = entries.owners.get(key, SELF)
                batch.add(_bytes_of(key), self._entry_bytes(key, value, owner))
        entries.table.write(batch.portions(PORTION_BYTES), sorted(gone))
        entries.written(keep=keep)
        self._try_at = 0

    def _entry_bytes(self, key: Hashable, value: Any, owner: Any) -> bytes:
        if owner is BOUND_OWNER:
            group = BOUND
        else:
            group = self._group_of(key if owner is SELF else owner)
        at = self._put_at.get(key) if self._put_at else None
        row: tuple[Any, ...] = (key, value)
        if owner is not SELF and owner is not BOUND_OWNER:
            row = (key, value, None if at is None else int(at * MILLIS), owner)
        elif at is not None:
            row = (key, value, int(at * MILLIS))
        return _GROUP.pack(group) + self._row_bytes(row)

    def _row_bytes(self, row: Sequence[Any]) -> bytes:
        if len(row) == 2 and type(row[0]) in SCALARS and type(row[1]) in SCALARS:
            try:
                return _plain_row((row,))  # what the codec makes of it, at a third of the time
            except (OverflowError, ValueError):
                pass
        try:
            return self._codec.encode_rows((row,))
        except ValueError as error:
            raise not_storable(row[0], error) from error

    # ---- snapshots ----

    def snapshot(self, epoch: int, *, base: bool = False) -> Changes:
        """As of `KeyedState`; every now and then what has changed is written to the table, which
        takes 1 to 2 µs an entry. Raises StateStoreError as well."""
        changes = self._snapshot(epoch)
        if base or len(self._on_disk.newer) >= self._write_entries:
            self._write_newer()
            self._is_full = False
        if not base:
            return changes
        changes.is_encoded = True  # it is not written: the base is
        return _Base(epoch, len(self), self.bound, self._on_disk.table.view())

    def restore(
        self, parts: Iterable[Iterable[StoredState]], groups: Iterable[int], *, bound: bool
    ) -> None:
        self._began_empty = False
        wanted = [BOUND, *groups] if bound else list(groups)
        for segments in parts:
            for segment in segments:
                if getattr(segment, "is_base", False) and not self._on_disk.count:
                    self._write_newer()  # what tasks before this one have deleted
                    self._load_first(segment, wanted)
                else:
                    self._load_more(segment, wanted)
        self._write_newer()
        if self._put_at:
            self._put_at = dict(sorted(self._put_at.items(), key=lambda entry: entry[1]))

    def _load_first(self, segment: StoredState, wanted: Sequence[int]) -> None:
        """A base, into an empty table: nothing can be there twice."""
        entries, batch, size = self._on_disk, self._rows.batch(), 0
        for group, data in segment.blocks(wanted):
            prefix = _GROUP.pack(group)
            for frame in frames_of(data):
                rows = self._decode(frame, segment)
                for row in rows:
                    one = prefix + (frame if len(rows) == 1 else self._row_bytes(row))
                    batch.add(_bytes_of(row[0]), one)
                    size += len(one)
                    self._note(group, row)
                    entries.count += 1
                    if group == BOUND or len(row) > 3:
                        entries.own(1)
            if size > _CHUNK_BYTES or len(batch) > self._write_entries:
                entries.table.write(batch.portions(PORTION_BYTES))
                batch, size = self._rows.batch(), 0
        entries.table.write(batch.portions(PORTION_BYTES))
        entries.written(keep={})

    def _load_more(self, segment: StoredState, wanted: Sequence[int]) -> None:
        """What has changed since, or is of another task."""
        # What was deleted comes first: an entry that has moved to another group is deleted in its
        # old one, in the same segment.
        blocks = []
        for group, data in segment.blocks(wanted):
            frames = frames_of(data)
            for (key,) in self._decode(next(frames, b""), segment):
                if key in self._values and self._group_now(key) == group:
                    self._forget(key)
            blocks.append((group, frames))
        for group, frames in blocks:
            for frame in frames:
                for row in self._decode(frame, segment):
                    self._load_row(group, row)

    def _load_row(self, group: int, row: Sequence[Any]) -> None:
        key, entries = row[0], self._on_disk
        if key in self._values:
            if self._group_now(key) != group:
                raise StateError(
                    f"two tasks have an entry for {key!r:.{SHOWN_CHARS}}, so they cannot become "
                    "one",
                    hint="start with the number of tasks that has stored the state",
                )
            self._forget(key)
        entries.count += 1
        entries.newer[key] = row[1]
        owner = BOUND_OWNER if group == BOUND else row[3] if len(row) > 3 else SELF
        if owner is not SELF:
            entries.owners[key] = owner
            entries.own(1)
        self._note(group, row)
        if len(entries.newer) >= self._write_entries:
            self._write_newer()

    def _note(self, group: int, row: Sequence[Any]) -> None:
        self._bound += group == BOUND
        if len(row) > 2 and row[2] is not None:
            self._put_at[row[0]] = row[2] / MILLIS

    def _forget(self, key: Hashable) -> None:
        self._values.pop(key)
        self._bound -= self._owners.pop(key, SELF) is BOUND_OWNER
        self._put_at.pop(key, None)

    def _group_of(self, owner: Any) -> int:
        try:
            return stable_hash(owner, self._registry) % self._max_parallelism
        except NoStableHashError as error:
            raise not_storable(owner, error) from error

    def _group_now(self, key: Hashable) -> int:
        owner = self._owners.get(key, SELF)
        if owner is BOUND_OWNER:
            return BOUND
        return self._group_of(key if owner is SELF else owner)


class _Base:
    """`Changes` that are the whole state."""

    is_base = True

    def __init__(self, epoch: int, keys: int, bound: int, view: TableView) -> None:
        self.epoch = epoch
        self.entries = self.keys = keys
        self.bound = bound
        self._view = view

    def encode(self, codec: RowCodec) -> Iterable[tuple[int, bytes]]:
        """The blocks, read from the table each time that they are iterated over: several of each
        group."""
        return _Blocks(self._view)


class _Blocks:
    def __init__(self, view: TableView) -> None:
        self._view = view

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        groups: dict[bytes, list[bytes]] = {}
        size = 0
        for _, data in self._view:
            group, frame = data[: _GROUP.size], data[_GROUP.size :]
            block = groups.get(group)
            if block is None:
                block = groups[group] = [_NO_DELETIONS]
            block += (LENGTH.pack(len(frame)), frame)
            size += len(frame)
            if size > _CHUNK_BYTES:
                yield from _joined(groups)
                groups, size = {}, 0
        yield from _joined(groups)


def _joined(groups: Mapping[bytes, Sequence[bytes]]) -> Iterator[tuple[int, bytes]]:
    for group in sorted(groups):
        yield _GROUP.unpack(group)[0], b"".join(groups[group])


def _bytes_of(key: Hashable) -> bytes:
    try:
        return key_bytes(key)
    except ValueError as error:
        raise not_storable(key, error) from error
