"""Calls that take effect as a whole or not at all, and the state that they change.

Trial      one call: what it emits is held until it returns, and what it has changed is undone
           if it fails
KeyFinder  the key of a tuple, under which its state is used
HotState   what nearly all calls do with keyed state: get and put plain values under the key of
           the tuple. All else it leaves to the state that knows the rest
           (what they have put is noted in a `ChangeLog`)
PositionedEmit   what a spout emits, with the position behind it
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Any

from squall_common.names import DEFAULT_STREAM
from squall_common.state.keyed import Beyond
from squall_engine.core.pure.change_log import ChangeLog
from squall_engine.core.pure.tuples import Source, Tuple

_KEYS = frozenset({str, int, bytes})
_VALUES = frozenset({NoneType, bool, int, float, str, bytes})

Held = list[tuple[Callable[..., object] | None, Any]]
"""Calls with their arguments; None: the task's plain emit, with the values."""


class KeyFinder:
    """The key of a tuple: the values of the fields by which its stream is grouped."""

    def __init__(self, places: dict[tuple[str, str], tuple[int, ...]], none: Any) -> None:
        """`places` of these fields, by (component, stream); `none`: the key of other tuples."""
        self._places = places
        self._none = none

    def __call__(self, tup: Tuple) -> Any:
        source: Source = tup.source
        places = self._places.get(source.key, ())
        if len(places) == 1:
            return tup.values[places[0]]
        return tuple(tup.values[place] for place in places) if places else self._none

    def of_all(self, tuples: Iterable[Tuple]) -> set[Any]:
        """The keys of all tuples that have one with a hash."""
        found = set()
        for tup in tuples:
            key = self(tup)
            try:
                found.add(key)
            except TypeError:
                continue
        found.discard(self._none)
        return found


class HotState:
    """A `squall_common.component.state.KeyValueState` between a bolt and the state that can undo
    all that a call does (`slow`), which has a method `note_before` for what was put here."""

    def __init__(
        self,
        slow: Any,
        values: dict[Any, Any],
        owners: dict[Any, Any],
        *,
        absent: Any,
        no_key: Any,
        of_batches: bool = False,
        beyond: Beyond | None = None,
    ) -> None:
        """`values` and `owners` are those of the keyed state. `of_batches`: a call has several
        keys, and an entry belongs to its own if that is among them. `beyond`: where the
        other entries are, if there may be any."""
        self.slow = slow
        self._beyond = beyond
        self._of_batches = of_batches
        self._values = values
        self._owners = owners
        self._absent = absent
        self._no_key = no_key
        self._changed: dict[Any, Any] = {}
        self._log = ChangeLog(1)
        self._before: list[Any] = []  # key, value or absent, one after the other
        self._under_way = self._slow_knows = False
        self._current: Any = no_key
        self._batch: Any = None

    def renew(self, changed: dict[Any, Any], groups: int) -> ChangeLog:
        """A snapshot was taken. Begin and return a new log, of so many key groups, beside the dict
        of all other changes: a key that is in there is put in there."""
        self._changed = changed
        self._log = ChangeLog(groups)
        return self._log

    def _is_hot(self, key: Any) -> bool:
        if type(key) not in _KEYS or self._owners:
            return False
        if not self._of_batches:
            return type(key) is type(self._current) and bool(key == self._current)
        return self._batch is not None and key in self._batch.all

    def _look(self, key: Any) -> Any:
        value = self._values.get(key, self)
        if value is not self:
            return value
        return self._absent if self._beyond is None else self._beyond.look(key)

    # ---- for bolts ----

    def get(self, key: Hashable, default: Any = None) -> Any:
        if self._is_hot(key):
            value = self._look(key)
            if value is self._absent:
                return default
            if type(value) in _VALUES:
                return value
        self._tell()
        return self.slow.get(key, default)

    def put(self, key: Hashable, value: Any) -> None:
        if type(value) in _VALUES and self._is_hot(key):
            old, beyond = self._look(key), self._beyond
            if beyond is None or old is not self._absent:  # that one counts its keys
                self._before += (key, old)
                self._values[key] = value
                if key in self._changed or not self._log._note(key, value):
                    self._changed[key] = value
                if beyond is not None and len(self._values) > beyond.values_max:
                    beyond.make_room()
                return
        self._tell()
        self.slow.put(key, value)

    def delete(self, key: Hashable) -> None:
        self._tell()
        self.slow.delete(key)

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        self._tell()
        found: Iterator[tuple[Any, Any]] = self.slow.iterate()
        return found

    def items(self) -> Iterator[tuple[Any, Any]]:
        return self.iterate()

    def prefix(self, prefix: str | bytes | tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        self._tell()
        found: Iterator[tuple[Any, Any]] = self.slow.prefix(prefix)
        return found

    def __len__(self) -> int:
        return len(self._values) if self._beyond is None else len(self.slow)

    # ---- tries ----

    def begin(self, key: Any) -> None:
        """A try begins: of a tuple with this key; or of tuples with these, which `key.all` finds
        once they are needed. What a try has put that was broken off, as by `CancelledError`,
        stays."""
        if self._under_way:
            self._forget()
        if self._of_batches:
            self._batch = key
        else:
            self._current = key
        self._under_way = True

    def end(self) -> None:
        """A try has ended, and what it did stays."""
        if self._slow_knows:
            self.slow.end()
        self._forget()

    def check(self) -> None:
        """Raises StateValueError if the try has changed a value into one that cannot be stored."""
        if self._slow_knows:
            self.slow.check()

    def undo(self) -> None:
        """A try has failed: all is as it was before."""
        if self._slow_knows or self._before:
            self._tell()
            self.slow.undo()
        self._forget()

    def _forget(self) -> None:
        self._current, self._batch = self._no_key, None
        self._under_way = self._slow_knows = False
        self._before.clear()

    def _tell(self) -> None:
        """Let the slow state know of the try, and of what was put in it so far."""
        if not self._under_way:
            return
        if not self._slow_knows:
            self._slow_knows = True
            self.slow.begin(self._batch if self._of_batches else self._current)
        if self._before:
            before, self._before = self._before, []
            self.slow.note_before(before)


class Trial:
    """The calls of one task, one after the other."""

    def __init__(
        self,
        parts: list[Any],
        *,
        failure: Callable[[], Exception],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        """`parts` are what a call changes: each has `begin(key)`, `check`, which may
        raise the error of a call that has returned, `end` and `undo`. `failure()` is
        the error of a call that has called `fail`, and `on_fault(error)` gets what cannot be
        undone."""
        self.held: Held | None = None  # of the call under way
        self.failed: list[Any] | None = None  # what `fail` was called for
        self._parts = parts
        self._failure = failure
        self._on_fault = on_fault
        self._emit: Callable[[Sequence[Any]], object] | None = None
        self._execute: Callable[[Any], Any] | None = None
        self._key_of: Callable[[Any], Any] | None = None

    def around(
        self,
        execute: Callable[[Any], Any],
        on_failed: Callable[[Any, Exception], None],
        key_of: Callable[[Any], Any] | None = None,
    ) -> Callable[[Any], None]:
        """`execute` of one tuple, tried once, under the key that `key_of` finds: a tuple whose key
        cannot be found has failed. `on_failed(tup, error)` is called for what has failed, and so
        has had no effect; `retry` tries it again."""
        self._execute, self._key_of = execute, key_of

        def call(tup: Any) -> None:
            error = self.retry(tup)
            if error is not None:
                on_failed(tup, error)

        return call

    def retry(self, tup: Any) -> Exception | None:
        """One try of a tuple, by what `around` was called for. Returns its error, as `attempt`."""
        try:
            key = None if self._key_of is None else self._key_of(tup)
        except Exception as error:
            return error
        assert self._execute is not None
        return self.attempt(self._execute, tup, key)

    def holding(
        self,
        emit: Callable[[Sequence[Any]], object],
        stream: str,
        arity: int,
        otherwise: Callable[..., Sequence[int]],
    ) -> Callable[..., Sequence[int]]:
        """An emit that is held: without anchors, to this stream, of so many values. All others are
        left to `otherwise`. One for each trial."""
        self._emit = emit

        mine = stream

        def held_emit(
            values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM
        ) -> Sequence[int]:
            held = self.held
            plain = anchors is None and stream == mine and type(values) in (list, tuple)
            if held is None or not plain or len(values) != arity:
                return otherwise(values, anchors, stream)
            held.append((None, values))
            return ()

        return held_emit

    def fail(self, what: Any) -> None:
        """`fail` was called in the call."""
        if self.failed is None:
            self.failed = []
        self.failed.append(what)

    def attempt(self, execute: Callable[[Any], Any], what: Any, key: Any) -> Exception | None:
        """One try. Returns its error, if it has failed; then it has had no effect."""
        held: Held = []
        self.held, self.failed = held, None
        for part in self._parts:
            part.begin(key)
        try:
            execute(what)
            if self.failed is not None:
                raise self._failure()
            for part in self._parts:
                part.check()
        except Exception as error:
            self.held = None
            for part in self._parts:
                part.undo()
            return error
        self.held = None
        for part in self._parts:
            part.end()
        self._release(held)
        return None

    def _release(self, held: Held) -> None:
        """Make the calls that were held. If one fails, that is a fault."""
        try:
            for call, arguments in held:
                if call is None:
                    assert self._emit is not None
                    self._emit(arguments)
                else:
                    call(*arguments)
        except Exception as error:
            self._on_fault(error)  # some of it may have left
            raise


class PositionedEmit:
    """`emit` of a `RewindableSpout`."""

    def __init__(
        self,
        send: Callable[[Sequence[Any], Hashable | None, str], Sequence[int]],
        positions: dict[Any, Any],
        ids: Iterator[int] | None,
        otherwise: Callable[..., Sequence[int]],
    ) -> None:
        """`send(values, message_id, stream)` emits, with the next of `ids`. The last position of
        each split is put into `positions`. An emit with a message id is left to `otherwise`."""
        self._send, self._positions, self._ids = send, positions, ids
        self._otherwise = otherwise

    def emit(
        self,
        values: Sequence[Any],
        *,
        message_id: Hashable | None = None,
        stream: str = DEFAULT_STREAM,
        position: tuple[Hashable, Any] | None = None,
    ) -> Sequence[int]:
        if message_id is not None:
            return self._otherwise(values, message_id=message_id, stream=stream, position=position)
        sent = self._send(values, None if self._ids is None else next(self._ids), stream)
        if position is not None:
            self._positions[position[0]] = position[1]
        return sent
