"""`KeyedState`: the state of a task in memory, which knows what has changed.

Owners. An entry belongs to the key of the tuple during which it was put first: it is its *owner*,
and decides in which key group the entry is stored. Usually the owner is the entry's own key. An
entry that no tuple with a key has put, or that tuples with different keys have used, is *bound*: it
belongs to the task, and while there is such an entry, the number of tasks cannot change.

Snapshots. A snapshot takes over the dict of what has changed since the last one, and encodes it
later, on another thread. Meanwhile the task goes on. Most values cannot be changed in place; those
that can are encoded before `get` hands them out again (`_Snapshot.secure`), and count as changed
from then on. What a completed epoch does not contain is kept, and is part of the next snapshot.
"""

from __future__ import annotations

import datetime as dt
import struct
import threading
import time
import uuid
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from types import NoneType
from typing import Any, NamedTuple, Protocol, TypeVar

from squall_common.component.groupings import NoStableHashError, stable_hash
from squall_common.component.state import KeyValueState, begins_with
from squall_common.errors import describe
from squall_common.state.errors import StateDamagedError, StateError
from squall_common.state.key_checks import ALWAYS_TAKEN, SHOWN_CHARS, KeyChecks, not_storable
from squall_common.state.key_groups import BOUND
from squall_common.state.task_state import Changes, RowCodec, StoredState
from squall_common.topology.serialization import Registry

IMMUTABLE = frozenset(
    {
        *(NoneType, bool, int, float, complex, str, bytes, Decimal),
        *(dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID),
    }
)
"""Types of values that nobody can change in place."""
ALWAYS_STORED = IMMUTABLE - {dt.datetime, dt.time}
"""Types of values that always have an encoding: a time zone may have none."""


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


NO_KEY: Any = _Mark("no key")
MANY_KEYS: Any = _Mark("many keys")
"""The current key of a batch, for an entry that belongs to none of the keys in it."""
BOUND_OWNER: Any = _Mark("bound")
SELF: Any = _Mark("itself")
ABSENT: Any = _Mark("absent")

SCALARS = frozenset({NoneType, bool, int, float, str, bytes})
LENGTH = struct.Struct("<I")
_PACKED_AT_ONCE = 2_048
_SECURED_AT_ONCE = 64  # values that are encoded under one lock
MILLIS = 1000


class Entry(NamedTuple):
    """An entry as it was: see `KeyedState.entry`."""

    value: Any
    owner: Any
    put_at: float | None


class Log(Protocol):
    """Entries with plain values that belong to their keys: what a `Hot` has put."""

    def __len__(self) -> int:
        """The number of its rows: a key may have several."""
        ...

    def found(self, keys: Collection[Any]) -> Iterator[set[Any]]:
        """Those of these keys that are in the log, some at a time, after about a millisecond each.
        From any thread: the log may get more meanwhile."""
        ...

    def frames(self, dead: Collection[Any]) -> Iterator[tuple[int, bytes]]:
        """Each key group that has any rows, with these, encoded: without those of `dead` keys. A
        key may come several times: the last row counts. From any thread, once nothing is put any
        more."""
        ...


class Hot(Protocol):
    """Whoever else reads and writes the entries of a `KeyedState`: see `KeyedState.share`."""

    def renew(self, changed: dict[Any, Any], groups: int) -> Log:
        """A snapshot was taken: begin and return a new log, of so many key groups. A key that is in
        `changed`, or cannot be a row of a log, is put in there, and all others into the log."""
        ...


class Beyond(Protocol):
    """Where the entries are that a `Hot` does not find among the values it has got."""

    @property
    def values_max(self) -> int:
        """With more values, `make_room` is to be called."""
        ...

    def look(self, key: Any) -> Any:
        """The value of a plain key, or ABSENT. Not for a key that is among the values. What is not
        plain is among them from then on."""
        ...

    def make_room(self) -> None:
        """Take values away, and keep them."""
        ...


_Hot = TypeVar("_Hot", bound=Hot)
_Hot_co = TypeVar("_Hot_co", bound=Hot, covariant=True)


class MakeHot(Protocol[_Hot_co]):
    def __call__(
        self, values: dict[Any, Any], owners: dict[Any, Any], beyond: Beyond | None = None, /
    ) -> _Hot_co: ...


@dataclass(slots=True)
class _Delta:
    """What has changed between two snapshots."""

    values: dict[Hashable, Any] = field(default_factory=dict)  # ABSENT: deleted
    stale: list[tuple[Hashable, Any]] = field(default_factory=list)
    """(key, owner): an owner that an entry has no longer; it must go from that one's group."""
    log: Log | None = None  # what is in `values`, too, is later there

    def __bool__(self) -> bool:
        return bool(self.values or self.stale or self.log)


@dataclass(frozen=True, slots=True)
class _Together:
    """What several deltas have changed, one after the other."""

    values: dict[Hashable, Any]  # that no later log has
    stale: list[tuple[Hashable, Any]]
    logs: list[tuple[Log, Set[Any]]]
    """Each with the keys whose rows in it do not count, as they were deleted later or have moved to
    another group. What is in `values`, too, is later there."""

    @classmethod
    def of(cls, deltas: Sequence[_Delta]) -> _Together:
        values: dict[Hashable, Any] = {}
        for delta in deltas:
            if delta.log and values:
                later = set().union(*delta.log.found(values.keys()))
                values = {key: value for key, value in values.items() if key not in later}
            values = {**values, **delta.values} if values else delta.values
        logs: list[tuple[Log, Set[Any]]] = []
        dead: set[Any] = set()
        for delta in reversed(deltas):
            dead = dead.union(key for key, _ in delta.stale) if delta.stale else dead
            if delta.log:
                logs.append((delta.log, dead))
        return cls(values, [one for delta in deltas for one in delta.stale], logs[::-1])


class Unstored:
    """Which of some keys the last complete epoch does not have as they are now. `note` is for where
    the bolt is called, and `keys` for another thread: the log of a million keys is looked through
    in about 100 ms."""

    def __init__(self) -> None:
        self._changed: set[Any] = set()
        self._open: set[Any] = set()  # may be in a log
        self._logs: dict[int, Log] = {}  # by their identity

    def note(self, keys: Iterable[Any], state: KeyedState) -> None:
        """These keys are asked for."""
        deltas = state._deltas()
        for key in keys:
            if any(key in delta.values for delta in deltas):
                self._changed.add(key)
            elif type(key) in SCALARS:
                self._open.add(key)
        for delta in deltas:
            if delta.log:
                self._logs[id(delta.log)] = delta.log

    def keys(self, pause: Callable[[], object] = lambda: None) -> set[Any]:
        """Those that have changed, also those that were put since, and those of values that the
        task got since, and may have changed in place. `pause()` is called after about a
        millisecond, again and again."""
        for log in self._logs.values():
            for some in log.found(self._open):
                self._changed |= some
                pause()
        return self._changed


class KeyedState(KeyValueState):
    """A `KeyValueState` and a `TaskState`. `current` is the key of the tuple that is executed now:
    whoever calls the bolt sets it, and `NO_KEY` between two calls."""

    current: Any = NO_KEY

    completed_epoch: int | None = None
    """The last epoch that is complete; None: there was none yet."""

    def __init__(
        self,
        max_parallelism: int,
        codec: RowCodec,
        *,
        ttl_secs: float | None = None,
        registry: Registry | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`codec` is for the thread that calls the bolt. `clock`: seconds since the epoch."""
        self._max_parallelism = max_parallelism
        self._codec = codec
        self._ttl_secs = ttl_secs
        self._registry = registry or Registry()
        self.key_checks = KeyChecks(codec, self._registry)
        self._clock = clock
        self._values: dict[Hashable, Any] = {}
        self._owners: dict[Hashable, Any] = {}  # where they are not the key itself; or BOUND_OWNER
        self._put_at: dict[Hashable, float] = {}  # with a ttl: oldest first
        self._bound = 0
        self._delta = _Delta()
        self._changed = self._delta.values
        self._unfinished: list[tuple[int, _Delta]] = []  # by epoch
        self._writing: list[_Snapshot] = []
        self._hot: Hot | None = None
        self._began_empty = True  # and none of its changes is in a complete epoch

    def share(self, make: MakeHot[_Hot]) -> _Hot | None:
        """Let another object get and put entries, which `make(values, owners)` returns: it gets
        the values by key, and the owners of entries that do not belong to their keys. While there
        are none, it may put plain values under the key of a tuple, each into `values` and its log.
        With `make(values, owners, beyond)` not all entries are in `values`, a key may be ABSENT
        there, and it puts only what has a value. None if the entries cannot be shared: they expire,
        or have a way of their own to be used."""
        if type(self) is not KeyedState or self._ttl_secs is not None:
            return None
        return self._shared(make(self._values, self._owners))

    def _shared(self, made: _Hot) -> _Hot:
        self._hot = made
        self._delta.log = made.renew(self._changed, self._max_parallelism)
        return made

    # ---- for bolts ----

    def get(self, key: Hashable, default: Any = None) -> Any:
        if self._ttl_secs is not None:
            self._expire()
        value = self._values.get(key, ABSENT)
        if value is ABSENT:
            return default
        if key != self.current or self._owners:
            self._used(key)
        if type(value) not in IMMUTABLE:
            self.key_checks.check(key, self.current)
            self._hand_out(key, value)
        return value

    def peek(self, key: Hashable, default: Any = None) -> Any:
        """The value of a key as it is, for whoever only keeps it: it must not be changed."""
        return self._values.get(key, default)

    def glance(self, key: Hashable, default: Any = None) -> Any:
        """The value of a key, for whoever looks from outside: it counts neither as used nor as
        changed, and nothing expires by it."""
        return default if self._has_expired(key) else self._values.get(key, default)

    def _deltas(self) -> list[_Delta]:
        return [*(delta for _, delta in self._unfinished), self._delta]

    @property
    def unstored(self) -> int:
        """About how many entries have changed since the last complete epoch: what has changed in
        several that are under way counts for each."""
        return sum(
            len(delta.values) + (len(delta.log) if delta.log else 0) for delta in self._deltas()
        )

    def _has_expired(self, key: Hashable) -> bool:
        if self._ttl_secs is None or not self._put_at:
            return False
        put_at = self._put_at.get(key)
        return put_at is not None and put_at < self._clock() - self._ttl_secs

    def entry(self, key: Hashable) -> Entry | None:
        """All that is known of a key, for `put_back`; None: it has no entry."""
        value = self._values.get(key, ABSENT)
        if value is ABSENT:
            return None
        put_at = self._put_at.get(key) if self._put_at else None
        return Entry(value, self._owners.get(key, SELF), put_at)

    def put_back(self, entries: Mapping[Hashable, Entry | None]) -> None:
        """Make entries what they were, with their owners and times."""
        timed = False
        for key, entry in entries.items():
            if entry is None:
                self._delete(key)
                continue
            if key in self._values:
                self._disown(key)
            if entry.owner is not SELF:
                self._owners[key] = entry.owner
                self._bound += entry.owner is BOUND_OWNER
            self._values[key] = entry.value
            self._changed[key] = entry.value
            if entry.put_at is not None:
                self._put_at[key] = entry.put_at
                timed = True
        if timed:  # once: it looks at all keys
            self._put_at = dict(sorted(self._put_at.items(), key=lambda one: one[1]))

    def use(self, key: Hashable) -> None:
        """Have an entry count as read under the current key, as `get` does."""
        if key in self._values:
            self._used(key)

    def keys(self) -> list[Any]:
        """All keys, also of entries that will have expired at the next call: a copy, which takes
        10 to 15 ms for a million."""
        return list(self._values)

    def first_keys(self, count: int) -> list[Any]:
        """So many of them, of those that were put first. The others are not looked at."""
        return list(islice(self._values, count))

    def check(self, key: Hashable, value: Any) -> None:
        """Raises StateValueError for what `put` would refuse."""
        self.key_checks.check(key, self.current)
        if type(value) not in SCALARS:
            self._check(key, value)

    def check_value(self, key: Hashable) -> None:
        """Raises StateValueError if the value of a key, which may have been changed in place, could
        not be stored."""
        value = self._values.get(key)
        if type(value) not in IMMUTABLE:
            self._check(key, value)

    def check_use(self, key: Hashable, owner: Any, *, puts: bool) -> None:
        """Raises StateValueError for a key that `put`, or else `get` and `delete`, would refuse if
        `owner` were the current one."""
        if key in self._values:
            self.key_checks.check(key, self.current)
        elif puts and owner is not NO_KEY and owner is not MANY_KEYS:
            self.key_checks.check_owner(owner, owner)

    def expire(self) -> None:
        """Forget what has not been put for too long."""
        if self._ttl_secs is not None:
            self._expire()

    def put(self, key: Hashable, value: Any) -> None:
        if type(key) not in ALWAYS_TAKEN:
            self.key_checks.check(key, self.current)
        if type(value) not in SCALARS:
            self._check(key, value)
        if self._ttl_secs is not None:
            self._expire()
        if key != self.current or self._owners:
            self._own(key)  # may refuse the key, so nothing of it is noted before
        elif type(key) not in ALWAYS_TAKEN and key not in self._values:
            self.key_checks.check_owner(key, key)
        if self._ttl_secs is not None:
            self._put_at.pop(key, None)  # it is the newest now
            self._put_at[key] = self._clock()
        self._values[key] = value
        self._changed[key] = value

    def delete(self, key: Hashable) -> None:
        if type(key) not in ALWAYS_TAKEN and key in self._values:
            self._check(key, None)
        self._delete(key)

    def _delete(self, key: Hashable) -> None:
        if self._values.pop(key, ABSENT) is ABSENT:
            return
        self._put_at.pop(key, None)
        self._disown(key)
        self._changed[key] = ABSENT

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        return self._entries(lambda _: True)

    def prefix(self, prefix: str | bytes | tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        return self._entries(begins_with(prefix))

    def _entries(self, wanted: Callable[[Any], bool]) -> Iterator[tuple[Any, Any]]:
        if self._ttl_secs is not None:
            self._expire()
        for key, value in list(self._values.items()):
            if wanted(key):
                if type(value) not in IMMUTABLE and self._values.get(key) is value:
                    self._hand_out(key, value)
                yield key, value

    def __len__(self) -> int:
        return len(self._values)

    @property
    def bound(self) -> int:
        """How many entries belong to the task."""
        return self._bound

    @property
    def has_times(self) -> bool:
        """Whether its entries have times that its segments may not have."""
        return self._ttl_secs is not None or bool(self._put_at)

    @property
    def is_all_new(self) -> bool:
        """Whether the changes since the last complete epoch are all that there is."""
        return self._began_empty

    @property
    def has_changes(self) -> bool:
        """Whether the next snapshot has any entries, if no earlier one completes before."""
        delta = self._delta
        return bool(self._changed or delta.stale or delta.log or self._unfinished)

    def set_ttl(self, secs: float | None) -> None:
        """Let keys expire that were not put for so many seconds; None: keep all."""
        self._ttl_secs = secs
        if secs is None:
            self._put_at = {}
            return
        now = self._clock()
        missing = dict.fromkeys(self._values.keys() - self._put_at.keys(), now)
        self._put_at = {**self._put_at, **missing}

    # ---- owners ----

    def _used(self, key: Hashable) -> None:
        """An entry is read."""
        current = self.current
        if current is NO_KEY:
            return
        owner = self._owners.get(key, SELF)
        if owner is not BOUND_OWNER and (key if owner is SELF else owner) != current:
            self.key_checks.check(key, self.current)
            self._bind(key, owner)
            self._changed[key] = self._values[key]

    def _own(self, key: Hashable) -> None:
        """An entry is put."""
        if key in self._values:
            self._used(key)
            return
        current = self.current
        if current is NO_KEY or current is MANY_KEYS:
            self._owners[key] = BOUND_OWNER
            self._bound += 1
            return
        self.key_checks.check_owner(current, current)
        if current != key:
            self._owners[key] = current

    def _bind(self, key: Hashable, owner: Any) -> None:
        self._delta.stale.append((key, key if owner is SELF else owner))
        self._owners[key] = BOUND_OWNER
        self._bound += 1

    def _disown(self, key: Hashable) -> None:
        owner = self._owners.pop(key, SELF)
        self._delta.stale.append((key, key if owner is SELF else owner))
        self._bound -= owner is BOUND_OWNER

    def _check(self, key: Hashable, value: Any) -> None:
        """Raises StateValueError for what could not be stored."""
        if self._codec.surely_encodes((key, value)):
            return
        try:
            self._codec.encode_rows(((key, value),))
        except ValueError as error:
            raise not_storable(key, error) from error

    def _hand_out(self, key: Hashable, value: Any) -> None:
        """The task gets a value that it may change in place."""
        for snapshot in self._writing:
            snapshot.secure(key, self._codec)
        self._changed[key] = value

    def _expire(self) -> None:
        assert self._ttl_secs is not None
        last = self._clock() - self._ttl_secs
        while self._put_at:
            key = next(iter(self._put_at))
            if self._put_at[key] >= last:
                return
            self._delete(key)

    # ---- snapshots: see `TaskState` ----

    def snapshot(self, epoch: int, *, base: bool = False) -> Changes:
        return self._snapshot(epoch, base=base)

    def _snapshot(self, epoch: int, *, base: bool = False) -> _Snapshot:
        if self._ttl_secs is not None:
            self._expire()
        self._unfinished.append((epoch, self._delta))
        self._delta = _Delta()
        self._changed = self._delta.values
        if self._hot is not None:
            self._delta.log = self._hot.renew(self._changed, self._max_parallelism)
        if base:
            together = _Together(self._values.copy(), [], [])
        else:
            together = _Together.of([delta for _, delta in self._unfinished])
        values = together.values
        snapshot = _Snapshot(
            epoch,
            values,
            owners={key: self._owners[key] for key in values if key in self._owners}
            if self._owners
            else {},
            stale=together.stale,
            logs=together.logs,
            put_at={key: self._put_at[key] for key in values if key in self._put_at}
            if self._put_at
            else {},
            is_base=base,
            keys=len(self._values),
            bound=self._bound,
            max_parallelism=self._max_parallelism,
            registry=self._registry,
        )
        self._writing = [one for one in self._writing if not one.is_encoded]
        self._writing.append(snapshot)
        return snapshot

    def completed(self, epoch: int) -> None:
        self.completed_epoch = max(epoch, self.completed_epoch or 0)
        if any(delta for one, delta in self._unfinished if one <= epoch):
            self._began_empty = False
        self._unfinished = [(one, delta) for one, delta in self._unfinished if one > epoch]
        self._writing = [one for one in self._writing if one.epoch > epoch and not one.is_encoded]

    def restore(
        self, parts: Iterable[Iterable[StoredState]], groups: Iterable[int], *, bound: bool
    ) -> None:
        self._began_empty = False
        wanted = [BOUND, *groups] if bound else list(groups)
        for segments in parts:
            part = self if not self._values else KeyedState(1, self._codec)
            for segment in segments:
                part._load(segment, wanted)
            if part is not self:
                self._merge(part)
        self._bound = sum(owner is BOUND_OWNER for owner in self._owners.values())
        if self._put_at:
            self._put_at = dict(sorted(self._put_at.items(), key=lambda entry: entry[1]))

    def _load(self, segment: StoredState, groups: Sequence[int]) -> None:
        values, owners = self._values, self._owners
        # What was deleted comes first: an entry that has moved to another group is deleted in its
        # old one, in the same segment.
        blocks = []
        for group, data in segment.blocks(groups):
            frames = frames_of(data)
            for (key,) in self._decode(next(frames, b""), segment):
                values.pop(key, None)
                owners.pop(key, None)
                self._put_at.pop(key, None)
            blocks.append((group, frames))
        for group, frames in blocks:
            for frame in frames:
                rows = self._decode(frame, segment)
                if group != BOUND and not owners and all(len(row) == 2 for row in rows):
                    values.update(rows)  # type: ignore[arg-type]  # lists of two
                    continue
                for row in rows:
                    key = row[0]
                    values[key] = row[1]
                    if group == BOUND:
                        owners[key] = BOUND_OWNER
                    elif len(row) > 3:
                        owners[key] = row[3]
                    else:
                        owners.pop(key, None)
                    if len(row) > 2 and row[2] is not None:
                        self._put_at[key] = row[2] / MILLIS

    def _decode(self, frame: bytes, segment: StoredState) -> list[list[Any]]:
        if not frame:
            return []
        try:
            return self._codec.decode_rows(frame)
        except ValueError as error:
            name = getattr(segment, "name", "a segment")
            raise StateDamagedError(
                f"the state in {name} cannot be read: {describe(error)}",
                hint="does the topology still have the classes of its values?",
            ) from error

    def _merge(self, part: KeyedState) -> None:
        both = self._values.keys() & part._values.keys()
        if both:
            raise StateError(
                f"two tasks have an entry for {next(iter(both))!r:.{SHOWN_CHARS}}, so they cannot "
                "become one",
                hint="start with the number of tasks that has stored the state",
            )
        self._values.update(part._values)
        self._owners.update(part._owners)
        self._put_at.update(part._put_at)


def frames_of(data: bytes) -> Iterator[bytes]:
    """The frames of a block."""
    at, end = 0, len(data)
    while at < end:
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        yield data[at : at + length]
        at += length


class _Snapshot:
    """See `Changes`. A block has frames, each with its length before it: first the rows of deleted
    keys, then the others."""

    def __init__(
        self,
        epoch: int,
        values: dict[Any, Any],
        *,
        owners: Mapping[Hashable, Any],
        stale: Sequence[tuple[Hashable, Any]],
        logs: Sequence[tuple[Log, Collection[Any]]],
        put_at: Mapping[Hashable, float],
        is_base: bool,
        keys: int,
        bound: int,
        max_parallelism: int,
        registry: Registry,
    ) -> None:
        self.epoch = epoch
        self.is_base = is_base
        self.entries = len(values) + sum(len(log) for log, _ in logs)
        self.keys = keys
        self.bound = bound
        self.is_encoded = False
        self._values = values
        self._owners = owners
        self._stale = stale
        self._logs = logs
        self._put_at = put_at
        self._max_parallelism = max_parallelism
        self._registry = registry
        self._lock = threading.Lock()
        self._secured: dict[Hashable, bytes] = {}
        self._done: set[Hashable] = set()  # those that can change in place, and are encoded

    def secure(self, key: Hashable, codec: RowCodec) -> None:
        """Encode a value now, if that is still to be done, because the task gets it again."""
        value = self._values.get(key, ABSENT)
        if self.is_encoded or value is ABSENT or type(value) in IMMUTABLE:
            return
        with self._lock:
            if key not in self._secured and key not in self._done:
                self._secured[key] = self._row(key, codec)

    def encode(self, codec: RowCodec) -> dict[int, bytes]:
        try:
            return self._encode_all(codec)
        finally:
            self.is_encoded = True

    def _encode_all(self, codec: RowCodec) -> dict[int, bytes]:
        dead: dict[int, list[tuple[Any, ...]]] = {}
        live: dict[int, list[tuple[Any, ...]]] = {}
        changeable: list[tuple[int, Hashable]] = []
        for key, owner in self._stale:
            dead.setdefault(self._group(owner), []).append((key,))
        plain = not (self._owners or self._put_at)
        packer = codec.group_packer(self._max_parallelism)
        packed: dict[int, list[bytes]] = {}
        for log, gone in self._logs:
            for group, frame in log.frames(gone):
                packed.setdefault(group, []).append(frame)
        # So many at a time, as the interpreter waits for the packer: other threads have their turn.
        chunks: Iterable[Iterable[tuple[Any, Any]]]
        if plain:
            chunks = packer.add_dict(self._values, _PACKED_AT_ONCE)
        else:
            chunks = (self._values.items(),)
        for chunk in chunks:
            for key, value in chunk:
                if value is ABSENT:
                    continue  # it is among the stale ones
                group = self._group(self._owners.get(key, key))
                if type(value) not in IMMUTABLE:
                    changeable.append((group, key))
                else:
                    row = (key, value) if plain else self._full_row(key, value)
                    live.setdefault(group, []).append(row)
        for group, frame in packer.frames().items():
            packed.setdefault(group, []).append(frame)
        return self._blocks(dead, packed, live, changeable, codec)

    def _blocks(
        self,
        dead: dict[int, list[tuple[Any, ...]]],
        packed: Mapping[int, Sequence[bytes]],
        live: dict[int, list[tuple[Any, ...]]],
        changeable: Sequence[tuple[int, Hashable]],
        codec: RowCodec,
    ) -> dict[int, bytes]:
        blocks: dict[int, list[bytes]] = {}
        for group in {*dead, *packed, *live, *(group for group, _ in changeable)}:
            gone, rows = dead.get(group), live.get(group)
            first = b"" if gone is None else self._encode(gone, codec)
            frames = blocks[group] = [LENGTH.pack(len(first)), first]
            for frame in packed.get(group, ()):
                frames += (LENGTH.pack(len(frame)), frame)
            if rows:
                frame = self._encode(rows, codec)
                frames += (LENGTH.pack(len(frame)), frame)
        for start in range(0, len(changeable), _SECURED_AT_ONCE):
            with self._lock:
                for group, key in changeable[start : start + _SECURED_AT_ONCE]:
                    frame = self._secured.pop(key, b"") or self._row(key, codec)
                    self._done.add(key)
                    blocks[group] += (LENGTH.pack(len(frame)), frame)
        return {group: b"".join(frames) for group, frames in blocks.items()}

    def _row(self, key: Hashable, codec: RowCodec) -> bytes:
        return self._encode([self._full_row(key, self._values[key])], codec)

    def _full_row(self, key: Hashable, value: Any) -> tuple[Any, ...]:
        at = self._put_at.get(key)
        millis = None if at is None else int(at * MILLIS)
        owner = self._owners.get(key, SELF)
        if owner is not SELF and owner is not BOUND_OWNER:
            return (key, value, millis, owner)
        return (key, value) if millis is None else (key, value, millis)

    def _encode(self, rows: Sequence[tuple[Any, ...]], codec: RowCodec) -> bytes:
        try:
            return codec.encode_rows(rows)
        except ValueError:
            for row in rows:
                try:
                    codec.encode_rows((row,))
                except ValueError as error:
                    raise not_storable(row[0], error) from error
            raise

    def _group(self, owner: Any) -> int:
        if owner is BOUND_OWNER:
            return BOUND
        try:
            return stable_hash(owner, self._registry) % self._max_parallelism
        except NoStableHashError as error:
            raise not_storable(owner, error) from error
