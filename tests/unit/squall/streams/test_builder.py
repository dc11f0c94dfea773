"""Each operation, run in the test kit, and random pipelines against plain Python."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.support import stream_steps as steps

from squall import StreamBuilder
from squall.streams import KeyedStream, Stream
from squall.testing import TopologyTest
from squall.windows import EventTime, Windows, session, sliding, tumbling

EVENTS = [("ann", 5, 1_000), ("bob", 50, 2_000), ("ann", 7, 3_000), ("ann", 1, 61_000)]
LAST = ("eve", 0, 1_000_000)  # takes the watermark past everything


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    steps.SEEN.clear()
    steps.KEPT.clear()


def answer(builder: StreamBuilder, values: Iterable[Sequence[Any]], secs: float = 10) -> list[Any]:
    """What the component "answer" emits, as tuples, if the one source is fed these values."""
    with TopologyTest(builder.to_topology_builder()) as test:
        (source,) = (task for task in test._submitted.spouts)
        for number, row in enumerate(values):
            test.feed(source, list(row), message_id=number)
        test.run_for(secs)
        assert test.errors == []
        return [tuple(emitted.values) for emitted in test.emitted("answer", "default")]


Build = Callable[[Stream[int]], Stream[Any]]


def of_numbers(build: Build, values: Iterable[int], secs: float = 1) -> list[Any]:
    builder = StreamBuilder()
    build(builder.source("numbers", steps.Numbers(), of=int)).named("answer")
    found = answer(builder, [(n,) for n in values], secs)
    return [row[0] if len(row) == 1 else row for row in found]


def events(builder: StreamBuilder) -> Stream[steps.Event]:
    return builder.source("events", steps.Events(), of=steps.Event)


def by_user(builder: StreamBuilder) -> KeyedStream[str, steps.Event]:
    return events(builder).event_time(steps.at_of).key_by(steps.user_of)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s.map(steps.double), [2, 4, 6, 8]),
        (lambda s: s.map(functools.partial(steps.scaled, 10)), [10, 20, 30, 40]),
        (lambda s: s.filter(steps.is_even), [2, 4]),
        (lambda s: s.flat_map(steps.upto), [0, 0, 0, 1, 1, 2]),
        (lambda s: s.flat_map(steps.twice), [1, 1, 2, 2, 3, 3, 4, 4]),
        (lambda s: s.map_async(steps.slow_double), [2, 4, 6, 8]),
        (lambda s: s.map_async(steps.slow_double).map(steps.add_one), [3, 5, 7, 9]),
        (lambda s: s.through("negate", steps.Negate(), of=int).map(steps.double), [-8, -6, -4, -2]),
        (lambda s: s.branch(steps.is_even, steps.is_small)[1], [1, 3]),
        (lambda s: s.branch(steps.is_big, steps.is_even)[1].map(steps.double), [4, 8]),
        (lambda s: s.merge(s.map(steps.double)), [1, 2, 2, 3, 4, 4, 6, 8]),
        (
            lambda s: s.key_by(steps.parity).count(),
            [("even", 1), ("even", 2), ("odd", 1), ("odd", 2)],
        ),
        (
            lambda s: s.key_by(steps.parity).reduce(steps.plus),
            [("even", 2), ("even", 6), ("odd", 1), ("odd", 4)],
        ),
        (
            lambda s: s.key_by(steps.parity).aggregate(steps.zero, steps.plus, str),
            [("even", "2"), ("even", "6"), ("odd", "1"), ("odd", "4")],
        ),
        (
            lambda s: s.key_by(steps.parity).update_state_by_key(steps.plus, steps.zero),
            [("even", 2), ("even", 6), ("odd", 1), ("odd", 4)],
        ),
        (lambda s: s.key_by(steps.parity).count().map(len), [2, 2, 2, 2]),
        (lambda s: s.key_by(steps.parity).map(steps.double), [2, 4, 6, 8]),
    ],
)
def test_an_operation(build: Build, expected: list[Any]) -> None:
    assert sorted(of_numbers(build, [1, 2, 3, 4])) == expected


def test_peek_sees_every_value_and_passes_it_on() -> None:
    assert of_numbers(lambda s: s.peek(steps.peeked), [1, 2]) == [1, 2]
    assert steps.SEEN == [1, 2]


def test_print_writes_a_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    of_numbers(lambda s: s.print("n = ").map(steps.double), [1, 2])
    assert capsys.readouterr().out == "n = 1\nn = 2\n"


def test_process_keeps_a_state_for_each_key() -> None:
    builder = StreamBuilder()
    events(builder).key_by(steps.user_of).process(steps.first_seen).named("answer")
    assert answer(builder, EVENTS) == [("ann is new",), ("bob is new",)]


def test_a_spout_with_several_fields_gives_a_dict_without_a_type() -> None:
    builder = StreamBuilder()
    builder.source("events", steps.Events()).map(sorted).named("answer")
    assert answer(builder, EVENTS[:1]) == [(["amount", "at", "user"],)]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [((), {"key": "even", "value": 1}), (["kind", "n"], {"kind": "even", "n": 1})],
)
def test_to_gives_values_to_a_bolt(fields: Sequence[str], kept: dict[str, Any]) -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.key_by(steps.parity).count().to("keep", steps.Keep(), fields=fields)
    answer(builder, [(2,)])
    assert [kept] == steps.KEPT


def test_an_output_has_its_id_and_fields_and_goes_on() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    rows = numbers.key_by(steps.parity).count().output("answer", ["kind", "n"])
    rows.key_by(steps.second).reduce(max).to("largest", steps.Keep())
    rows.to("keep", steps.Keep())
    assert answer(builder, [(2,)]) == [("even", 1)]
    assert {"kind": "even", "n": 1} in steps.KEPT
    assert {"key": 1, "value": ("even", 1)} in steps.KEPT


WINDOW = 60_000


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            lambda k: k.window(tumbling(secs=60)).count(),
            [("ann", 2, 0, WINDOW), ("bob", 1, 0, WINDOW), ("ann", 1, WINDOW, 2 * WINDOW)],
        ),
        (
            lambda k: k.window(tumbling(secs=60)).apply(steps.best),
            [("ann", 7, 0, WINDOW), ("bob", 50, 0, WINDOW), ("ann", 1, WINDOW, 2 * WINDOW)],
        ),
        (
            lambda k: (
                k.map(steps.amount_of).key_by(steps.parity).window(tumbling(secs=60)).reduce(max)
            ),
            [("odd", 7, 0, WINDOW), ("even", 50, 0, WINDOW), ("odd", 1, WINDOW, 2 * WINDOW)],
        ),
        (
            lambda k: k.window(tumbling(secs=60)).aggregate(list, steps.append, steps.plus, sum),
            [("ann", 12, 0, WINDOW), ("bob", 50, 0, WINDOW), ("ann", 1, WINDOW, 2 * WINDOW)],
        ),
        (
            lambda k: k.window(sliding(secs=120, every_secs=60)).count(),
            [
                ("ann", 2, -WINDOW, WINDOW),
                ("bob", 1, -WINDOW, WINDOW),
                ("ann", 3, 0, 2 * WINDOW),
                ("bob", 1, 0, 2 * WINDOW),
                ("ann", 1, WINDOW, 3 * WINDOW),
            ],
        ),
        (
            lambda k: k.window(session(gap_secs=10)).count(),
            [("bob", 1, 2_000, 12_000), ("ann", 2, 1_000, 13_000), ("ann", 1, 61_000, 71_000)],
        ),
        (
            lambda k: k.map(steps.amount_of).window(tumbling(secs=60)).reduce(max),
            [(None, 50, 0, WINDOW), (None, 1, WINDOW, 2 * WINDOW)],
        ),
        (
            lambda k: k.window(tumbling(secs=60)).count().window(tumbling(secs=600)).count(),
            [(None, 3, 0, 600_000), (None, 1, 600_000, 1_200_000)],
        ),
    ],
)
def test_windows_in_event_time(build: Any, expected: list[Any]) -> None:
    builder = StreamBuilder()
    build(by_user(builder)).named("answer")
    rows = [*EVENTS, LAST]
    if expected[0][2:] == (0, 600_000):
        rows.append(("eve", 0, 2_000_000))  # which ends windows of windows, too
    assert answer(builder, rows) == expected


@pytest.mark.parametrize(
    ("first_lag_secs", "windows", "lag_ms"),
    [
        (0, tumbling(secs=600), 1),  # results of one end come in several turns
        (5, tumbling(secs=600), 5_000),
        (0, tumbling(secs=600, event_time=EventTime(idle_secs=9)), 1),
        (5, tumbling(secs=600, event_time=EventTime(lag_secs=60)), 60_000),
    ],
)
def test_windows_of_windows_wait_for_results_of_the_same_time(
    first_lag_secs: float, windows: Windows, lag_ms: int
) -> None:
    builder = StreamBuilder()
    timed = events(builder).event_time(steps.at_of, lag_secs=first_lag_secs)
    counts = timed.key_by(steps.user_of).window(tumbling(secs=60)).count()
    counts.window(windows).count().named("answer")
    bolts = builder.to_topology_builder().build().bolts
    assert bolts["answer"].conf["topology.bolts.tuple.timestamp.max.lag.ms"] == lag_ms
    (first,) = (bolt for name, bolt in bolts.items() if name != "answer" and "window" in name)
    assert first.conf["topology.bolts.tuple.timestamp.max.lag.ms"] == first_lag_secs * 1000


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (tumbling(count=2), [("even", 6), ("odd", 4)]),
        (sliding(secs=100, every_count=2), [("even", 6), ("odd", 4)]),
    ],
)
def test_windows_of_a_number_of_values(windows: Any, expected: list[Any]) -> None:
    def build(stream: Stream[int]) -> Stream[Any]:
        return stream.key_by(steps.parity).window(windows).reduce(steps.plus)

    assert sorted(row[:2] for row in of_numbers(build, [1, 2, 3, 4, 5])) == expected


def test_windows_by_the_clock() -> None:
    def build(stream: Stream[int]) -> Stream[Any]:
        return stream.key_by(steps.parity).window(tumbling(secs=1)).count()

    assert sorted(row[:2] for row in of_numbers(build, [1, 2, 3], 2)) == [("even", 1), ("odd", 2)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("odd", (5, 5)), ("odd", (5, 7)), ("odd", (7, 5)), ("odd", (7, 7))]),
        (
            "left_join",
            [
                ("even", (50, None)),
                ("odd", (5, 5)),
                ("odd", (5, 7)),
                ("odd", (7, 5)),
                ("odd", (7, 7)),
            ],
        ),
        ("co_group", [("even", ([50], [])), ("odd", ([5, 7], [5, 7]))]),
    ],
)
def test_joins_of_windows(kind: str, expected: list[Any]) -> None:
    builder = StreamBuilder()
    timed = events(builder).event_time(steps.at_of)
    left = timed.map(steps.amount_of).key_by(steps.parity)
    right = timed.filter(steps.Event.cheap).map(steps.amount_of).key_by(steps.parity)
    getattr(left, kind)(right, tumbling(secs=60)).named("answer")
    found = answer(builder, [*EVENTS[:3], LAST])
    assert sorted(row[:2] for row in found if row[3] == WINDOW) == expected


def test_full_and_right_joins_keep_what_has_no_partner() -> None:
    for kind, left_only in (("full_join", True), ("right_join", False)):
        builder = StreamBuilder()
        timed = events(builder).event_time(steps.at_of)
        small, big = timed.branch(steps.Event.cheap, steps.user_of)
        joined = small.key_by(steps.user_of).map(steps.amount_of).key_by(steps.parity)
        other = big.map(steps.amount_of).key_by(steps.parity)
        getattr(joined, kind)(other, tumbling(secs=60)).named("answer")
        rows = [*EVENTS[:2], LAST, ("eve", 50, 1_000_000)]
        found = sorted(row[:2] for row in answer(builder, rows) if row[3] == WINDOW)
        assert found == [("even", (None, 50)), *([("odd", (5, None))] if left_only else [])]


# -- failures --


def test_a_value_that_fails_fails_its_message_alone_and_is_named() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.flat_map(steps.twice).map(steps.fail_on_three).named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        for n in (1, 3, 4):
            test.feed("numbers", [n], message_id=n)
        test.run_until_idle()
        assert [e.values for e in test.emitted("answer")] == [[1], [1], [4], [4]]
        assert (test.acked("numbers"), test.failed("numbers")) == ([1, 4], [3])
        (error,) = {str(one.error) for one in test.errors}
        (note,) = test.errors[0].error.__notes__
    assert error == "three is not allowed"
    assert note.startswith("in map(fail_on_three), test_builder.py:")
    assert note.endswith("for the value 3")


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map_async(steps.slow_double).key_by(steps.parity).reduce(steps.fail_on_three),
        lambda s: s.key_by(steps.parity).window(tumbling(count=2)).apply(steps.raising),
        lambda s: s.key_by(steps.parity).window(tumbling(count=2)).reduce(steps.fail_on_three),
        lambda s: s.key_by(steps.parity).process(steps.fail_on_three),
    ],
)
def test_errors_of_operations_name_the_step(build: Any) -> None:
    builder = StreamBuilder()
    build(builder.source("numbers", steps.Numbers(), of=int)).named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        for n in (2, 4):
            test.feed("numbers", [n], message_id=n)
        test.run_until_idle()
        assert test.errors
        assert all("test_builder.py:" in one.error.__notes__[0] for one in test.errors)
        assert test.failed("numbers")


def test_a_window_goes_on_without_a_value_that_cannot_be_added() -> None:
    builder = StreamBuilder()
    timed = events(builder).event_time(steps.at_of)
    amounts = timed.map(steps.amount_of).key_by(steps.parity)
    amounts.window(tumbling(secs=60)).aggregate(steps.no_numbers, steps.adding, steps.joined).named(
        "answer"
    )
    with TopologyTest(builder.to_topology_builder()) as test:
        rows = [("a", 1, 1), ("a", 3, 2), ("a", 5, 3), LAST]
        for number, row in enumerate(rows):
            test.feed("events", list(row), message_id=number)
        test.run_for(10)
        assert [e.values[1] for e in test.emitted("answer")] == [[1, 5]]
        assert (test.failed("events"), test.acked("events")) == ([1], [0, 2])


def test_a_row_that_makes_no_value_fails_alone() -> None:
    builder = StreamBuilder()
    builder.source("events", steps.Events(), of=steps.picky).map(steps.amount_of).named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        for number, row in enumerate([("a", 1, 1), ("a", -1, 2), ("b", 3, 3)]):
            test.feed("events", list(row), message_id=number)
        test.run_until_idle()
        assert [e.values for e in test.emitted("answer")] == [[1], [3]]
        assert test.failed("events") == [1]


# -- random pipelines --


@dataclass(frozen=True)
class Operation:
    """An operation of streams, and what it does to a list."""

    name: str
    build: Callable[[Stream[int]], Stream[int]]
    plain: Callable[[list[int]], list[int]]


def running(kind: str) -> Callable[[list[int]], list[int]]:
    def plain(values: list[int]) -> list[int]:
        totals: Counter[str] = Counter()
        found = []
        for n in values:
            totals[steps.parity(n)] += 1 if kind == "count" else n
            found.append(totals[steps.parity(n)])
        return found

    return plain


def arms(values: list[int]) -> list[int]:
    even = [n for n in values if steps.is_even(n)]
    small = [n for n in values if not steps.is_even(n) and steps.is_small(n)]
    return [n * 2 for n in even] + [n + 1 for n in small]


def branched(stream: Stream[int]) -> Stream[int]:
    even, small = stream.branch(steps.is_even, steps.is_small)
    return even.map(steps.double).merge(small.map(steps.add_one))


NARROW = [
    Operation("map", lambda s: s.map(steps.double), lambda v: [n * 2 for n in v]),
    Operation("add", lambda s: s.map(steps.add_one), lambda v: [n + 1 for n in v]),
    Operation("filter", lambda s: s.filter(steps.is_even), lambda v: [n for n in v if n % 2 == 0]),
    Operation(
        "flat_map",
        lambda s: s.flat_map(steps.upto),
        lambda v: [x for n in v for x in steps.upto(n)],
    ),
    Operation("twice", lambda s: s.flat_map(steps.twice), lambda v: [x for n in v for x in (n, n)]),
    Operation("branch", branched, arms),
    Operation("async", lambda s: s.map_async(steps.slow_double), lambda v: [n * 2 for n in v]),
    Operation("merge", lambda s: s.merge(s.map(steps.add_one)), lambda v: v + [n + 1 for n in v]),
]
# Their results depend on the order, which holds by key only where one task sends to one: they end a
# pipeline, whose totals are then the same in any order.
LAST_ONES = [
    Operation(
        "count", lambda s: s.key_by(steps.parity).count().map(steps.second), running("count")
    ),
    Operation("none", lambda s: s.map(int), lambda v: v),
]


@settings(max_examples=60, deadline=None)
@given(
    some.lists(some.sampled_from(NARROW), max_size=5),
    some.sampled_from(LAST_ONES),
    some.lists(some.integers(0, 12), max_size=12),
    some.integers(1, 3),
)
def test_a_random_pipeline_is_what_plain_python_computes(
    pipeline: list[Operation], last: Operation, values: list[int], parallelism: int
) -> None:
    builder = StreamBuilder(parallelism=parallelism)
    stream: Stream[int] = builder.source("numbers", steps.Numbers(), of=int)
    expected = list(values)
    for operation in [*pipeline, last]:
        stream = operation.build(stream)
        expected = operation.plain(expected)
    stream.named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        for number, n in enumerate(values):
            test.feed("numbers", [n], message_id=number)
        test.run_until_idle()
        assert test.errors == []
        assert Counter(e.values[0] for e in test.emitted("answer")) == Counter(expected)
        assert sorted(test.acked("numbers")) == list(range(len(values)))


def test_ticks_of_the_topology_reach_no_stream() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.map(steps.double).map_async(steps.slow_double).key_by().count().named("answer")
    with TopologyTest(builder.to_topology_builder(), {"topology.tick.tuple.freq.secs": 1}) as test:
        test.feed("numbers", [1], message_id=1)
        test.run_for(5)
        assert test.errors == []
        assert [e.values for e in test.emitted("answer")] == [[4, 1]]


SUMS_OF_ONE = [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda k: k.aggregate(list, steps.appending), SUMS_OF_ONE),
        (lambda k: k.update_state_by_key(steps.appending, list), SUMS_OF_ONE),
        (
            lambda k: k.process(steps.append_and_yield),
            [[1], [1, -1], [1, -1, 2], [1, -1, 2, -2]],
        ),
    ],
)
def test_what_was_emitted_stays_when_a_state_is_changed_in_place(
    build: Callable[[Any], Stream[Any]], expected: list[list[int]]
) -> None:
    """All values come in one batch, so that the state changes before the first is sent."""
    keyed: Build = lambda s: build(s.key_by(steps.zero_of))  # noqa: E731
    values = [1, 2, 3][: 2 if len(expected) == 4 else 3]
    found = [row[1] if isinstance(row, tuple) else row for row in of_numbers(keyed, values)]
    assert found == expected


def test_a_text_that_process_returns_is_not_taken_apart() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.key_by().process(steps.a_text).named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        test.feed("numbers", [1], message_id=1)
        test.run_for(1)
        assert test.emitted("answer") == []
        (error,) = test.errors
    assert "process: the function returned '1 is one value'; expected a list of values" in str(
        error
    )


def test_a_total_that_was_emitted_stays_when_a_late_value_is_added_in_place() -> None:
    builder = StreamBuilder()
    times = EventTime(allowed_lateness_secs=100)
    windows = by_user(builder).window(tumbling(secs=60, event_time=times))
    windows.aggregate(list, steps.append_amount, steps.joined).named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        for number, row in enumerate([("ann", 5, 1_000), ("bob", 1, 61_000), ("ann", 7, 2_000)]):
            test.feed("events", list(row), message_id=number)
            test.run_for(2)
        assert test.errors == []
        found = [emitted.values[:2] for emitted in test.emitted("answer")]
    assert found == [["ann", [5]], ["ann", [5, 7]]]


def conf_of_windows(
    build: Callable[[Stream[steps.Event], Stream[steps.Event]], Stream[Any]],
) -> Any:
    """The configuration of windows over two streams, of lags of 5 s and 60 s."""
    builder = StreamBuilder()
    first = builder.source("first", steps.Events(), of=steps.Event)
    second = builder.source("second", steps.Events(), of=steps.Event)
    build(
        first.event_time(steps.at_of, lag_secs=5, watermark_interval_secs=0.5),
        second.event_time(steps.at_of, lag_secs=60, idle_secs=9),
    ).named("answer")
    return builder.build().bolts["answer"].conf


MINUTES = tumbling(secs=60)


@pytest.mark.parametrize(
    "build",
    [
        lambda one, other: one.merge(other).key_by(steps.user_of).window(MINUTES).count(),
        lambda one, other: other.merge(one).key_by(steps.user_of).window(MINUTES).count(),
        lambda one, other: one.key_by(steps.user_of).join(other.key_by(steps.user_of), MINUTES),
        lambda one, other: other.key_by(steps.user_of).join(one.key_by(steps.user_of), MINUTES),
    ],
)
def test_windows_over_several_streams_wait_for_the_largest_lag(build: Any) -> None:
    conf = conf_of_windows(build)
    assert conf["topology.bolts.tuple.timestamp.max.lag.ms"] == 60_000
    assert conf["topology.bolts.watermark.event.interval.ms"] == 500
    assert "topology.bolts.watermark.idle.timeout.ms" not in conf  # one of them always speaks


def test_windows_keep_what_the_stream_says_of_its_time() -> None:
    """An allowed lateness alone does not take the lag away, which would make values late."""
    late = EventTime(allowed_lateness_secs=30, watermark_interval_secs=2)
    conf = conf_of_windows(
        lambda _, two: two.key_by(steps.user_of).window(replace(MINUTES, event_time=late)).count()
    )
    assert conf["topology.bolts.window.allowed.lateness.ms"] == 30_000
    assert conf["topology.bolts.watermark.event.interval.ms"] == 2_000
    assert conf["topology.bolts.tuple.timestamp.max.lag.ms"] == 60_000
    assert conf["topology.bolts.watermark.idle.timeout.ms"] == 9_000


@pytest.mark.parametrize(
    ("build", "values", "acked", "reason"),
    [
        (
            lambda s: s.key_by(steps.zero_of).aggregate(list, steps.forgets_to_return),
            [1],
            [],
            "returned None for a total that is a list; return the total",
        ),
        (
            lambda s: s.window(tumbling(count=1)).aggregate(
                list, steps.forgets_to_return, steps.joined
            ),
            [1],
            [],
            "returned None for a total that is a list; return the total",
        ),
        (
            lambda s: s.window(sliding(secs=1, every_count=1)).aggregate(
                list, steps.forgets_to_return, steps.joined
            ),
            [1],
            [],
            "returned None for a total that is a list; return the total",
        ),
        (
            lambda s: s.event_time(steps.time_of_a_text).window(tumbling(secs=1)).count(),
            [1],
            [],
            "timestamp '2026-01-01' is neither milliseconds",
        ),
        (
            lambda s: s.event_time(steps.time_of_a_text).window(tumbling(secs=1)).count(),
            [2],
            [],
            "timestamp 1700000000000000 is after the year 9999; expected milliseconds",
        ),
        (
            lambda s: s.key_by(steps.not_a_number).count(),
            [1],
            [],
            "equals nothing, not even itself",
        ),
        (lambda s: s.key_by(steps.not_a_number).count(), [2], [], "the key is nan, which equals"),
        (lambda s: s.map(steps.nameless_three).print(), [2, 3, 4], [2, 4], "it has no name"),
    ],
)
def test_a_wrong_value_fails_alone_and_says_why(
    build: Build, values: list[int], acked: list[int], reason: str
) -> None:
    builder = StreamBuilder()
    build(builder.source("numbers", steps.Numbers(), of=int)).named("answer")
    with TopologyTest(builder.to_topology_builder()) as test:
        for n in values:
            test.feed("numbers", [n], message_id=n)
        test.run_for(2)
        assert test.acked("numbers") == acked
        (error,) = test.errors
    assert reason in str(error.error)
    assert any("test_builder.py" in note for note in error.error.__notes__)


MINUTE = tumbling(secs=60)
VISIT = session(gap_secs=10)


@pytest.mark.parametrize(
    "results",
    [
        lambda users: users.window(MINUTE).count(),
        lambda users: users.window(MINUTE).aggregate(list, steps.append_amount, steps.joined),
        lambda users: users.window(MINUTE).group(),
        lambda users: users.window(VISIT).count(),
        lambda users: users.window(sliding(secs=60, every_count=1)).count(),
        lambda users: users.co_group(users, MINUTE),
        lambda users: events_of(users).window(MINUTE).count(),
    ],
)
def test_values_that_are_late_are_a_stream(results: Any) -> None:
    """The third event comes when the second has moved the watermark past its window."""
    builder = StreamBuilder()
    windows = results(by_user(builder)).named("windows", parallelism=1)
    late = windows.late()
    late.map(steps.amount_of).output("amounts")
    late.key_by(steps.user_of).window(tumbling(secs=600)).count().named("again")
    rows = [("ann", 5, 1_000), ("ann", 1, 700_000), ("ann", 7, 2_000), ("ann", 8, 650_000)]
    with TopologyTest(builder.to_topology_builder()) as test:
        for number, row in enumerate([*rows, ("ann", 9, 2_000_000)]):
            test.feed("events", list(row), message_id=number)
            test.run_for(2)
        assert test.errors == []
        sides = 2 if "co_group" in str(windows) else 1
        amounts = sorted(emitted.values[0] for emitted in test.emitted("amounts", "default"))
        assert amounts == sorted([7, 8] * sides)
        # Each has its own time, so windows over late values are in event time, too.
        found = [tuple(emitted.values) for emitted in test.emitted("again")]
        assert found == [("ann", sides, 0, 600_000)]
        assert 2 in test.acked("events")


def events_of(users: KeyedStream[str, steps.Event]) -> Stream[steps.Event]:
    """The same events, without a key."""
    return users.filter(bool)


def test_late_values_that_nobody_takes_do_not_change_the_topology() -> None:
    builder = StreamBuilder()
    by_user(builder).window(MINUTE).count().named("windows")
    (windows,) = (bolt for name, bolt in builder.build().bolts.items() if name == "windows")
    assert list(windows.streams) == ["default"]
    assert "topology.bolts.late.tuple.stream" not in windows.conf
