"""Which steps are one component, and what components send each other."""

from __future__ import annotations

from typing import Any

from tests.support import stream_steps as steps

from squall import StreamBuilder
from squall.streams.planning import tasks_of
from squall.streams.tasks import Task
from squall.windows import tumbling


def planned(builder: StreamBuilder) -> dict[str, Task]:
    tasks = {task.id: task for task in tasks_of(builder._graph)}
    assert builder._graph.problems == []
    return tasks


def inputs(task: Task) -> list[tuple[str, str, str]]:
    return [(output.task.id, output.stream, how) for output, how in task.inputs]


def marks(tasks: dict[str, Task]) -> dict[str, tuple[list[str], list[list[Any]]]]:
    """The components whose marks of event time a task gets, and the streams that it marks."""
    return {
        name: (task.marks_from, task.marked)
        for name, task in tasks.items()
        if task.marks_from or task.marked
    }


def test_marks_lead_from_event_time_to_windows() -> None:
    builder = StreamBuilder()
    timed = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    some = timed.filter(steps.is_even).named("some").map_async(steps.slow_double).named("waits")
    counts = some.key_by(steps.user_of).window(tumbling(secs=60)).count().named("counts")
    counts.window(tumbling(secs=600)).count().named("again")
    timed.map(steps.user_of).named("users").print()
    assert marks(planned(builder)) == {
        "some": (["events"], [["default", 0]]),
        "waits": (["some"], []),
        "key_by-user_of": (["waits"], [["default", -1]]),
        "counts": (["key_by-user_of"], []),
        "all": (["counts"], [["default", -1]]),
        "again": (["all"], []),
    }


def test_there_are_no_marks_without_windows_in_event_time() -> None:
    builder = StreamBuilder()
    timed = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    timed.key_by(steps.user_of).count().print()
    assert marks(planned(builder)) == {}


def test_two_times_of_one_task_have_marks_of_their_own() -> None:
    builder = StreamBuilder()
    rows = builder.source("events", steps.Events(), of=steps.Event).map(steps.double)
    for at in (steps.at_of, steps.amount_of):
        rows.event_time(at).key_by(steps.user_of).window(tumbling(secs=60)).count()
    assert marks(planned(builder)) == {
        "map-double": (["events"], [["default", 1], ["stream-2", 3]]),
        "window-count": (["map-double"], []),
        "window-count-2": (["map-double"], []),
    }


def test_late_values_have_no_marks() -> None:
    builder = StreamBuilder()
    timed = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    counts = timed.key_by(steps.user_of).window(tumbling(secs=60)).count().named("counts")
    late = counts.late().merge(timed).named("late")
    late.key_by(steps.user_of).window(tumbling(secs=60)).count().named("again")
    found = marks(planned(builder))
    assert "again" not in found
    assert "late" not in found


def test_adjacent_narrow_steps_are_one_component() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.map(steps.double).filter(steps.is_even).flat_map(steps.upto).peek(steps.peeked).print()
    tasks = planned(builder)
    assert list(tasks) == ["numbers", "print"]
    assert [step.operation for step in tasks["print"].program] == [
        "map",
        "filter",
        "flat_map",
        "peek",
        "print",
    ]
    assert inputs(tasks["print"]) == [("numbers", "default", "local_or_shuffle")]
    assert tasks["print"].outputs == []


def test_branches_are_fused_too_and_share_their_input() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    even, small = numbers.map(steps.double).branch(steps.is_even, steps.is_small)
    even.print("even ")
    small.print("small ")
    tasks = planned(builder)
    assert list(tasks) == ["numbers", "print"]
    assert [step.parent for step in tasks["print"].program] == [-1, 0, 1, 1, 2, 3]


def test_a_key_moves_values_and_a_count_moves_keys_alone() -> None:
    builder = StreamBuilder()
    words = builder.source("lines", steps.Lines(), of=str).flat_map(steps.words_of)
    words.key_by().count().print()
    words.key_by().reduce(max).print()
    tasks = planned(builder)
    assert list(tasks) == ["lines", "flat_map-words_of", "count", "print", "reduce-max", "print-2"]
    assert inputs(tasks["count"]) == [("flat_map-words_of", "default", "key")]
    assert inputs(tasks["reduce-max"]) == [("flat_map-words_of", "stream-2", "key")]
    assert [o.fields for o in tasks["flat_map-words_of"].outputs] == [["key"], ["key", "value"]]


def test_a_stream_that_is_used_twice_is_sent_as_one() -> None:
    builder = StreamBuilder()
    keyed = builder.source("numbers", steps.Numbers(), of=int).key_by(steps.parity)
    keyed.reduce(max)
    keyed.reduce(min)
    tasks = planned(builder)
    assert len(tasks["key_by-parity"].outputs) == 1


def test_the_two_sides_of_a_join_are_two_streams_even_if_they_are_the_same() -> None:
    builder = StreamBuilder()
    keyed = builder.source("numbers", steps.Numbers(), of=int).key_by(steps.parity)
    keyed.join(keyed, tumbling(count=10)).print()
    tasks = planned(builder)
    assert [stream for _, stream, _ in inputs(tasks["join"])] == ["default", "stream-2"]


def test_steps_with_different_names_are_not_fused() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    doubled = numbers.filter(steps.is_even).map(steps.double).named("doubled", parallelism=3)
    doubled.map(steps.add_one).map(steps.add_one).named("more").print()
    tasks = planned(builder)
    assert list(tasks) == ["numbers", "doubled", "more"]
    assert [step.operation for step in tasks["doubled"].program] == ["filter", "map", "map"]


def test_times_travel_only_where_a_window_asks_for_them() -> None:
    builder = StreamBuilder()
    events = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    users = events.key_by(steps.user_of)
    users.count().print()
    users.window(tumbling(secs=60)).count().print()
    tasks = planned(builder)
    assert [o.fields for o in tasks["key_by-user_of"].outputs] == [["key"], ["key", "at"]]
    windows = tasks["window-count"].windows
    assert windows is not None
    assert windows.key == ("key",)
    assert windows.event_time is not None
    assert windows.event_time.field == "at"


def test_results_of_windows_have_the_time_of_their_end() -> None:
    builder = StreamBuilder()
    events = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    counts = events.key_by(steps.user_of).window(tumbling(secs=60)).count()
    counts.window(tumbling(secs=600)).group()
    tasks = planned(builder)
    assert inputs(tasks["window-group"]) == [("all", "default", "global")]
    assert [o.fields for o in tasks["all"].outputs] == [["key", "value", "at"]]


def test_an_end_without_a_consumer_is_emitted() -> None:
    builder = StreamBuilder()
    builder.source("numbers", steps.Numbers(), of=int).map(steps.double).named("doubled")
    tasks = planned(builder)
    assert [o.fields for o in tasks["doubled"].outputs] == [["value"]]


def test_results_of_a_key_go_one_way_so_that_they_do_not_overtake_each_other() -> None:
    builder = StreamBuilder(parallelism=3)
    keyed = builder.source("numbers", steps.Numbers(), of=int).key_by(steps.parity)
    keyed.count().map(steps.second).to("counts", steps.Keep(), parallelism=2)
    keyed.process(steps.latest_number).to("firsts", steps.Keep(), parallelism=2)
    keyed.window(tumbling(count=2)).count().to("windows", steps.Keep(), parallelism=2)
    tasks = planned(builder)
    assert inputs(tasks["map-second"]) == [("count", "default", "key")]
    assert inputs(tasks["counts"]) == [("map-second", "default", "forward")]
    assert inputs(tasks["firsts"]) == [("process-latest_number", "default", "forward")]
    assert inputs(tasks["windows"]) == [("window-count", "default", "key")]


def test_values_that_are_no_results_by_key_are_shared_out() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int).map(steps.double)
    numbers.to("keep", steps.Keep())
    numbers.key_by().count().map(steps.second).map_async(steps.slow_double).map(steps.double).to(
        "slow", steps.Keep()
    )
    tasks = planned(builder)
    assert inputs(tasks["keep"]) == [("map-double", "default", "shuffle")]
    assert inputs(tasks["map_async-slow_double"]) == [("map-second", "default", "shuffle")]
    assert inputs(tasks["map-double-2"]) == [
        ("map_async-slow_double", "default", "local_or_shuffle")
    ]
