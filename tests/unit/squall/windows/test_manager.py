"""Windows over a queue: each edge of count and time, as tables. (What Storm's own tests say of them
is in test_storm_cases.)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from squall.windows import EventTime, Windows, sliding, tumbling
from squall.windows.evictors import (
    CountEvictor,
    Evictor,
    TimeEvictor,
    WatermarkCountEvictor,
    WatermarkTimeEvictor,
)
from squall.windows.manager import TIDY_EVENTS, Command, Expire, Fire, WindowManager
from squall.windows.operators import Ready, make_operator
from squall.windows.spec import WindowPlan
from squall.windows.triggers import (
    CountTrigger,
    WatermarkCountTrigger,
    WatermarkTimeTrigger,
)
from squall_common.config.options.typed import TopologyOptions

Window = tuple[list[int], list[int], list[int]]  # all, new, expired


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


@dataclass
class Seen:
    """The results of commands."""

    windows: list[Window] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    expired: list[list[int]] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)

    def take(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Fire):
                before = set(map(id, command.before))
                items = [item for _, item in command.events]
                new = [event[1] for event in command.events if id(event) not in before]
                self.windows.append((items, new, list(command.expired)))
                self.ends.append(command.reference_ms)
            else:
                assert isinstance(command, Expire)
                self.expired.append([item for _, item in command.events])
                self.missed += command.missed

    @property
    def items(self) -> list[list[int]]:
        return [window[0] for window in self.windows]


def by_count(length: int, slide: int) -> WindowManager:
    return WindowManager(CountEvictor(length), CountTrigger(slide))


def by_watermark(evictor: Evictor, slide_ms: int) -> WindowManager:
    return WindowManager(evictor, WatermarkTimeTrigger(slide_ms))


def add(
    manager: WindowManager, seen: Seen, items: Sequence[int], at: Sequence[int] | int, now: int = 0
) -> None:
    """Add items one after the other."""
    times = [at] * len(items) if isinstance(at, int) else at
    for at_ms, item in zip(times, items, strict=True):
        seen.take(manager.add([(at_ms, item)], now))


# -- lengths and intervals in tuples --

COUNTS: list[tuple[str, int, int, int, list[Window]]] = [
    (
        "sliding: a window fires early while fewer tuples than its length have come",
        5,
        2,
        8,
        [
            ([1, 2], [1, 2], []),
            ([1, 2, 3, 4], [3, 4], []),
            ([2, 3, 4, 5, 6], [5, 6], [1]),
            ([4, 5, 6, 7, 8], [7, 8], [2, 3]),
        ],
    ),
    (
        "tumbling: each tuple is in one window, and expires with the next",
        3,
        3,
        7,
        [([1, 2, 3], [1, 2, 3], []), ([4, 5, 6], [4, 5, 6], [1, 2, 3])],
    ),
    (
        "an interval of one fires for each tuple",
        2,
        1,
        3,
        [([1], [1], []), ([1, 2], [2], []), ([2, 3], [3], [1])],
    ),
    (
        "an interval that is longer leaves tuples out",
        1,
        3,
        6,
        [([3], [3], [1, 2]), ([6], [6], [3, 4, 5])],
    ),
]


@pytest.mark.parametrize(
    ("length", "slide", "last", "windows"),
    [case[1:] for case in COUNTS],
    ids=[case[0] for case in COUNTS],
)
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one batch"])
def test_windows_by_count(
    length: int, slide: int, last: int, windows: list[Window], together: bool
) -> None:
    manager, seen = by_count(length, slide), Seen()
    if together:
        seen.take(manager.add([(0, item) for item in numbers(1, last)], 0))
    else:
        add(manager, seen, numbers(1, last), 0)
    assert seen.windows == windows


# -- lengths in time, by the clock --


def test_the_first_window_by_the_clock_holds_everything_that_has_come() -> None:
    manager, seen = WindowManager(TimeEvictor(20), None, slide_ms=10), Seen()
    add(manager, seen, [1, 2, 3], [1, 5, 9])
    seen.take(manager.clock(100_001))
    assert seen.windows == [([1, 2, 3], [1, 2, 3], [])]
    assert seen.ends == [100_000]


CLOCK: list[tuple[str, int, int, list[tuple[int, int]], list[int], list[list[int]]]] = [
    # name, length, interval, (timestamp, item), times of the clock, windows
    (
        "a tuple of the very millisecond in which a window fires is in the next one",
        10,
        10,
        [(1, 1), (9, 9), (10, 10), (19, 19), (20, 20)],
        [10, 20, 30],
        [[1, 9], [10, 19], [20]],
    ),
    (
        "sliding: a tuple is in each window that reaches back to it",
        20,
        10,
        [(5, 5), (15, 15), (25, 25)],
        [10, 20, 30, 40, 50],
        [[5], [5, 15], [15, 25], [25]],
    ),
    (
        "a clock that is late does not lose what came meanwhile",
        10,
        10,
        [(5, 5), (12, 12), (24, 24), (28, 28)],
        [10, 25, 35],
        [[5], [12, 24], [28]],
    ),
    (
        "a clock that is early does not count anything twice",
        10,
        10,
        [(5, 5), (12, 12), (16, 16)],
        [10, 17, 30],
        [[5], [12, 16]],
    ),
    (
        "nothing fires for an empty window",
        10,
        10,
        [(5, 5), (45, 45)],
        [10, 20, 30, 40, 50],
        [[5], [45]],
    ),
]


@pytest.mark.parametrize(
    ("length", "slide", "events", "times", "windows"),
    [case[1:] for case in CLOCK],
    ids=[case[0] for case in CLOCK],
)
def test_windows_by_the_clock(
    length: int,
    slide: int,
    events: list[tuple[int, int]],
    times: list[int],
    windows: list[list[int]],
) -> None:
    manager, seen = WindowManager(TimeEvictor(length), None, slide_ms=slide), Seen()
    left = list(events)
    for now in times:
        # Those of the same millisecond that come before the clock rings.
        come = [event for event in left if event[0] <= now]
        left = left[len(come) :]
        seen.take(manager.add(come, now))
        seen.take(manager.clock(now))
    assert seen.items == windows


# -- event time --


def test_the_scan_for_a_window_ends_at_a_tuple_beyond_the_lag() -> None:
    manager, seen = by_watermark(WatermarkTimeEvictor(20, 5), 10), Seen()
    # 629 comes behind 636, which is more than 5 after the window's end.
    add(manager, seen, numbers(1, 7), [603, 605, 607, 618, 626, 636, 629])
    seen.take(manager.watermark(631, 0))
    assert seen.items == [[1, 2, 3], [1, 2, 3, 4], [4, 5]]
    seen.take(manager.watermark(661, 0))
    # It is in the window after that, which reaches back to it.
    assert seen.items[3:] == [[5, 6, 7], [6]]
    assert seen.missed == []


def test_a_tuple_that_no_window_has_seen_is_missed() -> None:
    manager, seen = by_watermark(WatermarkTimeEvictor(10, 0), 10), Seen()
    add(manager, seen, [5, 12, 7], [5, 12, 7])  # 12 ends the scan for the window up to 10
    seen.take(manager.watermark(12, 0))
    assert seen.items == [[5]]
    seen.take(manager.watermark(25, 0))
    assert seen.items == [[5], [12]]
    assert seen.missed == [7]


def test_a_tuple_at_the_watermark_that_fired_its_window_is_missed() -> None:
    manager, seen = by_watermark(WatermarkTimeEvictor(10), 10), Seen()
    add(manager, seen, [1], [5])
    seen.take(manager.watermark(10, 0))
    add(manager, seen, [2, 3], [10, 11])  # Storm does not call 10 late
    seen.take(manager.watermark(20, 0))
    assert seen.items == [[1], [3]]
    assert seen.missed == [2]


EDGES: list[tuple[str, int, int, list[int], int, list[list[int]]]] = [
    # name, length, interval, timestamps, watermark, windows
    ("a tuple at the end of a window is in it", 10, 10, [10], 10, [[10]]),
    ("a tuple at its start is in the one before", 10, 10, [10, 11], 20, [[10], [11]]),
    ("a watermark one short of the end fires nothing", 10, 10, [10], 9, []),
    ("sliding: both ends of two windows", 20, 10, [10, 11, 30], 30, [[10], [10, 11], [11, 30]]),
    ("out of order", 10, 10, [9, 3, 12, 8], 20, [[9, 3, 8], [12]]),
    ("duplicates count each time", 10, 10, [4, 4, 4], 10, [[4, 4, 4]]),
    ("a gap fires no empty windows", 10, 10, [5, 995], 1000, [[5], [995]]),
    ("an interval beyond the length leaves a gap", 5, 10, [4, 6, 12, 18], 20, [[6], [18]]),
    ("a length that the interval does not divide", 15, 10, [1, 14, 16], 30, [[1], [14, 16], [16]]),
    ("the first window ends at a multiple of the interval", 60, 60, [61], 120, [[61]]),
    ("time zero ends the first window", 10, 10, [0, 1], 10, [[0], [1]]),
]


@pytest.mark.parametrize(
    ("length", "slide", "times", "watermark", "windows"),
    [case[1:] for case in EDGES],
    ids=[case[0] for case in EDGES],
)
def test_edges_of_windows_in_event_time(
    length: int,
    slide: int,
    times: list[int],
    watermark: int,
    windows: list[list[int]],
) -> None:
    manager, seen = by_watermark(WatermarkTimeEvictor(length), slide), Seen()
    add(manager, seen, times, times)
    seen.take(manager.watermark(watermark, 0))
    assert [sorted(window) for window in seen.items] == [sorted(window) for window in windows]


@pytest.mark.parametrize(
    ("length", "slide", "times", "watermark", "windows"),
    [case[1:] for case in EDGES],
    ids=[case[0] for case in EDGES],
)
def test_edges_of_totals_in_event_time(
    length: int,
    slide: int,
    times: list[int],
    watermark: int,
    windows: list[list[int]],
) -> None:
    keys = "topology.bolts.window.length.duration.ms", "topology.bolts.window.sliding.interval."
    conf = {keys[0]: length, f"{keys[1]}duration.ms": slide}
    plan = WindowPlan.read(TopologyOptions.read(conf))
    operator = make_operator(plan, lambda _: None, Totals(), event_time=True, hold=True, start_ms=0)
    assert list(operator.add([(at, at) for at in times], 0)) == []
    fired = [one for one in operator.advance(watermark, 0) if isinstance(one, Ready)]
    assert [sorted(one.total) for one in fired] == [sorted(window) for window in windows]
    assert [sorted(one.tuples) for one in fired] == [sorted(window) for window in windows]


class Totals:
    """Totals that show what was added up."""

    def of(self, item: int) -> list[int]:
        return [item]

    def add(self, contents: list[int], item: int) -> list[int]:
        return [*contents, item]

    def merge(self, first: list[int], second: list[int]) -> list[int]:
        return first + second


# Lengths in time with intervals in tuples, and the other way round: what happens at which time,
# and the windows that have fired by then.
MIXED: list[tuple[str, Callable[[], WindowManager], list[tuple[str, int, list[list[int]]]]]] = [
    (
        "the last 10 ms every 2 tuples: one of the very millisecond is in, one 10 ms old is not",
        lambda: WindowManager(TimeEvictor(10), CountTrigger(2)),
        [
            ("add", 1, []),
            ("add", 11, [[11]]),
            ("add", 20, []),
            ("add", 20, [[11, 20, 20]]),
            ("add", 50, []),
            ("add", 90, [[90]]),
        ],
    ),
    (
        "the last 3 tuples every 10 ms: again if none has come, and with one of that millisecond",
        lambda: WindowManager(CountEvictor(3), None, slide_ms=10),
        [
            ("clock", 10, []),
            ("add", 11, []),
            ("add", 12, []),
            ("clock", 20, [[11, 12]]),
            ("clock", 30, [[11, 12]]),
            ("add", 31, []),
            ("add", 32, []),
            ("add", 40, []),
            ("clock", 40, [[31, 32, 40]]),
        ],
    ),
    (
        "the 10 ms before every 2nd tuple in event time: out of order, it is the later of the two",
        lambda: WindowManager(WatermarkTimeEvictor(10), WatermarkCountTrigger(2)),
        [
            ("add", 15, []),
            ("add", 3, []),
            ("add", 5, []),  # it is as old as the length, seen from 15
            ("add", 6, []),
            ("watermark", 14, [[3, 5]]),
            ("watermark", 15, [[15, 6]]),
        ],
    ),
    (
        "the last 2 tuples every 10 ms of event time: one at the end is in, one behind it is not",
        lambda: WindowManager(WatermarkCountEvictor(2), WatermarkTimeTrigger(10)),
        [
            ("add", 4, []),
            ("add", 11, []),
            ("add", 10, []),
            ("watermark", 10, [[4, 10]]),
            ("watermark", 19, []),
            ("watermark", 20, [[11, 10]]),
            ("watermark", 40, [[11, 10], [11, 10]]),
        ],
    ),
]


@pytest.mark.parametrize(
    ("make", "steps"), [case[1:] for case in MIXED], ids=[case[0] for case in MIXED]
)
def test_edges_of_lengths_and_intervals_of_two_kinds(
    make: Callable[[], WindowManager], steps: list[tuple[str, int, list[list[int]]]]
) -> None:
    manager = make()
    for what, at, windows in steps:
        seen = Seen()
        if what == "add":
            seen.take(manager.add([(at, at)], at))
        elif what == "clock":
            seen.take(manager.clock(at))
        else:
            seen.take(manager.watermark(at, 0))
        assert seen.items == windows, (what, at)


def test_days_are_days_of_utc_also_when_the_clocks_change() -> None:
    """In Berlin, 30 March 2025 has 23 hours and 26 October 2025 has 25."""
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo

    berlin, day_ms = ZoneInfo("Europe/Berlin"), 86_400_000
    for year, month, day in ((2025, 3, 29), (2025, 10, 25)):
        manager, seen = by_watermark(WatermarkTimeEvictor(day_ms), day_ms), Seen()
        first = datetime(year, month, day, 12, tzinfo=berlin)
        times = [int((first + timedelta(days=n)).timestamp() * 1000) for n in range(3)]
        add(manager, seen, [0, 1, 2], times)
        seen.take(manager.watermark(times[-1] + 2 * day_ms, 0))
        assert seen.items == [[0], [1], [2]]
        assert all(end % day_ms == 0 for end in seen.ends)
        assert [
            second - first for first, second in zip(seen.ends, seen.ends[1:], strict=False)
        ] == [
            day_ms,
            day_ms,
        ]


def test_a_new_manager_begins_anew() -> None:
    """After a restart windows hold what is replayed, and end where they would have ended."""
    for _ in range(2):
        manager, seen = by_watermark(WatermarkTimeEvictor(10), 10), Seen()
        add(manager, seen, [1, 2], [1_700_000_000_001, 1_700_000_000_009])
        seen.take(manager.watermark(1_700_000_000_010, 0))
        assert seen.ends == [1_700_000_000_010]


# -- tuples that are taken out --


def test_a_retired_window_is_expired_for_the_next_one_only_once() -> None:
    manager, seen = by_count(2, 2), Seen()
    add(manager, seen, [1, 2], 0)
    assert manager.retire() == [1, 2]
    assert manager.items == []
    add(manager, seen, [3, 4], 0)
    assert seen.windows == [([1, 2], [1, 2], []), ([3, 4], [3, 4], [1, 2])]
    assert seen.expired == []


def test_failed_tuples_leave_the_queue() -> None:
    manager, seen = by_count(3, 1), Seen()
    items = [object(), object(), object(), object()]
    for item in items[:2]:
        seen.take(manager.add([(0, item)], 0))
    manager.discard([items[0]])
    for item in items[2:]:
        seen.take(manager.add([(0, item)], 0))
    assert seen.items[-1] == items[1:]


def test_a_window_may_discard_tuples_while_more_windows_wait() -> None:
    manager = by_watermark(WatermarkTimeEvictor(20), 10)
    list(manager.add([(5, "a"), (15, "b")], 0))
    found = []
    for command in manager.watermark(100, 0):
        if isinstance(command, Fire):
            found.append([item for _, item in command.events])
            if len(found) == 1:
                manager.discard(["a"])
    assert found == [["a"], ["b"], ["b"]]


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("leave", ["retired", "failed"])
def test_a_tuple_that_waits_after_the_window_has_left_is_in_a_later_one(
    length: int, leave: str
) -> None:
    """Tidying up the queue meanwhile does not count it as one of the window."""
    manager = WindowManager(WatermarkCountEvictor(length), WatermarkCountTrigger(length))
    in_windows: list[int] = []

    def advance(watermark_ms: int) -> None:
        for command in manager.watermark(watermark_ms, 0):
            if isinstance(command, Fire):
                items = [item for _, item in command.events]
                in_windows.extend(items)
                if leave == "retired":
                    manager.retire()
                else:
                    manager.discard(items)

    first = length + 1  # it has the time of the watermark that has passed: it is not late
    last = first + length * TIDY_EVENTS
    times = {first: length}
    seen = Seen()
    add(manager, seen, numbers(1, length), numbers(1, length))
    advance(length)
    waiting = numbers(first, last)
    add(manager, seen, waiting, [times.get(number, number) for number in waiting])
    advance(last)
    assert seen.expired == []
    assert in_windows + manager.items == numbers(1, last)


class Looked(tuple[int, int]):
    """An event that counts how often somebody asks for its time."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Looked.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize(
    ("windows", "apart_ms"),
    [
        (tumbling(count=5, event_time=EventTime("at")), 1),
        (sliding(count=10, every_count=5, event_time=EventTime("at")), 1),
        (tumbling(secs=0.005, event_time=EventTime("at")), 1),
        (tumbling(secs=0.005, event_time=EventTime("at")), 20),
    ],
    ids=["count", "sliding count", "time", "time, with gaps"],
)
def test_a_watermark_that_fires_many_windows_does_not_look_at_the_whole_queue_for_each(
    windows: Windows, apart_ms: int
) -> None:
    plan = WindowPlan.read(TopologyOptions.read(windows.conf()))
    operator = make_operator(plan, lambda _: None, None, event_time=True, hold=True, start_ms=0)
    events = [Looked((1 + number * apart_ms, number)) for number in range(2000)]
    list(operator.add(events, 0))
    Looked.looks = 0
    fired = [one for one in operator.advance(10**6, 0) if isinstance(one, Ready)]
    assert len(fired) >= 400
    assert Looked.looks < 30 * len(events)
