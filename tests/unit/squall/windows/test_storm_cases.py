"""What Apache Storm's tests of windows say, as tables: the facts are Storm's.

`docs/reference/window-cases.md` lists all 54, and says of each whether Squall does the same. Here
are those of windows that fire and of late tuples; test_stored_storm_cases has the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.window_cases import STORMS, StormsTests, counted, listed, summary

from squall import TopologyBuilder, WindowedBolt
from squall.testing import BoltTest, FeederSpout
from squall.windows import EventTime, Windows, sliding, tumbling
from squall.windows.bolt import windowed_conf
from squall.windows.evictors import Moment, TimeEvictor, WatermarkTimeEvictor
from squall.windows.manager import Expire, Fire, WindowManager
from squall.windows.operators import Operator, Ready, Release, make_operator
from squall.windows.snapshot import dump, load
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.topology.serialization import Registry
from squall_engine.embed import Tuple, ValueCodec

CODEC = ValueCodec(Registry(), allow_pickle=False)
MANAGER = "WindowManagerTest"
WATERMARKS = "WaterMarkEventGeneratorTest"
BOLT = "WindowedBoltExecutorTest"
TRIDENT = "TridentWindowingTest"
storm = StormsTests(MANAGER, WATERMARKS, BOLT, TRIDENT)


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


# -- windows that fire, as a table --


@dataclass(frozen=True)
class Add:
    """Tuples that come one after the other; without times, by count or by the clock."""

    items: Sequence[int]
    times: Sequence[int] | None = None


@dataclass(frozen=True)
class Watermark:
    at_ms: int


Window = list[int] | tuple[list[int], list[int], list[int]]  # all, or all, new and expired
# What happens; the windows that fire; what has left the queue without being in a later window.
Step = tuple[Add | Watermark, list[Window], list[int]]


@dataclass(frozen=True)
class Case:
    storm: tuple[str, ...]
    windows: Windows
    steps: list[Step]


def in_time(lag_ms: int) -> EventTime:
    return EventTime("at", lag_secs=lag_ms / 1000, watermark_interval_secs=60)


LAG = in_time(5)
EQUAL = [10, 10, 11, 12, 12, 12, 12, 13, 14, 15]
CASES: dict[str, Case] = {
    "a sliding window of a number of tuples fires early, and fills up": Case(
        (f"{MANAGER}.testCountBasedWindow",),
        sliding(count=5, every_count=2),
        [
            (Add([1, 2]), [([1, 2], [1, 2], [])], []),
            (Add([3, 4]), [([1, 2, 3, 4], [3, 4], [])], []),
            (Add([5, 6]), [([2, 3, 4, 5, 6], [5, 6], [1])], [1]),
            (Add([7]), [], []),
            (Add([8]), [([4, 5, 6, 7, 8], [7, 8], [2, 3])], [2, 3]),
        ],
    ),
    "tuples of a tumbling window expire with the next one": Case(
        (f"{MANAGER}.testTumblingWindow",),
        tumbling(count=3),
        [
            (Add([1, 2]), [], []),
            (Add([3]), [([1, 2, 3], [1, 2, 3], [])], []),
            (Add([4, 5, 6]), [([4, 5, 6], [4, 5, 6], [1, 2, 3])], [1, 2, 3]),
        ],
    ),
    "the 100th tuple lets go of those behind the length, long before the window fires": Case(
        (f"{MANAGER}.testExpireThreshold",),
        sliding(count=5, every_secs=3600),
        [(Add(numbers(1, 10)), [], []), (Add(numbers(11, 100)), [], numbers(1, 95))],
    ),
    "nothing leaves before the first watermark: lengths in tuples": Case(
        (f"{MANAGER}.testExpireThresholdWithWatermarkCountEvictionPolicy",),
        tumbling(count=100, event_time=in_time(0)),
        [
            (Add(numbers(1, 100), numbers(1, 100)), [], []),
            (Watermark(100), [numbers(1, 100)], []),
            (Add(numbers(101, 200), numbers(101, 200)), [], []),
            (Watermark(201), [numbers(101, 200)], numbers(1, 100)),
        ],
    ),
    "nothing leaves before the first watermark: lengths in time": Case(
        (f"{MANAGER}.testExpireThresholdWithWatermarkTimeEvictionPolicy",),
        sliding(secs=0.1, every_count=100, event_time=in_time(0)),
        [
            (Add(numbers(1, 100), numbers(1, 100)), [], []),
            (Watermark(100), [numbers(1, 100)], []),
            (Add(numbers(101, 200), numbers(101, 200)), [], []),
            (Watermark(201), [numbers(101, 200)], numbers(1, 100)),
        ],
    ),
    "windows in event time fire in order, and none between tuples far apart": Case(
        (f"{MANAGER}.testEventTimeBasedWindow",),
        sliding(secs=0.02, every_secs=0.01, event_time=LAG),
        [
            (Add([1, 2, 3], [603, 605, 607]), [], []),
            (Watermark(609), [], []),  # the window up to 610 is not complete
            (Add([4, 5, 6], [618, 626, 636]), [], []),
            (
                Watermark(631),
                [([1, 2, 3], [1, 2, 3], []), ([1, 2, 3, 4], [4], []), ([4, 5], [5], [1, 2, 3])],
                [1, 2, 3],
            ),
            (Add([7, 8, 9, 10], [825, 826, 827, 839]), [], []),
            (
                Watermark(834),
                [([5, 6], [6], [4]), ([6], [], [5]), ([7, 8, 9], [7, 8, 9], [])],
                [4, 5, 6],
            ),
        ],
    ),
    "a window of the last tuples fires again at each interval, until newer ones come": Case(
        (f"{MANAGER}.testCountBasedWindowWithEventTs",),
        sliding(count=3, every_secs=0.01, event_time=LAG),
        [
            (Add(numbers(1, 6), [603, 605, 607, 618, 626, 636]), [], []),
            (Watermark(631), [[1, 2, 3], [2, 3, 4], [3, 4, 5]], [1, 2]),
            (Add(numbers(7, 10), [665, 666, 667, 679]), [], []),
            (Watermark(674), [[4, 5, 6], [4, 5, 6], [4, 5, 6], [7, 8, 9]], [3, 4, 5, 6]),
        ],
    ),
    "a window in time may fire after every so many tuples up to the watermark": Case(
        (f"{MANAGER}.testCountBasedTriggerWithEventTs",),
        sliding(secs=0.02, every_count=3, event_time=LAG),
        [
            (Add(numbers(1, 8), [603, 605, 607, 618, 625, 626, 629, 636]), [], []),
            (Watermark(631), [[1, 2, 3], [3, 4, 5, 6]], [1, 2]),
            (Add([9, 10, 11, 12, 12], [665, 666, 667, 669, 679]), [], []),
            (Watermark(674), [[9], [9, 10, 11, 12]], [3, 4, 5, 6, 7, 8]),
        ],
    ),
    "tumbling windows of a number of tuples divide those of equal timestamps": Case(
        (f"{MANAGER}.testCountBasedTumblingWithSameEventTs",),
        tumbling(count=2, event_time=LAG),
        [
            (Add(numbers(1, 10), EQUAL), [], []),
            (Watermark(20), [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], numbers(1, 8)),
        ],
    ),
    "sliding windows of a number of tuples divide those of equal timestamps": Case(
        (f"{MANAGER}.testCountBasedSlidingWithSameEventTs",),
        sliding(count=5, every_count=2, event_time=LAG),
        [
            (Add(numbers(1, 10), EQUAL), [], []),
            (
                Watermark(20),
                [[1, 2], [1, 2, 3, 4], numbers(2, 6), numbers(4, 8), numbers(6, 10)],
                numbers(1, 5),
            ),
        ],
    ),
    "tuples out of order are found up to the lag": Case(
        (f"{MANAGER}.testEventTimeLag",),
        sliding(secs=0.02, every_secs=0.01, event_time=LAG),
        [
            (Add(numbers(1, 8), [603, 605, 607, 618, 626, 632, 629, 636]), [], []),
            (Watermark(631), [[1, 2, 3], [1, 2, 3, 4], [4, 5, 7]], [1, 2, 3]),
        ],
    ),
    "tuples beyond the watermark wait": Case(
        (f"{MANAGER}.testScanStop",),
        sliding(secs=0.02, every_secs=0.01, event_time=LAG),
        [
            (
                Add(numbers(1, 10), [603, 605, 607, 618, 626, 629, 636, 637, 638, 639]),
                [],
                [],
            ),
            (Watermark(634), [[1, 2, 3], [1, 2, 3, 4], [4, 5, 6]], [1, 2, 3]),
        ],
    ),
    "the same windows reach a bolt that takes the time from a field": Case(
        (f"{BOLT}.testExecuteWithTs",),
        sliding(secs=0.02, every_secs=0.01, event_time=LAG),
        [
            (Add(numbers(1, 6), [603, 605, 607, 618, 626, 636]), [], []),
            (Watermark(631), [[1, 2, 3], [1, 2, 3, 4], [4, 5]], [1, 2, 3]),
        ],
    ),
}


def plan_of(windows: Windows) -> WindowPlan:
    return WindowPlan.read(TopologyOptions.read(windows.conf()))


def key_of(item: Any) -> None:
    return None


class Lists:
    """Totals that show what was added up."""

    def of(self, item: int) -> list[int]:
        return [item]

    def add(self, contents: list[int], item: int) -> list[int]:
        return [*contents, item]

    def merge(self, first: list[int], second: list[int]) -> list[int]:
        return first + second


LISTS = Lists()
FIXED = {"key_of": key_of, "contents": LISTS}


class InOperator:
    """The windows of a task, without a bolt."""

    def __init__(self, windows: Windows, *, totals: bool, restarts: bool) -> None:
        self.totals, self.restarts = totals, restarts
        self.operator: Operator = make_operator(
            plan_of(windows),
            key_of,
            LISTS if totals else None,
            event_time=windows.event_time is not None,
            hold=True,
            start_ms=0,
        )

    def do(self, what: Add | Watermark) -> tuple[list[Window], list[int]]:
        fired: list[Window] = []
        gone: list[int] = []
        if self.restarts:
            stored = dump(self.operator, FIXED, CODEC, Tuple, [])
            self.operator = load(stored, FIXED, CODEC, [])
        if isinstance(what, Watermark):
            calls = [self.operator.advance(what.at_ms, 0)]
        else:
            times = what.times or [0] * len(what.items)
            events = zip(times, what.items, strict=True)
            calls = [self.operator.add([event], 0) for event in events]
        for outputs in calls:
            for output in outputs:
                if isinstance(output, Ready):
                    fired.append(self._window(output))
                else:
                    assert isinstance(output, Release)
                    gone += output.tuples
        return fired, gone

    def _window(self, ready: Ready) -> Window:
        if self.totals:
            assert ready.error is None
            assert sorted(ready.tuples) == sorted(ready.total)
            return list(ready.total)
        assert ready.left is not None
        new = [item for item in ready.tuples if id(item) not in ready.left.known]
        return ready.tuples, new, list(ready.left.of(None))


class Shown(WindowedBolt):
    """Emits what each window holds, without the tuples that only move the watermark."""

    outputs = ("items", "new", "expired")

    def execute_window(self, window: Any) -> None:
        parts = (window.get(), window.new(), window.expired())
        self.emit([[tup["item"] for tup in part if tup["item"] is not None] for part in parts])


class InBolt:
    """A bolt that is fed, whose watermark is moved by a tuple without an item."""

    def __init__(self, test: BoltTest, windows: Windows) -> None:
        self.test = test.test
        self.event_time = windows.event_time
        self.latest_ms = 0
        self.fed: list[int] = []
        self.before = (0, 0)

    def feed(self, item: int | None, at_ms: int) -> None:
        self.latest_ms = max(self.latest_ms, at_ms)
        self.fed.append(item or 0)
        self.test.feed("s", [item, at_ms], message_id=(len(self.fed), item))

    def do(self, what: Add | Watermark) -> tuple[list[Window], list[int]]:
        if isinstance(what, Watermark):
            assert self.event_time is not None
            at_ms = what.at_ms + round(self.event_time.lag_secs * 1000)
            if self.latest_ms != at_ms:
                self.feed(None, at_ms)
            self.test.run_for(60)
        else:
            for item, at_ms in zip(what.items, what.times or [0] * len(what.items), strict=True):
                self.feed(item, at_ms)
            self.test.run_until(lambda: len(self.test.emitted("s")) == len(self.fed))
            self.test.run_for(0.01)
        emitted, acked = self.test.emitted("bolt"), self.test.acked("s")
        fired = [(*one.values,) for one in emitted[self.before[0] :]]
        gone = [item for _, item in acked[self.before[1] :] if item is not None]
        self.before = len(emitted), len(acked)
        return fired, gone  # type: ignore[return-value]


def play(case: Case, do: Callable[[Any], tuple[list[Window], list[int]]], *, totals: bool) -> None:
    left: list[int] = []  # so far
    stated_left: list[int] = []
    for what, stated, gone in case.steps:
        fired, released = do(what)
        # Of each window, the parts that the case states, and that there are.
        assert len(fired) == len(stated)
        for one, other in zip(fired, stated, strict=True):
            if isinstance(one, tuple) and isinstance(other, tuple):
                assert one == other
            else:
                assert _all(one) == _all(other)
        left += released
        stated_left += gone
        if totals or plan_of(case.windows).tumbles:  # Squall lets go of tuples that no later window
            assert set(stated_left) <= set(left)  # holds at once, and Storm with the next window
        else:
            assert left == stated_left


def _all(window: Window) -> list[int]:
    return window[0] if isinstance(window, tuple) else window


for known in CASES.values():
    storm(*known.storm)


def can_total(windows: Windows) -> bool:
    event_time = windows.event_time is not None
    return not plan_of(windows).problems(event_time=event_time, aggregates=True)


@pytest.mark.parametrize("restarts", [False, True], ids=["in one go", "restarted at each step"])
@pytest.mark.parametrize("shows", list(CASES))
def test_windows_hold_what_storms_hold(shows: str, restarts: bool) -> None:
    case = CASES[shows]
    play(case, InOperator(case.windows, totals=False, restarts=restarts).do, totals=False)


@pytest.mark.parametrize("restarts", [False, True], ids=["in one go", "restarted at each step"])
@pytest.mark.parametrize("shows", [one for one, case in CASES.items() if can_total(case.windows)])
def test_totals_are_of_what_storms_windows_hold(shows: str, restarts: bool) -> None:
    case = CASES[shows]
    play(case, InOperator(case.windows, totals=True, restarts=restarts).do, totals=True)


@pytest.mark.parametrize("shows", list(CASES))
def test_bolts_get_the_windows_that_storms_get(shows: str) -> None:
    case = CASES[shows]
    with BoltTest(Shown(), {"s": ["item", "at"]}, windows=case.windows) as test:
        play(case, InBolt(test, case.windows).do, totals=False)
        assert test.test.errors == []


# -- by the clock --


def fire(manager: WindowManager, evictor: TimeEvictor, at_ms: int) -> tuple[list[Fire], list[int]]:
    """Fire a window at a time that the test says, and what leaves with it."""
    evictor.at(Moment(at_ms))
    fired, gone = [], []
    for command in manager._fire(at_ms):
        if isinstance(command, Expire):
            gone += [item for _, item in command.events]
        else:
            fired.append(command)
    return fired, gone


def items(fired: Fire) -> list[int]:
    return [item for _, item in fired.events]


@storm(f"{MANAGER}.testTimeBasedWindow")
def test_what_is_too_old_leaves_with_each_100th_tuple_and_is_expired_for_the_next_window() -> None:
    evictor = TimeEvictor(1000)
    manager = WindowManager(evictor, None, slide_ms=86_400_000)
    now = 1_700_000_000_000

    def add(first: int, last: int, at_ms: int) -> list[int]:
        gone = []
        for item in numbers(first, last):
            for command in manager.add([(at_ms, item)], now):
                assert isinstance(command, Expire)
                gone += [one for _, one in command.events]
        return gone

    assert add(1, 50, now - 1000) == []
    assert add(51, 100, now) == numbers(1, 50)
    assert add(101, 200, now - 1000) == []
    (window,), gone = fire(manager, evictor, now + 100)
    assert (items(window), list(window.before)) == (numbers(51, 100), [])
    assert gone == numbers(101, 200)
    assert list(window.expired) == numbers(1, 50) + numbers(101, 200)
    assert add(201, 300, now) == []
    (window,), gone = fire(manager, evictor, now + 200)
    assert items(window) == numbers(51, 100) + numbers(201, 300)
    assert [item for _, item in window.before] == numbers(51, 100)
    assert (gone, list(window.expired)) == ([], [])


@storm(f"{MANAGER}.testTimeBasedWindowExpiry")
def test_what_expired_with_an_empty_window_is_not_expired_for_a_later_one() -> None:
    evictor = TimeEvictor(100)
    manager = WindowManager(evictor, None, slide_ms=86_400_000)
    for item in numbers(1, 10):
        assert list(manager.add([(1000, item)], 1000)) == []
    (window,), gone = fire(manager, evictor, 1060)
    assert (items(window), list(window.expired), gone) == (numbers(1, 10), [], [])
    assert fire(manager, evictor, 1120) == ([], numbers(1, 10))
    assert fire(manager, evictor, 1180) == ([], [])
    list(manager.add([(1200, 11)], 1200))
    (window,), _ = fire(manager, evictor, 1210)
    assert (items(window), list(window.expired)) == ([11], [])


def test_bolts_by_the_clock_let_go_of_tuples_as_storms_do() -> None:
    """The two cases above, as far as a bolt meets them: tuples come when they come."""
    with BoltTest(Shown(), {"s": ["item"]}, windows=sliding(secs=1, every_secs=60)) as test:
        for first, last, gone in ((1, 50, []), (51, 100, numbers(1, 50))):
            for item in numbers(first, last):
                test.test.feed("s", [item], message_id=item)
            test.run_for(1)
            assert test.test.acked("s") == gone
        (window,) = test.run_for(60)
        assert window.values == [numbers(51, 100), numbers(51, 100), numbers(1, 50)]
    with BoltTest(Shown(), {"s": ["item"]}, windows=sliding(secs=0.1, every_secs=0.06)) as test:
        for item in numbers(1, 10):
            test.test.feed("s", [item], message_id=item)
        (window,) = test.run_for(0.07)
        assert window.values == [numbers(1, 10), numbers(1, 10), []]
        assert test.test.acked("s") == []
        assert test.run_for(0.06) == []
        assert test.test.acked("s") == numbers(1, 10)
        assert test.run_for(0.06) == []


class Looked(tuple[int, int]):
    """An event that knows whether somebody has asked for its time."""

    seen: set[int] = set()

    def __getitem__(self, at: Any) -> Any:
        self.seen.add(tuple.__getitem__(self, 1))
        return super().__getitem__(at)


@storm(f"{MANAGER}.testScanStop")
def test_nothing_behind_the_first_tuple_beyond_the_lag_is_looked_at() -> None:
    times = [603, 605, 607, 618, 626, 629, 636, 637, 638, 639]
    queue: list[Any] = [Looked(event) for event in zip(times, numbers(1, 10), strict=True)]
    evictor = WatermarkTimeEvictor(20, 5)
    found = []
    for end_ms in (610, 620, 630):
        evictor.at(Moment(end_ms))
        split = evictor.split(queue, 0, full=True)
        queue = split.kept
        found.append([item for _, item in split.window])
    assert found == [[1, 2, 3], [1, 2, 3, 4], [4, 5, 6]]
    assert Looked.seen == set(numbers(1, 7))


# -- timestamps and late tuples --


@storm(f"{BOLT}.testExecuteWithoutTs")
def test_a_tuple_without_the_field_of_the_timestamp_is_refused() -> None:
    windows = sliding(secs=0.02, every_secs=0.01, event_time=EventTime("ts"))
    builder = TopologyBuilder()
    builder.spout("s", Items())
    builder.bolt("w", Shown()).windowed(windows).shuffle("s")
    with pytest.raises(InvalidTopologyError, match="takes the timestamp from field 'ts'"):
        builder.build()
    with BoltTest(Shown(), {"s": ["item"]}, windows=windows) as test:
        done = test.execute([1])
        assert done.failed
        assert "ts" in str(done.errors[0])


class Items(FeederSpout):
    outputs = ("item",)


@storm(f"{BOLT}.testPrepareLateTupleStreamWithoutTs")
def test_a_stream_of_late_tuples_without_timestamps_is_refused() -> None:
    conf = {"topology.bolts.late.tuple.stream": "$late"}
    windows = sliding(secs=0.02, every_secs=0.01)
    with (
        pytest.raises(SquallError, match="only windows in event time have late tuples"),
        BoltTest(Shown(), {"s": ["item", "at"]}, conf, windows=windows),
    ):
        pass


LATE = EventTime("at", lag_secs=0.005, late_stream="$late")


@storm(f"{BOLT}.testPrepareLateTupleStreamWithoutBuilder")
def test_the_stream_of_late_tuples_declares_itself() -> None:
    builder = TopologyBuilder()
    builder.spout("s", Timed())
    windows = sliding(secs=0.02, every_secs=0.01, event_time=LATE)
    builder.bolt("w", Shown()).windowed(windows).shuffle("s")
    assert builder.build().components["w"].streams["$late"].fields == ("late_tuple",)


class Timed(FeederSpout):
    outputs = ("item", "at")


@storm(
    f"{BOLT}.testExecuteWithLateTupleStream", f"{BOLT}.testLateTupleStreamEmitsSerializableTuple"
)
def test_a_late_tuple_goes_to_its_stream_as_a_value_that_can_be_sent() -> None:
    windows = sliding(secs=0.02, every_secs=0.01, event_time=LATE)
    with BoltTest(Shown(), {"s": ["item", "at"]}, windows=windows) as test:
        for item, at_ms in enumerate((603, 605, 607, 618, 626, 636), 1):
            test.execute([item, at_ms], wait_secs=1)  # the watermark follows each
        done = test.execute([7, 600])
        assert done.acked
        (late,) = done.emitted
        assert late.stream == "$late"
        (value,) = late.values
        assert value["values"] == {"item": 7, "at": 600}
        assert (value["component"], value["stream"]) == ("s", "default")
        assert CODEC.decode_rows(CODEC.encode_rows([[value]])) == [[value]]  # without pickle
        windows_of = [one.values[0] for one in test.test.emitted("bolt", "default")]
        assert windows_of == [[1, 2, 3], [1, 2, 3, 4], [4, 5]]


@storm(f"{BOLT}.testEmptyConfigOnWrappedBolt")
def test_a_bolt_without_a_configuration_has_none() -> None:
    assert windowed_conf(Shown()) == {}


# -- what makes windows --

LENGTHS = [
    # of windows: length and interval in tuples, and in milliseconds
    (tumbling(count=9), (9, 9), (None, None)),
    (sliding(count=10, every_count=2), (10, 2), (None, None)),
    (tumbling(secs=20), (None, None), (20_000, 20_000)),
    (sliding(secs=50, every_secs=10), (None, None), (50_000, 10_000)),
]


@storm(f"{TRIDENT}.testWindowStrategyInstances", f"{TRIDENT}.testWindowConfig")
@pytest.mark.parametrize(("windows", "in_tuples", "in_ms"), LENGTHS)
def test_windows_are_of_the_lengths_that_they_were_made_with(
    windows: Windows, in_tuples: tuple[int, int], in_ms: tuple[int, int]
) -> None:
    plan = plan_of(windows)
    assert (plan.length_count, plan.slide_count) == in_tuples
    assert (plan.length_ms, plan.slide_ms) == in_ms
    assert plan.tumbles == (len({*in_tuples, *in_ms} - {None}) == 1)
    assert plan.problems(event_time=False, aggregates=False) == []


# -- the list --

storm(  # in test_watermarks
    f"{WATERMARKS}.testTrackSingleStream",
    f"{WATERMARKS}.testTrackSingleStreamOutOfOrder",
    f"{WATERMARKS}.testTrackTwoStreams",
    f"{WATERMARKS}.testNoEvents",
    f"{WATERMARKS}.testLateEvent",
)


def test_the_page_says_which_of_storms_tests_have_one_here() -> None:
    assert storm.tested == storm.listed()


def test_the_page_lists_each_of_storms_54_tests() -> None:
    cases = listed(STORMS)
    assert Counter(one.suite for one in cases) == {
        MANAGER: 14,
        "SimpleWindowPartitionCacheTest": 12,
        BOLT: 7,
        "PersistentWindowedBoltExecutorTest": 6,
        WATERMARKS: 5,
        "StatefulWindowedBoltExecutorTest": 4,
        "WindowStateTest": 3,
        TRIDENT: 3,
    }
    assert len(set(cases)) == len(cases)
    assert counted(cases) == summary("Storm's tests")
