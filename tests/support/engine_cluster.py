"""Several engines on one virtual clock, connected by transports in memory that can lose, repeat and
delay sections."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from squall.clock import ManualClock
from squall.config import default_conf, normalize_topology_conf
from squall.model import Executor, Topology, WorkerSlot
from squall.system_topology import (
    component_parallelism,
    component_tasks,
    compute_executors,
    system_topology,
)
from squall.testing import _VirtualLoop
from squall_worker.engine import Engine


class MemoryTransport:
    """One worker's end of a `Network`."""

    def __init__(self, network: Network, slot: WorkerSlot) -> None:
        self.network = network
        self.slot = slot
        self.inbox: deque[bytes] = deque()
        self.backlog: dict[WorkerSlot, int] = {}
        self.sent_bytes = 0
        self._wakeup: Callable[[], None] = lambda: None

    def send(self, peer: WorkerSlot, sections: Sequence[bytes]) -> None:
        self.sent_bytes += sum(map(len, sections))
        self.network.carry(peer, sections)

    def drain(self, limit_bytes: int) -> list[bytes]:
        found = []
        while self.inbox and limit_bytes > 0:
            data = self.inbox.popleft()
            limit_bytes -= len(data)
            found.append(data)
        return found

    def backlog_bytes(self, peer: WorkerSlot) -> int:
        return self.backlog.get(peer, 0)

    def set_wakeup(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup

    def arrive(self, data: bytes) -> None:
        self.inbox.append(data)
        self._wakeup()


class Network:
    """Carries sections; `lose` is the share of them that is lost, `repeat` that comes twice, and
    each takes up to `delay_secs` (so they overtake each other)."""

    def __init__(
        self, seed: int = 0, *, lose: float = 0.0, repeat: float = 0.0, delay_secs: float = 0.0
    ) -> None:
        self.rng = random.Random(seed)
        self.lose, self.repeat, self.delay_secs = lose, repeat, delay_secs
        self.ends: dict[WorkerSlot, MemoryTransport] = {}

    def carry(self, peer: WorkerSlot, sections: Sequence[bytes]) -> None:
        end = self.ends.get(peer)
        if end is None:
            return
        for data in sections:
            if self.rng.random() < self.lose:
                continue
            for _ in range(2 if self.rng.random() < self.repeat else 1):
                delay = self.rng.random() * self.delay_secs
                asyncio.get_running_loop().call_later(delay, end.arrive, data)


class EngineCluster:
    """A topology on several workers. `place(executor, component) -> worker index`."""

    def __init__(
        self,
        topology: Topology,
        workers: int,
        conf: Mapping[str, Any] | None = None,
        *,
        network: Network | None = None,
        place: Callable[[Executor, str], int] | None = None,
        seed: int = 0,
    ) -> None:
        self.clock = ManualClock()
        self.network = network or Network(seed)
        self.errors: list[tuple[str, int, BaseException]] = []
        base = default_conf()
        stored = normalize_topology_conf(
            {"topology.workers": workers, **(conf or {})}, base, name="test"
        )
        compiled = system_topology(topology, stored)
        self.tasks = component_tasks(compiled, stored)
        executors = compute_executors(self.tasks, component_parallelism(compiled, stored))
        by_worker: dict[int, list[Executor]] = {i: [] for i in range(workers)}
        for number, executor in enumerate(executors):
            component = self.tasks[executor.task_start]
            index = number % workers if place is None else place(executor, component)
            by_worker[index].append(executor)
        self.slots = [WorkerSlot("node", 6700 + i) for i in range(workers)]
        routes = {
            task: self.slots[index]
            for index, mine in by_worker.items()
            for executor in mine
            for task in executor.tasks
        }
        self.routes = routes
        self.engines = []
        for index, slot in enumerate(self.slots):
            end = self.network.ends[slot] = MemoryTransport(self.network, slot)
            self.engines.append(
                Engine(
                    compiled,
                    {**base, **stored},
                    topology_id="test-1-0",
                    task_to_component=self.tasks,
                    executors=by_worker[index],
                    slot=slot,
                    transport=end,
                    report_error=lambda *error: self.errors.append(error),
                    clock=self.clock,
                    seed=seed + index,
                )
            )
        self.loop = _VirtualLoop(self.clock)

    def __enter__(self) -> EngineCluster:
        self.run(self._start())
        return self

    async def _start(self) -> None:
        for engine in self.engines:
            await engine.start()
            engine.set_routes(self.routes)
            engine.set_ready(True)
        for engine in self.engines:
            engine.set_active(True)

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            for engine in self.engines:
                await engine.stop(0)

        try:
            self.run(stop())
        finally:
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def run_for(self, secs: float) -> None:
        self.run(asyncio.sleep(secs))

    def run_until(self, condition: Callable[[], bool], timeout_secs: float = 120.0) -> None:
        async def wait() -> None:
            deadline = self.clock.monotonic() + timeout_secs
            while not condition():
                if self.clock.monotonic() >= deadline:
                    raise TimeoutError(f"not so after {timeout_secs} virtual seconds")
                await asyncio.sleep(0.001)

        self.run(wait())

    def memory(self) -> int:
        """Entries in the tables of all ackers and local trees."""
        return sum(len(engine._desk) for engine in self.engines)
