"""Windowed bolts in an engine, on a clock that the test moves."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from squall import AggregateBolt, TopologyBuilder, TupleWindow, WindowedBolt
from squall.testing import BoltTest, Emitted, FeederSpout, TopologyTest
from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall.windows.bolt import _Aggregate
from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.topology.plan import PlanStep

INPUTS = {"s": ["user", "at"]}


class Shown(WindowedBolt):
    outputs = ("key", "at", "new", "expired", "start", "end")

    def execute_window(self, window: TupleWindow) -> None:
        at, new, expired = (
            [tup["at"] for tup in some] for some in (window.get(), window.new(), window.expired())
        )
        self.emit([window.key, at, new, expired, window.start_ms, window.end_ms])


class Count(AggregateBolt):
    outputs = ("key", "count", "end", "late")

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Any) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: TupleWindow) -> None:
        self.emit([window.key, total, window.end_ms, window.late])


class CountWithoutHolding(Count):
    hold = False


def values(emitted: list[Emitted], stream: str = "default") -> list[list[Any]]:
    return [one.values for one in emitted if one.stream == stream]


def at_of(test: BoltTest) -> list[list[int]]:
    return [row[1] for row in values(test.test.emitted("bolt"))]


# -- acks and anchors --


def test_tuples_of_a_tumbling_window_are_acked_when_it_has_fired() -> None:
    with BoltTest(Shown(), INPUTS, windows=tumbling(count=2)) as test:
        first = test.execute(["a", 1])
        assert not first.acked
        second = test.execute(["a", 2])
        assert first.acked
        assert second.acked
        (row,) = values(second.emitted)
        assert row[:5] == [None, [1, 2], [1, 2], [], None]
        assert row[5] == pytest.approx(1_700_000_000_005, abs=10)  # the test's clock


def test_tuples_of_a_sliding_window_are_acked_when_they_leave_it() -> None:
    with BoltTest(Shown(), INPUTS, windows=sliding(count=3, every_count=1)) as test:
        done = [test.execute(["a", n]) for n in range(5)]
        assert [one.acked for one in done] == [True, True, False, False, False]
        assert at_of(test) == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


@pytest.mark.parametrize("blocking", [False, True])
def test_what_leaves_the_windows_is_acked_in_one_call(blocking: bool) -> None:
    calls: list[int] = []

    class Counted(Count):
        def prepare(self, conf: Any, context: Any) -> None:
            ack_rest = self._squall_ack_rest
            assert ack_rest is not None

            def noted(tuples: list[Any]) -> None:
                calls.append(len(tuples))
                ack_rest(tuples)

            self._squall_shell._ack_rest = noted

    Counted.blocking = blocking
    windows = tumbling(secs=1, key="user", event_time=EventTime("at"))
    with BoltTest(Counted(), INPUTS, windows=windows) as test:
        rows = [["a", 1], ["b", 2], ["a", 3], ["c", 9_500]]
        done = [test.execute(row) for row in rows]
        test.test.run_until(lambda: done[2].acked)
        assert [one.acked for one in done] == [True, True, True, False]
        assert calls == [3]


def test_an_ack_of_the_bolts_own_gets_each_tuple() -> None:
    acked: list[int] = []

    class Acks(Shown):
        def ack(self, tup: Any) -> None:
            acked.append(tup["at"])
            super().ack(tup)

    with BoltTest(Acks(), INPUTS, windows=tumbling(count=2)) as test:
        done = [test.execute(["a", n]) for n in range(4)]
        assert acked == [0, 1, 2, 3]
        assert all(one.acked for one in done)


def test_a_lost_result_fails_all_tuples_of_its_window() -> None:
    class Fails(WindowedBolt):
        def execute_window(self, window: TupleWindow) -> None:
            self.emit([len(window)])

        outputs = ("n",)

    class Refuses(FeederSpout):
        outputs = ("at",)

    from squall import Bolt

    class Refuse(Bolt):
        def execute(self, tup: Any) -> None:
            raise ValueError("no")

    builder = TopologyBuilder()
    builder.spout("s", Refuses())
    builder.bolt("windows", Fails()).windowed(tumbling(count=3)).global_("s")
    builder.bolt("refuse", Refuse()).shuffle("windows")
    with TopologyTest(builder) as test:
        for n in range(3):
            test.feed("s", [n], message_id=n)
        test.run_until_idle()
        assert sorted(test.failed("s")) == [0, 1, 2]


def test_when_a_window_raises_its_tuples_fail_and_leave_the_next_window() -> None:
    class Raises(Shown):
        def execute_window(self, window: TupleWindow) -> None:
            if any(tup["at"] == 2 for tup in window):
                raise ValueError("poison")
            super().execute_window(window)

    with BoltTest(Raises(), INPUTS, windows=sliding(count=3, every_count=1)) as test:
        done = [test.execute(["a", n]) for n in range(5)]
        assert [one.failed for one in done] == [True, True, True, False, False]
        assert at_of(test) == [[0], [0, 1], [3], [3, 4]]
        assert [str(one.error) for one in test.test.errors] == ["poison"]


def test_waiting_tuples_do_not_time_out() -> None:
    conf = {"topology.message.timeout.secs": 5}
    with BoltTest(Shown(), INPUTS, conf, windows=tumbling(secs=60)) as test:
        done = test.execute(["a", 1])
        test.run_for(50)
        assert not done.failed
        test.run_for(15)
        assert done.acked
        assert at_of(test) == [[1]]


def test_a_graceful_stop_fails_what_waits() -> None:
    test = BoltTest(Shown(), INPUTS, windows=tumbling(count=5))
    with test:
        test.execute(["a", 1])
        bolt = test.test.instances("bolt")[0]
        failed: list[Any] = []
        bolt.__dict__["fail"] = failed.append
        bolt.cleanup()
        assert [tup["at"] for tup in failed] == [1]


def test_replays_of_held_tuples_count_once_with_a_message_id_field() -> None:
    conf = {"topology.bolts.message.id.field.name": "at"}
    with BoltTest(Shown(), INPUTS, conf, windows=tumbling(count=3)) as test:
        first = test.execute(["a", 1])
        again = test.execute(["a", 1])
        assert again.acked
        assert not first.acked
        for at in (2, 3):
            test.execute(["a", at])
        assert at_of(test) == [[1, 2, 3]]
        test.execute(["a", 1])  # it is held no more, so this is a new one
        for at in (2, 3):
            test.execute(["a", at])
        assert at_of(test) == [[1, 2, 3], [1, 2, 3]]


def test_more_tuples_than_a_task_may_hold_fail_with_an_error() -> None:
    conf = {"topology.bolts.window.tuples.max": 3}
    with BoltTest(Shown(), INPUTS, conf, windows=tumbling(secs=60)) as test:
        done = [test.execute(["a", n]) for n in range(5)]
        assert [one.failed for one in done] == [False, False, False, True, True]
        assert "the windows hold 3 tuples" in str(test.test.errors[0].error)
        test.run_for(61)
        assert at_of(test) == [[0, 1, 2]]
        assert not test.execute(["a", 9]).failed


# -- keys --


@pytest.mark.parametrize(
    "windows",
    [tumbling(count=2, key="user"), tumbling(secs=10, key="user"), session(gap_secs=5, key="user")],
    ids=["count", "time", "session"],
)
def test_each_key_has_windows_of_its_own(windows: Windows) -> None:
    with BoltTest(Shown(), INPUTS, windows=windows) as test:
        for user, at in (("a", 1), ("b", 2), ("a", 3), ("b", 4)):
            test.execute([user, at])
        test.run_for(20)
        found = values(test.test.emitted("bolt"))
        assert sorted((row[0], row[1], row[2]) for row in found) == [
            ("a", [1, 3], [1, 3]),
            ("b", [2, 4], [2, 4]),
        ]


@pytest.mark.parametrize(
    ("key", "fires"), [("user", [4, 5]), ((), [4])], ids=["begins anew by key", "of all"]
)
def test_tuples_that_are_too_old_for_any_window_are_acked_without_another_tuple(
    key: Any, fires: list[int]
) -> None:
    windows = sliding(secs=10, every_count=2, key=key)
    with BoltTest(Shown(), INPUTS, windows=windows) as test:
        done = [test.execute(["a", at]) for at in (1, 2, 3)]
        test.run_for(5)
        assert not any(one.acked for one in done)
        test.run_for(16)
        assert all(one.acked for one in done)
        assert at_of(test) == [[1, 2]]
        for at in (4, 5):
            test.execute(["a", at])
        assert at_of(test) == [[1, 2], fires]


def test_several_key_fields_are_a_tuple() -> None:
    windows = tumbling(count=1, key=["user", "at"])
    with BoltTest(Shown(), INPUTS, windows=windows) as test:
        assert test.execute(["a", 1]).emitted[0].values[0] == ("a", 1)


def test_new_and_expired_are_those_of_the_key() -> None:
    with BoltTest(Shown(), INPUTS, windows=sliding(secs=10, every_secs=5, key="user")) as test:
        test.execute(["a", 1])
        test.run_for(5)
        for user, at in (("a", 2), ("b", 3)):
            test.execute([user, at])
        test.run_for(5)
        test.execute(["a", 4])
        test.run_for(5)
        found = [row[:4] for row in values(test.test.emitted("bolt"))]
        assert found == [
            ["a", [1], [1], []],
            ["a", [1, 2], [2], []],
            ["b", [3], [3], []],
            ["a", [2, 4], [4], [1]],
            ["b", [3], [], []],
        ]


# -- event time --


def times(lag_secs: float = 0, **more: Any) -> EventTime:
    return EventTime("at", lag_secs=lag_secs, **more)


def test_windows_in_event_time_fire_with_the_watermark() -> None:
    windows = sliding(secs=0.020, every_secs=0.010, event_time=times(0.005))
    with BoltTest(Shown(), INPUTS, windows=windows) as test:
        for at in (603, 605, 607, 618, 626, 636):
            test.execute(["a", at])
        assert at_of(test) == []
        test.run_for(1.1)
        assert at_of(test) == [[603, 605, 607], [603, 605, 607, 618], [618, 626]]
        assert [row[4:] for row in values(test.test.emitted("bolt"))] == [
            [590, 610],
            [600, 620],
            [610, 630],
        ]


@pytest.mark.parametrize("bolt", [Shown, Count], ids=["tuples", "aggregate"])
def test_late_tuples_go_to_their_stream(bolt: type[WindowedBolt]) -> None:
    windows = tumbling(secs=0.010, event_time=times(late_stream="late"))
    with BoltTest(bolt(), INPUTS, windows=windows) as test:
        test.execute(["a", 5])
        test.execute(["a", 25])
        test.run_for(1.1)
        late = test.execute(["b", 24])
        assert late.acked
        assert values(late.emitted, "late") == [
            [{"component": "s", "task": 3, "stream": "default", "values": {"user": "b", "at": 24}}]
        ]


@pytest.mark.parametrize("spoiled", [False, True])
def test_each_tuple_of_a_batch_has_its_own_time_and_key(spoiled: bool) -> None:
    """Some are late, and some cannot be in a window: the others are, and only they."""
    batches: list[int] = []
    count = 10

    class Counts(Count):
        def prepare(self, conf: Any, context: Any) -> None:
            execute = self._squall_shell.execute

            def noted(tuples: list[Any]) -> None:
                batches.append(len(tuples))
                execute(tuples)

            self._squall_shell.execute = noted  # type: ignore[method-assign]

    builder = TopologyBuilder()
    builder.spout("s", Words())
    windows = tumbling(secs=10, key="user", event_time=times(late_stream="late"))
    builder.bolt("w", Counts()).windowed(windows).shuffle("s")
    with TopologyTest(builder) as test:
        test.feed("s", ["a", 1000], message_id="first")
        test.run_for(2)  # the watermark is there
        late_row: list[Any] = ["a", 500]
        rows: list[list[Any]] = [["a", 3000], late_row, ["a", 3002], ["b", 2000], ["b", 1000]]
        spoils: list[list[Any]] = [[["no", "hash"], 3001], ["a", "no time"]]
        if spoiled:
            rows = [
                ["a", 3000.5],
                *spoils,
                *rows[1:3],
                ["b", datetime.fromtimestamp(2, UTC)],
                *rows[4:],
            ]
        for at in range(count):
            for row in rows:
                test.feed("s", row, message_id=(at, str(row)))
        test.run_for(2)
        test.feed("s", ["c", 30_500])
        test.run_for(2)
        ended = [one.values[:2] for one in test.emitted("w", "default")]
        late = [one.values[0]["values"]["at"] for one in test.emitted("w", "late")]
        failed = sorted({what for _, what in test.failed("s")})
    assert max(batches) > 1
    assert sorted(ended) == [["a", 1 + 2 * count], ["b", 2 * count]]
    assert late == [500] * count
    assert failed == (sorted(map(str, spoils)) if spoiled else [])


def test_a_late_tuple_without_a_stream_is_acked() -> None:
    windows = tumbling(secs=0.010, event_time=times())
    with BoltTest(Shown(), INPUTS, windows=windows) as test:
        test.execute(["a", 25])
        test.run_for(1.1)
        assert test.execute(["a", 1]).acked


def test_late_tuples_without_a_stream_are_counted_in_the_log_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    windows = tumbling(secs=0.010, event_time=times())

    def lines() -> list[str]:
        return [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]

    with BoltTest(Shown(), INPUTS, windows=windows) as test:
        test.execute(["a", 25])
        test.run_for(1.1)
        for at in range(5):
            test.execute(["a", at])
        assert [line.partition(" late")[0] for line in lines()] == ["1"]
        test.run_for(60.1)
        test.execute(["a", 7])
        assert [line.partition(" late")[0] for line in lines()] == ["1", "5"]
        assert "['a', 7]" in lines()[1]
        test.execute(["a", 8])
    assert [line.partition(" late")[0] for line in lines()] == ["1", "5", "1"]


@dataclass
class Unshowable:
    """Its next `repr` raises, if it is `armed`."""

    armed: bool = False

    def __repr__(self) -> str:
        armed, self.armed = self.armed, False
        if armed:
            raise RuntimeError("no repr")
        return "Unshowable()"


def test_a_late_tuple_that_cannot_be_shown_in_the_log_is_acked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Arming(Count):
        def timestamp(self, tup: Any) -> int:
            if isinstance(tup["user"], Unshowable):
                tup["user"].armed = True
            return int(tup["at"])

    with BoltTest(Arming(), INPUTS, windows=tumbling(secs=0.010)) as test:
        test.execute(["a", 25])
        test.test.run_for(1.1)
        done = test.execute([Unshowable(), 1])
        assert done.acked
        assert not done.errors
    assert "(its values cannot be shown: RuntimeError: no repr)" in caplog.text


@pytest.mark.parametrize("bolt", [Shown, Count], ids=["tuples", "aggregate"])
def test_within_the_allowed_lateness_the_windows_of_its_key_fire_again(
    bolt: type[WindowedBolt],
) -> None:
    event_time = times(allowed_lateness_secs=0.015, late_stream="late")
    windows = sliding(secs=0.020, every_secs=0.010, key="user", event_time=event_time)
    with BoltTest(bolt(), INPUTS, windows=windows) as test:
        for user, at in (("a", 3), ("b", 4), ("a", 31)):
            test.execute([user, at])
        test.run_for(1.1)
        before = len(test.test.emitted("bolt"))
        done = test.execute(["a", 17])
        again = values(test.test.emitted("bolt")[before:])
        if bolt is Shown:
            assert [(row[0], row[1], row[5]) for row in again] == [
                ("a", [3, 17], 20),
                ("a", [17], 30),
            ]
        else:
            assert again == [["a", 2, 20, True], ["a", 1, 30, True]]
        assert not done.acked
        assert values(test.execute(["a", 15]).emitted, "late")  # too late for that
        test.execute(["a", 300])
        test.run_for(1.1)
        assert done.acked


def test_an_idle_input_does_not_hold_the_windows_back() -> None:
    windows = tumbling(secs=0.010, event_time=times(idle_secs=5))
    inputs = {"s": ["user", "at"], "t": ["user", "at"]}
    with BoltTest(Shown(), inputs, windows=windows) as test:
        for _ in range(3):
            test.execute(["a", 5], source="s", wait_secs=1)
        test.execute(["a", 15], source="s")
        assert at_of(test) == []
        test.run_for(3)
        assert at_of(test) == [[5, 5, 5]]


class Extracts(Shown):
    def timestamp(self, tup: Any) -> datetime:
        at: datetime = tup["at"]
        return at


def test_a_bolt_may_find_the_timestamps_itself() -> None:
    zone = timezone(timedelta(hours=2))
    first = datetime(2026, 3, 29, 12, 0, 5, tzinfo=zone)
    with BoltTest(Extracts(), INPUTS, windows=tumbling(secs=10)) as test:
        for secs in (0, 2, 60):
            test.execute(["a", first + timedelta(seconds=secs)])
        test.run_for(1.1)
        (row,) = values(test.test.emitted("bolt"))
        assert row[1] == [first, first + timedelta(seconds=2)]
        assert row[5] == int(datetime(2026, 3, 29, 10, 0, 10, tzinfo=UTC).timestamp()) * 1000


def test_a_datetime_is_exact_to_the_millisecond() -> None:
    first = datetime(2026, 11, 24, 12, 0, 0, tzinfo=UTC)
    with BoltTest(Extracts(), INPUTS, windows=tumbling(secs=0.001)) as test:
        wanted = [first + timedelta(milliseconds=ms) for ms in range(1, 1000)]
        for at in wanted:
            test.test.feed("s", ["a", at])
        test.run_for(1.1)
        start_ms = int(first.timestamp()) * 1000
        found = [(row[1], row[5]) for row in values(test.test.emitted("bolt"))]
        assert found == [([at], start_ms + ms) for ms, at in enumerate(wanted, start=1)]


@pytest.mark.parametrize("at", [None, "x", True, float("nan"), datetime(2026, 1, 1)])
def test_a_tuple_without_a_timestamp_fails(at: Any) -> None:
    with BoltTest(Extracts(), INPUTS, windows=tumbling(secs=10)) as test:
        done = test.execute(["a", at])
        assert done.failed
        assert "timestamp" in str(done.errors[0])
        assert not test.execute(["a", datetime.now(UTC)]).failed


# -- sessions --


def test_sessions_end_by_the_clock() -> None:
    with BoltTest(Shown(), INPUTS, windows=session(gap_secs=5, key="user")) as test:
        first = test.execute(["a", 1])
        test.run_for(4)
        test.execute(["a", 2])
        test.run_for(4)
        test.execute(["b", 3])
        assert at_of(test) == []
        test.run_for(1.1)
        assert at_of(test) == [[1, 2]]
        assert first.acked
        assert test.test.emitted("bolt")[0].time == pytest.approx(9.0, abs=0.05)
        test.run_for(5)
        assert at_of(test) == [[1, 2], [3]]


# -- aggregates --


@pytest.mark.parametrize(
    "windows",
    [
        tumbling(secs=10, key="user"),
        sliding(secs=10, every_secs=4, key="user"),
        sliding(count=6, every_count=4, key="user"),
        sliding(count=4, every_count=1),
        session(gap_secs=1, key="user"),
        sliding(secs=10, every_secs=4, key="user", event_time=times(2)),
        session(gap_secs=1, key="user", event_time=times(2)),
    ],
)
def test_an_aggregate_counts_what_the_window_of_tuples_holds(windows: Windows) -> None:
    found = []
    for bolt in (Shown(), Count(), CountWithoutHolding()):
        with BoltTest(bolt, INPUTS, windows=windows) as test:
            for n in range(30):
                # (Never within some milliseconds of a window's end by the clock.)
                done = test.execute(["aab"[n % 3], n * 700], wait_secs=0.73)
                if isinstance(bolt, CountWithoutHolding):
                    assert done.acked
            test.run_for(20)
            assert test.test.errors == []
            rows = values(test.test.emitted("bolt"))
        if isinstance(bolt, Shown):
            found.append(sorted((row[5], str(row[0]), len(row[1])) for row in rows))
        else:
            found.append(sorted((row[2], str(row[0]), row[1]) for row in rows))
    if windows.event_time is None:  # a clock is not exact to the millisecond
        found = [[((end + 5) // 10, *row) for end, *row in rows] for rows in found]
    assert found[0]
    assert found[1] == found[0]
    assert found[2] == found[0]


# -- ticks, threads, restarts --


def test_ticks_are_in_no_window() -> None:
    class Ticks(Shown):
        component_conf: Mapping[str, Any] = {"topology.tick.tuple.freq.secs": 1}

        def execute_tick(self, tup: Any) -> None:
            self.emit([None, "tick", [], [], 0, 0])

    with BoltTest(Ticks(), INPUTS, windows=tumbling(secs=3)) as test:
        test.execute(["a", 1])
        test.run_for(3.5)
        assert at_of(test).count([1]) == 1
        assert [row[1] for row in values(test.test.emitted("bolt"))].count("tick") == 3


def test_a_blocking_bolt_gets_its_windows_on_its_thread() -> None:
    import threading

    class Blocking(Shown):
        blocking = True

        def prepare(self, conf: Any, context: Any) -> None:
            self.mine = threading.get_ident()

        def execute_window(self, window: TupleWindow) -> None:
            assert threading.get_ident() == self.mine
            super().execute_window(window)

    with BoltTest(Blocking(), INPUTS, windows=tumbling(secs=1)) as test:
        test.execute(["a", 1])
        test.test.run_until(lambda: bool(at_of(test)))
        assert at_of(test) == [[1]]
        assert test.test.errors == []


# -- the builder --


class Words(FeederSpout):
    outputs = ("user", "at")


def built(bolt: Any, windows: Any = None, conf: Mapping[str, Any] | None = None) -> Any:
    builder = TopologyBuilder()
    builder.spout("s", Words())
    declarer = builder.bolt("w", bolt, conf=conf).shuffle("s")
    if windows is not None:
        declarer.windowed(windows)
    return builder.build().components["w"]


class WithWindows(Shown):
    windows = tumbling(count=7)


def test_windowed_replaces_the_windows_of_the_class() -> None:
    key = "topology.bolts.window.length.count"
    assert built(WithWindows()).conf[key] == 7
    assert built(WithWindows(), tumbling(count=3)).conf[key] == 3
    assert key not in built(WithWindows(), tumbling(secs=3)).conf
    assert built(Shown(), conf={key: 4}).conf[key] == 4


def test_a_windowed_bolt_carries_its_windows_in_words() -> None:
    time = times(lag_secs=5, allowed_lateness_secs=30)
    (step,) = built(Shown(), sliding(secs=60, every_secs=10, key="user", event_time=time)).plan
    assert step == PlanStep(
        "",
        (f"{__name__}:Shown",),
        "sliding 60 s every 10 s of event time, lag 5 s, allowed lateness 30 s, by user",
    )
    (step,) = built(WithWindows()).plan
    assert step.windows == "tumbling 7 values"
    # The time that a method finds is one as well.
    (step,) = built(WithTimestamp(), tumbling(secs=1)).plan
    assert step.windows == "tumbling 1 s of event time"


class WithTimestamp(Shown):
    def timestamp(self, tup: Any) -> int:
        return int(tup["at"])


def test_the_late_stream_is_declared() -> None:
    component = built(Shown(), tumbling(secs=1, event_time=times(late_stream="late")))
    assert component.streams["late"].fields == ("late_tuple",)


class NoMethod(WindowedBolt):
    outputs = ("n",)
    windows = tumbling(count=1)


class HalfAggregate(AggregateBolt):
    outputs = ("n",)
    windows = tumbling(count=1)

    def init(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("bolt", "windows", "problem"),
    [
        (Shown(), None, "it has no windows"),
        (Words(), tumbling(count=1), "windowed() is for a WindowedBolt"),
        (Shown(), 5, "expected tumbling"),
        (Shown(), tumbling(count=1, key="nothing"), "has windows by field 'nothing'"),
        (
            Shown(),
            tumbling(secs=1, event_time=EventTime("when")),
            "takes the timestamp from field 'when'",
        ),
        (
            Shown(),
            tumbling(secs=1, event_time=EventTime(late_stream="late")),
            "only windows in event time have late tuples",
        ),
        (NoMethod(), None, "NoMethod does not define execute_window()"),
        (HalfAggregate(), None, "HalfAggregate does not define add()"),
    ],
)
def test_what_cannot_work_is_refused_by_the_builder(bolt: Any, windows: Any, problem: str) -> None:
    with pytest.raises(InvalidTopologyError) as caught:
        built(bolt, windows)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["execute", "execute_batch", "execute_columns"])
def test_a_windowed_bolt_cannot_take_tuples(name: str) -> None:
    with pytest.raises(InvalidTopologyError, match=f"cannot define {name}"):
        type("Both", (WindowedBolt,), {name: lambda self, tup: None})


def test_a_windowed_bolt_cannot_be_async() -> None:
    async def execute_window(self: Any, window: Any) -> None: ...

    with pytest.raises(InvalidTopologyError, match="cannot be async"):
        type("Late", (WindowedBolt,), {"execute_window": execute_window})


def test_a_worker_refuses_windows_that_cannot_work() -> None:
    conf = {"topology.bolts.late.tuple.stream": "late"}
    with (
        pytest.raises(SquallError, match="only windows in event time"),
        BoltTest(Shown(), INPUTS, conf, windows=tumbling(count=1)),
    ):
        pass


class Counter(FeederSpout):
    outputs = ("n",)


def test_windows_that_cannot_fill_are_refused() -> None:
    conf = {"topology.max.spout.pending": 10}
    with (
        pytest.raises(SquallError, match="would never fill"),
        BoltTest(Shown(), INPUTS, conf, windows=tumbling(count=11)),
    ):
        pass
    with BoltTest(Shown(), INPUTS, conf, windows=tumbling(count=10)) as test:
        for n in range(10):
            test.execute(["a", n])
        assert at_of(test) == [list(range(10))]


# -- tuples that cannot be taken --


class Sum(Count):
    def add(self, total: int, tup: Any) -> int:
        added: int = total + tup["at"]
        return added


KEYED = [
    tumbling(secs=10, key="user"),
    tumbling(count=2, key="user"),
    session(gap_secs=5, key="user"),
]
KEYED_IDS = ["time", "count", "session"]


def held(test: BoltTest) -> int:
    count: int = test.test.instances("bolt")[0]._squall_shell.sizes()["tuples"]
    return count


@pytest.mark.parametrize("windows", KEYED, ids=KEYED_IDS)
@pytest.mark.parametrize("bolt", [Shown, Count], ids=["tuples", "aggregate"])
@pytest.mark.parametrize(
    ("key", "told"),
    [
        (["no", "key"], "unhashable"),
        (math.nan, "nan, of field 'user', is not equal to itself\nemit None or a text"),
    ],
)
def test_a_key_that_cannot_be_looked_up_fails_its_tuple_only(
    bolt: type[WindowedBolt], windows: Windows, key: Any, told: str
) -> None:
    with BoltTest(bolt(), INPUTS, windows=windows) as test:
        rows: list[list[Any]] = [["a", 1], [key, 2], ["a", 3]]
        for row in rows:
            test.test.feed("s", row, message_id=row[1])
        test.run_for(30)
        assert test.test.failed("s") == [2]
        assert sorted(test.test.acked("s")) == [1, 3]
        (fired,) = values(test.test.emitted("bolt"))
        assert fired[:2] == ["a", [1, 3] if bolt is Shown else 2]
        assert "because of its key or message id" in str(test.test.errors[0].error)
        assert told in str(test.test.errors[0].error)
        assert held(test) == 0


def test_a_message_id_that_cannot_be_looked_up_fails_its_tuple_only() -> None:
    conf = {"topology.bolts.message.id.field.name": "at"}
    with BoltTest(Shown(), INPUTS, conf, windows=tumbling(count=2)) as test:
        rows: list[list[Any]] = [["a", 1], ["a", [2]], ["a", 3]]
        for row in rows:
            test.test.feed("s", row, message_id=str(row[1]))
        test.test.run_until_idle()
        assert at_of(test) == [[1, 3]]
        assert test.test.failed("s") == ["[2]"]


@pytest.mark.parametrize("windows", KEYED, ids=KEYED_IDS)
def test_a_tuple_that_cannot_be_added_fails_alone_and_is_not_held(windows: Windows) -> None:
    with BoltTest(Sum(), INPUTS, windows=windows) as test:
        for number, at in enumerate((1, None, None, 2)):
            test.test.feed("s", ["a", at], message_id=number)
        test.run_for(30)
        assert sorted(test.test.failed("s")) == [1, 2]
        assert sorted(test.test.acked("s")) == [0, 3]
        assert [row[:2] for row in values(test.test.emitted("bolt"))] == [["a", 3]]
        assert held(test) == 0


class Merges(Sum):
    def merge(self, first: int, second: int) -> int:
        if first + second > 100:
            raise ValueError("too much")
        return first + second


def test_a_total_that_cannot_be_merged_fails_the_window_of_its_key_only() -> None:
    with BoltTest(Merges(), INPUTS, windows=sliding(secs=10, every_secs=5, key="user")) as test:
        for wait_secs, a in ((1, 90), (5, 90), (8, 1)):
            test.run_for(wait_secs)
            test.test.feed("s", ["a", a], message_id=("a", wait_secs))
            test.test.feed("s", ["b", 1], message_id=("b", wait_secs))
        test.run_for(20)
        found = values(test.test.emitted("bolt"))
        assert [row[1] for row in found if row[0] == "b"] == [1, 2, 2, 1]
        assert [row[1] for row in found if row[0] == "a"] == [90, 91, 1]
        assert [str(one.error) for one in test.test.errors] == ["too much"]
        assert sorted(test.test.failed("s")) == [("a", 1), ("a", 5)]
        assert held(test) == 0


class Looks:
    """Calls that refuse whatever has the text "bad" in it."""

    def check_storable(self, what: Any, called: str) -> None:
        if "bad" in repr(what):
            raise SquallError(f"{called} cannot be stored")


def contents_of(add: Callable[[Any, Any], Any]) -> Any:
    """How totals are added to with checkpoints."""
    bolt = AggregateBolt()
    bolt.__dict__.update(init=lambda: None, add=add, merge=None, _squall_calls=Looks())
    return _Aggregate(bolt)


def appended(total: list[Any], item: Any) -> list[Any]:
    total.append(item)
    return total


def put(total: dict[Any, Any], item: Any) -> dict[Any, Any]:
    total[item] = [item]
    return total


@pytest.mark.parametrize(
    ("total", "add"),
    [
        ([1], appended),
        ([], appended),
        ([[1]], lambda total, item: appended(total, [item])),
        ((1,), lambda total, item: (*total, item)),
        ({1: [1]}, put),
    ],
)
def test_a_value_that_a_total_grows_by_is_looked_at(
    total: Any, add: Callable[[Any, Any], Any]
) -> None:
    """Also the first one after a restart, and as often as values of its type come."""
    contents = contents_of(add)
    bad = "bad" if isinstance(total, dict) else {"bad"}  # of a type of which others may be stored
    before = copy.deepcopy(total)
    with pytest.raises(SquallError, match="a total cannot be stored"):
        contents.add(total, bad)
    assert total == before
    total = contents.add(total, 2)
    total = contents.add(total, 3)
    before = copy.deepcopy(total)
    for _ in range(2):
        with pytest.raises(SquallError):
            contents.add(total, bad)
        assert total == before


def test_a_total_that_does_not_grow_is_left_as_add_has_made_it() -> None:
    """What it has replaced is not known any more."""

    def latest(total: list[Any], item: Any) -> list[Any]:
        total[:] = [*total, item][-2:]
        return total

    contents, total = contents_of(latest), [1]
    for item in (2, 3, {"bad"}):
        total = contents.add(total, item)
    assert total == [3, {"bad"}]


def test_a_total_may_become_one_of_another_type() -> None:
    contents = contents_of(lambda total, item: total + item if item else list(total))
    assert contents.add((1,), (2,)) == (1, 2)
    assert contents.add((1, 2), ()) == [1, 2]
    one_number = contents_of(lambda total, item: item)
    assert [one_number.add([1], item) for item in (5, 2.5, Decimal(1))] == [5, 2.5, Decimal(1)]
