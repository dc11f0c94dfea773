from __future__ import annotations

from typing import Any

import pytest

from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError

LENGTH = "topology.bolts.window.length."
SLIDE = "topology.bolts.window.sliding.interval."


@pytest.mark.parametrize(
    ("windows", "conf"),
    [
        (tumbling(count=5), {LENGTH + "count": 5, SLIDE + "count": 5}),
        (tumbling(secs=1.5), {LENGTH + "duration.ms": 1500, SLIDE + "duration.ms": 1500}),
        (
            sliding(secs=60, every_count=10),
            {LENGTH + "duration.ms": 60000, SLIDE + "count": 10},
        ),
        (
            sliding(count=10, every_secs=2, key=["a", "b"]),
            {
                LENGTH + "count": 10,
                SLIDE + "duration.ms": 2000,
                "topology.bolts.window.key.fields": ["a", "b"],
            },
        ),
        (
            session(
                gap_secs=30,
                key="user",
                event_time=EventTime(
                    "at", lag_secs=5, idle_secs=60, allowed_lateness_secs=10, late_stream="late"
                ),
            ),
            {
                "topology.bolts.window.session.gap.ms": 30000,
                "topology.bolts.window.key.fields": ["user"],
                "topology.bolts.tuple.timestamp.field.name": "at",
                "topology.bolts.tuple.timestamp.max.lag.ms": 5000,
                "topology.bolts.watermark.event.interval.ms": 1000,
                "topology.bolts.watermark.idle.timeout.ms": 60000,
                "topology.bolts.window.allowed.lateness.ms": 10000,
                "topology.bolts.late.tuple.stream": "late",
            },
        ),
    ],
)
def test_windows_are_storms_options(windows: Windows, conf: dict[str, Any]) -> None:
    assert windows.conf() == conf
    TopologyOptions.read(conf)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tumbling(),
        lambda: tumbling(secs=1, count=1),
        lambda: tumbling(secs=0),
        lambda: tumbling(secs=-1),
        lambda: tumbling(secs=float("nan")),
        lambda: tumbling(secs=float("inf")),
        lambda: tumbling(secs=10**12),
        lambda: tumbling(secs="1"),  # type: ignore[arg-type]
        lambda: tumbling(count=0),
        lambda: tumbling(count=1.5),  # type: ignore[arg-type]
        lambda: tumbling(count=True),
        lambda: sliding(secs=1),
        lambda: session(gap_secs=0),
        lambda: tumbling(secs=1, event_time=EventTime("at", lag_secs=-1)).conf(),
    ],
)
def test_lengths_that_make_no_window_are_refused(make: Any) -> None:
    with pytest.raises(InvalidTopologyError):
        make()


def plan(conf: dict[str, Any]) -> WindowPlan:
    return WindowPlan.read(TopologyOptions.read(conf))


def test_a_window_without_an_interval_slides_with_each_tuple_as_in_storm() -> None:
    assert plan({LENGTH + "count": 5}).slide_count == 1
    assert plan({LENGTH + "duration.ms": 5}).slide_count == 1


@pytest.mark.parametrize(
    ("conf", "event_time", "aggregates", "problem"),
    [
        ({}, False, False, "it has no windows"),
        ({LENGTH + "count": 1, LENGTH + "duration.ms": 1}, False, False, "choose one"),
        (
            {LENGTH + "count": 1, "topology.bolts.window.session.gap.ms": 1},
            False,
            False,
            "both a length and a session gap",
        ),
        (
            {LENGTH + "count": 1, "topology.bolts.late.tuple.stream": "late"},
            False,
            False,
            "only windows in event time have late tuples",
        ),
        (
            {LENGTH + "count": 1, "topology.bolts.window.allowed.lateness.ms": 5},
            True,
            False,
            "allowed lateness needs",
        ),
        ({LENGTH + "duration.ms": 9, SLIDE + "count": 1}, False, True, "an aggregate needs"),
        ({LENGTH + "count": 9, SLIDE + "count": 1}, True, True, "an aggregate needs"),
    ],
)
def test_what_is_wrong_is_said(
    conf: dict[str, Any], event_time: bool, aggregates: bool, problem: str
) -> None:
    found = plan(conf).problems(event_time=event_time, aggregates=aggregates)
    assert any(problem in one for one in found), found


def test_what_is_right_has_no_problems() -> None:
    in_time = {LENGTH + "duration.ms": 9, SLIDE + "duration.ms": 3}
    assert plan(in_time).problems(event_time=True, aggregates=True) == []
    assert plan({LENGTH + "count": 9}).problems(event_time=False, aggregates=True) == []
    gap = {"topology.bolts.window.session.gap.ms": 9}
    assert plan(gap).problems(event_time=False, aggregates=True) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tumbling(secs=0),
            "tumbling(): secs is 0; expected seconds, from 0.001 to 2147483",
        ),
        (lambda: tumbling(count=0), "tumbling(): count is 0; expected a whole number from 1"),
        (lambda: sliding(secs=9, every_secs=-1), "sliding(): every_secs is -1; expected seconds"),
        (lambda: session(gap_secs=float("nan")), "session(): gap_secs is nan; expected seconds"),
    ],
)
def test_a_wrong_length_names_the_call(make: Any, message: str) -> None:
    with pytest.raises(InvalidTopologyError) as raised:
        make()
    assert str(raised.value).startswith(message)
