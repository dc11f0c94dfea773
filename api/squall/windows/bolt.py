"""`WindowedBolt` and `AggregateBolt`, from which users derive, and what the builder asks of them.

A `Shell` drives the windows of each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from squall.windows.on_disk import DiskRow
from squall.windows.operators import Ready
from squall.windows.reading import timestamp_getter
from squall.windows.sessions import Contents
from squall.windows.shell import DrivenBolt, Shell
from squall.windows.spec import LATE_TUPLE_FIELD, WINDOW_KEYS, WindowPlan, Windows, options_of
from squall.windows.tuple_window import TupleWindow
from squall.windows.words import words_of
from squall_common.errors import ConfigError, InvalidTopologyError
from squall_common.state.keyed import ALWAYS_STORED
from squall_common.topology.model import StreamInfo

if TYPE_CHECKING:
    from datetime import datetime

    from squall_common.component.collector import BoltCollector
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple


class WindowedBolt(DrivenBolt):
    """A bolt that gets windows of tuples.

        class Average(WindowedBolt):
            outputs = ["sensor", "mean"]

            def execute_window(self, window):
                values = [tup["value"] for tup in window]
                self.emit([window.key, sum(values) / len(values)])

        average = builder.bolt("average", Average())
        average.windowed(sliding(secs=60, every_secs=10, key="sensor"))
        average.fields("readings", "sensor")

    What `execute_window` emits is anchored to all tuples of the window. A tuple is acked when no
    later window holds it; until then its message timeout is restarted. When `execute_window`
    raises, the error is reported and the tuples of the window fail and leave it. With
    `blocking = True` it runs on a thread of its own.

    With checkpoints (`topology.checkpoint.interval.secs`) the windows are part of them. Windows by
    the key that the input is grouped by move with their keys when the number of tasks changes. A
    tuple is acked when the windows have it. `execute_window` is atomic and tried again;
    when all tries fail, the tuples of the window are dead letters of the bolt.
    """

    auto_ack = False
    #: The windows, unless `windowed()` in the builder sets them.
    windows: Windows | None = None

    #: The methods that a subclass must define.
    _required: ClassVar[tuple[str, ...]] = ("execute_window",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("execute", "execute_batch", "execute_columns"):
            if name in cls.__dict__:
                raise InvalidTopologyError(
                    f"{cls.__name__}: a WindowedBolt cannot define {name}()",
                    hint="it gets windows, not tuples: define execute_window(self, window)",
                )
        for name in ("execute_window", "timestamp", "execute_tick", *cls._required):
            function = getattr(cls, name)
            if getattr(function, "__code__", None) and function.__code__.co_flags & 0x2A0:
                raise InvalidTopologyError(
                    f"{cls.__name__}: {name}() cannot be async or contain `yield`",
                    hint="set blocking = True, and it may wait; or let another bolt wait",
                )

    def execute_window(self, window: TupleWindow) -> None:
        """Process a window that has fired."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute_window()")

    def timestamp(self, tup: Tuple) -> int | datetime:
        """The time of a tuple, in milliseconds since the epoch, or as a datetime with a time zone.
        A bolt that defines this has windows in event time, without a `field` in `EventTime`."""
        raise NotImplementedError

    def execute_tick(self, tup: Tuple) -> None:
        """Called for tick tuples, which are in no window; acked when it returns."""

    def execute_batch(self, tuples: list[Tuple]) -> None:
        """For the engine: add tuples to the windows."""
        self._squall_shell.execute(tuples)

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Emit a tuple, anchored to all tuples of the window (`anchors=None`), to the given tuples,
        or to no tuple (`anchors=()`). Otherwise as `Bolt.emit`."""
        if anchors is None:
            anchors = self._squall_shell.anchors
        if type(values) is DiskRow:
            values = list(values)
        emit = self._squall_emit or self._bound("emit").emit  # (which raises)
        found: Sequence[int] = emit(values, anchors=anchors, stream=stream)
        return found

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Emit a tuple to one task, on a direct stream. Otherwise like `emit`."""
        if anchors is None:
            anchors = self._squall_shell.anchors
        if type(values) is DiskRow:
            values = list(values)
        return super().emit_direct(task, values, anchors=anchors, stream=stream)

    def cleanup(self) -> None:
        """Called at a graceful stop: fails the tuples that wait in windows, so that they are
        replayed at once. Call it from a `cleanup` of your own."""
        self._squall_shell.give_up()

    def _bind(self, collector: BoltCollector[Tuple], context: TopologyContext) -> None:
        super()._bind(collector, context)
        object.__setattr__(self, "_squall_emit", self._bound("emit").emit)
        object.__setattr__(self, "_squall_shell", Shell(self, context))

    def _timestamp_of(self, plan: WindowPlan) -> Callable[[Tuple], Any] | None:
        own = type(self).timestamp is not WindowedBolt.timestamp
        return timestamp_getter(plan) or (self.timestamp if own else None)

    def _call(self, ready: Ready) -> None:
        self.execute_window(window_of(ready))


class AggregateBolt(WindowedBolt):
    """A windowed bolt that adds tuples up as they come. It costs the same for each tuple, in
    however many sliding windows that is.

        class Mean(AggregateBolt):
            outputs = ["sensor", "mean"]

            def init(self):
                return (0, 0.0)

            def add(self, total, tup):
                return (total[0] + 1, total[1] + tup["value"])

            def merge(self, first, second):
                return (first[0] + second[0], first[1] + second[1])

            def result(self, total, window):
                self.emit([window.key, total[1] / total[0]])

    By default the tuples of open windows are held, without being looked at again, so that they can
    be acked and anchored to as in any windowed bolt. With `hold = False` a tuple is acked as soon
    as it is added: nothing is held, but windows that are open when a worker dies are lost.
    """

    #: Hold the tuples of open windows, unacked.
    hold: bool = True

    _required: ClassVar[tuple[str, ...]] = ("init", "add", "merge", "result")

    def init(self) -> Any:
        """A total of nothing."""
        raise NotImplementedError(f"{type(self).__name__} does not define init()")

    def add(self, total: Any, tup: Tuple) -> Any:
        """The total with one tuple more. It may change `total` and return it."""
        raise NotImplementedError(f"{type(self).__name__} does not define add()")

    def merge(self, first: Any, second: Any) -> Any:
        """The total of two totals, `first` of the older tuples. It must not change either."""
        raise NotImplementedError(f"{type(self).__name__} does not define merge()")

    def result(self, total: Any, window: TupleWindow) -> None:
        """Process the total of a window that has fired: emit it, usually. It must not change
        `total`. `window` has the key, the start and the end; its tuples are those that are held."""
        raise NotImplementedError(f"{type(self).__name__} does not define result()")

    def execute_window(self, window: TupleWindow) -> None:
        raise NotImplementedError

    def _contents(self) -> Contents | None:
        return _Aggregate(self)

    def _call(self, ready: Ready) -> None:
        self.result(ready.total, window_of(ready))


def windowed_conf(bolt: WindowedBolt, windows: Windows | None = None) -> dict[str, Any]:
    """The configuration of a bolt: its windows, or these, and its own."""
    own = {**bolt.component_conf}
    if windows is None:
        windows = bolt.windows
    else:
        own = {key: value for key, value in own.items() if key not in WINDOW_KEYS}
    return {**(windows.conf() if windows is not None else {}), **own}


def window_problems(bolt: WindowedBolt, conf: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a bolt's windows, one sentence each."""
    cls = type(bolt)
    for name in cls._required:
        if getattr(cls, name) in (getattr(WindowedBolt, name, 0), getattr(AggregateBolt, name, 0)):
            yield f"{cls.__name__} does not define {name}()"
    if bolt.windows is not None and not isinstance(bolt.windows, Windows):
        yield f"windows is {bolt.windows!r}; expected tumbling(...), sliding(...) or session(...)"
        return
    try:
        options = options_of(conf)
    except ConfigError:
        return  # the check of the component's configuration says more
    plan = WindowPlan.read(options)
    event_time = bolt._timestamp_of(plan) is not None
    yield from plan.problems(event_time=event_time, aggregates=isinstance(bolt, AggregateBolt))


def window_words(bolt: WindowedBolt, conf: Mapping[str, Any], *, with_key: bool) -> str:
    """A bolt's windows in words, "" if they are wrong; with the fields of their key, or without."""
    try:
        plan = WindowPlan.read(options_of(conf))
    except ConfigError:
        return ""  # the check of the component's configuration says more
    words = words_of(plan, event_time=bolt._timestamp_of(plan) is not None)
    return f"{words}, by {' and '.join(plan.key)}" if words and with_key and plan.key else words


def with_late_stream(
    streams: Mapping[str, StreamInfo], conf: Mapping[str, Any]
) -> dict[str, StreamInfo]:
    """The streams of a bolt, and the one for late tuples if it declares none of that name."""
    found = dict(streams)
    try:
        late = options_of(conf).topology_bolts_late_tuple_stream
    except ConfigError:
        return found  # the check of the component's configuration says more
    if late is not None:
        found.setdefault(late, StreamInfo((LATE_TUPLE_FIELD,)))
    return found


def window_of(ready: Ready) -> TupleWindow:
    """What the user's code gets of a window."""
    return TupleWindow(
        ready.tuples,
        ready.left,
        key=ready.key,
        start_ms=ready.start_ms,
        end_ms=ready.end_ms,
        late=ready.late,
    )


class _Aggregate:
    """The contents of a window: a total."""

    def __init__(self, bolt: AggregateBolt) -> None:
        self._init = bolt.init
        self._add = bolt.add
        self.add = bolt.add if bolt._squall_calls is None else self._stored_add
        self.merge = bolt.merge
        self._calls = bolt._squall_calls
        self._stored_type: type | None = None
        self._stored_values = set(ALWAYS_STORED)  # types of values in totals that grow

    def of(self, item: Any) -> Any:
        return self.add(self._init(), item)

    def _stored_add(self, total: Any, item: Any) -> Any:
        """`add`, of whose totals a snapshot can have the first of a type, and each value by which
        one grows. A look at all of a total with each tuple would take ever longer."""
        if type(total) in _GROWING:
            return self._grown(total, item)
        found = self._add(total, item)
        if type(found) not in ALWAYS_STORED:
            self._look(found)
        return found

    def _look(self, found: Any) -> None:
        """Raises StateValueError if this is the first total of a type, and cannot be stored."""
        kind = type(found)
        if kind is not self._stored_type:
            assert self._calls is not None
            self._calls.check_storable(found, "a total")
            self._stored_type = kind

    def _grown(self, total: Any, item: Any) -> Any:
        """What is put inside one of its values, or in the place of one, only the snapshot sees."""
        size = len(total)
        found = self._add(total, item)
        kind = type(found)
        if (
            kind is self._stored_type
            and kind in _GROWING
            and (
                len(found) <= size or (kind is not dict and type(found[-1]) in self._stored_values)
            )
        ):
            return found
        try:
            self._look(found)
            if kind in _GROWING and len(found) > size:
                assert self._calls is not None
                newest = next(reversed(found.items())) if kind is dict else found[-1]
                self._calls.check_storable(newest, "a total")
                if type(newest) not in _HOLDING:
                    self._stored_values.add(type(newest))
        except Exception:
            if found is total:
                _shorten(total, size)
            raise
        return found


_GROWING = frozenset({list, tuple, dict})
_HOLDING = _GROWING | {set, frozenset}  # such a value says nothing about the next of its type


def _shorten(total: list[Any] | dict[Any, Any], size: int) -> None:
    """Take away what came last."""
    if isinstance(total, list):
        del total[size:]
    else:
        while len(total) > size:
            total.popitem()
