"""Several engines on one virtual clock, connected by transports in memory that can lose, repeat and
delay sections."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.support.validated_engine import ValidatedEngine, contradictions_of

from squall.testing.topologies import _VirtualLoop
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import Executor, Topology, WorkerSlot
from squall_common.topology.prepared import PreparedTopology, prepare
from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings
from squall_engine.transport import Arrival, Grant

NO_CALLBACKS = EngineCallbacks()


class MemoryTransport:
    """One worker's end of a `Network`."""

    def __init__(self, network: Network, slot: WorkerSlot) -> None:
        self.network = network
        self.slot = slot
        self.inbox: deque[Arrival] = deque()
        self.listener: Any = None
        self.grants_given = 0
        self.sent_bytes = 0
        self._wakeup: Callable[[], None] = lambda: None

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        self.sent_bytes += sum(map(len, sections))
        self.network.carry(self.slot, peer, sections)

    def drain(self, limit_bytes: int) -> list[Arrival]:
        found = []
        while self.inbox and limit_bytes > 0:
            arrival = self.inbox.popleft()
            limit_bytes -= sum(map(len, arrival.sections))
            found.append(arrival)
        return found

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        self.grants_given += 1
        self.network.grant(self.slot, peer, list(grants))

    def set_wakeup(self, wakeup: Callable[[], None], listener: Any) -> None:
        self._wakeup = wakeup
        self.listener = listener

    def arrive(self, peer: WorkerSlot, data: bytes) -> None:
        self.inbox.append(Arrival(peer, 1, (data,)))
        self._wakeup()


class Network:
    """Carries sections; `lose` is the share of them that is lost, `repeat` that comes twice, and
    each takes up to `delay_secs` (so they overtake each other). No link loses anything, and credit
    counts on that: where something is lost, there is credit without end."""

    def __init__(
        self, seed: int = 0, *, lose: float = 0.0, repeat: float = 0.0, delay_secs: float = 0.0
    ) -> None:
        self.rng = random.Random(seed)
        self.lose, self.repeat, self.delay_secs = lose, repeat, delay_secs
        self.ends: dict[WorkerSlot, Any] = {}

    def end(self, slot: WorkerSlot, clock: ManualClock) -> Any:
        """A transport for a worker."""
        return MemoryTransport(self, slot)

    def kill(self, slot: WorkerSlot) -> None:
        """A worker dies: nothing leaves it, nothing reaches it any more."""
        raise NotImplementedError

    def begin(self) -> None:
        """Every end hears of the sessions with the others."""
        for slot, end in self.ends.items():
            for peer in self.ends:
                if peer != slot:
                    end.listener.session_began(peer, 1, ())

    def grant(self, slot: WorkerSlot, peer: WorkerSlot, grants: list[Grant]) -> None:
        end = self.ends.get(peer)
        if end is not None:
            if self.lose or self.repeat:
                grants = [Grant(grant.task, 1 << 62, grant.load) for grant in grants]
            delay = self.rng.random() * self.delay_secs
            loop = asyncio.get_running_loop()
            loop.call_later(delay, lambda: end.listener.granted(slot, grants))

    def carry(self, slot: WorkerSlot, peer: WorkerSlot, sections: Sequence[bytes]) -> None:
        end = self.ends.get(peer)
        if end is None:
            return
        for data in sections:
            if self.rng.random() < self.lose:
                continue
            for _ in range(2 if self.rng.random() < self.repeat else 1):
                delay = self.rng.random() * self.delay_secs
                asyncio.get_running_loop().call_later(delay, end.arrive, slot, data)


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
        callbacks: EngineCallbacks = NO_CALLBACKS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings` are more fields of the EngineSettings of each worker."""
        self._callbacks = replace(callbacks, on_reported=self._reported)
        self._settings = settings or {}
        self.in_hand: Mapping[
            str, Any
        ] = {}  # `in_hand` and `before` of the next engine that is made
        self.clock = ManualClock()
        self.network = network or Network(seed)
        self.errors: list[tuple[str, int, BaseException]] = []
        self._seed = seed
        base = default_conf()
        stored = normalize_topology_conf(
            {"topology.workers": workers, **(conf or {})}, base, name="test"
        )
        prepared = prepare(topology, stored)
        self.tasks = prepared.task_to_component
        by_worker: dict[int, list[Executor]] = {i: [] for i in range(workers)}
        for number, executor in enumerate(prepared.executors):
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
        for index in range(workers):
            self.engines.append(self._make(index, by_worker[index], prepared))
        self._made_of = by_worker, prepared
        self.loop = _VirtualLoop(self.clock)

    def __enter__(self) -> EngineCluster:
        self.run(self._start())
        return self

    def _reported(self, *error: Any) -> None:
        self.errors.append(error)

    def _make(
        self, index: int, executors: list[Executor], prepared: PreparedTopology
    ) -> EmbeddedEngine:
        slot = self.slots[index]
        self.network.ends[slot] = self.network.end(slot, self.clock)
        settings = EngineSettings(
            prepared=prepared,
            topology_id="test-1-0",
            slot=slot,
            executors=executors,
            daemon_conf=default_conf(),
            seed=self._seed + index,
            **self._settings,
        )
        return ValidatedEngine(
            settings,
            self._callbacks,
            transport=self.network.ends[slot],
            clock=self.clock,
            **self.in_hand,
        )

    def restart(self, index: int) -> None:
        """A worker dies without a word, and a new one takes its slot."""
        by_worker, prepared = self._made_of
        self.network.kill(self.slots[index])
        self.run(self.engines[index].stop(0))
        engine = self.engines[index] = self._make(index, by_worker[index], prepared)
        tasks = [task for task, slot in self.routes.items() if slot == self.slots[index]]

        def lost() -> None:
            for other in self.engines:
                if other is not engine:
                    other.worker_lost(tasks)

        async def start() -> None:
            await engine.start()
            engine.set_routes(self.routes)
            engine.set_ready(True)
            engine.set_active(True)
            lost()

        self.run(start())

    async def _start(self) -> None:
        for engine in self.engines:
            await engine.start()
            engine.set_routes(self.routes)
            engine.set_ready(True)
        self.network.begin()
        for engine in self.engines:
            engine.set_active(True)

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            for engine in self.engines:
                await engine.stop(0)
                found = contradictions_of(engine)
                assert not found, found[0]

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
        return sum(len(engine._coordinator) for engine in self.engines)
