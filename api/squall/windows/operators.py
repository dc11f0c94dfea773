"""The kinds of windows behind one interface, for the bolt's shell.

    QueueWindows       all tuples of a window, Storm's way; one queue, or with a length in tuples
                       and a key, one for each key
    SessionTuples      all tuples of a session
    AggregateTime      aggregates of tumbling and sliding windows in time
    AggregateCount     aggregates of windows whose length and interval are in tuples
    AggregateSession   aggregates of sessions

What comes of a call is a series of commands for the shell, in order: `Ready` (hand a window to the
bolt), `Release` (these tuples are in no later window), `Late` (no window takes them) and `Refused`
(the bolt's own code raised for a tuple). The shell carries each out before it asks for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import gcd
from typing import Any, NamedTuple, Protocol

from squall.windows.evictors import (
    CountEvictor,
    Event,
    Evictor,
    TimeEvictor,
    WatermarkCountEvictor,
    WatermarkTimeEvictor,
)
from squall.windows.lateness import LateFirings
from squall.windows.manager import Command, Expire, Fire, WindowManager
from squall.windows.panes import NOTHING, Aggregated, AggregateWindows, Panes
from squall.windows.sessions import Contents, Session, SessionWindows
from squall.windows.spec import WindowPlan
from squall.windows.triggers import (
    CountTrigger,
    WatermarkCountTrigger,
    WatermarkTimeTrigger,
    WatermarkTrigger,
)

_REPEATS_MAX = 10_000
_FEW_PANES = 16  # which are all looked at for each key

KeyOf = Callable[[Any], Hashable]


class Left:
    """What was in the window before, and what has left since; shared by the keys of a window."""

    def __init__(
        self, before: Iterable[Event], expired: Sequence[Any], key_of: KeyOf | None
    ) -> None:
        """`key_of` is None where all that has left is of one key."""
        self._before, self._expired, self._key_of = before, expired, key_of

    @cached_property
    def known(self) -> set[int]:
        """The ids of the tuples that were in the window before."""
        return {id(item) for _, item in self._before}

    def of(self, key: Hashable) -> Sequence[Any]:
        """What has left, of this key."""
        return self._expired if self._key_of is None else self._by_key.get(key, ())

    @cached_property
    def _by_key(self) -> dict[Hashable, list[Any]]:
        assert self._key_of is not None
        return _by_key(self._expired, self._key_of)


class Ready(NamedTuple):  # made in a third of the time that a frozen dataclass takes
    """A window of one key is complete. `tuples` are all that it holds (of an aggregate, those that
    are held for it), `total` what they add up to, or `error` what `merge` raised instead."""

    key: Hashable
    tuples: list[Any]
    start_ms: int | None
    end_ms: int
    total: Any = None
    left: Left | None = None
    late: bool = False
    error: Exception | None = None


# A `Ready` of a tuple of all that it has: its constructor in Python takes twice as long.
_ready_of: Callable[[tuple[Any, ...]], Ready] = partial(tuple.__new__, Ready)


@dataclass(frozen=True, slots=True)
class Release:
    """These tuples are in no later window."""

    tuples: list[Any]


@dataclass(frozen=True, slots=True)
class Late:
    """No window takes these tuples, or has taken them."""

    tuples: list[Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """A tuple that is in no window, because the bolt's `init`, `add` or `merge` raised for it."""

    tup: Any
    error: Exception


Output = Ready | Release | Late | Refused


class Operator(Protocol):
    """Windows of one kind, of one task. All times are milliseconds."""

    def add(self, events: list[Event], now_ms: int) -> Iterator[Output]:
        """Add tuples that are not late, in the order in which they came."""
        ...

    def add_late(self, event: Event, now_ms: int) -> Iterator[Output]:
        """Add a tuple that is later than the watermark."""
        ...

    def advance(self, time_ms: int, now_ms: int) -> Iterator[Output]:
        """Advance the watermark; without event time, the clock."""
        ...

    def skip_to(self, watermark_ms: int) -> None:
        """Without having had a tuple yet, take the windows up to the watermark as fired: what comes
        for them is late."""

    def discard(self, ready: Ready) -> None:
        """Forget the tuples of a window, because they have failed."""

    def held(self) -> Iterable[Any]:
        """All tuples that are neither released nor late."""
        ...

    @property
    def keys(self) -> int | None:
        """How many keys have an open window, at once; None: it would have to count them."""
        ...

    @property
    def next_ms(self) -> int | None:
        """When the next session may end; None for other kinds, which end at regular times."""
        ...


def make_operator(
    plan: WindowPlan,
    key_of: KeyOf,
    contents: Contents | None,
    *,
    event_time: bool,
    hold: bool,
    start_ms: int,
) -> Operator:
    """The windows that a configuration describes. `contents` aggregates; None: all tuples."""
    if plan.gap_ms is not None:
        if contents is None:
            return SessionTuples(plan.gap_ms, plan.lateness_ms, key_of)
        return AggregateSession(plan.gap_ms, plan.lateness_ms, key_of, contents, hold=hold)
    if contents is None:
        return QueueWindows(plan, key_of, event_time=event_time)
    if plan.length_ms is not None:
        offset_ms = None if event_time else start_ms
        return AggregateTime(plan, key_of, contents, hold=hold, offset_ms=offset_ms)
    return AggregateCount(plan, key_of, contents, hold=hold)


def _by_key(tuples: Iterable[Any], key_of: KeyOf) -> dict[Hashable, list[Any]]:
    found: dict[Hashable, list[Any]] = {}
    for tup in tuples:
        key = key_of(tup)
        mine = found.get(key)
        if mine is None:
            mine = found[key] = []
        mine.append(tup)
    return found


# -- all tuples of a window --


def make_manager(plan: WindowPlan, *, event_time: bool) -> WindowManager:
    """Storm's evictor and trigger for these lengths and intervals."""
    evictor: Evictor
    if plan.length_count is not None:
        count = plan.length_count
        evictor = WatermarkCountEvictor(count) if event_time else CountEvictor(count)
    else:
        assert plan.length_ms is not None
        length_ms = plan.length_ms
        if event_time:
            evictor = WatermarkTimeEvictor(length_ms, plan.lag_ms)
        else:
            evictor = TimeEvictor(length_ms)
    trigger: CountTrigger | WatermarkTrigger | None = None
    if plan.slide_count is not None:
        slide = plan.slide_count
        trigger = WatermarkCountTrigger(slide) if event_time else CountTrigger(slide)
    elif event_time:
        assert plan.slide_ms is not None
        repeats = plan.length_count is not None  # its windows never become empty
        trigger = WatermarkTimeTrigger(plan.slide_ms, _REPEATS_MAX if repeats else None)
    return WindowManager(evictor, trigger, slide_ms=plan.slide_ms)


class QueueWindows:
    """All tuples of each window.

    With a key, windows whose length and interval are in time share one queue, and what fires is
    divided by key: the windows of all keys begin and end at the same times. Otherwise each key has
    a queue.
    """

    def __init__(self, plan: WindowPlan, key_of: KeyOf, *, event_time: bool) -> None:
        self._plan = plan
        self._key_of = key_of
        self._event_time = event_time
        in_time = plan.length_ms is not None and plan.slide_ms is not None
        self._shared = in_time or not plan.key
        self._managers: dict[Hashable, WindowManager] = {}
        if self._shared:
            self._managers[None] = make_manager(plan, event_time=event_time)
        self._releases_at_once = plan.tumbles and not plan.lateness_ms
        self._lateness: LateFirings | None = None
        if plan.lateness_ms:
            assert plan.length_ms is not None
            assert plan.slide_ms is not None
            self._lateness = LateFirings(plan.length_ms, plan.slide_ms, plan.lateness_ms)
        self._watermark_ms = 0
        self._failed: list[Any] = []  # of the windows that fire now: to be discarded together

    def add(self, events: list[Event], now_ms: int) -> Iterator[Output]:
        if self._shared:
            manager = self._managers[None]
            yield from self._outputs(None, manager, manager.add(events, now_ms))
            return
        key_of = self._key_of
        for event in events:
            key = key_of(event[1])
            found = self._managers.get(key)
            if found is None:
                found = make_manager(self._plan, event_time=self._event_time)
                self._managers[key] = found
            yield from self._outputs(key, found, found.add((event,), now_ms))
            if self._releases_at_once and not self._event_time and not found.events:
                del self._managers[key]  # its window has just fired: a new one is in the same state

    def add_late(self, event: Event, now_ms: int) -> Iterator[Output]:
        if self._lateness is None or not self._lateness.accepts(event[0], self._watermark_ms):
            yield Late([event[1]])
            return
        manager = self._managers[None]
        assert self._plan.length_ms is not None
        assert self._plan.slide_ms is not None
        slide_ms = self._plan.slide_ms
        fired_ms = self._watermark_ms // slide_ms * slide_ms
        # Windows that have not fired yet hold it, too, if they begin before it.
        if event[0] > fired_ms + slide_ms - self._plan.length_ms:
            manager.add_late(event)
        else:
            self._lateness.keep([event])
        key_of = self._key_of
        key = key_of(event[1])
        mine = [one for one in manager.events if key_of(one[1]) == key]
        for fire in self._lateness.fire(event, mine, fired_ms, key_of):
            tuples = [item for _, item in fire.events]
            start_ms = fire.reference_ms - self._plan.length_ms
            left = Left(fire.before, (), None)
            yield Ready(key, tuples, start_ms, fire.reference_ms, None, left, late=True)
            if self._failed:
                break  # with the late tuple
        self._discard_failed(manager)

    def advance(self, time_ms: int, now_ms: int) -> Iterator[Output]:
        if self._event_time:
            self._watermark_ms = time_ms
        for key, manager in list(self._managers.items()):
            if self._event_time:
                commands = manager.watermark(time_ms, now_ms)
            elif self._plan.slide_ms is not None:
                commands = manager.clock(now_ms)
            else:
                commands = manager.expire(now_ms)
            yield from self._outputs(key, manager, commands)
            if not manager.events and not self._shared:
                del self._managers[key]
        if self._lateness is not None:
            self._managers[None].skip_to(time_ms)
            gone = self._lateness.release(time_ms)
            if gone:
                yield Release(gone)

    def skip_to(self, watermark_ms: int) -> None:
        if self._shared:
            self._managers[None].begin_behind(watermark_ms)

    def discard(self, ready: Ready) -> None:
        self._failed += ready.tuples

    def _discard_failed(self, manager: WindowManager) -> None:
        """Once for all keys: each time costs as much as the whole queue."""
        failed, self._failed = self._failed, []
        if failed:
            manager.discard(failed)
            if self._lateness is not None:
                self._lateness.discard(failed)

    @property
    def keys(self) -> int | None:
        return None if self._shared else len(self._managers)

    @property
    def next_ms(self) -> int | None:
        return None

    def held(self) -> Iterable[Any]:
        for manager in self._managers.values():
            yield from manager.items
        if self._lateness is not None:
            yield from self._lateness.items

    def _outputs(
        self, key: Hashable, manager: WindowManager, commands: Iterator[Command]
    ) -> Iterator[Output]:
        for command in commands:
            if isinstance(command, Fire):
                yield from self._ready(key, manager, command)
            else:
                yield from self._expired(command)

    def _expired(self, expire: Expire) -> Iterator[Output]:
        missed = expire.missed
        if missed:
            yield Late(missed)
        gone = set(map(id, missed))
        left = [event for event in expire.events if id(event[1]) not in gone]
        if self._lateness is not None:
            self._lateness.keep(left)
        elif left:
            yield Release([item for _, item in left])

    def _ready(self, key: Hashable, manager: WindowManager, fire: Fire) -> Iterator[Output]:
        length_ms = self._plan.length_ms
        start_ms = None if length_ms is None else fire.reference_ms - length_ms
        tuples = [item for _, item in fire.events]
        divides = self._shared and bool(self._plan.key)
        left = Left(fire.before, fire.expired, self._key_of if divides else None)
        divided = _by_key(tuples, self._key_of) if divides else {key: tuples}
        for one, mine in divided.items():
            yield Ready(one, mine, start_ms, fire.reference_ms, None, left)
        self._discard_failed(manager)
        if self._releases_at_once:  # no later window holds them
            retired = manager.retire()
            if retired:
                yield Release(retired)


# -- sessions --


class _Tuples:
    """The contents of a window: its tuples."""

    def of(self, item: Any) -> list[Any]:
        return [item]

    def add(self, contents: list[Any], item: Any) -> list[Any]:
        contents.append(item)
        return contents

    def extend(self, contents: list[Any], items: Sequence[Any]) -> list[Any]:
        contents += items
        return contents

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


class _Sessions:
    """What all kinds of sessions have in common."""

    def __init__(self, gap_ms: int, lateness_ms: int, key_of: KeyOf, contents: Contents) -> None:
        self._sessions = SessionWindows(contents, gap_ms, lateness_ms)
        self._key_of = key_of

    def add(self, events: list[Event], now_ms: int) -> Iterator[Output]:
        sessions, key_of = self._sessions, self._key_of
        by_key: dict[Hashable, list[Event]] = {}
        for event in events:
            key = key_of(event[1])
            if key in by_key:
                by_key[key].append(event)
            else:
                by_key[key] = [event]
        holds = self._holds
        for key, mine in by_key.items():
            if sessions.prolong(key, mine):
                if not holds:
                    yield Release([tup for _, tup in mine])
                continue
            for event in mine:
                try:
                    accepted, fires = sessions.add(key, *event)
                except Exception as error:
                    yield Refused(event[1], error)
                    continue
                if not accepted:
                    yield Late([event[1]])
                    continue
                if not holds:
                    yield Release([event[1]])
                if fires is not None:
                    yield self._ready(fires, late=True)

    def add_late(self, event: Event, now_ms: int) -> Iterator[Output]:
        return self.add([event], now_ms)  # a session decides by itself

    def advance(self, time_ms: int, now_ms: int) -> Iterator[Output]:
        for session, leaves in self._sessions.advance(time_ms):
            if leaves:
                yield from self._leave(session)
            else:
                yield self._ready(session, late=False)

    def skip_to(self, watermark_ms: int) -> None:
        pass  # a session decides by itself

    def discard(self, ready: Ready) -> None:
        for session in self._sessions.sessions_of(ready.key):
            if session.start_ms == ready.start_ms and session.end_ms == ready.end_ms:
                self._sessions.close(session)
                return

    @property
    def keys(self) -> int | None:
        return self._sessions.keys

    @property
    def next_ms(self) -> int | None:
        return self._sessions.next_ms

    def held(self) -> Iterable[Any]:
        for session in self._sessions.sessions:
            yield from self._tuples(session)

    @property
    def _holds(self) -> bool:
        """Whether tuples stay until their session leaves."""
        return True

    def _leave(self, session: Session) -> Iterator[Output]:
        tuples = self._tuples(session)
        if tuples:
            yield Release(tuples)

    def _tuples(self, session: Session) -> list[Any]:
        raise NotImplementedError

    def _ready(self, session: Session, *, late: bool) -> Ready:
        raise NotImplementedError


class SessionTuples(_Sessions):
    """All tuples of each session."""

    def __init__(self, gap_ms: int, lateness_ms: int, key_of: KeyOf) -> None:
        super().__init__(gap_ms, lateness_ms, key_of, _Tuples())

    def _tuples(self, session: Session) -> list[Any]:
        found: list[Any] = session.contents
        return found

    def _ready(self, session: Session, *, late: bool) -> Ready:
        tuples = list(session.contents)
        return Ready(session.key, tuples, session.start_ms, session.end_ms, late=late)


class _Holding:
    """The contents of a window that aggregates, and of the tuples that it holds until then."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def of(self, item: Any) -> tuple[Any, list[Any]]:
        return self._contents.of(item), [item]

    def add(self, contents: tuple[Any, list[Any]], item: Any) -> tuple[Any, list[Any]]:
        total, held = self._contents.add(contents[0], item), contents[1]
        held.append(item)
        return total, held

    @property
    def extend(self) -> Callable[[tuple[Any, list[Any]], list[Any]], Any] | None:
        return None if getattr(self._contents, "extend", None) is None else self._extend

    def _extend(self, contents: tuple[Any, list[Any]], items: list[Any]) -> tuple[Any, list[Any]]:
        total, held = contents
        extend: Any = getattr(self._contents, "extend", None)
        total = extend(total, items)
        held += items
        return total, held

    def merge(
        self, first: tuple[Any, list[Any]], second: tuple[Any, list[Any]]
    ) -> tuple[Any, list[Any]]:
        return self._contents.merge(first[0], second[0]), first[1] + second[1]


class AggregateSession(_Sessions):
    """Aggregates of sessions."""

    def __init__(
        self, gap_ms: int, lateness_ms: int, key_of: KeyOf, contents: Contents, *, hold: bool
    ) -> None:
        self._hold = hold
        super().__init__(gap_ms, lateness_ms, key_of, _Holding(contents) if hold else contents)

    @property
    def _holds(self) -> bool:
        return self._hold

    def _tuples(self, session: Session) -> list[Any]:
        return session.contents[1] if self._hold else []

    def _ready(self, session: Session, *, late: bool) -> Ready:
        total, held = session.contents if self._hold else (session.contents, ())
        start_ms, end_ms = session.start_ms, session.end_ms
        return _ready_of((session.key, list(held), start_ms, end_ms, total, None, late, None))


# -- aggregates of tumbling and sliding windows --


class AggregateTime:
    """Aggregates of windows in time. By the clock, the first window begins at `offset_ms`; in event
    time it is None."""

    def __init__(
        self,
        plan: WindowPlan,
        key_of: KeyOf,
        contents: Contents,
        *,
        hold: bool,
        offset_ms: int | None,
    ) -> None:
        assert plan.length_ms is not None
        assert plan.slide_ms is not None
        self._windows = AggregateWindows(contents, plan.length_ms, plan.slide_ms, plan.lateness_ms)
        self._length_ms = plan.length_ms
        self._lateness_ms = plan.lateness_ms
        self._key_of = key_of
        # A tuple of the very millisecond at which a window ends by the clock is in the next one.
        self._by_clock = offset_ms is not None
        self._shift_ms = 0 if offset_ms is None else 1 - offset_ms
        self._watermark_ms = 0
        # By pane, and in it by key.
        self._held: dict[int, dict[Hashable, list[Any]]] | None = {} if hold else None
        self._released = 0  # the pane before which nothing was held at the last release

    def add(self, events: list[Event], now_ms: int) -> Iterator[Output]:
        divided, late = self._divided(events)
        windows, held = self._windows, self._held
        added: list[Any] = []
        for pane, by_key in divided.items():
            mine = None if held is None else held.get(pane, {})
            for key, tuples in by_key.items():
                refused = windows.add_all(key, pane, tuples)
                if refused:
                    gone = {id(tup) for tup, _ in refused}
                    tuples = [tup for tup in tuples if id(tup) not in gone]
                if mine is None:
                    added += tuples
                elif key in mine:
                    mine[key] += tuples
                elif tuples:
                    mine[key] = tuples
                    if held is not None:  # (only now: nothing frees a pane that has no tuple)
                        held[pane] = mine
                for tup, error in refused:
                    yield Refused(tup, error)
        if late:
            yield Late(late)
        if added:
            yield Release(added)

    def _divided(
        self, events: list[Event]
    ) -> tuple[dict[int, dict[Hashable, list[Any]]], list[Any]]:
        """The tuples by pane, and in it by key; and those that are late."""
        windows, key_of, shift_ms = self._windows, self._key_of, self._shift_ms
        divided: dict[int, dict[Hashable, list[Any]]] = {}
        late: list[Any] = []
        by_key: dict[Hashable, list[Any]] | None = None
        after_ms = until_ms = 0  # the times of the pane of the tuple before, which has `by_key`
        for at_ms, tup in events:
            if not after_ms < at_ms <= until_ms:
                pane = windows.pane_of(at_ms + shift_ms)
                until_ms = pane * windows.pane_ms - shift_ms
                after_ms = until_ms - windows.pane_ms
                by_key = divided.get(pane)
                if by_key is None and not windows.is_late(pane):
                    by_key = divided[pane] = {}
            if by_key is None:
                late.append(tup)
                continue
            key = key_of(tup)
            if key in by_key:
                by_key[key].append(tup)
            else:
                by_key[key] = [tup]
        return divided, late

    def add_late(self, event: Event, now_ms: int) -> Iterator[Output]:
        if not self._lateness_ms or event[0] < self._watermark_ms - self._lateness_ms:
            yield Late([event[1]])
            return
        for output in self.add([event], now_ms):
            yield output
            if isinstance(output, Late | Refused):
                return
        for one in self._windows.again(self._key_of(event[1]), event[0]):
            yield self._ready(one)

    def advance(self, time_ms: int, now_ms: int) -> Iterator[Output]:
        # By the clock, everything before this millisecond has come.
        self._watermark_ms = time_ms
        until_ms = time_ms + self._shift_ms - 1 if self._by_clock else time_ms
        windows, held = self._windows, self._held
        end_ms, few = -1, None  # of the window before: its end, and what is held for it, by pane
        for one in windows.advance(until_ms):
            if one.end_ms != end_ms and held is not None:
                end_ms = one.end_ms
                panes = windows.panes_until(end_ms)
                few = [held[n] for n in panes if n in held] if len(panes) <= _FEW_PANES else None
            yield self._ready(one, few)
            if windows.first_pane > self._released:
                yield from self._release()
        yield from self._release()

    def skip_to(self, watermark_ms: int) -> None:
        self._windows.skip_to(watermark_ms)

    def discard(self, ready: Ready) -> None:
        # The total cannot be taken apart: what failed comes again, and counts again.
        if self._held is not None:
            for pane in self._windows.panes_of(ready.key, ready.end_ms + self._shift_ms):
                self._held.get(pane, {}).pop(ready.key, None)

    @property
    def keys(self) -> int | None:
        return len(self._windows)

    @property
    def next_ms(self) -> int | None:
        return None

    def held(self) -> Iterable[Any]:
        for by_key in (self._held or {}).values():
            for tuples in by_key.values():
                yield from tuples

    def _ready(self, one: Aggregated, few: list[dict[Hashable, list[Any]]] | None = None) -> Ready:
        """`few`: what is held in the panes of the window, if these are not many."""
        end_ms = one.end_ms - self._shift_ms
        tuples: list[Any] = []
        if few is not None:
            for by_key in few:
                if one.key in by_key:
                    tuples += by_key[one.key]
        elif self._held is not None:
            for pane in self._windows.panes_of(one.key, one.end_ms):
                tuples += self._held.get(pane, {}).get(one.key, ())
        start_ms = end_ms - self._length_ms
        return _ready_of((one.key, tuples, start_ms, end_ms, one.total, None, one.late, one.error))

    def _release(self) -> Iterator[Output]:
        first = self._released = self._windows.first_pane
        if self._held:
            panes = [pane for pane in self._held if pane < first]
            gone = [tup for pane in panes for mine in self._held.pop(pane).values() for tup in mine]
            if gone:
                yield Release(gone)


class AggregateCount:
    """Aggregates of the last tuples of each key."""

    def __init__(self, plan: WindowPlan, key_of: KeyOf, contents: Contents, *, hold: bool) -> None:
        assert plan.length_count is not None
        assert plan.slide_count is not None
        self._pane = gcd(plan.length_count, plan.slide_count)
        self._length = plan.length_count // self._pane
        self._slide = plan.slide_count
        self._contents = contents
        self._key_of = key_of
        self._hold = hold
        self._keys: dict[Hashable, _Counted] = {}

    def add(self, events: list[Event], now_ms: int) -> Iterator[Output]:
        hold, key_of, slide, pane = self._hold, self._key_of, self._slide, self._pane
        added = []
        for _, tup in events:
            key = key_of(tup)
            mine = self._keys.get(key)
            if mine is None:
                mine = self._keys[key] = _Counted(Panes(self._contents))
            try:
                mine.panes.add(mine.count // pane + 1, tup)
            except Exception as error:
                if not mine.count:
                    del self._keys[key]
                yield Refused(tup, error)
                continue
            mine.count += 1
            if hold:
                mine.held.append((mine.count, tup))
            else:
                added.append(tup)
            if mine.count % slide == 0:
                last = mine.count // self._pane
                first = last - self._length + 1
                window = [one for at, one in mine.held if at > (first - 1) * self._pane]
                try:
                    ready = Ready(key, window, None, now_ms, mine.panes.query(first, last))
                except Exception as error:
                    ready = Ready(key, window, None, now_ms, error=error)
                assert ready.total is not NOTHING
                yield ready
                # The next window begins an interval further on.
                first += self._slide // self._pane
                mine.panes.drop_before(first)
                if not mine.panes:
                    del self._keys[key]  # no later window holds any of it
                gone = [one for at, one in mine.held if at <= (first - 1) * self._pane]
                if gone:
                    mine.held = [one for one in mine.held if one[0] > (first - 1) * self._pane]
                    yield Release(gone)
        if added:
            yield Release(added)

    def add_late(self, event: Event, now_ms: int) -> Iterator[Output]:
        return self.add([event], now_ms)

    def advance(self, time_ms: int, now_ms: int) -> Iterator[Output]:
        return iter(())

    def skip_to(self, watermark_ms: int) -> None:
        pass  # its windows end by count

    def discard(self, ready: Ready) -> None:
        mine = self._keys[ready.key]
        gone = set(map(id, ready.tuples))
        mine.held = [one for one in mine.held if id(one[1]) not in gone]

    @property
    def keys(self) -> int | None:
        return len(self._keys)

    @property
    def next_ms(self) -> int | None:
        return None

    def held(self) -> Iterable[Any]:
        for mine in self._keys.values():
            for _, tup in mine.held:
                yield tup


@dataclass(slots=True)
class _Counted:
    """The panes of one key, and how many tuples it has had."""

    panes: Panes
    count: int = 0
    held: list[tuple[int, Any]] = field(default_factory=list)  # with the number of each
