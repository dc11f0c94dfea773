"""The state of one task during one micro-batch: what `StatefulBolt.self.state` is on a stream.

Entries are read from the files when a bolt asks for them, and kept until the batch ends or there
are too many of them: `relieve` then puts the changed ones into a temporary file. `commit` writes
all changes as one file. It absorbs older files that are not much larger, so that an entry is
written again only a logarithmic number of times, and there are few files to look into.

A value that a bolt changed in place, after `get`, counts: at the end its encoding is compared with
the one that was read.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any

from squall_common.component.groupings import stable_hash
from squall_common.component.state import KeyValueState
from squall_common.daemon.folders import Folder
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec
from squall_spark.state.owner import BOUND, OUTSIDE, task_of
from squall_spark.state.segment import (
    BlockCache,
    Entry,
    Footer,
    Older,
    Segment,
    StateDamagedError,
    Writer,
    merged,
)

SCRATCH = ".squall-state-"
CACHE_BYTES = 64 * 1024 * 1024  # of blocks, encoded; about five times that in memory
HOT_MAX = 100_000  # entries in use between two `relieve`
_FILES_MAX = 12
_IMMUTABLE = frozenset(
    {
        *(NoneType, bool, int, float, complex, str, bytes, Decimal),
        *(dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID),
    }
)
_ABSENT = object()
_NOT_DECODED = object()


def file_name(batch: int, task: int, tasks: int) -> str:
    return f"{batch:012}.{task}-{tasks}.state"


@dataclass(slots=True, eq=False)
class _Hot:
    """An entry in use. `raw` is its value as stored; None: it is not."""

    hash: int
    key: bytes
    value: Any  # _ABSENT, _NOT_DECODED
    raw: bytes | None
    owner: int
    at_secs: int
    dirty: bool = False


def scratch_folder(folder: Folder) -> tempfile.TemporaryDirectory[str]:
    """A place for files that `folder` will adopt: on the same disk, if it is a local one."""
    if not folder.is_local:
        return tempfile.TemporaryDirectory(prefix=SCRATCH)
    place = Path(folder.url)
    place.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=SCRATCH, dir=place)


def _outside() -> int:
    return OUTSIDE


class DurableState(KeyValueState):
    """A `KeyValueState` whose changes are written when its batch ends."""

    def __init__(
        self,
        folder: Folder,
        codec: ValueCodec,
        *,
        batch: int,
        task: int = 0,
        tasks: int = 1,
        tasks_before: int = 0,
        max_parallelism: int = 128,
        now_secs: int = 0,
        ttl_secs: float | None = None,
        registry: Registry | None = None,
        owner: Callable[[], int] = _outside,
        hot_max: int = HOT_MAX,
    ) -> None:
        """`tasks_before` is the number of tasks that wrote the state of the batch before this one;
        0 if there is none. Raises StateDamagedError."""
        self._folder = folder
        self._codec = codec
        self._registry = registry or Registry()
        self._batch, self._task, self._tasks = batch, task, tasks
        self._max_parallelism = max_parallelism
        self._now_secs = now_secs
        self._ttl_secs = ttl_secs
        self._owner = owner
        self._hot: dict[Hashable, _Hot] = {}
        self._hot_max = hot_max
        self._cache = BlockCache(CACHE_BYTES)
        self._moved = tasks_before not in (0, tasks)
        self._spilled: list[Segment] = []  # newest first
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[Segment] = []  # newest first
        self._older: list[Older] = []  # the same, as the footer names them
        self._keys = self._bound = 0
        if tasks_before:
            self._open(range(tasks_before) if self._moved else (task,), tasks_before)

    def _open(self, tasks: Iterable[int], of: int) -> None:
        seen: set[str] = set()
        for task in tasks:
            name = file_name(self._batch - 1, task, of)
            newest = self._segment(name)
            footer = newest.footer
            self._keys += footer.keys
            self._bound += footer.bound
            own = [Older(name, footer.entries, footer.size)] if footer.entries else []
            for older in (*own, *footer.older):
                if older.name not in seen:
                    seen.add(older.name)
                    self._older.append(older)
                    segment = newest if older.name == name else self._segment(older.name)
                    self._files.append(segment)
        if self._moved:  # keys of several tasks: none is in two of them, but files may be shared
            self._keys = sum(1 for _ in self._live())

    def _segment(self, name: str) -> Segment:
        try:
            return Segment.open(self._folder, name, self._cache)
        except FileNotFoundError:
            raise StateDamagedError(
                f"the state after batch {self._batch - 1} is missing: there is no {name} in "
                f"{self._folder.url}",
                hint="a stream needs its state to continue: restore the checkpoint from a copy, or "
                "start with a new --checkpoint",
            ) from None

    # ---- for bolts ----

    def get(self, key: Hashable, default: Any = None) -> Any:
        hot = self._look(key)
        if hot.value is _ABSENT:
            return default
        self._used(hot)
        return self._value(hot)

    def put(self, key: Hashable, value: Any) -> None:
        hot = self._look(key)
        owner = self._owner()
        if hot.value is _ABSENT:
            self._keys += 1
            hot.owner = BOUND if owner == OUTSIDE else owner
            if hot.owner == BOUND:
                self._bound += 1
        else:
            self._used(hot)
        hot.value = value
        hot.at_secs = self._now_secs
        hot.dirty = True

    def delete(self, key: Hashable) -> None:
        hot = self._look(key)
        if hot.value is not _ABSENT:
            self._forget(hot)

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        values = [
            (key, hot.value, hot) for key, hot in self._hot.items() if hot.value is not _ABSENT
        ]
        seen = {hot.key for hot in self._hot.values()}
        return self._iterate(values, seen, [*self._spilled, *self._files])

    def __len__(self) -> int:
        return self._keys

    # ---- entries ----

    def _look(self, key: Hashable) -> _Hot:
        hot = self._hot.get(key)
        if hot is None:
            hot = self._hot[key] = self._read(key)
        return hot

    def _read(self, key: Hashable) -> _Hot:
        hash_ = stable_hash(key, self._registry)
        raw: bytes | None = None
        for segment in (*self._spilled, *self._files):
            for entry in segment.with_hash(hash_):
                if raw is None:
                    raw = self._encode(key)
                if entry.key == raw or self._decode(entry.key) == key:
                    return self._hot_of(entry)
        raw = raw or self._encode(key)
        return _Hot(hash_, raw, _ABSENT, None, BOUND, self._now_secs)

    def _hot_of(self, entry: Entry) -> _Hot:
        if entry.value is None:
            return _Hot(entry.hash, entry.key, _ABSENT, None, BOUND, entry.at_secs)
        hot = _Hot(entry.hash, entry.key, _NOT_DECODED, entry.value, entry.owner, entry.at_secs)
        if self._is_expired(entry.at_secs):
            self._forget(hot)
        return hot

    def _encode(self, value: Any) -> bytes:
        return self._codec.encode_rows(((value,),))

    def _decode(self, data: bytes) -> Any:
        return self._codec.decode_rows(data)[0][0]

    def _value(self, hot: _Hot) -> Any:
        if hot.value is _NOT_DECODED:
            assert hot.raw is not None
            hot.value = self._decode(hot.raw)
        return hot.value

    def _forget(self, hot: _Hot) -> None:
        self._keys -= 1
        self._bound -= hot.owner == BOUND
        hot.value = _ABSENT
        hot.owner = BOUND
        hot.dirty = True

    def _used(self, hot: _Hot) -> None:
        """An entry used under tuples of different owners is bound to its task."""
        if hot.owner == BOUND:
            return
        owner = self._owner()
        if owner not in (hot.owner, OUTSIDE):
            hot.owner = BOUND
            hot.dirty = True
            self._bound += 1

    def _is_expired(self, at_secs: int) -> bool:
        return self._ttl_secs is not None and self._now_secs - at_secs > self._ttl_secs

    def _is_mine(self, owner: int) -> bool:
        return not self._moved or owner == BOUND or self._task_of(owner) == self._task

    def _task_of(self, owner: int) -> int:
        return task_of(owner, self._tasks, self._max_parallelism)

    def _live(self) -> Iterator[Entry]:
        """The stored entries of this task."""
        for entry in merged(self._files):
            if entry.value is not None and self._is_mine(entry.owner):
                yield entry

    def _iterate(
        self, values: list[tuple[Any, Any, _Hot]], seen: set[bytes], files: list[Segment]
    ) -> Iterator[tuple[Any, Any]]:
        for key, value, hot in values:
            if value is _NOT_DECODED:
                assert hot.raw is not None
                value = self._value(hot) if hot.value is value else self._decode(hot.raw)
            yield key, value
        for entry in merged(files):
            if entry.value is None or entry.key in seen or not self._is_mine(entry.owner):
                continue
            if self._is_expired(entry.at_secs):
                continue
            key = self._decode(entry.key)
            value = self._decode(entry.value)
            if type(value) not in _IMMUTABLE and key not in self._hot:
                hot = self._hot[key] = self._hot_of(entry)  # it may be changed in place
                hot.value = value
            yield key, value

    # ---- files ----

    def relieve(self) -> None:
        """Keep memory within its limit. Call it while no tuple is being executed: values that were
        handed out before are no longer watched for changes."""
        if len(self._hot) <= self._hot_max:
            return
        changes = self._changes()
        self._hot.clear()
        if changes:
            if self._scratch is None:
                self._scratch = scratch_folder(self._folder)
            name = f"{len(self._spilled)}.spill"
            writer = Writer(Path(self._scratch.name, name))
            for entry in changes:
                writer.add(entry)
            footer = writer.close(self._batch, self._task, self._tasks, [], 0, 0)
            folder = Folder(self._scratch.name)
            self._spilled.insert(0, Segment(folder, name, footer, self._cache))

    def _changes(self) -> list[Entry]:
        found = []
        for hot in self._hot.values():
            value = hot.value
            if value is _ABSENT:
                if hot.dirty:
                    found.append(Entry(hot.hash, hot.owner, hot.at_secs, hot.key, None))
                continue
            if value is _NOT_DECODED:
                if hot.dirty:
                    found.append(Entry(hot.hash, hot.owner, hot.at_secs, hot.key, hot.raw))
                continue
            if not hot.dirty and type(value) in _IMMUTABLE:
                continue
            raw = self._encode(value)
            if hot.dirty or raw != hot.raw:
                found.append(Entry(hot.hash, hot.owner, hot.at_secs, hot.key, raw))
        return sorted(found, key=lambda entry: entry.hash)

    def commit(self) -> Footer:
        """The batch has succeeded: write its changes. Raises OSError, and ValueNotEncodableError
        for a value of a type that cannot be emitted."""
        changes = self._changes()
        absorbed, older = self._absorb(len(changes))
        name = file_name(self._batch, self._task, self._tasks)
        with scratch_folder(self._folder) as scratch:
            writer = Writer(Path(scratch, name))
            try:
                self._write(writer, changes, absorbed, everything=not older)
                footer = writer.close(
                    self._batch, self._task, self._tasks, older, self._keys, self._bound
                )
            except BaseException:
                writer.abandon()
                raise
            self._folder.adopt(name, writer.path)
        if self._scratch is not None:
            self._scratch.cleanup()
        return footer

    def _write(
        self, writer: Writer, changes: list[Entry], absorbed: list[Segment], *, everything: bool
    ) -> None:
        keys = bound = 0
        for entry in merged([changes, *absorbed]):
            gone = entry.value is None or self._is_expired(entry.at_secs)
            if (everything and gone) or not self._is_mine(entry.owner):
                continue
            writer.add(entry)
            keys += 1
            bound += entry.owner == BOUND
        if everything:  # also without those that expired unnoticed
            self._keys, self._bound = keys, bound

    def _absorb(self, changed: int) -> tuple[list[Segment], list[Older]]:
        """The files that go into the new one, and those that stay beneath it."""
        absorbed = list(self._spilled)
        size = changed + sum(segment.footer.entries for segment in absorbed)
        kept = 0
        for older in self._older:
            much = len(self._older) - kept > _FILES_MAX
            if not (self._moved or much or older.entries <= 2 * size):
                break
            if not size and not self._moved and not much:
                break
            size += older.entries
            kept += 1
        return [*absorbed, *self._files[:kept]], self._older[kept:]
