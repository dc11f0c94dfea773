"""The plan as text, and what components carry of it."""

from __future__ import annotations

import functools
from operator import itemgetter

from tests.support import stream_steps as steps

from squall import StreamBuilder
from squall.windows import session, sliding, tumbling
from squall.windows.spec import EventTime
from squall_common.topology.plan import PlanStep


def test_the_plan_says_what_runs_where() -> None:
    builder = StreamBuilder(parallelism=4)
    events = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    users = events.filter(steps.Event.cheap).key_by(steps.user_of).named("cheap", parallelism=2)
    counts = users.window(tumbling(secs=60)).count().named("count", tasks=8)
    counts.map(steps.word_and_count).print()
    users.window(sliding(count=10, every_count=5)).group()
    users.window(session(gap_secs=1.5)).group()
    users.window(sliding(secs=60, every_count=1)).group()
    assert builder.plan().rows == (
        ("events", "×1", "source(Events)", ""),
        (
            "cheap",
            "×2",
            "event_time(at_of), filter(Event.cheap), key_by(user_of)",
            "<- events (local or shuffle)",
        ),
        ("count", "×4, 8 tasks", "count() over tumbling 60 s of event time", "<- cheap (by key)"),
        ("print", "×4", "map(word_and_count), print()", "<- count (by key)"),
        (
            "window-group",
            "×4",
            "group() over sliding 10 values every 5 values of event time",
            "<- cheap:stream-2 (by key)",
        ),
        (
            "window-group-2",
            "×4",
            "group() over sessions with a gap of 1.5 s of event time",
            "<- cheap:stream-2 (by key)",
        ),
        (
            "window-group-3",
            "×4",
            "group() over sliding 60 s every 1 value of event time",
            "<- cheap:stream-2 (by key)",
        ),
    )


def test_sinks_have_one_executor_in_the_plan_as_in_the_topology() -> None:
    builder = StreamBuilder(parallelism=4)
    builder.source("numbers", steps.Numbers(), of=int).to("keep", steps.Keep())
    (_, (*_, size, _, _)) = builder.plan().rows
    assert (size, builder.build().components["keep"].size) == ("×1", "×1")


def test_the_plan_says_the_lag_and_the_lateness() -> None:
    builder = StreamBuilder()
    events = builder.source("events", steps.Events(), of=steps.Event)
    timed = events.event_time(steps.at_of, lag_secs=2).key_by(steps.user_of)
    timed.window(tumbling(secs=60)).count()
    late = EventTime(lag_secs=2, allowed_lateness_secs=30)
    timed.window(tumbling(secs=60, event_time=late)).group()
    assert [row[2] for row in builder.plan().rows[2:]] == [
        "count() over tumbling 60 s of event time, lag 2 s",
        "group() over tumbling 60 s of event time, lag 2 s, allowed lateness 30 s",
    ]


def test_components_carry_their_steps_with_the_functions() -> None:
    builder = StreamBuilder()
    events = builder.source("events", steps.Events(), of=steps.Event).event_time(steps.at_of)
    cheap = events.filter(steps.Event.cheap).key_by(steps.user_of).named("cheap")
    cheap.window(tumbling(secs=60)).count().named("count")
    cheap.reduce(max).named("largest")
    cheap.map(itemgetter(0)).branch(bool, steps.is_even)
    components = builder.build().components
    here = "tests.support.stream_steps"
    assert components["events"].plan == (
        PlanStep("source(Events)", (f"{here}:Events", f"{here}:Event")),
    )
    assert components["cheap"].plan == (
        PlanStep("event_time(at_of)", (f"{here}:at_of",)),
        PlanStep("filter(Event.cheap)", (f"{here}:Event.cheap",)),
        PlanStep("key_by(user_of)", (f"{here}:user_of",)),
        PlanStep("map(itemgetter(0))", ("operator:itemgetter",)),
        PlanStep("branch(bool, is_even)", ("builtins:bool", f"{here}:is_even")),
    )
    assert components["count"].plan == (PlanStep("count()", windows="tumbling 60 s of event time"),)
    assert components["largest"].plan == (PlanStep("reduce(max)", ("builtins:max",)),)


def test_steps_show_no_arguments_that_are_bound_to_a_function() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.map(functools.partial(pow, 4321)).key_by().window(tumbling(count=3)).apply(sum)
    topology = builder.build()
    assert "4321" not in repr([one.plan for one in topology.components.values()])
    assert topology.components["map-pow"].plan[0] == PlanStep("map(pow)", ("builtins:pow",))


def test_windows_without_a_key_show_no_function_of_ours() -> None:
    builder = StreamBuilder()
    builder.source("numbers", steps.Numbers(), of=int).window(tumbling(count=3)).group()
    plans = [one.plan for one in builder.build().components.values()]
    assert (PlanStep("values"), PlanStep("all()")) in plans


def test_a_plan_prints_as_a_table() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    even, small = numbers.branch(steps.is_even, steps.is_small)
    even.merge(small).window(tumbling(count=3)).count().print()
    assert str(builder.plan()).splitlines() == [
        "numbers       ×1  source(Numbers)",
        "branch        ×1  branch(is_even, is_small)       <- numbers (local or shuffle)",
        "merge         ×1  merge(), all()                  <- branch (local or shuffle) and "
        "branch:stream-2 (local or shuffle)",
        "window-count  ×1  count() over tumbling 3 values  <- merge (global)",
        "print         ×1  print()                         <- window-count (by key)",
    ]


def test_a_plan_shows_the_executors_that_the_topology_has() -> None:
    builder = StreamBuilder(parallelism=3)
    numbers = builder.source("numbers", steps.Numbers(), of=int)
    numbers.key_by().count().map(steps.second).to("keep", steps.Keep())
    numbers.map(steps.double).to("more", steps.Keep(), parallelism=2)
    numbers.window(tumbling(count=3)).count().output("all")
    shown = {row[0]: int(row[1].removeprefix("×")) for row in builder.plan().rows}
    built = {one.id: one.parallelism for one in builder.build().components.values()}
    assert shown == built
    assert (shown["keep"], shown["more"], shown["all"]) == (1, 2, 1)
