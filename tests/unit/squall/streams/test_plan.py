"""The plan as text."""

from __future__ import annotations

from tests.support import stream_steps as steps

from squall import StreamBuilder
from squall.windows import session, sliding, tumbling


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
        ("print", "×4", "map(word_and_count), print()", "<- count (local or shuffle)"),
        (
            "window-group",
            "×4",
            "group() over 10 values every 5 values of event time",
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
            "group() over 60 s every 1 values of event time",
            "<- cheap:stream-2 (by key)",
        ),
    )


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
        "print         ×1  print()                         <- window-count (local or shuffle)",
    ]
