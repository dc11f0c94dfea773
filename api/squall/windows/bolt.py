"""`WindowedBolt` and `AggregateBolt`, and the shell that drives their windows.

The shell reads the clock, starts timers, and carries out what the operators decide: it calls the
bolt, anchors what that emits to the tuples of the window, and acks tuples that no later window
holds. Until then it restarts their message timeout now and then: they wait, they are not lost.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from squall.windows.evictors import Event
from squall.windows.groups import GroupedWindows, Grouping, movable
from squall.windows.on_disk import DiskRow, DiskRows, RowCodec, known_key, put_values
from squall.windows.operators import Late, Operator, Output, Ready, Release, make_operator
from squall.windows.sessions import Contents
from squall.windows.snapshot import FORMAT, Codec, dump, load
from squall.windows.spec import (
    LATE_TUPLE_FIELD,
    WINDOW_KEYS,
    WindowPlan,
    Windows,
)
from squall.windows.tuple_window import TupleWindow
from squall.windows.watermarks import Watermarks
from squall_common.component.component import Bolt
from squall_common.errors import ConfigError, InvalidTopologyError, SquallError, describe
from squall_common.names import is_system_id
from squall_common.state.errors import StateStoreError
from squall_common.topology.model import StreamInfo

if TYPE_CHECKING:
    from squall_common.component.collector import BoltCollector
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple
    from squall_common.config.options.typed import TopologyOptions

_T = TypeVar("_T")
Clock = Callable[[], float]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXPIRE_MS_MIN = 1000
_LEFT_OUT_MS = 60_000  # between two lines about late tuples
_SLICE_MAX = 1024  # windows
_RELEASED_MAX = 8192  # tuples that are acked in one go, which is cheaper than in many
_KEEPS = 3  # times in a message timeout that tuples in windows are kept alive


class Calls(Protocol):
    """With checkpoints, what makes the calls of the user's code, and takes tuples for which they
    have failed. (`squall_engine.atomic.windows.WindowCalls`)"""

    @property
    def grouping(self) -> Grouping | None:
        """How the bolt's whole input is grouped by fields; None: it is not."""
        ...

    def call(self, execute: Callable[[], Any]) -> Exception | None:
        """Make a call whose effects take place together, if it succeeds. Returns the error of its
        last try."""
        ...

    def give_up(self, tup: Any, error: Exception) -> None:
        """A tuple is a dead letter. Raises SquallError if nothing consumes it."""
        ...

    def give_up_window(self, values: Sequence[Any], error: Exception) -> None:
        """The same for the key, total, start and end of a window that holds no tuples."""
        ...


class WindowedBolt(Bolt):
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

    _squall_shell: _Shell
    _squall_driven = False  # by `DrivenWindows`
    _squall_windowed: ClassVar[bool] = True  # for checkpoints: the engine knows it by this
    _squall_calls: Calls | None = None  # with checkpoints
    _squall_emit: Callable[..., Sequence[int]] | None = None  # the collector's, when it is bound
    _squall_codec: Callable[[], RowCodec] | None = None  # the engine's, for values on disk
    # The engine's, which acks what is not settled in one call. None: one after the other.
    _squall_ack_rest: Callable[[list[Tuple]], None] | None = None
    # The engine's, which calls what it is given slice by slice, until that returns False, and gives
    # the bolt no tuple before: see `_Shell.go_on`. None: timers do all their work at once.
    _squall_in_slices: Callable[[Callable[[Clock, float], bool]], None] | None = None
    #: Whether its windows need their tuples, and not just totals.
    _squall_reads_tuples: ClassVar[bool] = True

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
        object.__setattr__(self, "_squall_shell", _Shell(self, context))

    def _contents(self) -> Contents | None:
        """How its windows aggregate; None if they hold their tuples."""
        return None

    def _call(self, ready: Ready) -> None:
        """Call the user's code for a window."""
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
        options = _options(conf)
    except ConfigError:
        return  # the check of the component's configuration says more
    plan = WindowPlan.read(options)
    event_time = _timestamp_of(bolt, plan) is not None
    yield from plan.problems(event_time=event_time, aggregates=isinstance(bolt, AggregateBolt))


def with_late_stream(
    streams: Mapping[str, StreamInfo], conf: Mapping[str, Any]
) -> dict[str, StreamInfo]:
    """The streams of a bolt, and the one for late tuples if it declares none of that name."""
    found = dict(streams)
    try:
        late = _options(conf).topology_bolts_late_tuple_stream
    except ConfigError:
        return found  # the check of the component's configuration says more
    if late is not None:
        found.setdefault(late, StreamInfo((LATE_TUPLE_FIELD,)))
    return found


def _options(conf: Mapping[str, Any]) -> TopologyOptions:
    """Raises ConfigError. Imported here: whoever builds a topology without windows needs none."""
    from squall_common.config.options.typed import TopologyOptions

    return TopologyOptions.read(dict(conf))


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
        self.add = bolt.add
        self.merge = bolt.merge

    def of(self, item: Any) -> Any:
        return self.add(self._init(), item)


class _Shell:
    """The windows of one task, on the clock and the collector."""

    def __init__(self, bolt: WindowedBolt, context: TopologyContext) -> None:
        options = _options(context.conf)
        plan = WindowPlan.read(options)
        self._bolt = bolt
        self._calls = bolt._squall_calls
        self.revision = 0  # changes with what `parts` returns
        self.groups: GroupedWindows | None = None  # the windows, if they move with key groups
        self._left_out = 0  # late tuples since the last line about them
        self._left_out_next_ms: int | None = None  # when there may be another line
        self._is_behind = False  # windows of some groups have to fire: see `resume_groups`
        self.plan = plan
        self._context = context
        # An `ack` of the bolt's own gets each tuple.
        self._ack_rest = bolt._squall_ack_rest if type(bolt).ack is Bolt.ack else None
        self._start_ms = int(context.time() * 1000)
        self._start_secs = context.monotonic()
        self._caught_up_ms = self._start_ms
        self.timestamp = _timestamp_of(bolt, plan)
        event_time = self.timestamp is not None
        contents = self._contents = bolt._contents()
        problems = plan.problems(event_time=event_time, aggregates=contents is not None)
        problems += self._unfilled(options)
        if problems:
            raise SquallError(f"bolt {context.this_component_id!r}: {'; '.join(problems)}")
        self._key_of = _key_of(plan.key)
        self._in_memory_max = options.topology_bolts_window_tuples_in_memory_max or 0
        self._disk = self._opened_disk(options)
        if self._disk is not None and plan.key:
            self._key_of = known_key(self._key_of)
        self._operator: Operator = self._made(plan)
        inputs = [(one.component, one.stream) for one in context.this_sources]
        self._watermarks = Watermarks(
            [one for one in inputs if not is_system_id(one[0])],
            lag_ms=plan.lag_ms,
            idle_ms=plan.idle_ms,
            now_ms=self._start_ms,
        )
        self._ids: set[Hashable] | None = None if plan.message_id_field is None else set()
        self._held_count = 0
        self._disk_count = 0  # of those that are held
        self._warned = False  # that a value cannot be on disk
        self.anchors: Sequence[Tuple] = ()
        self._in_slices = None if bolt._squall_driven else bolt._squall_in_slices
        self._rest: Iterator[Output] | None = None  # of what a timer has begun: see `go_on`
        self._leaving: Sequence[Tuple] = ()  # released in pieces, of which some may be left
        self._session_timer_ms: int | None = None
        if not bolt._squall_driven:
            self._start_timers(options, event_time=event_time)

    def _made(self, plan: WindowPlan) -> Operator:
        calls, event_time = self._calls, self.timestamp is not None
        make = partial(
            make_operator,
            plan,
            self._key_of,
            self._contents,
            event_time=event_time,
            hold=self._holds,
            start_ms=self._start_ms,
        )
        if calls is not None and calls.grouping is not None and movable(plan, calls.grouping):
            self.groups = GroupedWindows(make, calls.grouping, event_time=event_time)
            return self.groups
        return make()

    @property
    def _holds(self) -> bool:
        """Whether tuples stay in the windows."""
        bolt = self._bolt
        return getattr(bolt, "hold", True) and (self._calls is None or bolt._squall_reads_tuples)

    def _opened_disk(self, options: TopologyOptions) -> DiskRows | None:
        """Where values are above the bound; None: there is none, or nothing to be held. (What is
        driven has its memory from others, and says how much that is.)"""
        make_codec = self._bolt._squall_codec
        if not self._in_memory_max or make_codec is None or not self._holds:
            return None
        return DiskRows(make_codec(), options.topology_state_backend_folder)

    def _unfilled(self, options: TopologyOptions) -> Iterator[str]:
        """Whether the spouts stop before enough tuples have come for a window to fire."""
        plan = self.plan
        pending_max = options.topology_max_spout_pending
        if plan.slide_count is None or pending_max is None or self._calls is not None:
            return
        topology = self._context.topology
        tasks = sum(len(self._context.component_tasks(id)) for id in topology.spouts)
        wanted = plan.slide_count
        if plan.length_count is not None and not plan.tumbles:
            wanted += plan.length_count  # those of the window before are still unacked
        if wanted > pending_max * tasks:
            yield (
                f"its windows would never fill: one needs {wanted:,} tuples that are not acked, "
                f"and topology.max.spout.pending allows {pending_max * tasks:,} (of {tasks} spout "
                "tasks)"
            )

    def sizes(self) -> dict[str, int]:
        """How much the windows hold, for whoever looks from outside."""
        found = {"tuples": self._held_count}
        if self._disk is not None:
            found["tuples_on_disk"] = self._disk_count
            found["bytes_on_disk"] = self._disk.file_bytes
        if self.groups is not None:
            found["key_groups"] = self.groups.count
        return found

    # -- tuples --

    def execute(self, tuples: list[Tuple]) -> None:
        """Add the tuples of one stream."""
        self.finish()
        first = tuples[0]
        if first.is_tick:
            for tick in tuples:
                self._tick(tick)
            return
        self.revision += 1
        now_ms = self._now_ms()
        if self._is_behind:
            self._catch_up(now_ms)
        tuples = self._admitted(self._keyed(tuples))
        if self.timestamp is None:
            events = [(now_ms, tup) for tup in tuples]
        else:
            events = self._timed(tuples, now_ms)
        if self._disk is not None:
            events = self._bounded(self._disk, events)
        self._held_count += len(events)
        if events:
            self._carry_out(self._operator.add(events, now_ms))
        self._wait_for_sessions()

    def _bounded(self, disk: DiskRows, events: list[Event]) -> list[Event]:
        """Events that are about to be held, those above the bound with their values on disk. If
        that fails, these have failed and are left out; with checkpoints StateStoreError is raised,
        as no tuple is at fault."""
        room = max(0, self._in_memory_max - (self._held_count - self._disk_count))
        going = events[room:]
        if not going:
            return events
        id_field = self.plan.message_id_field
        rows = [
            (tup.values, self._key_of(tup), None if id_field is None else tup.get(id_field))
            for _, tup in going
        ]
        try:
            found = disk.add(rows)
        except StateStoreError as error:
            if self._calls is not None:
                raise
            self._bolt.report_error(error)
            for _, tup in going:
                self._forget(tup)
                self._bolt.fail(tup)
            return events[:room]
        for (_, tup), row in zip(going, found, strict=True):
            if isinstance(row, DiskRow):
                put_values(tup, row)
                self._disk_count += 1
            elif not self._warned:
                self._warned = True
                self._bolt.log.warning("tuples stay in memory that cannot be on disk: %s", row)
        return events

    def _tick(self, tick: Tuple) -> None:
        if self._calls is None:
            self._bolt.execute_tick(tick)
            self._bolt.ack(tick)
            return
        error = self._calls.call(lambda: self._bolt.execute_tick(tick))
        if error is not None:
            self._calls.give_up(tick, error)

    def fail(self, tup: Tuple, error: Exception) -> None:
        """A tuple is in no window, or no longer: it fails, or is a dead letter."""
        if self._calls is not None:
            self._bolt.report_error(error)
            self._calls.give_up(tup, error)
            return
        if not getattr(tup, "settled", False):
            self._bolt.fail(tup)
        self._bolt.report_error(error)

    def _keyed(self, tuples: list[Tuple]) -> list[Tuple]:
        """The tuples whose key and message id can be looked up. The others fail, alone."""
        id_field = self.plan.message_id_field
        if not self.plan.key and not id_field:
            return tuples
        key_of = self._key_of
        if not id_field:
            with contextlib.suppress(Exception):  # of one of them, which is found below
                set(map(key_of, tuples))  # each has a key, and the key a hash
                return tuples
        found = []
        for tup in tuples:
            try:
                hash(key_of(tup))
                if id_field:
                    hash(tup.get(id_field))
            except Exception as error:
                refused = SquallError(
                    f"a tuple of {tup.source_component!r} is in no window, because of its key "
                    f"or message id: {error}",
                    hint="both consist of numbers, text and other values with a hash",
                )
                self.fail(tup, refused)
            else:
                found.append(tup)
        return found

    def _admitted(self, tuples: list[Tuple]) -> list[Tuple]:
        """The tuples that are not replays of what is held, as far as there is room."""
        if self._ids is not None:
            field, ids = self.plan.message_id_field, self._ids
            admitted = []
            for tup in tuples:
                found = tup.get(field or "")
                if found is not None and found in ids:
                    self._bolt.ack(tup)
                else:
                    ids.add(found)
                    admitted.append(tup)
            tuples = admitted
        room = max(0, self.plan.tuples_max - self._held_count)
        if len(tuples) > room:
            full = SquallError(
                f"the windows hold {self._held_count:,} tuples, so {len(tuples) - room:,} more "
                "have failed",
                hint="raise topology.bolts.window.tuples.max, give the bolt more tasks, or "
                "use an AggregateBolt with hold = False",
            )
            self._bolt.report_error(full)
            for tup in tuples[room:]:
                self._forget(tup)
                if self._calls is None:
                    self._bolt.fail(tup)
                else:
                    self._calls.give_up(tup, full)
            tuples = tuples[:room]
        return tuples

    def _timed(self, tuples: list[Tuple], now_ms: int) -> list[Event]:
        """The tuples that are in time, with their timestamps. The others are dealt with."""
        events: list[Event] = []
        latest_ms: int | None = None
        watermarks, lateness = self._watermarks, self.plan.lateness_ms
        # Within the allowed lateness a window that has fired fires again, so a tuple at the very
        # watermark is not left to chance.
        first_ms = watermarks.current_ms
        if lateness and first_ms > 0:
            first_ms += 1
        late: list[Event] = []
        timestamp = self.timestamp
        assert timestamp is not None
        source = tuples[0] if tuples else None
        if source is not None and self.plan.timestamp_field is not None:
            times = _numbers(timestamp, tuples)
            if times and min(times) >= first_ms:  # all are in time
                inputs = (source.source_component, source.source_stream)
                watermarks.track(inputs, max(times), now_ms)
                return list(zip(times, tuples, strict=True))
        for tup in tuples:
            try:
                at_ms = timestamp(tup)
                if type(at_ms) is not int:
                    at_ms = millis_of(at_ms)
            except Exception as error:
                self._forget(tup)
                self.fail(tup, error)
                continue
            if latest_ms is None or at_ms > latest_ms:
                latest_ms = at_ms
            (events if at_ms >= first_ms else late).append((at_ms, tup))
        if latest_ms is not None and source is not None:
            watermarks.track((source.source_component, source.source_stream), latest_ms, now_ms)
        if self._disk is not None:
            late = self._bounded(self._disk, late)
        for event in late:
            self._held_count += 1
            self._carry_out(self._operator.add_late(event, now_ms))
        return events

    # -- time --

    def _now_ms(self) -> int:
        """The time by the clock, which does not jump when somebody sets it."""
        passed = self._context.monotonic() - self._start_secs
        return self._start_ms + int(passed * 1000 + 1e-3)

    def _start_timers(self, options: TopologyOptions, *, event_time: bool) -> None:
        if event_time:
            self._every(self.plan.watermark_ms, self.advance_watermark)
        elif self.plan.slide_ms is not None:
            self._every(self.plan.slide_ms, self._advance_clock)
        elif self.plan.length_ms is not None:
            # By count: a key, or the whole input, may pause, and what is too old then has to go.
            self._every(max(_EXPIRE_MS_MIN, self.plan.length_ms), self._advance_clock)
        if self._calls is not None:
            return  # its tuples are acked
        timeout_secs = options.topology_message_timeout_secs
        if options.topology_enable_message_timeouts:
            self._timeout_secs = timeout_secs
            self._kept_alive: list[Tuple] = []
            self._every(int(timeout_secs * 1000 / _KEEPS) or 1, self._keep_alive)
            self._warn(timeout_secs)

    def _warn(self, timeout_secs: float) -> None:
        plan = self.plan
        longest_ms = (plan.length_ms or 0) + (plan.slide_ms or 0) + (plan.gap_ms or 0)
        if longest_ms > timeout_secs * 1000:
            self._bolt.log.warning(
                "windows of %g s (length and interval) are longer than "
                "topology.message.timeout.secs (%g): the timeout is restarted for tuples that "
                "wait in a window",
                longest_ms / 1000,
                timeout_secs,
            )

    def _every(self, interval_ms: int, call: Callable[[], None]) -> None:
        """Call something at a fixed rate. Times that a stall has missed are left out."""
        start, monotonic = self._context.monotonic(), self._context.monotonic
        secs = interval_ms / 1000

        def ring() -> None:
            if self._bolt._squall_shell is not self:
                return  # the bolt was bound anew, with other windows: see `rebind` in the engine
            try:
                call()
            finally:
                done = int((monotonic() - start) / secs + 1e-6)
                again = start + (done + 1) * secs - monotonic()
                self._context.call_later(max(0.0, again), ring)

        self._context.call_later(secs, ring)

    def advance_watermark(self) -> None:
        if self._rest is not None:
            return  # at the next interval
        now_ms = self._now_ms()
        if self._is_behind:
            self._catch_up(now_ms)
        watermark_ms = self._watermarks.advance(now_ms)
        if watermark_ms is not None:
            self.revision += 1
            self._begin(self._operator.advance(watermark_ms, now_ms))

    def _catch_up(self, now_ms: int) -> None:
        """Fire the windows of key groups whose task was behind this one's watermark."""
        self._is_behind = False
        self._carry_out(self._operator.advance(self._watermarks.current_ms, now_ms))

    def _advance_clock(self) -> None:
        if self._rest is not None:
            return  # at the next interval
        self.revision += 1
        now_ms = self._now_ms()
        self._begin(self._operator.advance(now_ms, now_ms))

    def _wait_for_sessions(self) -> None:
        """Wait for the end of the first session, by the clock."""
        if self.plan.gap_ms is None or self.timestamp is not None or self._bolt._squall_driven:
            return
        if self._rest is not None:
            return  # called again when the sessions that have ended are out
        next_ms = self._operator.next_ms
        if next_ms is None or self._session_timer_ms is not None:
            return  # sessions end a gap after a tuple at the earliest: no timer is too late
        self._session_timer_ms = next_ms
        self._context.call_later(max(0, next_ms - self._now_ms()) / 1000, self._end_sessions)

    def _end_sessions(self) -> None:
        self._session_timer_ms = None
        try:
            self._advance_clock()
        finally:
            self._wait_for_sessions()

    def _keep_alive(self) -> None:
        """Restart the timeout of tuples that waited at the last call already."""
        held = list(self._operator.held())
        if self._rest is not None:
            # Windows that have ended and wait for a target may be in the operator no longer.
            found = set(map(id, held))
            leaving = {id(tup): tup for tup in chain(self._leaving, self._kept_alive)}
            held += [
                tup
                for known, tup in leaving.items()
                if known not in found and not getattr(tup, "settled", False)
            ]
        waited = set(map(id, self._kept_alive))
        for tup in held:
            if id(tup) in waited and not getattr(tup, "settled", False):
                self._bolt.reset_timeout(tup)
        self._kept_alive = held

    # -- for `DrivenWindows` --

    def time_of(self, tup: Tuple) -> int:
        """The timestamp of a tuple. Raises ValueError, and what the bolt's `timestamp` raises."""
        assert self.timestamp is not None
        return millis_of(self.timestamp(tup))

    def catch_up_with_clock(self) -> None:
        """Fire the windows by the clock whose time has come since the last call."""
        if self.timestamp is not None:
            return
        interval_ms = self.plan.slide_ms or self.plan.length_ms
        if self.plan.gap_ms is None:
            if interval_ms is None:
                return
            passed = (self._now_ms() - self._caught_up_ms) // interval_ms
            if passed <= 0:
                return
            self._caught_up_ms += passed * interval_ms
        self._advance_clock()

    def end_input(self) -> None:
        """Fire the windows in event time that hold something: no tuple will come."""
        plan = self.plan
        if self.timestamp is not None:
            # As far as a window may go beyond its last tuple. Windows of a number of tuples would
            # fire at every interval from then on, with the same tuples.
            after_ms = plan.length_ms or plan.gap_ms or (plan.slide_ms or 1) - 1
            watermark_ms = self._watermarks.end(after_ms)
            if watermark_ms is not None:
                self._carry_out(self._operator.advance(watermark_ms, self._now_ms()))

    def parts(self) -> dict[str, Any]:
        """What it holds, and how far it is, in a form that `snapshot` can store."""
        assert self._rest is None, "a window that has ended is not out"
        return {
            "now_ms": self._now_ms(),
            "operator": self._operator,
            "watermarks": self._watermarks,
            "ids": self._ids,
            "held": self._held_count,
            "caught_up_ms": self._caught_up_ms,
        }

    def fixed_parts(self) -> dict[str, Any]:
        """What those parts refer to and the bolt brings along."""
        return {"key_of": self._key_of, "contents": self._contents}

    def resume(self, parts: Mapping[str, Any]) -> None:
        """Go on from the `parts` of another task."""
        self._operator = parts["operator"]
        self._watermarks = parts["watermarks"]
        self._watermarks.shift(self._now_ms() - parts["now_ms"])
        self._ids = parts["ids"]
        self._held_count = parts["held"]
        if self._disk is not None:
            self._recount_disk()
        self._caught_up_ms = parts["caught_up_ms"]
        self._wait_for_sessions()

    def _recount_disk(self) -> None:
        held = self._operator.held()
        self._disk_count = sum(type(tup.values) is DiskRow for tup in held)

    def stored(self, codec: Codec, tuple_class: type) -> bytes:
        """All that the windows hold. Raises SquallError for a value that cannot be stored."""
        return self._stored(self.parts(), codec, tuple_class)

    def _stored(self, what: Mapping[str, Any], codec: Codec, tuple_class: type) -> bytes:
        tuples: list[Any] = []
        try:
            parts = dump(what, self.fixed_parts(), codec, tuple_class, tuples)
            rows = [[tup.source_task, tup.source_stream, list(tup.values)] for tup in tuples]
            return codec.encode_rows([[FORMAT, repr(self.plan), rows, parts]])
        except SquallError:
            raise
        except Exception as error:
            raise SquallError(
                f"the windows of {self._component} hold a value that cannot be stored: {error}"
            ) from error

    def restore(
        self, data: bytes, codec: Codec, make_tuple: Callable[[int, str, list[Any]], Any]
    ) -> None:
        """Go on from what was stored. `make_tuple` gets a task, a stream and values. Raises
        SquallError if it is of another version of squall or of other windows."""
        if self.groups is not None:  # they were stored before they moved with key groups
            self.groups = None
        self.resume(self._read(data, codec, make_tuple))

    def _read(
        self, data: bytes, codec: Codec, make_tuple: Callable[[int, str, list[Any]], Any]
    ) -> Any:
        ((format_, plan, rows, parts),) = codec.decode_rows(data)
        self._check_format(format_)
        if plan != repr(self.plan):
            raise SquallError(
                f"the windows of {self._component} have changed: they were {plan}, and are now "
                f"{self.plan!r}",
                hint="keep them, or start with new checkpoints",
            )
        tuples = [make_tuple(task, stream, values) for task, stream, values in rows]
        if self._disk is not None:
            self._bounded(self._disk, [(0, tup) for tup in tuples])
            self._disk.settle()
            self._held_count += len(tuples)  # (until all are counted)
        return load(parts, self.fixed_parts(), codec, tuples)

    def changed_groups(
        self, codec: Codec, tuple_class: type
    ) -> Iterator[tuple[int, Hashable, bytes]]:
        """The key groups whose windows have changed since the last call, each with a key of it and
        what its windows hold. Raises SquallError for a value that cannot be stored."""
        assert self.groups is not None
        assert self._rest is None, "a window that has ended is not out"
        for group, (owner, operator) in self.groups.changed().items():
            yield group, owner, self._stored({"operator": operator}, codec, tuple_class)

    def progress(self, codec: Codec) -> bytes:
        """How far event time has come in this task."""
        return codec.encode_rows([[FORMAT, self._now_ms(), *self._watermarks.state()]])

    def resume_groups(
        self,
        groups: Iterable[tuple[int, Hashable, bytes, Callable[[int, str, list[Any]], Any]]],
        progress: Iterable[bytes],
        codec: Codec,
    ) -> None:
        """Go on with key groups (number, a key of it, what its windows hold, and what makes their
        tuples, as for `restore`) of other tasks, and from the furthest `progress` of these: the
        windows of a group that was not so far fire with the next call. Raises SquallError as
        `restore` does."""
        now_ms = self._now_ms()
        states = []
        for data in progress:
            ((format_, stored_ms, *state),) = codec.decode_rows(data)
            self._check_format(format_)
            states.append((state, now_ms - stored_ms))
        self._watermarks.join(states)
        found = {
            group: (owner, self._read(data, codec, make_tuple)["operator"])
            for group, owner, data, make_tuple in groups
        }
        if found and self.groups is None:
            raise SquallError(
                f"the windows of {self._component} were stored by the key groups of its input, "
                "which is grouped by fields of the windows' key no longer",
                hint="keep the grouping, or start with new checkpoints",
            )
        if self.groups is None:
            return
        self.groups.resume(found)
        held = list(self.groups.held())
        self._held_count = len(held)
        if self._disk is not None:
            self._recount_disk()
        if self._ids is not None:
            self._ids = {self._id_of(tup) for tup in held}
        if self.timestamp is not None and self._watermarks.current_ms:
            self.groups.resume_at(self._watermarks.current_ms, now_ms)
            self._is_behind = True
        self._wait_for_sessions()

    def _check_format(self, format_: Any) -> None:
        if format_ != FORMAT:
            raise SquallError(
                f"the windows of {self._component} were stored by another version of squall "
                f"(format {format_}; this one reads {FORMAT})",
                hint="finish with that version, or start with new checkpoints",
            )

    @property
    def _component(self) -> str:
        return repr(self._context.this_component_id)

    # -- commands --

    def _begin(self, outputs: Iterator[Output]) -> None:
        """Carry out what a timer has found to be done: all at once, or in slices of the engine's,
        as thousands of windows may end at the same time."""
        if self._in_slices is None:
            self._carry_out(outputs)
            return
        self._rest = self._in_steps(outputs)
        self._in_slices(self.go_on)

    def _in_steps(self, outputs: Iterator[Output]) -> Iterator[Output]:
        """The same, with releases of many tuples divided."""
        for output in outputs:
            if not isinstance(output, Release) or len(output.tuples) <= _RELEASED_MAX:
                yield output
                continue
            tuples = self._leaving = output.tuples
            try:
                for first in range(0, len(tuples), _RELEASED_MAX):
                    yield Release(tuples[first : first + _RELEASED_MAX])
            finally:
                self._leaving = ()

    def go_on(self, now: Clock, until: float) -> bool:
        """Carry out some of what a timer has begun: until it is `until` by `now`, but at least one
        window, and not too many, as the clock of a test stands still. False when nothing is left
        of it."""
        rest = self._rest
        if rest is None:
            return False
        is_left = False
        try:
            is_left = self._settling_disk(partial(self._do_until, rest, now, until))
        finally:
            if not is_left:  # what has raised has ended, too
                self._rest = None
                self._wait_for_sessions()
        if not is_left:
            self._compact()
        return is_left

    def finish(self) -> None:
        """Carry out all that a timer has begun."""
        while self._rest is not None:
            self.go_on(self._context.monotonic, math.inf)

    def _carry_out(self, outputs: Iterator[Output]) -> None:
        self._settling_disk(partial(self._do_all, outputs))
        self._compact()

    def _settling_disk(self, do: Callable[[], _T]) -> _T:
        if self._disk is None:
            return do()
        try:
            return do()
        finally:
            self._disk.settle()
            self._disk.forget()

    def _compact(self) -> None:
        if self._disk is not None and self._disk.is_wasteful:
            self._disk.compact(tup.values for tup in self._operator.held())

    def _do_all(self, outputs: Iterator[Output]) -> None:
        for output in outputs:
            self._do(output)

    def _do_until(self, outputs: Iterator[Output], now: Clock, until: float) -> bool:
        """True if some are left."""
        for done, output in enumerate(outputs, 1):
            self._do(output)
            if done >= _SLICE_MAX or now() >= until:
                return True
        return False

    def _do(self, output: Output) -> None:
        if isinstance(output, Ready):
            self._fire(output)
        elif isinstance(output, Release):
            self._ack(output.tuples)
        elif isinstance(output, Late):
            self._late(output)
        else:
            self._refuse(output.tup, output.error)

    def _fire(self, ready: Ready) -> None:
        if self._calls is not None:
            self._fire_whole(self._calls, ready)
            return
        self.anchors = ready.tuples if self._bolt.auto_anchor else ()
        try:
            if ready.error is not None:
                raise ready.error
            self._bolt._call(ready)
        except Exception as error:
            self._operator.discard(ready)
            self._release(ready.tuples)
            for tup in ready.tuples:
                self._forget(tup)
                if not getattr(tup, "settled", False):
                    self._bolt.fail(tup)
            self._bolt.report_error(error)
        finally:
            self.anchors = ()

    def _fire_whole(self, calls: Calls, ready: Ready) -> None:
        """The same with checkpoints: what the call does takes effect as a whole."""
        error = ready.error or calls.call(lambda: self._bolt._call(ready))
        if error is None:
            return
        self._operator.discard(ready)
        self._release(ready.tuples)
        for tup in ready.tuples:
            self._forget(tup)
        if not ready.tuples:  # only their total is left
            values = [ready.key, ready.total, ready.start_ms, ready.end_ms]
            calls.give_up_window(values, error)
        for tup in ready.tuples:
            calls.give_up(tup, error)

    def _late(self, late: Late) -> None:
        stream = self.plan.late_stream
        for tup in late.tuples:
            if stream is None:
                self._leave_out(tup)
            else:
                try:
                    self._bolt.emit([_detached(tup)], anchors=tup, stream=stream)
                except Exception as error:  # the bolt's own stream of this name has other fields
                    self._refuse(tup, error)
                    continue
            self._ack([tup])

    def _leave_out(self, tup: Tuple) -> None:
        """Log a late tuple: the first at once, then a line a minute. In a stream that goes on with
        older times all are late."""
        self._left_out += 1
        now_ms = self._now_ms()
        if self._left_out_next_ms is None or now_ms >= self._left_out_next_ms:
            self._left_out_next_ms = now_ms + _LEFT_OUT_MS
            self._log_left_out(tup)

    def _log_left_out(self, tup: Tuple | None = None) -> None:
        last = "" if tup is None else f", the last one {_shown(tup)}"
        self._bolt.log.warning(
            "%d late tuple(s) left out%s; late_stream keeps them, lag_secs waits for them",
            self._left_out, last,
        )  # fmt: skip
        self._left_out = 0

    def _release(self, tuples: Sequence[Tuple]) -> None:
        """Count tuples that are held no longer."""
        self._held_count -= len(tuples)
        if self._disk is not None:
            self._disk_count -= sum(type(tup.values) is DiskRow for tup in tuples)

    def _ack(self, tuples: list[Tuple]) -> None:
        self._release(tuples)
        if self._ack_rest is not None:
            self._ack_rest(tuples)
        else:
            ack = self._bolt.ack
            for tup in tuples:
                if not getattr(tup, "settled", False):  # the bolt may have acked it itself
                    ack(tup)
        if self._ids is not None:
            for tup in tuples:
                self._forget(tup)

    def _refuse(self, tup: Tuple, error: Exception) -> None:
        """Fail a tuple that is in no window."""
        self._forget(tup)
        self._release((tup,))
        self.fail(tup, error)

    def _forget(self, tup: Tuple) -> None:
        if self._ids is not None:
            self._ids.discard(self._id_of(tup))

    def _id_of(self, tup: Tuple) -> Hashable:
        values = tup.values
        if type(values) is DiskRow:
            return values.message_id
        found: Hashable = tup.get(self.plan.message_id_field or "")
        return found

    def give_up(self) -> None:
        """Fail what is held, because the worker ends."""
        if self._left_out:
            self._log_left_out()
        if self._calls is not None:
            return  # it is in the last checkpoint
        try:
            self.finish()
        finally:
            for tup in list(self._operator.held()):
                if not getattr(tup, "settled", False):
                    self._bolt.fail(tup)


def _numbers(timestamp: Callable[[Tuple], Any], tuples: Sequence[Tuple]) -> list[int]:
    """The timestamps of tuples, if all are whole numbers; otherwise none."""
    try:
        found = list(map(timestamp, tuples))
    except Exception:
        return []
    return found if set(map(type, found)) == {int} else []


def _shown(tup: Tuple) -> str:
    """A tuple for the log. Its values are users', and may have a `__repr__` that raises, or be on a
    disk that cannot be read: a tuple must not fail because of a log line."""
    try:
        return repr(tup)
    except Exception as error:
        where = f"{tup.source_component}:{tup.source_task} {tup.source_stream}"
        return f"from {where} (its values cannot be shown: {describe(error)})"


def _detached(tup: Tuple) -> dict[str, Any]:
    """A late tuple as a value."""
    return {
        "component": tup.source_component,
        "task": tup.source_task,
        "stream": tup.source_stream,
        "values": dict(zip(tup.fields, tup.values, strict=True)),
    }


def millis_of(at: Any) -> int:
    """A timestamp in milliseconds."""
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    if isinstance(at, float) and at == at and abs(at) < 2**63:
        return int(at)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"timestamp {at} has no time zone")
        return (at - _EPOCH) // timedelta(milliseconds=1)
    raise ValueError(
        f"timestamp {at!r:.100} is neither milliseconds since the epoch nor a datetime"
    )


def _timestamp_of(bolt: WindowedBolt, plan: WindowPlan) -> Callable[[Tuple], Any] | None:
    """How the time of a tuple is found; None: by when it comes."""
    if plan.timestamp_field is not None:
        return itemgetter(plan.timestamp_field)
    if type(bolt).timestamp is not WindowedBolt.timestamp:
        return bolt.timestamp
    return None


def _key_of(fields: Sequence[str]) -> Callable[[Tuple], Hashable]:
    if not fields:
        return lambda tup: None
    if len(fields) == 1:
        return itemgetter(fields[0])
    return lambda tup: tuple(tup[field] for field in fields)
