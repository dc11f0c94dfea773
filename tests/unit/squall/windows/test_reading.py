"""The time and the key of a tuple. Times are numbers, or datetimes of any zone, also in the hour
that comes twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from squall import WindowedBolt
from squall.testing import BoltTest
from squall.windows import EventTime, tumbling
from squall.windows.reading import key_getter, millis_of, timestamp_getter, whole_times
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions

ROW: Any = {"user": "a", "page": 3, "at": 1_500}
BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
# Half past each hour of a night, as clocks in Berlin show it, and the hours of UTC after midnight.
NIGHTS = [
    (
        "in spring, 2 o'clock is missing",
        datetime(2025, 3, 29, 23, tzinfo=UTC),
        [(0, 0), (1, 0), (3, 0), (4, 0)],
    ),
    (
        "in autumn, 2 o'clock comes twice",
        datetime(2025, 10, 25, 22, tzinfo=UTC),
        [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0)],
    ),
]


def test_a_key_is_a_value_or_the_values_of_several_fields() -> None:
    assert key_getter(["user"])(ROW) == "a"
    assert key_getter(["page", "user"])(ROW) == (3, "a")
    assert key_getter([])(ROW) is None
    with pytest.raises(KeyError):
        key_getter(["user", "nosuch"])(ROW)


def test_a_timestamp_is_in_the_field_that_is_named() -> None:
    def getter(event_time: EventTime | None) -> Any:
        conf = tumbling(secs=1, event_time=event_time).conf()
        return timestamp_getter(WindowPlan.read(TopologyOptions.read(conf)))

    assert getter(EventTime("at"))(ROW) == 1_500
    assert getter(None) is None


@pytest.mark.parametrize(
    ("at", "millis"),
    [
        (0, 0),
        (-1, -1),
        (2**70, 2**70),
        (1_500.9, 1_500),
        (-1_500.9, -1_500),
        (datetime(1970, 1, 1, 0, 0, 2, 5_999, UTC), 2_005),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC), -1),  # the millisecond it is in
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), 253_402_300_799_999),
    ],
)
def test_a_timestamp_is_milliseconds_or_a_datetime(at: Any, millis: int) -> None:
    found = millis_of(at)
    assert (found, type(found)) == (millis, int)


@pytest.mark.parametrize(
    "at", [None, True, "1500", b"1", [1], float("nan"), float("inf"), -float("inf"), 2.0**63]
)
def test_another_value_is_refused(at: Any) -> None:
    with pytest.raises(ValueError, match="neither milliseconds since the epoch nor a datetime"):
        millis_of(at)


def test_a_datetime_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timestamp 2026-01-02 00:00:00 has no time zone"):
        millis_of(datetime(2026, 1, 2))


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ValueError, match="timestamp") as caught:
        millis_of("x" * 10_000)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("times", "whole"),
    [
        ([3, 1, 2], True),
        ([], False),
        ([1, 2.0], False),
        ([1, True], False),  # a bool is refused, alone
        ([1, None], False),
    ],
)
def test_times_are_taken_together_only_if_all_are_whole(times: list[Any], whole: bool) -> None:
    tuples: list[Any] = [{"at": at} for at in times]
    assert whole_times(itemgetter("at"), tuples) == (times if whole else [])


def test_no_time_is_taken_if_one_cannot_be_found() -> None:
    tuples: list[Any] = [{"at": 1}, {}]
    assert whole_times(itemgetter("at"), tuples) == []


class Hours(WindowedBolt):
    outputs = ("shown", "end")

    def execute_window(self, window: Any) -> None:
        self.emit([[f"{tup['at']:%H:%M}" for tup in window], window.end_ms])


@pytest.mark.parametrize(
    ("midnight", "hours"), [night[1:] for night in NIGHTS], ids=[night[0] for night in NIGHTS]
)
def test_each_hour_of_the_night_in_which_clocks_change_has_a_window(
    midnight: datetime, hours: list[tuple[int, int]]
) -> None:
    day = midnight.astimezone(BERLIN).date()
    times = [
        datetime(day.year, day.month, day.day, hour, 30, fold=fold, tzinfo=BERLIN)
        for hour, fold in hours
    ]
    start_ms = int(midnight.timestamp()) * 1000
    assert [millis_of(at) - start_ms for at in times] == [
        n * HOUR_MS + HOUR_MS // 2 for n in range(len(hours))
    ]
    windows = tumbling(secs=3600, event_time=EventTime("at"))
    with BoltTest(Hours(), {"s": ["at"]}, windows=windows) as test:
        for at in [*times, times[-1] + timedelta(hours=2)]:
            test.test.feed("s", [at])
        fired = [one.values for one in test.run_for(1.1)]
        assert test.test.errors == []
    assert fired == [
        [[f"{hour:02}:30"], start_ms + n * HOUR_MS] for n, (hour, _) in enumerate(hours, 1)
    ]
