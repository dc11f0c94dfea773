"""`RewindableKafkaSpout` without a broker: what it goes on with."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from squall.metrics import AssignableMetric
from squall_connectors.kafka import RewindableKafkaSpout


def opened(topics: list[str], **options: Any) -> RewindableKafkaSpout:
    spout = RewindableKafkaSpout("127.0.0.1:9", topics, **options)
    context: Any = SimpleNamespace(
        conf={},
        monotonic=time.monotonic,
        this_targets={},
        this_component_id="events",
        topology_name="orders",
        register_metric=lambda name, metric: metric,
    )
    spout.open({}, context)
    return spout


def test_a_topic_that_is_left_out_is_not_read_on() -> None:
    spout = opened(["orders"])
    spout.is_first_run = False
    positions = {("orders", 0): 7, ("orders", 2): 9, ("returns", 1): 5}
    spout.seek(positions)
    assigned = spout._consumer.assignment()
    assert {(one.topic, one.partition, one.offset) for one in assigned} == {
        ("orders", 0, 7),
        ("orders", 2, 9),
    }
    assert isinstance(spout._partition_count, AssignableMetric)
    spout.close()


def test_a_task_without_partitions_begins_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spout = opened(["orders"], start=datetime(2026, 1, 2, tzinfo=UTC))
    monkeypatch.setattr(spout, "_partitions", list)
    spout.is_first_run = True
    spout.seek({})
    assert spout._consumer.assignment() == []
    spout.close()
