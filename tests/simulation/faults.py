"""The story of a seed: what a user does, what goes wrong, and the quiet at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.invariants import check_disk, check_end
from tests.simulation.ledger import LEDGERS
from tests.simulation.loop import Process
from tests.simulation.store import ZOOKEEPER

from squall_thrift import storm

if TYPE_CHECKING:
    from tests.simulation.world import World

# Parts of a run: until when faults happen, until when sources give messages.
_FAULTS_PART = 0.62
_SOURCES_PART = 0.9


class Story:
    """Everything that happens to a world, drawn from its seed. A run has only some kinds of fault,
    so that rare ones meet each other often enough."""

    def __init__(self, world: World, virtual_secs: float) -> None:
        self.world = world
        self.secs = virtual_secs
        self.rng = random.Random(f"story {world.seed}")
        kinds: dict[str, Callable[[], str]] = {
            "kill worker": self.kill_worker,
            "stop worker": self.stop_worker,
            "end worker": self.end_worker,
            "kill supervisor": self.kill_supervisor,
            "end supervisor": self.end_supervisor,
            "stop supervisor": self.stop_supervisor,
            "kill nimbus": self.kill_nimbus,
            "end nimbus": self.end_nimbus,
            "stop nimbus": self.stop_nimbus,
            "cut machine": self.cut_machine,
            "cut zookeeper": self.cut_zookeeper,
            "cut one way": self.cut_one_way,
            "zookeeper away": self.zookeeper_away,
            "expire session": self.expire_session,
            "lose power": self.lose_power,
            "clock jump": self.clock_jump,
            "slow machine": self.slow_machine,
            "bad frames": self.bad_frames,
            "reset connections": self.reset_connections,
            "full disk": self.full_disk,
            "slow disk": self.slow_disk,
            "die while writing": self.die_while_writing,
        }
        names = sorted(kinds)
        chosen = self.rng.sample(names, self.rng.randint(2, 8))
        self.kinds = [(name, kinds[name]) for name in chosen]
        self.every_secs = self.rng.uniform(8, 40)
        self.alive: dict[str, int] = {}
        self.gone: set[str] = set()
        self.unknown: set[str] = set()

    async def run(self) -> None:
        world = self.world
        world.note(f"seed {world.seed}: {', '.join(name for name, _ in self.kinds)}")
        world.start_all()
        user = world.client.start(self._use())
        world.client.tasks.add(user)
        await asyncio.sleep(self.rng.uniform(5, 60))
        while world.loop.time() < _FAULTS_PART * self.secs:
            name, fault = self.rng.choice(self.kinds)
            what = fault()
            world.note(f"fault: {name} {what}")
            await asyncio.sleep(self.rng.expovariate(1 / self.every_secs))
        world.note("no more faults")
        self.rng = random.Random(0)  # what was drawn for later still comes, and is undone
        world.heal_all()
        for _ in range(5):
            await asyncio.sleep(5)
            world.heal_all()
        await asyncio.sleep(_SOURCES_PART * self.secs - world.loop.time())
        for ledger in LEDGERS.values():
            ledger.open = False
        await asyncio.sleep(self.secs - world.loop.time())
        self._judge()

    def _judge(self) -> None:
        world = self.world
        for wrong in check_end(world, self.alive, self.gone):
            world.violated(f"at the end: {wrong}")
        for name, ledger in sorted(LEDGERS.items()):
            world.note(
                f"{name}: {len(ledger.accepted)} accepted, {len(ledger.acked)} acked, "
                f"{ledger.failed} failed, {ledger.repeats} repeats"
            )
            if name in self.alive:
                if ledger.lost:
                    world.violated(f"{name}: never acked: {ledger.lost[:10]}")
                if len(ledger.accepted) < 10:
                    world.violated(f"{name} hardly ran: {len(ledger.accepted)} messages")

    # The user.

    async def _use(self) -> None:
        rng = random.Random(f"user {self.world.seed}")
        await self._submit("alpha", rng)
        while self.world.loop.time() < _FAULTS_PART * self.secs:
            await asyncio.sleep(rng.uniform(20, 90))
            if self.world.loop.time() > _FAULTS_PART * self.secs:
                break
            choice = rng.randrange(5)
            if choice == 0 and "beta" not in self.alive and "beta" not in self.gone:
                await self._submit("beta", rng)
            elif choice == 1 and "beta" in self.alive:
                await self._kill("beta", rng)
            elif choice == 2:
                await self._rebalance(rng)
            elif choice == 3:
                await self._say("deactivate", "alpha")
                await asyncio.sleep(rng.uniform(1, 20))
        await self._until_ok("activate", "alpha")

    async def _submit(self, name: str, rng: random.Random) -> None:
        """Until it is there: a refused submit is repeated, as is one whose answer was lost."""
        world = self.world
        world.ledger(name, rng.uniform(0.5, 3.0))
        workers, spouts = rng.randint(1, 4), rng.randint(1, 2)
        while (answer := await world.submit(name, workers=workers, spouts=spouts)) != "ok":
            world.note(f"submit of {name}: {answer}")
            if answer == "unknown":
                world.sometime("submit with an unknown end")
            await asyncio.sleep(2.0)
        world.note(f"submitted {name} with {workers} workers")
        self.alive[name] = workers

    async def _kill(self, name: str, rng: random.Random) -> None:
        del self.alive[name]
        options = storm.KillOptions(wait_secs=rng.randint(0, 30))
        while (answer := await self._say("killTopologyWithOpts", name, options)) not in (
            "ok",
            "not alive",
        ):
            self.world.sometime("kill repeated")
            await asyncio.sleep(2.0)
        self.world.note(f"killed {name}: {answer}")
        self.gone.add(name)

    async def _rebalance(self, rng: random.Random) -> None:
        options = storm.RebalanceOptions(
            wait_secs=rng.randint(0, 20), num_workers=rng.randint(1, 4)
        )
        await self._say("rebalance", "alpha", options)

    async def _until_ok(self, *call: object) -> None:
        while await self._say(*call) != "ok":  # type: ignore[arg-type] # noqa: ASYNC110
            await asyncio.sleep(3.0)

    async def _say(self, method: str, *args: object) -> str:
        answer = await self.world.ask(method, *args)
        self.world.note(f"user: {method} {args[0]}: {answer}")
        return answer

    # Faults. Each does its thing and says to whom; what ends by itself ends later.

    def _later(self, low: float, high: float, call: Callable[[], object]) -> float:
        secs = self.rng.uniform(low, high)
        self.world.loop.world_later(secs, call)
        return secs

    def _one(self, kind: str) -> Process | None:
        processes = self.world.processes(kind)
        return self.rng.choice(processes) if processes else None

    def _kill_one(self, kind: str, leader: bool = False) -> str:
        process = self._one(kind)
        if leader and self.world.leaders() and self.rng.random() < 0.7:
            process = self.world.leaders()[0]
            self.world.sometime("leader killed")
        if process is None:
            return "nobody"
        process.end(-9)
        return str(process)

    def kill_worker(self) -> str:
        return self._kill_one("worker")

    def kill_supervisor(self) -> str:
        return self._kill_one("supervisor")

    def kill_nimbus(self) -> str:
        return self._kill_one("nimbus", leader=True)

    def _end_one(self, kind: str) -> str:
        process = self._one(kind)
        if process is None or process.stopped:
            return "nobody"
        process.terminate()
        return str(process)

    def end_worker(self) -> str:
        return self._end_one("worker")

    def end_supervisor(self) -> str:
        return self._end_one("supervisor")

    def end_nimbus(self) -> str:
        return self._end_one("nimbus")

    def _stop_one(self, process: Process | None) -> str:
        if process is None:
            return "nobody"
        process.stop()
        secs = self._later(1, 80, process.resume)
        return f"{process} for {secs:.0f} s"

    def stop_worker(self) -> str:
        return self._stop_one(self._one("worker"))

    def stop_supervisor(self) -> str:
        return self._stop_one(self._one("supervisor"))

    def stop_nimbus(self) -> str:
        leaders = self.world.leaders()
        if leaders:
            self.world.sometime("leader stopped")
        return self._stop_one(leaders[0] if leaders else self._one("nimbus"))

    def _machine(self) -> str:
        return self.rng.choice(sorted(self.world.hosts))

    def _cut(self, pairs: set[tuple[str, str]], low: float, high: float) -> str:
        world = self.world
        new = pairs - world.network.cut
        world.cut(new)
        return f"for {self._later(low, high, lambda: world.heal(new)):.0f} s"

    def cut_machine(self) -> str:
        address = self._machine()
        return f"{address} {self._cut(self.world.isolate(address), 2, 120)}"

    def cut_zookeeper(self) -> str:
        address = self._machine()
        pairs = {(address, ZOOKEEPER), (ZOOKEEPER, address)}
        return f"{address} {self._cut(pairs, 2, 100)}"

    def cut_one_way(self) -> str:
        one, other = self.rng.sample(sorted(self.world.hosts), 2)
        return f"{one} to {other} {self._cut({(one, other)}, 2, 60)}"

    def zookeeper_away(self) -> str:
        ensemble = self.world.ensemble
        if not ensemble.running:
            return "already"
        ensemble.stop()

        def back() -> None:
            if not ensemble.running:
                ensemble.restart()

        return f"for {self._later(1, 60, back):.0f} s"

    def expire_session(self) -> str:
        clients = self.world.ensemble.clients
        if not clients or not self.world.ensemble.running:
            return "nobody"
        client = self.rng.choice(clients)
        client.expire_now()
        return f"of {client.process}"

    def lose_power(self) -> str:
        address = self._machine()
        host = self.world.hosts[address]
        if not host.powered:
            return "already"
        self.world.power_off(host)
        if address in self.world.supervisor_hosts:
            check_disk(self.world, address)
        return f"{address} for {self._later(3, 90, lambda: self.world.power_on(host)):.0f} s"

    def clock_jump(self) -> str:
        host = self.world.hosts[self._machine()]
        host.clock.wall_offset = self.rng.choice([-3600.0, -30.0, 30.0, 3600.0, 0.0])
        return f"{host.name} {host.clock.wall_offset:+.0f} s"

    def slow_machine(self) -> str:
        slow = self.world.network.slow
        address = self._machine()
        slow[address] = self.rng.uniform(0.05, 1.0)
        return f"{address} for {self._later(5, 60, lambda: slow.pop(address, None)):.0f} s"

    def bad_frames(self) -> str:
        network = self.world.network
        network.mangling = self.rng.uniform(0.01, 0.3)

        def good() -> None:
            network.mangling = 0.0

        return f"for {self._later(5, 60, good):.0f} s"

    def reset_connections(self) -> str:
        connections = self.world.network.ordered()
        for connection in connections:
            self.world.network.reset(connection)
        return str(len(connections))

    def full_disk(self) -> str:
        full = self.world.disk.full
        address = self._machine()
        full.add(address)
        return f"{address} for {self._later(2, 40, lambda: full.discard(address)):.0f} s"

    def slow_disk(self) -> str:
        slow = self.world.loop.slow_disks
        address = self._machine()
        slow[address] = self.rng.uniform(0.1, 30.0)
        return f"{address} for {self._later(5, 60, lambda: slow.pop(address, None)):.0f} s"

    def die_while_writing(self) -> str:
        process = self._one(self.rng.choice(["nimbus", "supervisor"]))
        if process is None:
            return "nobody"
        self.world.disk.doom(process, self.rng.randint(1, 8))
        return str(process)
