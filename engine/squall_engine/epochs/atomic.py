"""Makes `execute` atomic: its changes of state, its rows and its emits take effect when it returns.

With checkpoints no message is replayed, so a call that raises is tried again in place, from the
state before it. A tuple whose tries all fail cannot be left out either: it becomes a dead letter if
a bolt consumes those, and otherwise ends the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from squall_common.component.collector import BoltCollector, DelegatingBoltCollector
from squall_common.component.state import KeyValueState
from squall_common.errors import SquallError, describe
from squall_common.names import DEFAULT_STREAM
from squall_common.state.keyed import IMMUTABLE, NO_KEY, KeyedState
from squall_common.state.task_state import RowCodec
from squall_engine.core import Tuple

# Between two tries of a tuple. A bolt on the loop holds it meanwhile.
WAITS_SECS = (0.0, 0.01, 0.05, 0.1)
_SHOWN_CHARS = 200
_ABSENT: Any = object()


class TupleFailedError(SquallError):
    """A tuple whose tries have all failed, and whose dead letter nothing consumes."""


class Failure(Exception):
    """The component has called `fail`."""

    def __init__(self) -> None:
        super().__init__("the bolt called fail()")


class UndoableState(KeyValueState):
    """A `KeyedState` whose changes since `begin` can be undone."""

    def __init__(self, state: KeyedState, codec: RowCodec) -> None:
        """`codec` is for the thread that calls the bolt."""
        self.inner = state
        self._codec = codec
        # At hand: they are called for each tuple.
        self._get, self._put, self._peek = state.get, state.put, state.peek
        self._before: dict[Hashable, Any] = {}  # values that were put or deleted; or _ABSENT
        self._copies: dict[Hashable, bytes] = {}  # of values that may be changed in place

    def begin(self, key: Any) -> None:
        """A try begins, of a tuple with this key."""
        self.inner.current = key
        if self._before:
            self._before = {}
        if self._copies:
            self._copies = {}

    def end(self) -> None:
        """A try has ended, and what it did stays."""
        self.inner.current = NO_KEY

    def undo(self) -> None:
        """A try has failed: all is as it was before."""
        inner = self.inner
        for key, data in self._copies.items():
            self._before[key] = self._codec.decode_rows(data)[0][0]
        for key, value in self._before.items():
            if value is _ABSENT:
                inner.delete(key)
            else:
                inner.put(key, value)
        self._before, self._copies = {}, {}
        inner.current = NO_KEY

    def _remember(self, key: Hashable) -> None:
        if key not in self._before:
            self._before[key] = self._peek(key, _ABSENT)

    def get(self, key: Hashable, default: Any = None) -> Any:
        value = self._get(key, default)
        if type(value) not in IMMUTABLE and value is not default:
            self._copy(key, value)
        return value

    def put(self, key: Hashable, value: Any) -> None:
        if key not in self._before:
            self._before[key] = self._peek(key, _ABSENT)
        self._put(key, value)

    def delete(self, key: Hashable) -> None:
        self._remember(key)
        self.inner.delete(key)

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
        if key not in self._copies and key not in self._before:
            self._copies[key] = self._codec.encode_rows(((value,),))

    def __len__(self) -> int:
        return len(self.inner)


class Undoable(Protocol):
    """What a try changes."""

    def begin(self, key: Any) -> None: ...

    def end(self) -> None: ...

    def undo(self) -> None: ...


class UndoableRows:
    """The rows of a sink."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows
        self._length = 0

    def begin(self, key: Any) -> None:
        self._length = len(self._rows)

    def end(self) -> None:
        pass

    def undo(self) -> None:
        del self._rows[self._length :]


class Tries:
    """The calls of one task's `execute`, on one thread."""

    def __init__(
        self,
        tries_max: int,
        *,
        key_of: Callable[[Tuple], Any] | None,
        report: Callable[[BaseException], None],
        give_up: Callable[[Tuple, Exception], None],
        fault: Callable[[BaseException], None],
        sleep: Callable[[float], None],
    ) -> None:
        """`key_of(tup)` is the key of its state. `report` gets the error of each try,
        `give_up(tup, error)` a tuple whose tries have all failed, and `fault` an error that no
        other try can undo."""
        self.parts: list[Undoable] = []
        self._tries_max = tries_max
        self._key_of = key_of
        self._report = report
        self._give_up = give_up
        self._fault = fault
        self._sleep = sleep
        # The calls of the try under way, with their arguments.
        self.held: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        self.failed = False  # `fail` was called in it

    def around(self, execute: Callable[[Tuple], Any]) -> Callable[[Tuple], None]:
        """`execute`, made atomic."""
        key_of, attempt = self._key_of, self._try

        def atomic(tup: Tuple) -> None:
            key = None if key_of is None else key_of(tup)
            error = attempt(execute, tup, key)
            if error is not None:
                self._try_again(execute, tup, key, error)

        return atomic

    def _try_again(
        self, execute: Callable[[Tuple], Any], tup: Tuple, key: Any, error: Exception
    ) -> None:
        for count in range(1, self._tries_max):
            self._report(error)
            self._sleep(WAITS_SECS[min(count, len(WAITS_SECS)) - 1])
            again = self._try(execute, tup, key)
            if again is None:
                return
            error = again
        self._report(error)
        self._give_up(tup, error)

    def _try(self, execute: Callable[[Tuple], Any], tup: Tuple, key: Any) -> Exception | None:
        parts = self.parts
        held: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.held, self.failed = held, False
        for part in parts:
            part.begin(key)
        try:
            execute(tup)
            if self.failed:
                raise Failure
        except Exception as error:
            self.held = None
            for part in parts:
                part.undo()
            return error
        self.held = None
        for part in parts:
            part.end()
        try:
            for call, arguments in held:
                call(*arguments)
        except Exception as error:
            # Some of it may have left.
            self._fault(error)
            raise
        return None


class HoldingCollector(DelegatingBoltCollector[Tuple]):
    """The collector of a bolt with atomic calls: it holds them until the try has succeeded."""

    def __init__(
        self, inner: BoltCollector[Tuple], tries: Tries, arity: dict[str, tuple[int, bool]]
    ) -> None:
        """`arity`: of each stream, its number of fields, and whether it is direct."""
        self._tries = tries
        self._arity = arity
        self._emit = inner.emit
        super().__init__(inner)

    def emit(
        self,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        held = self._tries.held
        if held is None or self._arity.get(stream) != (len(values), False):
            return self._inner.emit(values, anchors, stream)  # which refuses what is wrong
        held.append((self._emit, (values, anchors, stream)))
        return ()

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        held = self._tries.held
        if held is None or self._arity.get(stream) != (len(values), True):
            return self._inner.emit_direct(task, values, anchors, stream)
        held.append((self._inner.emit_direct, (task, values, anchors, stream)))
        return ()

    def ack(self, tup: Tuple) -> None:
        held = self._tries.held
        if held is None:
            self._inner.ack(tup)
        else:
            held.append((self._inner.ack, (tup,)))

    def fail(self, tup: Tuple) -> None:
        if self._tries.held is None:
            self._inner.fail(tup)
        else:
            self._tries.failed = True


def failed_error(component: str, task: int, tup: Tuple, error: Exception) -> TupleFailedError:
    """The error that ends a topology over a tuple."""
    shown = repr(list(tup.values))
    if len(shown) > _SHOWN_CHARS:
        shown = shown[:_SHOWN_CHARS] + "..."
    return TupleFailedError(
        f"{component!r} (task {task}) cannot process a tuple of {tup.source.component!r}: "
        f"{shown}: {describe(error)}",
        hint="with checkpoints no tuple is left out: mend the bolt, or catch the error in it; the "
        "next start goes on from the last epoch",
    )
