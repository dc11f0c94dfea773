"""A task on Spark sees the task ids that it would see on a cluster: sinks are not among them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.collectors import RecordedCalls, arguments_of

from squall import Bolt
from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    SpoutCollector,
    calls_of,
)
from squall_spark.tasks.hiding import hiding

SINK = RecordedCalls.IDS[1]


@pytest.mark.parametrize("interface", [SpoutCollector, BoltCollector, ColumnCollector])
def test_only_the_results_of_emit_are_changed(interface: Any) -> None:
    inner: Any = RecordedCalls(interface)
    collector = hiding(inner, frozenset({SINK}))
    for name in calls_of(interface):
        args = arguments_of(interface, name)
        result = getattr(collector, name)(*args)
        assert inner.calls[-1] == (name, args)
        assert result == ((3,) if name in ("emit", "emit_direct") else inner.IDS)
    assert hasattr(collector, "emit_columns") is hasattr(inner, "emit_columns")


def test_a_component_that_overrides_emit_sees_no_sinks_either() -> None:
    class Loud(Bolt):
        def emit(self, values: Any, **options: Any) -> Any:
            return super().emit([str(value).upper() for value in values], **options)

    inner: Any = RecordedCalls(BoltCollector)
    bolt, context = Loud(), SimpleNamespace(this_component_id="b", this_task_id=1)
    bolt._bind(hiding(inner, frozenset({SINK})), context)  # type: ignore[arg-type]
    assert bolt.emit(["a"], anchors=(), stream="s") == (3,)
