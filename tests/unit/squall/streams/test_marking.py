"""Event time behind sources whose tasks and parts are far apart, and behind steps with several
tasks: windows have what they would have if the input came in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support import apart
from tests.support.apart import Apart, Endless, Row, Script

from squall import StreamBuilder
from squall.streams import Stream
from squall.testing import TopologyTest
from squall.windows import EventTime, sliding, tumbling
from squall_common.errors import InvalidTopologyError

HOUR = 3_600_000
MINUTE = 60_000


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    apart.SCRIPTS.clear()


def script(index: int, rows: int = 120, pause: float = 0.0) -> Script:
    """The rows of an hour, which begins `index` hours after the first one."""
    found: Script = [pause]
    for number in range(rows):
        at = index * HOUR + number * HOUR // rows
        found.append(Row(f"file-{index}", f"user-{number % 3}", at))
    return found


class Ran:
    """What came of a program, by component."""

    def __init__(
        self, builder: StreamBuilder, secs: float = 30, conf: dict[str, Any] | None = None
    ) -> None:
        with TopologyTest(builder.to_topology_builder(), conf) as test:
            test.run_for(secs)
            assert test.errors == []
            self.results = [one.values for one in test.emitted("counts", "default")]
            self.late = [one.values for one in test.emitted("counts", "late")]
            self.again = [one.values for one in test.emitted("again", "default")]
            self.late_again = [one.values for one in test.emitted("again", "late")]
            self.streams = {one.stream for name in test._submitted.components
                            for one in test.emitted(name)}  # fmt: skip


Source = Stream[Row]


def program(
    steps: Callable[[Source], Source],
    spout: type[Apart] = Apart,
    tasks: int = 2,
    **time: Any,
) -> StreamBuilder:
    """Counts the values of each user and minute, behind some steps."""
    builder = StreamBuilder(parallelism=3)
    source = builder.source("apart", spout(), of=Row, parallelism=tasks)
    timed = source.event_time(apart.at_of, **time)
    counts = steps(timed).key_by(apart.user_of).window(tumbling(secs=60)).count().named("counts")
    counts.late()
    return builder


def as_it_is(rows: Source) -> Source:
    return rows


def check(ran: Ran, end_ms: int) -> None:
    """Nothing is late, and all windows up to this time have what they should, once."""
    assert ran.late == []
    assert apart.counted(ran.results) == apart.windows_of(apart.SCRIPTS, MINUTE, end_ms)
    assert len(ran.results) == len({(key, end) for key, _, _, end in ran.results})


@pytest.mark.parametrize(
    "steps",
    [
        as_it_is,
        lambda rows: rows.filter(apart.is_kept).named("kept", parallelism=4),
        lambda rows: rows.map_async(apart.waited, concurrency=3).named("waited", parallelism=3),
        lambda rows: (
            rows.filter(apart.is_kept).named("kept", parallelism=2)
            .map_async(apart.waited).named("waited", parallelism=2)
        ),
    ],
    ids=["direct", "filter", "async", "both"],
)  # fmt: skip
def test_tasks_of_a_source_may_be_hours_apart(steps: Callable[[Source], Source]) -> None:
    apart.SCRIPTS[:] = [script(0), script(1), script(5, pause=2.0)]
    check(Ran(program(steps, tasks=3)), 6 * HOUR - MINUTE)


def test_parts_of_one_task_may_be_hours_apart() -> None:
    rows: Script = []
    for pair in zip(script(0), script(1), strict=True):
        rows += [*pair, 0.1]
    apart.SCRIPTS[:] = [rows]
    ran = Ran(program(as_it_is, tasks=1, parts=apart.part_of))
    check(ran, 2 * HOUR - MINUTE)
    assert Ran(program(as_it_is, tasks=1)).late  # they are one part if nobody says otherwise


@pytest.mark.parametrize(
    ("part_of", "error", "failed"),
    [(apart.strict_part_of, "no part", 1), (apart.parts_of, "unhashable", 4)],
)
def test_a_value_whose_part_cannot_be_told_fails_alone(
    part_of: Callable[[Row], Any], error: str, failed: int
) -> None:
    rows: Script = [
        Row("a", "ann", 1),
        Row("", "bob", 2),
        Row("a", "ann", 3),
        Row("a", "eve", 70_000),
    ]
    apart.SCRIPTS[:] = [rows]
    with TopologyTest(program(as_it_is, tasks=1, parts=part_of).to_topology_builder()) as test:
        test.run_for(5)
        assert len(test.errors) == failed
        assert all(error in str(one) for one in test.errors)
        found = [one.values for one in test.emitted("counts", "default")]
    assert found == ([["ann", 2, 0, MINUTE]] if failed == 1 else [])


def test_a_function_of_parts_has_to_be_found_by_workers() -> None:
    with pytest.raises(InvalidTopologyError, match=r"parts.*lambda"):
        program(as_it_is, parts=lambda row: row.part).build()


def test_values_of_one_part_may_be_out_of_order_by_the_lag() -> None:
    first, second = script(0), script(1)
    for rows in (first, second):
        rows[1::2], rows[2::2] = rows[2::2], rows[1::2]  # neighbours change places
    apart.SCRIPTS[:] = [first, second]
    check(Ran(program(as_it_is, lag_secs=30)), 2 * HOUR - MINUTE)


def test_windows_of_windows_need_no_lag() -> None:
    apart.SCRIPTS[:] = [script(0), script(1)]
    builder = StreamBuilder(parallelism=3)
    source = builder.source("apart", Apart(), of=Row, parallelism=2)
    timed = source.event_time(apart.at_of)
    counts = timed.key_by(apart.user_of).window(tumbling(secs=60)).count().named("counts")
    tens = counts.key_by(apart.result_key).window(tumbling(secs=600)).count().named("again")
    tens.late()
    ran = Ran(builder)
    assert ran.late_again == []
    # Each user has a row in every second window of a minute or so: as many as there are results.
    ended = [row for row in ran.results if row[3] <= 2 * HOUR - 600_000]
    assert sum(row[1] for row in ran.again if row[3] <= 2 * HOUR - 600_000) == len(ended)


def test_both_sides_of_a_join_may_be_apart() -> None:
    apart.SCRIPTS[:] = [script(0), script(1)]
    builder = StreamBuilder(parallelism=2)
    source = builder.source("apart", Apart(), of=Row, parallelism=2)
    timed = source.event_time(apart.at_of)
    kept = timed.filter(apart.is_kept).named("kept", parallelism=2)
    slow = timed.map_async(apart.waited).named("slow", parallelism=2)
    joined = kept.key_by(apart.at_of).join(slow.key_by(apart.at_of), tumbling(secs=60))
    joined.named("counts").late()
    ran = Ran(builder)
    assert ran.late == []
    ends = [end for _, _, _, end in ran.results]
    assert len(ends) == sum(
        row.at <= max(ends) for rows in apart.SCRIPTS for row in rows if isinstance(row, Row)
    )
    assert max(ends) == 2 * HOUR - MINUTE


def test_a_task_without_any_value_does_not_hold_windows_up_for_long() -> None:
    apart.SCRIPTS[:] = [script(0), []]
    builder = program(as_it_is)  # the source ends
    check(Ran(builder, secs=10), HOUR - MINUTE)

    slow = [one for row in script(0, rows=100) for one in (row, 0.2)]
    apart.SCRIPTS[:] = [slow, []]
    ran = Ran(program(as_it_is, spout=Endless), secs=8)
    assert ran.results == []
    ran = Ran(program(as_it_is, spout=Endless), secs=40)
    end_ms = max(end for _, _, _, end in ran.results)
    check(ran, end_ms)
    assert end_ms >= HOUR - 3 * MINUTE  # each task of the next step has a third of the last rows


def test_a_lag_of_windows_is_what_they_wait_beyond_that_of_their_stream() -> None:
    apart.SCRIPTS[:] = [script(0)]
    builder = StreamBuilder()
    timed = builder.source("apart", Apart(), of=Row).event_time(apart.at_of, lag_secs=60)
    later = sliding(secs=60, every_secs=60, event_time=EventTime(lag_secs=600))
    timed.key_by(apart.user_of).window(later).count().named("counts").late()
    check(Ran(builder), HOUR - 600_000 - MINUTE)


def test_late_values_have_windows_of_their_own_as_before() -> None:
    late = [Row("x", "user-0", 5), Row("x", "user-0", 61_000)]
    apart.SCRIPTS[:] = [[*script(0, rows=60), 5.0, *late]]
    builder = StreamBuilder()
    source = builder.source("apart", Apart(), of=Row)
    timed = source.event_time(apart.at_of)
    counts = timed.key_by(apart.user_of).window(tumbling(secs=60)).count().named("counts")
    again = counts.late().key_by(apart.user_of)
    again.window(tumbling(secs=60)).count().named("again")
    ran = Ran(builder)
    assert len(ran.late) == 2
    assert [tuple(one) for one in ran.again] == [("user-0", 1, 0, 60_000)]


def test_marks_are_seen_by_nobody_else() -> None:
    apart.SCRIPTS[:] = [script(0), script(1)]
    ran = Ran(program(as_it_is))
    assert ran.streams == {"default"}
