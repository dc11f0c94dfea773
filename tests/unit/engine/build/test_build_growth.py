"""The cost of the start of a worker as its topology grows: steps of the interpreter and bytes, not
seconds."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from squall import Bolt, CustomGrouping, Spout, Stream, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineSettings

FEW, GROWTH = 20, 8
SLOTS = (WorkerSlot("here", 1), WorkerSlot("there", 1))


class Numbers(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        pass


class Passes(Bolt):
    outputs = {"default": ["n"], "chosen": Stream(["n"], direct=True)}

    def execute(self, tup: Any) -> None:
        pass


class First(CustomGrouping):
    def prepare(self, context: Any, stream: Any, target_tasks: Any) -> None:
        self.tasks = target_tasks[:1]

    def choose_tasks(self, task: int, values: Any) -> Any:
        return self.tasks


class NoPeers:
    """A transport to workers that never answer."""

    def send(self, peer: Any, sections: Any, credited: int = 0) -> None:
        pass

    def drain(self, limit_bytes: int) -> list[Any]:
        return []

    def grant(self, peer: Any, grants: Any, *, soon: bool) -> None:
        pass

    def set_wakeup(self, wakeup: Any, listener: Any) -> None:
        pass


def half_of(
    width: int, grouping: str, traced: bool
) -> tuple[EmbeddedEngine, dict[int, WorkerSlot]]:
    """One of two workers: `width` tasks send to `width` others."""
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("from", Passes(), parallelism=width).shuffle("numbers")
    to = builder.bolt("to", Passes(), parallelism=width)
    if grouping == "fields":
        to.fields("from", "n")
    elif grouping == "direct":
        to.direct("from", stream="chosen")
    elif grouping == "custom":
        to.custom("from", First())
    else:
        getattr(to, grouping)("from")
    conf = normalize_topology_conf({"topology.workers": 2}, default_conf(), name="wide")
    prepared = prepare(builder.build(), conf)
    executors = sorted(prepared.executors)
    settings = EngineSettings(
        prepared=prepared, topology_id="wide-1-1", slot=SLOTS[0], executors=executors[::2], seed=1,
        tracer_provider=TracerProvider(shutdown_on_exit=False) if traced else None,
    )  # fmt: skip
    routes = {task: SLOTS[i % 2] for i, one in enumerate(executors) for task in one.tasks}
    return EmbeddedEngine(settings, transport=NoPeers()), routes


async def begin(engine: EmbeddedEngine, routes: dict[int, WorkerSlot]) -> None:
    await engine.start()
    engine.set_routes(routes)
    engine.samples().read(0.0, 0.0)
    engine.stats(0)


def cost(width: int, grouping: str, *, traced: bool = False) -> tuple[int, int]:
    """Steps and bytes of the start of a worker, and of its first heartbeat."""
    steps = 0

    def count(frame: Any, event: str, arg: Any) -> Any:
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return count

    async def run() -> tuple[int, int]:
        engine, routes = half_of(width, grouping, traced)
        before = sys.gettrace()
        tracemalloc.start()
        sys.settrace(count)
        try:
            await begin(engine, routes)
        finally:
            sys.settrace(before)
            octets = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        await engine.stop(0)
        return steps, octets

    return asyncio.run(run())


@pytest.mark.parametrize(
    "grouping", ["shuffle", "local_or_shuffle", "fields", "all", "direct", "custom"]
)
def test_the_start_of_a_wide_topology_costs_by_its_tasks_not_by_their_pairs(grouping: str) -> None:
    cost(2, grouping)  # what is imported and cached
    steps, octets = cost(FEW, grouping)
    more_steps, more_octets = cost(GROWTH * FEW, grouping)
    assert more_steps < 1.25 * GROWTH * steps
    assert more_octets < 1.25 * GROWTH * octets


def test_tracing_adds_to_the_start_by_tasks_and_not_by_their_pairs() -> None:
    cost(2, "shuffle", traced=True)

    def added(width: int) -> int:
        return cost(width, "shuffle", traced=True)[0] - cost(width, "shuffle")[0]

    assert added(GROWTH * FEW) < 1.25 * GROWTH * added(FEW)
