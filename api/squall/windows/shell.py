"""The shell that drives the windows of one task.

It reads the clock, starts timers, and carries out what the operators decide: it calls the bolt,
anchors what that emits to the tuples of the window, and acks tuples that no later window holds.
Until then it restarts their message timeout now and then: they wait, they are not lost.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from squall.windows.evictors import Event
from squall.windows.groups import GroupedWindows, Grouping, movable
from squall.windows.held import Held
from squall.windows.left_out import LeftOut
from squall.windows.mark_sender import MarkOut, MarkSender
from squall.windows.marks import InputMarks, Mark, State
from squall.windows.on_disk import DiskRows, RowCodec, known_key
from squall.windows.operators import Late, Operator, Output, Ready, Release, make_operator
from squall.windows.reading import key_getter, millis_of, whole_times
from squall.windows.sessions import Contents
from squall.windows.snapshot import Codec
from squall.windows.spec import WindowPlan, options_of
from squall.windows.task_windows import MakeTuple, TaskWindows
from squall.windows.watermarks import Watermarks
from squall_common.component.component import Bolt
from squall_common.component.groupings import INSTEAD
from squall_common.errors import SquallError, describe
from squall_common.names import is_system_id
from squall_common.state.errors import StateStoreError
from squall_common.state.key_checks import (
    ALWAYS_TAKEN,
    SHOWN_CHARS,
    equals_itself,
    is_always_taken,
)
from squall_common.state.keyed import ALWAYS_STORED

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple
    from squall_common.config.options.typed import TopologyOptions

_T = TypeVar("_T")
Clock = Callable[[], float]
_EXPIRE_MS_MIN = 1000
_SLICE_MAX = 1024  # windows
_RELEASED_MAX = 8192  # tuples that are acked in one go, which is cheaper than in many
RESULTS_LAG_MS = 1
"""The least lag of windows over results of windows, which they have where there are no marks."""
_KEEPS = 3  # times in a message timeout that tuples in windows are kept alive


class Calls(Protocol):
    """With checkpoints, what makes the calls of the user's code, and takes tuples for which they
    have failed. (`squall_engine.atomic.windows.WindowCalls`)"""

    @property
    def grouping(self) -> Grouping | None:
        """How the bolt's whole input is grouped by fields; None: it is not."""
        ...

    def check_key(self, key: Hashable) -> None:
        """Raises SquallError for a key that could not be stored."""
        ...

    def check_storable(self, what: Any, called: str) -> None:
        """Raises SquallError for what a snapshot could not have."""
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


class DrivenBolt(Bolt):
    """A bolt whose windows a `Shell` drives: what the shell, the engine and a driver use of it.
    Users derive from `WindowedBolt`."""

    _squall_shell: Shell
    _squall_driven = False  # by `DrivenWindows`
    _squall_windowed: ClassVar[bool] = True  # for checkpoints: the engine knows it by this
    _squall_calls: Calls | None = None  # with checkpoints
    _squall_emit: Callable[..., Sequence[int]] | None = None  # the collector's, when it is bound
    _squall_codec: Callable[[], RowCodec] | None = None  # the engine's, for values on disk
    # The engine's, which acks what is not settled in one call. None: one after the other.
    _squall_ack_rest: Callable[[list[Tuple]], None] | None = None
    # The engine's, which calls what it is given slice by slice, until that returns False, and gives
    # the bolt no tuple before: see `Shell.go_on`. None: timers do all their work at once.
    _squall_in_slices: Callable[[Callable[[Clock, float], bool]], None] | None = None
    # The engine's: the components whose marks of event time it gets, and where its own go.
    _squall_marks_from: Sequence[str] = ()
    _squall_marks: MarkOut | None = None
    #: Whether its windows need their tuples, and not just totals.
    _squall_reads_tuples: ClassVar[bool] = True

    def execute_tick(self, tup: Tuple) -> None:
        raise NotImplementedError

    def _squall_mark(self, component: str, task: int, values: Sequence[Any]) -> None:
        """For the engine: a mark has come."""
        self._squall_shell.marked(component, task, Mark(*values))

    def _timestamp_of(self, plan: WindowPlan) -> Callable[[Tuple], Any] | None:
        """How the time of a tuple is found; None: by when it comes."""
        raise NotImplementedError

    def _contents(self) -> Contents | None:
        """How its windows aggregate; None if they hold their tuples."""
        return None

    def _call(self, ready: Ready) -> None:
        """Call the user's code for a window."""
        raise NotImplementedError


class Shell:
    """The windows of one task, on the clock and the collector."""

    def __init__(self, bolt: DrivenBolt, context: TopologyContext) -> None:
        options = options_of(context.conf)
        plan = WindowPlan.read(options)
        self._bolt = bolt
        self._calls = bolt._squall_calls
        self.revision = 0  # changes with what the windows hold
        self._left_out = LeftOut(bolt.log)
        self.plan = plan
        self._context = context
        # An `ack` of the bolt's own gets each tuple.
        self._ack_rest = bolt._squall_ack_rest if type(bolt).ack is Bolt.ack else None
        self._start_ms = int(context.time() * 1000)
        self._start_secs = context.monotonic()
        self.timestamp = bolt._timestamp_of(plan)
        event_time = self.timestamp is not None
        contents = bolt._contents()
        self._keeps_tuples = contents is None
        problems = plan.problems(event_time=event_time, aggregates=contents is not None)
        problems += self._unfilled(options)
        if problems:
            raise SquallError(f"bolt {context.this_component_id!r}: {'; '.join(problems)}")
        self._key_of = key_getter(plan.key)
        disk = self._opened_disk(options)
        if disk is not None and plan.key:
            self._key_of = known_key(self._key_of)
        inputs = [(one.component, one.stream) for one in context.this_sources]
        self._held = Held(
            plan.message_id_field,
            self._key_of,
            bolt.log,
            disk=disk,
            in_memory_max=options.topology_bolts_window_tuples_in_memory_max or 0,
        )
        self.windows = TaskWindows(
            context.this_component_id,
            plan,
            self._made(plan, contents),
            Watermarks(
                [one for one in inputs if not is_system_id(one[0])],
                lag_ms=plan.lag_ms,
                idle_ms=plan.idle_ms,
                now_ms=self._start_ms,
            ),
            self._held,
            key_of=self._key_of,
            contents=contents,
            event_time=event_time,
            now_ms=self._start_ms,
        )
        self.anchors: Sequence[Tuple] = ()
        self._marks = self._input_marks(inputs) if event_time else None
        self._has_advanced = False  # without marks of others: since the last reminder
        self._sender: MarkSender | None = None
        if event_time and not bolt._squall_driven:
            self._sender = MarkSender(bolt, context, plan.watermark_ms, self._own_marks)
        self._in_slices = None if bolt._squall_driven else bolt._squall_in_slices
        self._rest: Iterator[Output] | None = None  # of what a timer has begun: see `go_on`
        self._leaving: Sequence[Tuple] = ()  # released in pieces, of which some may be left
        self._session_timer_ms: int | None = None
        if not bolt._squall_driven:
            self._start_timers(options, event_time=event_time)

    def _made(self, plan: WindowPlan, contents: Contents | None) -> Operator:
        calls, event_time = self._calls, self.timestamp is not None
        make = partial(
            make_operator,
            plan,
            self._key_of,
            contents,
            event_time=event_time,
            hold=self._holds,
            start_ms=self._start_ms,
        )
        if calls is not None and calls.grouping is not None and movable(plan, calls.grouping):
            return GroupedWindows(make, calls.grouping, event_time=event_time)
        return make()

    def _input_marks(self, inputs: Sequence[tuple[str, str]]) -> InputMarks | None:
        """The marks of its inputs, if all have some."""
        plan, sources = self.plan, self._bolt._squall_marks_from
        if not inputs or any(component not in sources for component, _ in inputs):
            return None
        return InputMarks(
            {one: self._context.component_tasks(one[0]) for one in inputs},
            idle_ms=plan.idle_ms,
            interval_ms=plan.watermark_ms,
            now_ms=self._start_ms,
            lag_ms=plan.lag_ms,
            apart=True,
        )

    @property
    def _holds(self) -> bool:
        """Whether tuples stay in the windows."""
        bolt = self._bolt
        return getattr(bolt, "hold", True) and (self._calls is None or bolt._squall_reads_tuples)

    def _opened_disk(self, options: TopologyOptions) -> DiskRows | None:
        """Where values are above the bound; None: there is none, or nothing to be held. (What is
        driven has its memory from others, and says how much that is.)"""
        make_codec = self._bolt._squall_codec
        in_memory_max = options.topology_bolts_window_tuples_in_memory_max
        if not in_memory_max or make_codec is None or not self._holds:
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
        found = {"tuples": self._held.count}
        if self._held.disk is not None:
            found["tuples_on_disk"] = self._held.on_disk
            found["bytes_on_disk"] = self._held.disk.file_bytes
        if self.groups is not None:
            found["key_groups"] = self.groups.count
        return found

    @property
    def entries(self) -> int:
        """How many keys have an open window; where a queue holds the tuples of all keys, these
        tuples. It takes no time for each."""
        keys = self.windows.operator.keys
        return self._held.count if keys is None else keys

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
        if self.windows.is_behind:
            self._catch_up(now_ms)
        tuples = self._keyed(tuples)
        if self._calls is not None and self._keeps_tuples:
            tuples = self._storable(self._calls, tuples)
        tuples = self._admitted(tuples)
        if self.timestamp is None:
            events = [(now_ms, tup) for tup in tuples]
        else:
            events = self._timed(tuples, now_ms)
        if self._held.disk is not None:
            events = self._bounded(events)
        self._held.count += len(events)
        if events:
            self._carry_out(self.windows.operator.add(events, now_ms))
        self._wait_for_sessions()

    def _bounded(self, events: list[Event]) -> list[Event]:
        """Events that are about to be held, those above the bound with their values on disk. If
        that fails, these have failed and are left out; with checkpoints StateStoreError is raised,
        as no tuple is at fault."""
        room = self._held.room
        going = [tup for _, tup in events[room:]]
        try:
            self._held.put_on_disk(going)
        except StateStoreError as error:
            if self._calls is not None:
                raise
            self._bolt.report_error(error)
            for tup in going:
                self._held.forget(tup)
                self._bolt.fail(tup)
            return events[:room]
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
                keys = set(map(key_of, tuples))  # each has a key, and the key a hash
                if not ALWAYS_TAKEN.issuperset(map(type, keys)):
                    for key in keys:
                        self._check_key(key)
                return tuples
        found = []
        for tup in tuples:
            try:
                key = key_of(tup)
                hash(key)
                self._check_key(key)
                if id_field:
                    hash(tup.get(id_field))
            except Exception as error:
                hint = error.hint if isinstance(error, SquallError) else None
                refused = SquallError(
                    f"a tuple of {tup.source_component!r} is in no window, because of its key "
                    f"or message id: {describe(error)}",
                    hint=hint or "both consist of numbers, text and other values with a hash",
                )
                self.fail(tup, refused)
            else:
                found.append(tup)
        return found

    def _storable(self, calls: Calls, tuples: list[Tuple]) -> list[Tuple]:
        """The tuples that a snapshot of the windows can have. The others are dead letters: in the
        snapshot that comes later, none could be one."""
        values = chain.from_iterable(tup.values for tup in tuples)
        if ALWAYS_STORED.issuperset(map(type, values)):
            return tuples
        found = []
        for tup in tuples:
            try:
                calls.check_storable(list(tup.values), "a tuple")
            except SquallError as error:
                self.fail(tup, error)
            else:
                found.append(tup)
        return found

    def _check_key(self, key: Any) -> None:
        """Raises SquallError for a key that no other tuple has, or that could not be stored."""
        if is_always_taken(key):
            return
        fields = self.plan.key
        for field, value in zip(fields, key if len(fields) > 1 else (key,), strict=True):
            if not equals_itself(value):
                raise SquallError(
                    f"{value!r:.{SHOWN_CHARS}}, of field {field!r}, is not equal to itself",
                    hint=INSTEAD,
                )
        if self._calls is not None:
            self._calls.check_key(key)

    def _admitted(self, tuples: list[Tuple]) -> list[Tuple]:
        """The tuples that are not replays of what is held, as far as there is room."""
        if self._held.ids is not None:
            field, ids = self.plan.message_id_field, self._held.ids
            admitted = []
            for tup in tuples:
                found = tup.get(field or "")
                if found is not None and found in ids:
                    self._bolt.ack(tup)
                else:
                    ids.add(found)
                    admitted.append(tup)
            tuples = admitted
        room = max(0, self.plan.tuples_max - self._held.count)
        if len(tuples) > room:
            full = SquallError(
                f"the windows hold {self._held.count:,} tuples, so {len(tuples) - room:,} more "
                "have failed",
                hint="raise topology.bolts.window.tuples.max, give the bolt more tasks, or "
                "use an AggregateBolt with hold = False",
            )
            self._bolt.report_error(full)
            for tup in tuples[room:]:
                self._held.forget(tup)
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
        watermarks, lateness = self.windows.watermarks, self.plan.lateness_ms
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
            times = whole_times(timestamp, tuples)
            if times and min(times) >= first_ms:  # all are in time
                if self._marks is None:
                    inputs = (source.source_component, source.source_stream)
                    watermarks.track(inputs, max(times), now_ms)
                return list(zip(times, tuples, strict=True))
        for tup in tuples:
            try:
                at_ms = timestamp(tup)
                if type(at_ms) is not int:
                    at_ms = millis_of(at_ms)
            except Exception as error:
                self._held.forget(tup)
                self.fail(tup, error)
                continue
            if latest_ms is None or at_ms > latest_ms:
                latest_ms = at_ms
            (events if at_ms >= first_ms else late).append((at_ms, tup))
        if latest_ms is not None and source is not None and self._marks is None:
            watermarks.track((source.source_component, source.source_stream), latest_ms, now_ms)
        if self._held.disk is not None:
            late = self._bounded(late)
        for event in late:
            self._held.count += 1
            self._carry_out(self.windows.operator.add_late(event, now_ms))
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
        if self._marks is not None:
            self._marks.pass_time(now_ms)
        self._advance(now_ms)
        if self._sender is not None:
            self._sender.remind()

    def marked(self, component: str, task: int, mark: Mark) -> None:
        """A task before this one has said how far it is: behind all values that it has emitted
        before, as all that a timer has begun is finished before an inbox is taken."""
        if self._marks is None:
            return
        self.finish()
        now_ms = self._now_ms()
        self._marks.told(component, task, mark, now_ms)
        self._advance(now_ms)

    def _advance(self, now_ms: int) -> None:
        """Advance the watermark as far as it goes, and fire what ends with it."""
        if self.windows.is_behind:
            self._catch_up(now_ms)
        watermarks = self.windows.watermarks
        if self._marks is None:
            watermark_ms = watermarks.advance(now_ms)
        else:
            watermark_ms = watermarks.advance_to(self._marks.at_ms(now_ms))
        if watermark_ms is not None:
            self.revision += 1
            self._has_advanced = True
            self._begin(self.windows.operator.advance(watermark_ms, now_ms))
        if self._sender is not None:
            self._sender.send_soon()

    def _own_marks(self) -> Iterable[Mark] | None:
        """What it says of its results, which have the time of the end of their window; None: some
        that are before the watermark are not out yet."""
        if self._rest is not None or self.windows.is_behind:
            return None
        at_ms = self.windows.watermarks.current_ms or None
        if self._marks is not None:
            state = self._marks.state
        else:
            state = State.ACTIVE if self._has_advanced else State.SILENT
            self._has_advanced = False
        return [Mark("default", at_ms, max(self.plan.lag_ms, RESULTS_LAG_MS), state)]

    def _catch_up(self, now_ms: int) -> None:
        """Fire the windows of key groups whose task was behind this one's watermark."""
        self.windows.is_behind = False
        self._carry_out(self.windows.operator.advance(self.windows.watermarks.current_ms, now_ms))

    def _advance_clock(self) -> None:
        if self._rest is not None:
            return  # at the next interval
        self.revision += 1
        now_ms = self._now_ms()
        self._begin(self.windows.operator.advance(now_ms, now_ms))

    def _wait_for_sessions(self) -> None:
        """Wait for the end of the first session, by the clock."""
        if self.plan.gap_ms is None or self.timestamp is not None or self._bolt._squall_driven:
            return
        if self._rest is not None:
            return  # called again when the sessions that have ended are out
        next_ms = self.windows.operator.next_ms
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
        held = list(self.windows.operator.held())
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
            passed = (self._now_ms() - self.windows.caught_up_ms) // interval_ms
            if passed <= 0:
                return
            self.windows.caught_up_ms += passed * interval_ms
        self._advance_clock()

    def end_input(self) -> None:
        """Fire the windows in event time that hold something: no tuple will come."""
        plan = self.plan
        if self.timestamp is not None:
            # As far as a window may go beyond its last tuple. Windows of a number of tuples would
            # fire at every interval from then on, with the same tuples.
            after_ms = plan.length_ms or plan.gap_ms or (plan.slide_ms or 1) - 1
            watermark_ms = self.windows.watermarks.end(after_ms)
            if watermark_ms is not None:
                self._carry_out(self.windows.operator.advance(watermark_ms, self._now_ms()))

    # -- for checkpoints, and programs that drive windows: between two batches --

    @property
    def groups(self) -> GroupedWindows | None:
        """The windows, if they move with key groups."""
        return self.windows.groups

    def stored(self, codec: Codec, tuple_class: type) -> bytes:
        """All that the windows hold. Raises SquallError for a value that cannot be stored."""
        self._require_rest_done()
        return self.windows.stored(codec, tuple_class, self._now_ms())

    def restore(self, data: bytes, codec: Codec, make_tuple: MakeTuple) -> None:
        """Go on from what was stored. Raises SquallError if it is of another version of squall or
        of other windows."""
        self.windows.restore(data, codec, make_tuple, self._now_ms())
        self._wait_for_sessions()

    def changed_groups(
        self, codec: Codec, tuple_class: type
    ) -> Iterator[tuple[int, Hashable, bytes]]:
        """As `TaskWindows.changed_groups`."""
        self._require_rest_done()
        return self.windows.changed_groups(codec, tuple_class)

    def progress(self, codec: Codec) -> bytes:
        """As `TaskWindows.progress`."""
        return self.windows.progress(codec, self._now_ms())

    def resume_groups(
        self,
        stored: Iterable[tuple[int, Hashable, bytes, MakeTuple]],
        progress: Iterable[bytes],
        codec: Codec,
    ) -> None:
        """As `TaskWindows.resume_groups`."""
        self.windows.resume_groups(stored, progress, codec, self._now_ms())
        self._wait_for_sessions()

    def _require_rest_done(self) -> None:
        assert self._rest is None, "a window that has ended is not out"

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
                if self._sender is not None:
                    self._sender.send_soon()
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
        disk = self._held.disk
        if disk is None:
            return do()
        try:
            return do()
        finally:
            disk.settle()
            disk.forget()

    def _compact(self) -> None:
        disk = self._held.disk
        if disk is not None and disk.is_wasteful:
            disk.compact(tup.values for tup in self.windows.operator.held())

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
            self.windows.operator.discard(ready)
            self._held.release(ready.tuples)
            for tup in ready.tuples:
                self._held.forget(tup)
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
        self.windows.operator.discard(ready)
        self._held.release(ready.tuples)
        for tup in ready.tuples:
            self._held.forget(tup)
        if not ready.tuples:  # only their total is left
            values = [ready.key, ready.total, ready.start_ms, ready.end_ms]
            calls.give_up_window(values, error)
        for tup in ready.tuples:
            calls.give_up(tup, error)

    def _late(self, late: Late) -> None:
        stream = self.plan.late_stream
        for tup in late.tuples:
            if stream is None:
                self._left_out.add(tup, self._now_ms())
            else:
                try:
                    self._bolt.emit([_detached(tup)], anchors=tup, stream=stream)
                except Exception as error:  # the bolt's own stream of this name has other fields
                    self._refuse(tup, error)
                    continue
            self._ack([tup])

    def _ack(self, tuples: list[Tuple]) -> None:
        self._held.release(tuples)
        if self._ack_rest is not None:
            self._ack_rest(tuples)
        else:
            ack = self._bolt.ack
            for tup in tuples:
                if not getattr(tup, "settled", False):  # the bolt may have acked it itself
                    ack(tup)
        if self._held.ids is not None:
            for tup in tuples:
                self._held.forget(tup)

    def _refuse(self, tup: Tuple, error: Exception) -> None:
        """Fail a tuple that is in no window."""
        self._held.forget(tup)
        self._held.release((tup,))
        self.fail(tup, error)

    def give_up(self) -> None:
        """Fail what is held, because the worker ends."""
        self._left_out.end()
        if self._calls is not None:
            return  # it is in the last checkpoint
        try:
            self.finish()
        finally:
            for tup in list(self.windows.operator.held()):
                if not getattr(tup, "settled", False):
                    self._bolt.fail(tup)


def _detached(tup: Tuple) -> dict[str, Any]:
    """A late tuple as a value."""
    return {
        "component": tup.source_component,
        "task": tup.source_task,
        "stream": tup.source_stream,
        "values": dict(zip(tup.fields, tup.values, strict=True)),
    }
