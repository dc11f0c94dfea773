"""What a failed try has changed is taken back: in the state of its task, and in a sink's rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from squall_common.component.state import KeyValueState
from squall_common.state.errors import StateValueError
from squall_common.state.keyed import (
    ABSENT,
    ALWAYS_STORED,
    IMMUTABLE,
    MANY_KEYS,
    NO_KEY,
    SELF,
    Beyond,
    Entry,
    KeyedState,
)
from squall_common.state.task_state import RowCodec
from squall_engine.core import HotState
from squall_engine.core.codec import ValueNotEncodableError


class Undoable(Protocol):
    """What a try changes."""

    def begin(self, key: Any) -> None: ...

    def check(self) -> None:
        """Raises the error of a call that has returned, and left something that cannot stay."""

    def end(self) -> None: ...

    def undo(self) -> None: ...


class UndoableState(KeyValueState):
    """A `KeyedState` whose changes since `begin` can be undone."""

    def __init__(self, state: KeyedState, codec: RowCodec) -> None:
        """`codec` is for the thread that calls the bolt."""
        self.inner = state
        self._codec = codec
        # At hand: they are called for each tuple.
        self._get, self._put, self._entry = state.get, state.put, state.entry
        self._before: dict[Hashable, Entry | None] = {}  # of what was put or deleted
        self._copies: dict[Hashable, bytes] = {}  # of values that may be changed in place
        # Keys of all values that may be, new ones, too, and whether to look at them in the end: not
        # at those that were encoded when they were put, and would be each time.
        self._given: dict[Hashable, bool] = {}

    def begin(self, key: Any) -> None:
        """A try begins, of a tuple with this key."""
        self.inner.current = key
        if self._before:
            self._before = {}
        if self._copies:
            self._copies = {}
        if self._given:
            self._given = {}

    def check(self) -> None:
        """Raises StateValueError if a value that the try may have changed in place cannot be stored
        any more. In the next snapshot, no tuple could fail for it."""
        for key, is_open in self._given.items():
            if is_open:
                self.inner.check_value(key)

    def end(self) -> None:
        """A try has ended, and what it did stays."""
        self.inner.current = NO_KEY

    def undo(self) -> None:
        """A try has failed: all is as it was before."""
        inner = self.inner
        inner.current = NO_KEY
        before = self._before
        for key, data in self._copies.items():
            # Its owner is that of before, whether it was replaced as well or not.
            entry = before[key] if key in before else self._entry(key)
            if entry is not None:  # otherwise it has expired since
                before[key] = entry._replace(value=self._codec.decode_rows(data)[0][0])
        inner.put_back(before)
        self._before, self._copies = {}, {}

    def note_before(self, entries: Sequence[Any]) -> None:
        """What the try has put by other ways: key, value before or ABSENT, one after the other.
        These entries belong to their keys."""
        before = self._before
        for at in range(0, len(entries), 2):
            if entries[at] not in before:
                value = entries[at + 1]
                before[entries[at]] = None if value is ABSENT else Entry(value, SELF, None)

    def get(self, key: Hashable, default: Any = None) -> Any:
        value = self._get(key, default)
        if type(value) not in IMMUTABLE and value is not default:
            self._copy(key, value)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        entry = self._entry(key)
        self._put(key, value)
        if key not in self._before:  # of a key that is refused there is nothing to undo
            self._before[key] = entry
        if type(value) not in IMMUTABLE:
            self._given[key] = self._codec.surely_encodes(value)

    def delete(self, key: Hashable) -> None:
        entry = self._entry(key)
        self.inner.delete(key)
        if key not in self._before:
            self._before[key] = entry

    def iterate(self) -> Any:
        return self._entries(self.inner.iterate())

    def prefix(self, prefix: str | bytes | tuple[Any, ...]) -> Any:
        return self._entries(self.inner.prefix(prefix))

    def _entries(self, entries: Iterable[tuple[Any, Any]]) -> Any:
        for key, value in entries:
            if type(value) not in IMMUTABLE:
                self._copy(key, value)
            yield key, value

    def _copy(self, key: Hashable, value: Any) -> None:
        self._given[key] = True
        if key not in self._copies and key not in self._before:
            self._copies[key] = self._codec.encode_rows(((value,),))

    def __len__(self) -> int:
        return len(self.inner)


class BatchKeys:
    """The keys of the tuples in a batch, by which the owner of an entry is found."""

    def __init__(self, read: Callable[[], Iterable[Any]]) -> None:
        """`read()` gives the key of each tuple, or the set of those that have a hash. It is called
        once state is used."""
        self._read = read
        self._keys: set[Any] | None = None

    @property
    def all(self) -> set[Any]:
        """The keys that have a hash."""
        if self._keys is None:
            found = self._read()
            if not isinstance(found, set):
                found = {one for one in found if _has_hash(one)}
            self._keys = found
        return self._keys

    def owner_of(self, key: Hashable) -> Any:
        """The key that an entry belongs to: the only one; or the entry's own, or one that this
        begins with, as `("ann", "monday")` and `(("ann", "oslo"), "monday")` do. Otherwise
        `MANY_KEYS`."""
        keys = self._keys
        if keys is None:
            keys = self.all
        if key in keys:
            return key
        if len(keys) == 1:
            return next(iter(keys))
        if type(key) is tuple:
            for length in range(len(key) - 1, 1, -1):
                if key[:length] in keys:
                    return key[:length]
            if key and key[0] in keys:
                return key[0]
        return MANY_KEYS


def _has_hash(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return key is not NO_KEY


class BatchState(UndoableState):
    """The same for a bolt of batches: each entry is used under the key that it belongs to."""

    _keys: BatchKeys | None = None  # not None in a try

    def begin(self, key: Any) -> None:
        """A try begins, of tuples with these `BatchKeys`."""
        super().begin(NO_KEY)
        self._keys = key

    def end(self) -> None:
        self._keys = None
        super().end()

    def undo(self) -> None:
        self._keys = None
        super().undo()

    # As in the base, without the calls: these are called for each tuple.

    def get(self, key: Hashable, default: Any = None) -> Any:
        if self._keys is not None:
            self.inner.current = self._keys.owner_of(key)
        value = self._get(key, default)
        if type(value) not in IMMUTABLE and value is not default:
            self._copy(key, value)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        if self._keys is not None:
            self.inner.current = self._keys.owner_of(key)
        entry = self._entry(key)
        self._put(key, value)
        if key not in self._before:
            self._before[key] = entry
        if type(value) not in IMMUTABLE:
            self._given[key] = self._codec.surely_encodes(value)


def hot(state: UndoableState) -> UndoableState | HotState:
    """What the bolt gets: the same, except that the core makes the calls that nearly all make,
    where it can."""
    inner, of_batches = state.inner, isinstance(state, BatchState)

    def make(
        values: dict[Any, Any], owners: dict[Any, Any], beyond: Beyond | None = None
    ) -> HotState:
        return HotState(
            state,
            values,
            owners,
            absent=ABSENT,
            no_key=NO_KEY,
            of_batches=of_batches,
            beyond=beyond,
        )

    made = inner.share(make)
    return state if made is None else made


def check_storable(codec: RowCodec, what: Any, called: str) -> None:
    """Raises StateValueError for what a snapshot could not have."""
    try:
        codec.encode_rows(([what],))
    except ValueNotEncodableError as error:
        raise StateValueError(
            f"{called} with a value of type {error.kind} cannot be stored", hint=error.reason
        ) from error


class SinkRows(list[Any]):
    """The rows of a sink since its last snapshot. One that could not be stored is refused while its
    tuple is tried: in the snapshot that comes later, no tuple could fail for it."""

    def __init__(self, codec: RowCodec) -> None:
        super().__init__()
        self._codec = codec

    def append(self, row: Any) -> None:
        """Raises StateValueError."""
        if type(row) not in (list, tuple) or not ALWAYS_STORED.issuperset(map(type, row)):
            check_storable(self._codec, row, "a row")
        super().append(row)


class UndoableRows:
    """The rows of a sink."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows
        self._length = 0

    def begin(self, key: Any) -> None:
        self._length = len(self._rows)

    def check(self) -> None:
        pass

    def end(self) -> None:
        pass

    def undo(self) -> None:
        del self._rows[self._length :]
