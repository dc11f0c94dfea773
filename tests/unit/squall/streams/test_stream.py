"""Calls that are wrong are reported by `build`, all at once, with the line that made them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import stream_steps as steps

from squall import InvalidTopologyError, StreamBuilder
from squall.streams import Stream
from squall.windows import EventTime, tumbling


def problems(builder: StreamBuilder) -> list[str]:
    with pytest.raises(InvalidTopologyError) as raised:
        builder.build()
    assert str(raised.value)
    found = list(raised.value.problems)
    assert all(problem.startswith("test_stream.py:") for problem in found)
    return [problem.partition(": ")[2] for problem in found]


def numbers(builder: StreamBuilder) -> Stream[int]:
    return builder.source("numbers", steps.Numbers(), of=int)


def test_lambdas_and_closures_are_refused_together() -> None:
    factor = 3

    def scale(n: int) -> int:
        return n * factor

    builder = StreamBuilder()
    numbers(builder).map(lambda n: n + 1).map(scale).key_by(lambda n: n % 2).count()
    assert problems(builder) == [
        "map(<lambda>): a lambda has no import path, so that no worker could find it; "
        "define it with `def` at the top level of a module",
        "map(scale): function 'scale' is made inside a function, so that no worker could import "
        "it; define it with `def` at the top level of a module, and pass it values with "
        "functools.partial(function, ...)",
        "key_by(<lambda>): a lambda has no import path, so that no worker could find it; "
        "define it with `def` at the top level of a module",
    ]


def test_the_plan_reports_the_same() -> None:
    builder = StreamBuilder()
    numbers(builder).map(lambda n: n + 1)
    with pytest.raises(InvalidTopologyError, match="a lambda has no import path"):
        builder.plan()


def wrong_windows(stream: Stream[int]) -> Any:
    stream.key_by().window(60).count()  # type: ignore[arg-type]


def window_with_a_key(stream: Stream[int]) -> Any:
    stream.key_by().window(tumbling(secs=1, key="n")).count()


def window_with_a_field(stream: Stream[int]) -> Any:
    stream.key_by().window(tumbling(secs=1, event_time=EventTime("at"))).count()


def window_without_a_time(stream: Stream[int]) -> Any:
    stream.key_by().window(tumbling(secs=1, event_time=EventTime())).count()


def merge_of_times(stream: Stream[int]) -> Any:
    stream.event_time(steps.double).merge(stream)


def join_of_times(stream: Stream[int]) -> Any:
    stream.event_time(steps.double).key_by().join(stream.key_by(), tumbling(secs=1))


def merge_with_itself(stream: Stream[int]) -> Any:
    stream.merge(stream)


def two_names(stream: Stream[int]) -> Any:
    stream.map(steps.double).named("a").named("b")


def no_predicate(stream: Stream[int]) -> Any:
    stream.branch()


def no_concurrency(stream: Stream[int]) -> Any:
    stream.map_async(steps.slow_double, concurrency=0)


def parallel_windows(stream: Stream[int]) -> Any:
    stream.window(tumbling(count=2)).count().named("all", parallelism=2)


def text_of_fields(stream: Stream[int]) -> Any:
    stream.to("keep", steps.Keep(), fields="n")


def other_builder(stream: Stream[int]) -> Any:
    stream.merge(numbers(StreamBuilder()))


def join_of_builders(stream: Stream[int]) -> Any:
    stream.key_by().join(numbers(StreamBuilder()).key_by(), tumbling(secs=1))


def merge_with_a_list(stream: Stream[int]) -> Any:
    stream.merge([stream])  # type: ignore[arg-type]


def negative_lag(stream: Stream[int]) -> Any:
    stream.event_time(steps.double, lag_secs=-1).key_by().window(tumbling(secs=1)).count()


def negative_lateness(stream: Stream[int]) -> Any:
    times = EventTime(allowed_lateness_secs=-1)
    stream.event_time(steps.double).window(tumbling(secs=1, event_time=times)).count()


def two_sinks_of_one_name(stream: Stream[int]) -> Any:
    stream.to("keep", steps.Keep())
    stream.map(steps.double).to("keep", steps.Keep())


def a_number_as_a_name(stream: Stream[int]) -> Any:
    stream.map(steps.double).named(3)  # type: ignore[arg-type]


def late_without_a_time(stream: Stream[int]) -> Any:
    stream.key_by().window(tumbling(secs=1)).count().late().print()


def late_stream_in_the_windows(stream: Stream[int]) -> Any:
    times = EventTime(late_stream="late")
    stream.event_time(steps.double).window(tumbling(secs=1, event_time=times)).count()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (late_without_a_time, "count(): late() needs windows in event time; call event_time()"),
        (late_stream_in_the_windows, "call late() on the results instead"),
        (other_builder, "merge(): the other stream is one of another StreamBuilder"),
        (join_of_builders, "join(): the other stream is one of another StreamBuilder"),
        (merge_with_a_list, "merge(): [<Stream source(Numbers)>] is not a stream"),
        (negative_lag, "event_time(double): lag_secs is -1; expected seconds"),
        (negative_lateness, "window(): allowed_lateness_secs is -1; expected seconds"),
        (two_sinks_of_one_name, "to(Keep): the id 'keep' is that of to(Keep), test_stream.py"),
        (a_number_as_a_name, "map(double): the id is 3; expected a text"),
        (wrong_windows, "expected tumbling(...), sliding(...) or session(...)"),
        (window_with_a_key, "use key_by() instead"),
        (window_with_a_field, "say what the time is with event_time()"),
        (window_without_a_time, "the stream has no event_time()"),
        (merge_of_times, "only some of the streams have event_time()"),
        (join_of_times, "only one of the streams has event_time()"),
        (merge_with_itself, "a stream is merged with itself"),
        (two_names, "map(double) is 'a' already"),
        (no_predicate, "expected one predicate or more"),
        (no_concurrency, "concurrency is 0; expected 1 or more"),
        (parallel_windows, "windows without a key are in one task"),
        (text_of_fields, "'n' is a text; write ['n']"),
    ],
)
def test_a_wrong_call_is_reported_by_build(call: Any, problem: str) -> None:
    builder = StreamBuilder()
    call(numbers(builder))
    assert any(problem in one for one in problems(builder)), problems(builder)


def test_a_source_without_fields_is_reported() -> None:
    builder = StreamBuilder()
    builder.source("numbers", steps.Numbers(), stream="other")
    (found,) = problems(builder)
    assert "'numbers' has no fields on stream 'other' (it has 'default')" in found


def test_no_executors_are_refused_and_not_taken_for_the_default() -> None:
    builder = StreamBuilder(parallelism=2)
    numbers(builder).map(steps.double).named("it", parallelism=0)
    with pytest.raises(InvalidTopologyError, match="'it': parallelism is 0"):
        builder.build()
