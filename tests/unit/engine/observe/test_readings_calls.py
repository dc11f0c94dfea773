"""How many calls a bolt makes at once is reported, and what they take in proportion to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall_common.cluster.values import BoltStats, ExecutorStats
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings
from squall_engine.observe.history_rows import TaskRows

INPUT = ("numbers", "default")


class Numbers(Spout):
    outputs = ("number",)

    def open(self, conf: Any, context: Any) -> None:
        self.left = 8

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left], message_id=self.left)


class Plain(Bolt):
    def execute(self, tup: Any) -> None:
        pass


class Threads(Bolt):
    blocking = True

    def execute(self, tup: Any) -> None:
        pass


class Waits(Bolt):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0.2)


class WaitsInBatches(Bolt):
    async def execute_batch(self, tuples: Any) -> None:
        await asyncio.sleep(0.2)


async def ran(bolt: Bolt, conf: dict[str, Any]) -> tuple[ExecutorStats, list[Any]]:
    """What an executor with two tasks of the bolt has reported when all eight numbers are acked,
    and its rows of the history."""
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("bolt", bolt, tasks=2, conf=conf).shuffle("numbers")
    stored = normalize_topology_conf({"topology.workers": 1}, default_conf(), name="test")
    prepared = prepare(builder.build(), stored)
    engine = EmbeddedEngine(
        EngineSettings(
            prepared=prepared,
            topology_id="test-1-1",
            slot=WorkerSlot("test", 1),
            executors=prepared.executors,
            daemon_conf=default_conf(),
        ),
        EngineCallbacks(on_reported=lambda *args: None),
    )
    await engine.start()
    engine.set_active(True)
    try:
        (executor,) = (
            one
            for one in prepared.executors
            if engine.plan.component_of(one.task_start).id == "bolt"
        )

        def acked() -> int:
            stats = engine.stats()[executor].specific
            assert isinstance(stats, BoltStats)
            return int(stats.acked.get(":all-time", {}).get(INPUT, 0))

        async with asyncio.timeout(60):
            await engine.run_until(lambda: acked() == 8)
        return engine.stats()[executor], _gauges(engine, executor)
    finally:
        await engine.stop(0)


def _gauges(engine: EmbeddedEngine, executor: Executor) -> list[Any]:
    built = [one for one in engine.built if one.task.executor == executor]
    return [row.n for one in built for row in TaskRows(one).rows(0, 1.0) if row.name == "receive"]


@pytest.mark.parametrize(
    ("bolt", "limit", "on_threads"),
    [(Plain(), None, False), (Threads(), 2, True), (Waits(), 14, False)],
)
async def test_how_many_calls_its_tasks_make_at_once_is_reported(
    bolt: Bolt, limit: int | None, on_threads: bool
) -> None:
    stats, rows = await ran(bolt, {"topology.bolt.async.concurrency": 7})
    assert (stats.calls_max, stats.on_threads) == (limit, on_threads)
    assert rows == [(limit or 0) // 2] * 2


@pytest.mark.parametrize("bolt", [Waits(), WaitsInBatches()])
async def test_each_tuple_is_under_way_for_as_long_as_its_call(bolt: Bolt) -> None:
    """So that tuples by time are those that count for the limit, of batches, too."""
    stats, _ = await ran(bolt, {"topology.bolt.async.concurrency": 4})
    assert isinstance(stats.specific, BoltStats)
    assert stats.specific.execute_ms_avg[":all-time"][INPUT] >= 190
    assert stats.calls_max == 8
