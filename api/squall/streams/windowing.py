"""The windowed bolts that streams become. Their inputs have the fields `key` and `value`, and `at`
with event time; their results are a `Windowed` each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from squall.streams.functions import Spec, callable_of
from squall.streams.steps import explained
from squall.streams.values import Layout, check_total, fields_of, own_copy
from squall.windows.bolt import AggregateBolt, WindowedBolt
from squall.windows.operators import Ready
from squall.windows.sessions import Contents
from squall.windows.spec import options_of
from squall.windows.tuple_window import TupleWindow

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple

_FIELDS = fields_of(Layout.WINDOW, timed=False)


class WindowCountBolt(AggregateBolt):
    """Counts the values of each window."""

    outputs = _FIELDS
    _squall_reads_tuples = False
    _squall_steps: Sequence[str] = ()
    _required: ClassVar[tuple[str, ...]] = ()  # it looks at no tuple, and at no window

    def _contents(self) -> Contents:
        return _Counts()

    def _call(self, ready: Ready) -> None:
        key, _, start_ms, end_ms, total, *_ = ready
        self.emit((key, total, start_ms, end_ms))


class _Counts:
    """The contents of a window: how many values."""

    def of(self, item: Any) -> int:
        return 1

    def of_all(self, items: Sequence[Any]) -> int:
        return len(items)

    def add(self, contents: int, item: Any) -> int:
        return contents + 1

    def extend(self, contents: int, items: Sequence[Any]) -> int:
        return contents + len(items)

    def merge(self, first: int, second: int) -> int:
        return first + second


class _Nothing:
    """The total of no value, where the first value is the first total."""


_NOTHING = _Nothing()


class WindowFoldBolt(AggregateBolt):
    """Adds the values of each window up: `init()`, `add(total, value)`, `merge(first, second)`,
    `result(total)`. Without `init`, the first value is the first total."""

    outputs = _FIELDS
    _squall_reads_tuples = False

    def __init__(self, label: str, init: Spec, add: Spec, merge: Spec, result: Spec) -> None:
        self._label = label
        self._given = (init, add, merge, result)
        self._squall_steps = [label]

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._init, add, merge, self._result = (
            None if one is None else callable_of(one) for one in self._given
        )
        assert add is not None
        assert merge is not None
        # Late values are added to totals that were emitted.
        self._goes_on = bool(options_of(conf).topology_bolts_window_allowed_lateness_ms)
        self._add: Callable[[Any, Any], Any] = add
        self._merge: Callable[[Any, Any], Any] = merge

    def init(self) -> Any:
        return _NOTHING if self._init is None else self._init()

    def add(self, total: Any, tup: Tuple) -> Any:
        value = tup["value"]
        try:
            if total is _NOTHING:
                return value
            found = self._add(total, value)
            if found is None:
                check_total(found, total)
            return found
        except Exception as error:
            # This value alone fails, and not those that the window holds already.
            explained(error, self._label, value)
            self._squall_shell.fail(tup, error)
            return total

    def merge(self, first: Any, second: Any) -> Any:
        if first is _NOTHING:
            return second
        return first if second is _NOTHING else self._merge(first, second)

    def result(self, total: Any, window: TupleWindow) -> None:
        if total is _NOTHING:
            return
        try:
            shown = total if self._result is None else self._result(total)
            if self._goes_on:
                shown = own_copy(shown)
        except Exception as error:
            raise explained(error, self._label, total) from None
        anchors = [tup for tup in window if not getattr(tup, "settled", False)]
        self.emit([window.key, shown, window.start_ms, window.end_ms], anchors=anchors)


class _Whole:
    """What a bolt does with all values of a window. `self` is the bolt."""

    def on_window(self, window: TupleWindow) -> None:
        raise NotImplementedError


class _Queued(_Whole, WindowedBolt):
    """Windows of which the length is in time and the interval in values, or the other way round."""

    def execute_window(self, window: TupleWindow) -> None:
        self.on_window(window)


class _Held(_Whole, AggregateBolt):
    """All other windows: the tuples that are held for acks, with totals of nothing.

    The queue of a `WindowedBolt` ends at the first value that is ahead of its window by more than
    the lag. Of two inputs, such as those of a join, one is often ahead by much more."""

    def init(self) -> None:
        return None

    def add(self, total: None, tup: Tuple) -> None:
        return None

    def merge(self, first: None, second: None) -> None:
        return None

    def result(self, total: None, window: TupleWindow) -> None:
        self.on_window(window)

    def _contents(self) -> Contents:
        return _Empty()


class _Empty:
    """The contents of a window of which only the tuples that are held for acks matter."""

    def of(self, item: Any) -> None:
        return None

    def of_all(self, items: Sequence[Any]) -> None:
        return None

    def add(self, contents: None, item: Any) -> None:
        return None

    def extend(self, contents: None, items: Sequence[Any]) -> None:
        return None

    def merge(self, first: None, second: None) -> None:
        return None


class _Apply(WindowedBolt):
    """Emits `function(values)`; without a function the list itself."""

    outputs = _FIELDS

    def __init__(self, label: str, function: Spec) -> None:
        self._label = label
        self._given = function
        self._squall_steps = [label]

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._function = None if self._given is None else callable_of(self._given)

    def on_window(self, window: TupleWindow) -> None:
        found: Any = [tup["value"] for tup in window]
        if self._function is not None:
            try:
                found = self._function(found)
            except Exception as error:
                raise explained(error, self._label, found) from None
        self.emit([window.key, found, window.start_ms, window.end_ms])


class ApplyBolt(_Apply, _Held):
    """A function of the list of values of each window."""


class QueuedApplyBolt(_Apply, _Queued):
    """The same for the windows of `_Queued`."""


class _Total(WindowedBolt):
    """Counts (`add` None) or adds up the values of each window, when it fires."""

    outputs = _FIELDS

    def __init__(self, label: str, init: Spec, add: Spec, result: Spec) -> None:
        self._label = label
        self._given = (init, add, result)
        self._squall_steps = [label] if add or result else []

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._init, self._add, self._result = (
            None if one is None else callable_of(one) for one in self._given
        )

    def on_window(self, window: TupleWindow) -> None:
        total = len(window) if self._add is None else self._total(window)
        self.emit([window.key, total, window.start_ms, window.end_ms])

    def _total(self, window: TupleWindow) -> Any:
        assert self._add is not None
        values = iter([tup["value"] for tup in window])
        value = None
        try:
            total = next(values) if self._init is None else self._init()
            for value in values:
                before, total = total, self._add(total, value)
                if total is None:
                    check_total(total, before)
            value = total
            return total if self._result is None else self._result(total)
        except Exception as error:
            raise explained(error, self._label, value) from None


class QueuedTotalBolt(_Total, _Queued):
    """Counts or adds up, for the windows of `_Queued`."""


class _Join(WindowedBolt):
    """Joins the values of a window on the left with those on the right: by key, since each key has
    windows of its own. With `kind` "group" it emits the two lists instead."""

    outputs = _FIELDS
    _squall_steps: Sequence[str] = ()

    def __init__(self, kind: str, left: Sequence[Sequence[str]]) -> None:
        """`left` are the streams on the left, as component and stream."""
        self._kind = kind
        self._left = {(component, stream) for component, stream in left}

    def on_window(self, window: TupleWindow) -> None:
        left: list[Any] = []
        right: list[Any] = []
        for tup in window:
            is_left = (tup.source_component, tup.source_stream) in self._left
            (left if is_left else right).append(tup)
        if self._kind == "group":
            lists = ([tup["value"] for tup in left], [tup["value"] for tup in right])
            self.emit([window.key, lists, window.start_ms, window.end_ms])
            return
        if not right and self._kind in ("left", "full"):
            right = [None]
        if not left and self._kind in ("right", "full"):
            left = [None]
        for one in left:
            for other in right:
                pair = tuple(None if tup is None else tup["value"] for tup in (one, other))
                anchors = [tup for tup in (one, other) if tup is not None]
                row = [window.key, pair, window.start_ms, window.end_ms]
                self.emit(row, anchors=anchors)


class JoinBolt(_Join, _Held):
    """A join over windows."""


class QueuedJoinBolt(_Join, _Queued):
    """The same for the windows of `_Queued`."""
