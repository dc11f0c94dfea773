"""Which bolt each operation becomes, and how it subscribes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import stream_steps as steps

from squall import StreamBuilder
from squall._import_check import recorded_in
from squall.streams import Stream
from squall.windows import session, sliding, tumbling
from squall_common.topology.model import Component, Topology


def built(build: Any, parallelism: int = 2) -> Topology:
    builder = StreamBuilder(parallelism)
    stream: Stream[int] = builder.source("numbers", steps.Numbers(), of=int, parallelism=3)
    build(stream).named("it")
    return builder.build()


def groupings(component: Component) -> list[str]:
    return [str(grouping) for grouping in component.inputs.values()]


BY_TIME, MIXED = tumbling(secs=1), sliding(secs=1, every_count=1)


@pytest.mark.parametrize(
    ("build", "bolt", "grouping", "executors"),
    [
        (lambda s: s.map(steps.double), "StepsBolt", "local or shuffle", 2),
        (lambda s: s.map_async(steps.slow_double), "AsyncMapBolt", "shuffle", 2),
        (lambda s: s.key_by().count(), "CountBolt", "fields: key", 2),
        (lambda s: s.key_by().reduce(max), "FoldBolt", "fields: key", 2),
        (lambda s: s.key_by().process(steps.first_seen), "ProcessBolt", "fields: key", 2),
        (lambda s: s.key_by().window(BY_TIME).count(), "WindowCountBolt", "fields: key", 2),
        (lambda s: s.window(BY_TIME).count(), "WindowCountBolt", "global", 1),
        (lambda s: s.key_by().window(BY_TIME).reduce(max), "WindowFoldBolt", "fields: key", 2),
        (lambda s: s.key_by().window(BY_TIME).group(), "ApplyBolt", "fields: key", 2),
        (lambda s: s.key_by().window(session(gap_secs=1)).group(), "ApplyBolt", "fields: key", 2),
        (lambda s: s.key_by().window(MIXED).group(), "QueuedApplyBolt", "fields: key", 2),
        (lambda s: s.key_by().window(MIXED).count(), "QueuedTotalBolt", "fields: key", 2),
        (lambda s: s.key_by().window(MIXED).reduce(max), "QueuedTotalBolt", "fields: key", 2),
    ],
)
def test_an_operation_becomes_a_bolt(build: Any, bolt: str, grouping: str, executors: int) -> None:
    component = built(build).components["it"]
    assert str(component.object) == bolt
    assert groupings(component) == [grouping]
    assert component.parallelism == executors


def test_a_join_gets_both_sides_by_key() -> None:
    component = built(lambda s: s.key_by().join(s.key_by(steps.parity), BY_TIME)).components["it"]
    assert str(component.object) == "JoinBolt"
    assert groupings(component) == ["fields: key", "fields: key"]


def test_names_sizes_and_confs_arrive() -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.Numbers(), of=int, parallelism=2, conf={"a": 1})
    numbers.map(steps.double).named("doubled", parallelism=3, tasks=6, conf={"b": 2})
    numbers.map_async(steps.slow_double, concurrency=7).named("slow", conf={"c": 3})
    numbers.to("keep", steps.Keep(), parallelism=2, conf={"d": 4})
    parts = builder.build().components
    assert (parts["numbers"].parallelism, parts["numbers"].conf) == (2, {"a": 1})
    assert parts["doubled"].parallelism == 3
    assert parts["doubled"].conf["b"] == 2
    assert parts["doubled"].conf["topology.tasks"] == 6
    assert parts["slow"].conf["topology.bolt.async.concurrency"] == 7
    assert parts["slow"].conf["c"] == 3
    assert (parts["keep"].parallelism, parts["keep"].conf) == (2, {"d": 4})


def test_the_import_check_looks_at_the_functions_of_streams() -> None:
    recorded = recorded_in(built(lambda s: s.map(steps.double).key_by().count()))
    assert [one.object.class_path for one in recorded] == [
        "tests.support.stream_steps:Numbers",
        "squall.streams.bolts:StepsBolt",
    ]
