"""Windows, timers and ticks on Spark: the same as on a cluster that gets the tuples in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for, run_here

from squall import Bolt, TopologyBuilder, WindowedBolt
from squall.testing import BoltTest
from squall.windows import EventTime, JoinBolt, Windows, session, sliding, tumbling
from squall_common.component.state import KeyValueState
from squall_common.errors import SquallError
from squall_spark.plan import SparkPlan
from squall_spark.tasks import by_time as by_time_module
from squall_spark.tasks.task import TaskFailedError

Row = tuple[str, int, int]  # key, time in ms, number
Pane = tuple[Any, ...]
Shape = tuple[type[WindowedBolt], Windows]
FIELDS = ["key", "at", "number"]
LONG_AFTER = 10_000_000  # ms; longer than any window
CLOSING = -1  # the number of a tuple that closes the windows before it

AT = EventTime("at", late_stream="late")
SHAPES: list[Shape] = [
    (st.Panes, tumbling(secs=2, event_time=AT)),
    (st.Panes, tumbling(secs=3, key="key", event_time=AT)),
    (st.Panes, sliding(secs=4, every_secs=1.5, event_time=AT)),
    (st.Panes, sliding(secs=1, every_secs=3, key="key", event_time=AT)),
    (st.PanesByMethod, session(gap_secs=2, key="key")),
    (st.Panes, session(gap_secs=1, event_time=AT)),
    (st.Panes, sliding(count=3, every_secs=2, event_time=AT)),
    (st.Panes, sliding(count=3, every_count=2, event_time=AT)),
    (st.Panes, sliding(secs=3, every_count=2, key="key", event_time=AT)),
    (st.Panes, tumbling(count=3)),
    (st.Panes, sliding(count=4, every_count=2, key="key")),
    (st.WindowSums, tumbling(secs=2, event_time=AT)),
    (st.WindowSums, sliding(secs=4, every_secs=1.5, key="key", event_time=AT)),
    (st.WindowSums, session(gap_secs=2, key="key", event_time=AT)),
    (st.WindowSums, sliding(count=4, every_count=2, key="key")),
    (st.WindowSumsWithoutHolding, sliding(secs=3, every_secs=1, event_time=AT)),
]
LATENESS = EventTime("at", lag_secs=1, allowed_lateness_secs=3, late_stream="late")
LATE_SHAPES = [
    *SHAPES,
    (st.Panes, tumbling(secs=2, key="key", event_time=LATENESS)),
    (st.Panes, sliding(secs=4, every_secs=2, event_time=LATENESS)),
    (st.Panes, session(gap_secs=2, key="key", event_time=LATENESS)),
    (st.WindowSums, sliding(secs=4, every_secs=2, key="key", event_time=LATENESS)),
]


@some.composite
def tables(draw: some.DrawFn) -> list[Row]:
    """Rows in any order. No two have the same time: which of them a window that ends with a number
    of tuples has is then a matter of chance on a cluster."""
    times = draw(some.lists(some.integers(0, 15_000), min_size=1, max_size=25, unique=True))
    keys = draw(some.lists(some.sampled_from("abc"), min_size=len(times), max_size=len(times)))
    return [(key, at, n) for n, (key, at) in enumerate(zip(keys, times, strict=True), start=1)]


def by_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[1])


def in_parts(rows: Sequence[Row], cuts: Sequence[int]) -> list[list[Row]]:
    """The rows in micro-batches; none is empty."""
    at = [0, *sorted({cut % len(rows) for cut in cuts} - {0}), len(rows)]
    return [list(rows[i:j]) for i, j in pairwise(at)]


def topology(
    bolt: Bolt, windows: Windows | None, conf: Mapping[str, Any] | None = None
) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("events", st.Events())
    declared = builder.bolt("bolt", bolt).global_("events").conf(dict(conf or {}))
    if windows is not None:
        declared.windowed(windows)
    return builder


def plan(
    bolt: Bolt,
    windows: Windows | None,
    conf: Mapping[str, Any] | None = None,
    *,
    streaming: bool = False,
) -> SparkPlan:
    late = windows is not None and windows.event_time is not None
    return plan_for(
        topology(bolt, windows, conf),
        ["events=/in.json"],
        ["bolt=/out", *(["bolt:late=/late"] if late else [])],
        streaming=streaming,
    )


def columns(rows: Sequence[Row]) -> dict[str, list[list[Any]]]:
    return {"events": [list(column) for column in zip(*rows, strict=True)]}


def found_in(out: Mapping[str, list[list[Any]]]) -> list[Pane]:
    """The panes, and after them the late tuples."""
    late = [("late", row[0]["values"]["number"]) for row in out.get("bolt:late", ())]
    return [tuple(map(_frozen, row)) for row in out["bolt"]] + late


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def on_a_cluster(
    bolt: WindowedBolt, windows: Windows, parts: Sequence[Sequence[Row]]
) -> list[Pane]:
    """The same engine on a clock of the test's, which gets the rows of each part at once and then
    advances the watermark."""
    with BoltTest(bolt, {"events": FIELDS}, windows=windows) as test:
        for part in parts:
            for row in part:
                test.test.feed("events", list(row))
            test.run_for(1.01)
        emitted = test.test.emitted("bolt")
        out: dict[str, list[list[Any]]] = {"bolt": [], "bolt:late": []}
        for one in emitted:
            out["bolt" if one.stream == "default" else "bolt:late"].append(list(one.values))
        return found_in(out)


def in_micro_batches(
    bolt: WindowedBolt, windows: Windows, parts: Sequence[Sequence[Row]]
) -> list[Pane]:
    job = plan(bolt, windows, streaming=True)
    states: dict[int, KeyValueState] = {}
    panes: list[Pane] = []
    late: list[Pane] = []
    for number, part in enumerate(parts):
        out = run_here(job, columns(part), states=states, now_secs=1_000 + number)
        for pane in found_in(out):
            (late if pane[0] == "late" else panes).append(pane)
    return panes + late


def same(windows: Windows, panes: list[Pane], *, until_ms: int | None = None) -> list[Pane]:
    """What has to be the same: the panes of each key, in their order. The end of windows that fire
    by a count is the time of the clock. With `until_ms`, without the windows that the closing tuple
    is in, or would be."""
    by_count = windows.event_time is None and windows.gap_ms is None
    kept = []
    for pane in panes:
        if pane[0] == "late":
            kept.append(pane)
        elif by_count:
            kept.append(pane[:2])
        elif until_ms is None or pane[3] <= until_ms:
            kept.append(pane)
    return sorted(kept, key=lambda pane: str(pane[0]))


def until(windows: Windows, rows: Sequence[Row]) -> int:
    """The last end of a window that a batch job fires."""
    latest = max(at for _, at, _ in rows)
    after = windows.length_ms or windows.gap_ms or (windows.slide_ms or 1) - 1
    return latest + after


@settings(max_examples=30, deadline=None)
@given(some.sampled_from(SHAPES), tables())
def test_a_batch_job_has_the_panes_of_a_cluster_that_gets_the_rows_in_time(
    shape: Shape, rows: list[Row]
) -> None:
    made, windows = shape
    in_event_time = windows.event_time is not None or windows.gap_ms is not None
    closing = [[("a", LONG_AFTER, CLOSING)]] if in_event_time else []
    fed = by_time(rows) if in_event_time else rows
    wanted = on_a_cluster(made(), windows, [*([row] for row in fed), *closing])
    found = found_in(run_here(plan(made(), windows), columns(rows)))
    last = until(windows, rows)
    assert same(windows, found) == same(windows, wanted, until_ms=last)
    assert all(pane[0] != "late" for pane in found)


@settings(max_examples=30, deadline=None)
@given(some.sampled_from(LATE_SHAPES), tables(), some.lists(some.integers(0, 25), max_size=4))
def test_micro_batches_have_the_panes_and_late_tuples_of_a_cluster(
    shape: Shape, rows: list[Row], cuts: list[int]
) -> None:
    made, windows = shape
    parts = in_parts(rows, cuts)
    if windows.event_time is not None or windows.gap_ms is not None:
        parts = [by_time(part) for part in parts]
    wanted = on_a_cluster(made(), windows, parts)
    assert same(windows, in_micro_batches(made(), windows, parts)) == same(windows, wanted)


@settings(max_examples=20, deadline=None)
@given(some.sampled_from(SHAPES), tables(), some.lists(some.integers(0, 25), max_size=4))
def test_a_stream_in_time_has_the_panes_of_the_batch_job(
    shape: Shape, rows: list[Row], cuts: list[int]
) -> None:
    made, windows = shape
    in_event_time = windows.event_time is not None or windows.gap_ms is not None
    if in_event_time:
        rows = by_time(rows)
    last = until(windows, rows)
    parts = in_parts(rows, cuts)
    if in_event_time:
        parts.append([("a", LONG_AFTER, CLOSING)])
    batch = same(windows, found_in(run_here(plan(made(), windows), columns(rows))))
    stream = same(windows, in_micro_batches(made(), windows, parts), until_ms=last)
    assert stream == batch


def test_a_batch_job_fires_what_is_open_at_its_end_and_nothing_twice() -> None:
    rows = [("a", 1_000, 1), ("a", 86_400_000, 2), ("b", 1_500, 3)]
    out = run_here(plan(st.Panes(), tumbling(secs=2, event_time=AT)), columns(rows))
    assert [row[1] for row in out["bolt"]] == [[1, 3], [2]]


def test_an_empty_input_has_no_windows() -> None:
    assert run_here(
        plan(st.Panes(), tumbling(secs=2, event_time=AT)), {"events": [[], [], []]}
    ) == {
        "bolt": [],
        "bolt:late": [],
    }


def test_a_join_takes_its_inputs_together_in_the_order_of_time() -> None:
    builder = TopologyBuilder()
    builder.spout("orders", st.Events())
    builder.spout("names", st.Events())
    builder.spout("silent", st.Events())
    join = JoinBolt("orders", "key").join("names", "key", "orders")
    join = join.left_join("silent", "key", "orders").select("orders:number, names:number")
    bolt = builder.bolt("join", join).windowed(tumbling(secs=10, event_time=EventTime("at")))
    bolt.global_("orders").global_("names").global_("silent")
    data: dict[str, list[list[Any]]] = {
        "orders": [["a", "b", "a"], [1_000, 11_000, 12_000], [1, 2, 3]],
        "names": [["b", "a", "a"], [11_500, 9_999, 10_001], [20, 10, 30]],
        "silent": [[], [], []],
    }
    inputs = [f"{spout}=/in.json" for spout in data]
    out = run_here(plan_for(builder, inputs, ["join=/out"]), data)["join"]
    assert sorted(map(tuple, out)) == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("limits", [(700, 10**9), (10**9, 10_000)])
def test_more_tuples_than_fit_are_sorted_in_files(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    spilled = []
    spill = by_time_module.ByTime._spill

    def count(self: by_time_module.ByTime) -> None:
        spilled.append(len(self._waiting))
        spill(self)

    defaults = dict(zip(("limit", "limit_bytes"), limits, strict=True))
    monkeypatch.setattr(by_time_module.ByTime, "_spill", count)
    monkeypatch.setattr(by_time_module.ByTime.__init__, "__kwdefaults__", defaults)
    rows = [("a", (n * 7919) % 10_007 // 2, n) for n in range(8_000)]
    job = plan(st.Panes(), tumbling(secs=1, event_time=AT))
    panes = [row[1] for row in run_here(job, columns(rows))["bolt"]]
    assert len(spilled) >= 3
    assert len(panes) == 7  # the first one holds what has the time 0
    # Two have the same time: they stay in the order in which they were emitted.
    assert [n for pane in panes for n in pane] == [n for _, _, n in by_time(rows)]


# ---- Timers and ticks ----

TICKS = {"topology.tick.tuple.freq.secs": 2}
FIELD = {"topology.bolts.tuple.timestamp.field.name": "at"}
ROWS = [("a", 1_000, 1), ("a", 9_000, 2), ("a", 5_000, 3)]


def test_ticks_and_timers_come_in_the_time_of_the_input() -> None:
    out = run_here(plan(st.Clock(), None, {**TICKS, **FIELD}), columns(ROWS))["bolt"]
    assert [tuple(row) for row in out] == [
        ("tuple", 1, 1_000),
        ("tick", 0, 3_000),
        ("timer", 1, 3_500),
        ("tick", 0, 5_000),
        ("tuple", 3, 5_000),
        ("tick", 0, 7_000),
        ("timer", 3, 7_500),
        ("tick", 0, 9_000),
        ("tuple", 2, 9_000),
        ("tick", 0, 11_000),
        ("timer", 2, 11_500),
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_without_a_time_the_input_is_one_moment_and_a_tick_ends_it(streaming: bool) -> None:
    job = plan(st.Clock(), None, TICKS, streaming=streaming)
    now_secs = 1_000.0 if streaming else None
    out = run_here(job, columns(ROWS), now_secs=now_secs)["bolt"]
    tuples, rest = out[:3], out[3:]
    assert [row[:2] for row in tuples] == [["tuple", 1], ["tuple", 2], ["tuple", 3]]
    assert sorted(row[:2] for row in rest) == [
        ["tick", 0], ["timer", 1], ["timer", 2], ["timer", 3]
    ]  # fmt: skip
    if streaming:
        assert {row[2] for row in tuples} == {1_000_000}


def test_a_bolt_with_flush_gets_it_in_place_of_the_last_tick() -> None:
    out = run_here(plan(st.FlushingClock(), None, TICKS), columns(ROWS))["bolt"]
    assert [row[0] for row in out] == [*["tuple"] * 3, *["timer"] * 3, "flush"]
    out = run_here(plan(st.FlushingClock(), None, {**TICKS, **FIELD}), columns(ROWS))["bolt"]
    assert [row[0] for row in out].count("tick") == 4
    assert out[-1][0] == "flush"


def test_a_pause_of_years_does_not_take_long() -> None:
    rows = [("a", 0, 1), ("a", 400_000_000_000, 2)]
    out = run_here(plan(st.Clock(), None, {**TICKS, **FIELD}), columns(rows))["bolt"]
    ticks = [row for row in out if row[0] == "tick"]
    assert 10_000 <= len(ticks) <= 10_010
    assert [row for row in out if row[0] == "tuple"][-1] == ["tuple", 2, 400_000_000_000]


def test_an_idle_input_does_not_hold_the_watermark_back() -> None:
    idle = tumbling(secs=2, event_time=EventTime("at", idle_secs=3))
    builder = TopologyBuilder()
    builder.spout("one", st.Events())
    builder.spout("other", st.Events())
    builder.bolt("bolt", st.Panes()).windowed(idle).global_("one").global_("other")
    job = plan_for(builder, ["one=/a.json", "other=/b.json"], ["bolt=/out"], streaming=True)
    states: dict[int, KeyValueState] = {}
    data: dict[str, list[list[Any]]] = {
        "one": [["a"] * 6, list(range(1_000, 13_000, 2_000)), list(range(6))]
    }
    first = run_here(job, {**data, "other": [["a"], [500], [100]]}, states=states, now_secs=1)
    assert [row[1] for row in first["bolt"]] == [[100, 0], [1], [2], [3], [4]]


def test_a_tuple_without_a_timestamp_ends_the_job() -> None:
    rows = [("a", 1, 1), ("a", None, 2)]
    with pytest.raises(TaskFailedError, match="a tuple of 'events' has no timestamp: ValueError"):
        run_here(plan(st.Panes(), tumbling(secs=2, event_time=AT)), columns(rows))  # type: ignore[arg-type]


# ---- Windows by the clock, and what is stored ----


def test_windows_by_the_clock_follow_the_times_of_the_micro_batches() -> None:
    job = plan(st.Panes(), tumbling(secs=10), streaming=True)
    states: dict[int, KeyValueState] = {}
    fired = [
        [
            row[1]
            for row in run_here(job, columns([("a", 0, n)]), states=states, now_secs=at)["bolt"]
        ]
        for n, at in enumerate([100, 104, 111, 112, 140])
    ]
    assert fired == [[], [], [[0, 1]], [], [[2, 3]]]


def test_windows_that_have_changed_do_not_go_on_from_a_checkpoint() -> None:
    """And the engine that was started for them is stopped (tests/unit/conftest.py looks)."""
    states: dict[int, KeyValueState] = {}
    run_here(
        plan(st.Panes(), tumbling(secs=2), streaming=True), columns(ROWS), states=states, now_secs=1
    )
    with pytest.raises(SquallError, match="the windows of 'bolt' have changed"):
        run_here(
            plan(st.Panes(), tumbling(secs=3), streaming=True),
            columns(ROWS),
            states=states,
            now_secs=2,
        )
