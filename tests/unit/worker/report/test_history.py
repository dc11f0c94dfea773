"""The users' metrics as rows of the history."""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.component.metrics.consumers import DataPoint, TaskInfo
from squall_common.history.schema import Row
from squall_worker.report.history import metric_rows, with_polling


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [10**400, Unspeakable(), {"a": Unspeakable()}, {(1, 2): 3}])
def test_a_metric_that_is_neither_a_number_nor_json_still_becomes_a_row(value: Any) -> None:
    info = TaskInfo("host", 1, "split", 3, 0, 60)
    (row,) = metric_rows(info, [DataPoint("mine", value)], 0)
    assert row.value == 0.0
    assert row.text


def test_user_metrics_of_any_type_become_rows() -> None:
    info = TaskInfo("h", 1, "count", 3, 99, 10.0)
    points = [
        DataPoint("odd", 3),
        DataPoint("names", {"a": 1}),
        DataPoint("strange", object()),
        DataPoint("loop", (loop := [])),
        DataPoint("__emit-count", {"default": 1}),
    ]
    loop.append(loop)
    made = metric_rows(info, points, 5)
    assert [(r.name, r.value) for r in made][:2] == [("odd", 3.0), ("names", 0.0)]
    assert made[1].text == '{"a": 1}'
    assert len(made) == 4


def test_the_cpu_of_a_worker_that_polls_busily_is_marked() -> None:
    rows = [
        Row(1, "worker", "cpu_secs", secs=10, value=9.9),
        Row(1, "worker", "rss_bytes", secs=10, value=1e8),
        Row(1, "metric", "cpu_secs", "mine", 1, secs=10, value=1.0),
    ]
    assert with_polling(rows, 0.0) == rows
    assert [row.n for row in with_polling(rows, 0.5)] == [1, 0, 0]
    assert [row.n for row in with_polling(rows, 10.0)] == [10, 0, 0]
