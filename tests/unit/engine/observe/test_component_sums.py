"""Sums by component of what a worker's tasks have counted."""

from __future__ import annotations

import pytest

from squall_common.telemetry.sums import ComponentSums
from squall_common.topology.model import Executor
from squall_engine.core.stats import Totals
from squall_engine.observe.component_sums import ComponentReadings, sums_of
from squall_engine.observe.readings import BLOCKED, SENT

INPUT = ("words", "default")
TICK = ("__system", "__tick")


class Tasks:
    """Tasks 1 to 4 run "words", 5 and 6 "count", 7 an acker; a test sets what they have counted.
    `limit`: how many calls task 6 makes at once."""

    def __init__(self, limit: int = 1) -> None:
        self.totals: dict[int, Totals] = {}
        executors = [Executor(1, 2), Executor(3, 4), Executor(5, 5), Executor(6, 6), Executor(7, 7)]
        self.readings = ComponentReadings(
            executors,
            self._add,
            lambda one: (
                "words" if one.task_start < 5 else "count" if one.task_start < 7 else "__acker"
            ),
            is_spout=lambda one: one.task_start < 5,
            calls_max=lambda one: {5: 1, 6: limit}.get(one.task_start),
        )

    def _add(self, task: int, totals: Totals) -> None:
        for key, value in self.totals.get(task, {}).items():
            totals[key] = totals.get(key, 0) + value


def test_tasks_add_up_without_the_streams_of_the_system() -> None:
    counted: Totals = {
        ("executed", INPUT): 10,
        ("executed", TICK): 3,
        ("execute_secs", INPUT): 1.5,
        ("execute_secs", TICK): 0.5,
        ("process_secs", INPUT): 2.5,
        ("emitted", "default"): 20,
        ("emitted", "__ack"): 10,
        ("transferred", "default"): 40,
        ("acked", INPUT): 9,
        ("failed", INPUT): 1,
        (BLOCKED, "sink"): 0.25,
        (SENT, "sink"): 1000,
    }
    assert sums_of(counted, (1, 2, 0.5), 7.0) == ComponentSums(
        executed=10,
        emitted=20,
        transferred=40,
        acked=9,
        failed=1,
        busy_secs=2.0,
        execute_secs=1.5,
        process_secs=2.5,
        by_source=(("words", "default", 10),),
        blocked_secs={"sink": 0.25},
        sent_bytes={"sink": 1000},
        busiest=(1, 2, 0.5),
        most_a_second=7.0,
    )


def test_the_busiest_executor_is_that_of_the_last_seconds() -> None:
    tasks = Tasks()
    tasks.totals[5] = {("execute_secs", INPUT): 1000.0, ("executed", INPUT): 50_000}
    found = tasks.readings.read(100.0)
    assert set(found) == {"words", "count"}
    assert (found["count"].executed, found["count"].busiest) == (50_000, None)
    for second in range(1, 6):
        tasks.totals[6] = {("execute_secs", INPUT): 0.5 * second, ("executed", INPUT): 30 * second}
        found = tasks.readings.read(100.0 + second)
        assert found["count"].busiest == (6, 6, pytest.approx(0.5))
        assert found["count"].most_a_second == pytest.approx(30)
    # It is not that of the time since somebody looked for the last time.
    assert tasks.readings.read(500.0)["count"].busiest is None


def test_calls_under_way_at_once_are_a_share_of_their_limit() -> None:
    tasks = Tasks(limit=100)
    tasks.readings.read(100.0)
    tasks.totals[6] = {("execute_secs", INPUT): 12.0, ("executed", INPUT): 120}
    assert tasks.readings.read(101.0)["count"].busiest == (6, 6, pytest.approx(0.12))


def test_of_a_spout_what_it_emits_counts() -> None:
    tasks = Tasks()
    tasks.readings.read(100.0)
    tasks.totals = {task: {("emitted", "default"): 10 * task} for task in (1, 2, 3, 4)}
    words = tasks.readings.read(101.0)["words"]
    assert (words.emitted, words.most_a_second, words.busiest) == (100, pytest.approx(70), None)
