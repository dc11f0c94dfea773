"""Windows behind a source whose tasks and parts are far apart, and come in any order, have what
they have behind one that is sorted, and nothing is late."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.support import apart
from tests.support.apart import Apart, Row, Script

from squall import StreamBuilder
from squall.testing import TopologyTest
from squall.windows import tumbling

MINUTE = 60_000
LAG_SECS = 20


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    apart.SCRIPTS.clear()


@some.composite
def parts(draw: some.DrawFn, name: str) -> list[Row]:
    """The rows of a part, out of order by less than the lag."""
    start = draw(some.integers(0, 5)) * 60 * MINUTE
    found, latest = [], start
    for gap in draw(some.lists(some.integers(0, 90_000), max_size=12)):
        latest += gap
        back = draw(some.integers(0, LAG_SECS * 1000 - 1))
        found.append(Row(name, draw(some.sampled_from("ab")), max(start, latest - back)))
    return found


@some.composite
def scripts(draw: some.DrawFn) -> list[Script]:
    """What the tasks of a source do: each has some parts, whose rows it takes in any order, with
    pauses. A part begins before another one goes on for long, as it could be empty otherwise."""
    found: list[Script] = []
    for task in range(draw(some.integers(1, 3))):
        rows = [draw(parts(f"{task}-{part}")) for part in range(draw(some.integers(1, 3)))]
        script: Script = []
        script += [mine.pop(0) for mine in rows if mine]
        while any(rows):
            mine = draw(some.sampled_from([one for one in rows if one]))
            script.append(mine.pop(0))
            if draw(some.integers(0, 3)) == 0:
                script.append(draw(some.sampled_from([0.1, 0.7, 1.5])))
        found.append(script)
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts(), some.integers(1, 3), some.booleans())
def test_nothing_is_late_and_windows_are_those_of_sorted_input(
    found: list[Script], tasks: int, slow: bool
) -> None:
    apart.SCRIPTS[:] = found
    builder = StreamBuilder(parallelism=tasks)
    source = builder.source("apart", Apart(), of=Row, parallelism=len(found))
    timed = source.event_time(apart.at_of, lag_secs=LAG_SECS, parts=apart.part_of)
    if slow:
        timed = timed.map_async(apart.waited, concurrency=2)
    counts = timed.key_by(apart.user_of).window(tumbling(secs=60)).count().named("counts")
    counts.late()
    with TopologyTest(builder.to_topology_builder()) as test:
        test.run_for(40)
        assert test.errors == []
        assert test.emitted("counts", "late") == []
        results = [one.values for one in test.emitted("counts", "default")]
    assert len(results) == len({(key, end) for key, _, _, end in results})
    times = [row.at for row in chain.from_iterable(found) if isinstance(row, Row)]
    # All tasks have ended: the furthest counts.
    end_ms = max(times, default=0) - LAG_SECS * 1000
    assert apart.counted(results) == apart.windows_of(found, MINUTE, end_ms)
