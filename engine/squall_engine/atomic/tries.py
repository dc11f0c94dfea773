"""One call after the other, each tried again in place: bolts on the loop, and on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeGuard

from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    DelegatingBoltCollector,
    DelegatingColumnCollector,
)
from squall_common.names import DEFAULT_STREAM
from squall_common.state.errors import StateValueError
from squall_engine.atomic.undo import Undoable
from squall_engine.core import HotState, Trial, Tuple, held_origins

# Between two tries of a tuple. A bolt on the loop holds it meanwhile.
WAITS_SECS = (0.0, 0.01, 0.05, 0.1)

Call = Callable[..., object]
Held = list[tuple[Call | None, Any]]
"""Calls with their arguments; None: the plain emit of a `Trial`, with the values."""
Arity = dict[str, tuple[int, bool]]
"""Of each stream, its number of fields, and whether it is direct."""


class Failure(Exception):
    """The component has called `fail`."""

    def __init__(self) -> None:
        super().__init__("the bolt called fail()")


def wait_secs(tries: int) -> float:
    """How long to wait after so many tries."""
    return WAITS_SECS[min(tries, len(WAITS_SECS)) - 1]


class Holding(Protocol):
    """Where the calls of a try are held."""

    @property
    def held(self) -> Held | None:
        """The calls of the try under way, with their arguments; None: none is."""

    def fail(self, what: Any) -> None:
        """`fail` was called in the try."""


class Tries:
    """The calls of one task, on one thread."""

    def __init__(
        self,
        tries_max: int,
        *,
        key_of: Callable[[Tuple], Any] | None,
        report: Callable[[BaseException], None],
        give_up: Callable[[Tuple, Exception], None],
        fault: Callable[[BaseException], None],
        sleep: Callable[[float], None],
        explain: Callable[[Exception, Tuple], object] | None = None,
    ) -> None:
        """`key_of(tup)` is the key of its state. `report` gets the error of each try,
        `give_up(tup, error)` a tuple whose tries have all failed, and `fault` an error that no
        other try can undo. `explain(error, tup)` may add notes to the error of a value that cannot
        be stored, which came after the call."""
        self.parts: list[Undoable | HotState] = []
        self.report = report
        self.give_up = give_up
        self.trial = Trial(self.parts, failure=Failure, on_fault=fault)
        self.attempt = self.trial.attempt
        self._tries_max = tries_max
        self._key_of = key_of
        self._sleep = sleep
        self._explain = explain

    @property
    def held(self) -> Held | None:
        """The calls of the try under way, with their arguments; None: none is."""
        return self.trial.held

    @property
    def failed(self) -> list[Any] | None:
        """What `fail` was called for in the last try."""
        return self.trial.failed

    def fail(self, what: Any) -> None:
        """`fail` was called in the try."""
        self.trial.fail(what)

    def around(self, execute: Callable[[Tuple], Any]) -> Callable[[Tuple], None]:
        """`execute`, made atomic, and the search for the tuple's key with it."""

        def noted(tup: Tuple, error: Exception | None) -> Exception | None:
            if self._explain is not None and _lacks_notes(error):
                self._explain(error, tup)
            return error

        def failed(tup: Tuple, error: Exception) -> None:
            noted(tup, error)
            last = self.again(lambda: noted(tup, self.trial.retry(tup)), error)
            if last is not None:
                self.give_up(tup, last)

        return self.trial.around(execute, failed, self._key_of)

    def again(self, attempt: Callable[[], Exception | None], error: Exception) -> Exception | None:
        """Make the tries that are left after the first. Returns the error of the last."""
        for count in range(1, self._tries_max):
            self.report(error)
            self._sleep(wait_secs(count))
            next_error = attempt()
            if next_error is None:
                return None
            error = next_error
        self.report(error)
        return error


def _lacks_notes(error: Exception | None) -> TypeGuard[StateValueError]:
    return isinstance(error, StateValueError) and not hasattr(error, "__notes__")


class HoldingCollector(DelegatingBoltCollector[Tuple]):
    """The collector of a bolt with atomic calls: it holds them until the try has succeeded."""

    def __init__(
        self,
        inner: BoltCollector[Tuple],
        tries: Holding,
        arity: Arity,
        *,
        names_anchors: bool = False,
    ) -> None:
        """`names_anchors`: every emit has to, as several tuples are in execution."""
        self._tries = tries.trial if isinstance(tries, Tries) else tries
        self._arity = arity
        self._emit = inner.emit
        self._names_anchors = names_anchors
        super().__init__(inner)
        size, direct = arity.get(DEFAULT_STREAM, (0, True))
        # At hand: what nearly all calls of a bolt on tuples are.
        plain = type(self) is HoldingCollector and not names_anchors and not direct
        if plain and isinstance(tries, Tries):
            held_emit = tries.trial.holding(inner.emit, DEFAULT_STREAM, size, self.emit)
            self.emit = held_emit  # type: ignore[method-assign]

    def emit(
        self,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        held = self._tries.held
        if held is None or self._arity.get(stream) != (len(values), False):
            return self._inner.emit(values, anchors, stream)  # which refuses what is wrong
        if anchors is not None or self._names_anchors:
            anchors = self._checked(anchors)
            if anchors is None:
                return self._inner.emit(values, None, stream)  # likewise
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
        if anchors is not None or self._names_anchors:
            anchors = self._checked(anchors)
            if anchors is None:
                return self._inner.emit_direct(task, values, None, stream)
        held.append((self._inner.emit_direct, (task, values, anchors, stream)))
        return ()

    def _checked(self, anchors: Tuple | Iterable[Tuple] | None) -> list[Tuple] | None:
        """Anchors as they are now. One that is acked already would be refused when the call leaves,
        which is too late: with checkpoints it has no tree to add to, so it is left out."""
        if anchors is None:
            return None
        found = [anchors] if isinstance(anchors, Tuple) else list(anchors)
        for one in found:
            if not isinstance(one, Tuple):
                raise TypeError(f"emit: expected a tuple or tuples as anchors, got {one!r:.100}")
        return [one for one in found if not getattr(one, "settled", False)]

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
            self._tries.fail(tup)


class HoldingColumnCollector(HoldingCollector, DelegatingColumnCollector[Tuple]):
    """The same for a bolt that is fed with columns."""

    first_row = 0  # of the batch that the core has, where the rows in execution begin
    rows = 0  # of them

    def __init__(self, inner: ColumnCollector[Tuple], tries: Holding, arity: Arity) -> None:
        HoldingCollector.__init__(self, inner, tries, arity, names_anchors=True)
        self._columns = inner
        self._emit_columns = inner.emit_columns

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        origins: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        held = self._tries.held
        if held is None or self._arity.get(stream) != (len(columns), False):
            self._emit_columns(columns, origins, stream)  # which refuses what is wrong
            return
        lists = [list(column) for column in columns]  # as they are now
        emitted = len(lists[0]) if lists else 0
        if isinstance(columns, str | bytes) or any(
            len(one) != emitted or isinstance(column, str | bytes)
            for one, column in zip(lists, columns, strict=True)
        ):
            self._emit_columns(columns, origins, stream)  # likewise
            return
        rows = held_origins(origins, emitted, self.rows, self.first_row)
        held.append((self._emit_columns, (lists, rows, stream)))
