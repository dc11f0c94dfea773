"""How workers' heartbeats reach Nimbus: over their supervisors, alone, through ZooKeeper, and over
a change of leaders. Nothing healthy is moved, nothing that is lost is overlooked.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.invariants import check_end
from tests.simulation.ledger import Ledger
from tests.simulation.run import simulate
from tests.simulation.store import SimStore
from tests.simulation.world import World
from tests.support.effort import ORDERS

from squall_common.cluster import codec, paths
from squall_common.cluster.store import Create, Op, Set
from squall_nimbus.scheduler.heartbeats import WRITE_SECS

pytestmark = pytest.mark.timeout(600)

Script = Callable[[World], Coroutine[Any, Any, None]]


def _play(script: Script, **shape: Any) -> None:
    for seed in range(1, ORDERS + 1):
        assert simulate(seed, script=script, **shape).violations == []


class _Writes:
    """Writes of heartbeats to ZooKeeper: of workers' nodes by the writer's kind, and of topologies'
    nodes by their time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.of_workers: Counter[str] = Counter()
        self.of_topologies: list[float] = []
        world.ensemble.applied.append(self._applied)

    def _applied(self, client: SimStore, ops: list[Op]) -> None:
        for op in ops:
            if not isinstance(op, Set | Create) or not op.path.startswith(paths.WORKERBEATS):
                continue
            _, _, name = op.path.removeprefix(f"{paths.WORKERBEATS}/").partition("/")
            if paths.slot_of_workerbeat(name) is not None:
                self.of_workers[client.process.name.partition(".")[2].partition("-")[0]] += 1
            elif not name and isinstance(op, Set):
                self.of_topologies.append(self._world.loop.time())

    def clear(self) -> None:
        self.of_workers.clear()
        self.of_topologies.clear()


async def _running(world: World) -> Ledger:
    ledger = world.ledger("alpha", 0.5)
    world.start_all()
    await asyncio.sleep(5)
    task = world.client.start(world.submit("alpha", workers=3))
    world.client.tasks.add(task)
    assert await task == "ok"
    await asyncio.sleep(40)
    assert len(world.processes("worker")) == 3
    assert ledger.acked
    return ledger


def _assignment(world: World) -> tuple[bytes, int]:
    (topology_id,) = world.ensemble.tree.children("/assignments")
    value, stat = world.ensemble.tree.get(paths.assignment(topology_id))
    return value, stat.mzxid


def _nodes_used(world: World) -> set[str]:
    value, _ = _assignment(world)
    return {slot.node for slot in codec.decode_assignment("", value).executor_slot.values()}


def _nodes_of_workers(world: World) -> set[str]:
    """Names of workers' heartbeats in ZooKeeper."""
    (topology_id,) = world.ensemble.tree.children("/assignments")
    names = world.ensemble.tree.children(paths.workerbeats(topology_id))
    return {name for name in names if paths.slot_of_workerbeat(name) is not None}


async def _quiet_end(world: World, ledger: Ledger, secs: float = 40) -> None:
    ledger.open = False
    await asyncio.sleep(secs)
    assert ledger.lost == []
    assert check_end(world, {"alpha": 1}, set()) == []


async def _unmoved(world: World, secs: float, fault: Callable[[], object]) -> None:
    """Whatever the fault, for that long: the same workers run the same executors."""
    before, workers = _assignment(world), world.processes("worker")
    fault()
    await asyncio.sleep(secs)
    assert _assignment(world) == before
    assert world.processes("worker") == workers


def _reported(world: World) -> int:
    """From how many workers the leader has a heartbeat."""
    (leader,) = world.leaders()
    (topology_id,) = world.ensemble.tree.children("/assignments")
    return len(leader.nimbus.heartbeats.reports(topology_id))  # type: ignore[attr-defined]


def test_no_worker_writes_to_zookeeper_while_all_is_well() -> None:
    async def script(world: World) -> None:
        writes = _Writes(world)
        ledger = await _running(world)
        writes.clear()
        await asyncio.sleep(300)
        assert writes.of_workers == {}
        times = writes.of_topologies
        assert len(times) >= 300 / WRITE_SECS / 2
        assert all(b - a >= WRITE_SECS for a, b in itertools.pairwise(times))
        assert _reported(world) == 3
        await _quiet_end(world, ledger)

    _play(script)


async def dead_supervisors(world: World) -> None:
    """Their nodes' entries in ZooKeeper are gone: only the workers' own reports keep them. (One
    supervisor lives, to which the work would move.)"""
    writes = _Writes(world)
    ledger = await _running(world)
    world.keep_alive = False
    dead = world.processes("supervisor")[1:]

    def fault() -> None:
        writes.clear()
        for supervisor in dead:
            supervisor.end(-9)

    await _unmoved(world, 150, fault)
    assert writes.of_workers == {}  # they reach Nimbus
    assert _reported(world) == 3
    world.keep_alive = True
    for supervisor in dead:
        world._start(world.hosts[supervisor.host], "supervisor", world._supervisor)
    await _quiet_end(world, ledger, 60)


def test_workers_report_alone_while_their_supervisors_are_dead() -> None:
    _play(dead_supervisors)


def test_a_machine_that_is_lost_is_noticed_as_before() -> None:
    async def script(world: World) -> None:
        ledger = await _running(world)
        host = world.hosts[world.processes("worker")[-1].host]
        before = _nodes_used(world)
        world.power_off(host)
        # The session of its supervisor (20 s), and a round.
        await asyncio.sleep(20 + 10 + 8)
        assert _nodes_used(world) < before
        world.power_on(host)
        await _quiet_end(world, ledger, 60)

    _play(script)


def test_a_leader_that_dies_between_two_reports_costs_nothing() -> None:
    """The next one knows from the node of the topology that its workers were launched."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        await asyncio.sleep(40)

        def fault() -> None:
            for leader in world.leaders():
                leader.end(-9)

        await _unmoved(world, 90, fault)
        assert _reported(world) == 3
        (leader,) = world.leaders()
        (topology_id,) = world.ensemble.tree.children("/assignments")
        watched = leader.nimbus.monitor._watched[topology_id]  # type: ignore[attr-defined]
        assert all(one.changed_at is not None for one in watched.values())
        await _quiet_end(world, ledger)

    _play(script)


async def stopped_nimbus(world: World) -> None:
    """The only Nimbus stands still, its connections open, for longer than all timeouts."""
    writes = _Writes(world)
    ledger = await _running(world)
    (leader,) = world.leaders()

    def fault() -> None:
        writes.clear()
        leader.stop()

    await _unmoved(world, 100, fault)
    assert writes.of_workers["supervisor"] > 10
    leader.resume()
    await asyncio.sleep(60)
    writes.clear()
    await _unmoved(world, 60, lambda: None)
    assert writes.of_workers == {}
    assert _nodes_of_workers(world) == set()  # they were removed
    assert _reported(world) == 3
    await _quiet_end(world, ledger)


def test_a_nimbus_that_stands_still_moves_nothing_when_it_goes_on() -> None:
    _play(stopped_nimbus, nimbuses=1)


def test_a_worker_that_is_lost_while_nimbus_stands_still_is_moved_afterwards() -> None:
    async def script(world: World) -> None:
        ledger = await _running(world)
        (leader,) = world.leaders()
        before = _nodes_used(world)
        leader.stop()
        await asyncio.sleep(10)
        lost = next(h for h in world.supervisor_hosts if h != leader.host)
        world.power_off(world.hosts[lost])
        await asyncio.sleep(60)
        leader.resume()
        await asyncio.sleep(45 + 20)
        assert _nodes_used(world) != before
        world.power_on(world.hosts[lost])
        await _quiet_end(world, ledger, 60)

    _play(script, nimbuses=1)


async def cut_from_nimbus(world: World) -> None:
    writes = _Writes(world)
    ledger = await _running(world)
    ways = {
        (host, nimbus)
        for host in world.supervisor_hosts
        for nimbus in world.nimbus_hosts
        if host != nimbus
    }

    def fault() -> None:
        writes.clear()
        world.cut(ways)

    await _unmoved(world, 120, fault)
    assert sum(writes.of_workers.values()) > 20
    world.heal(ways)
    await asyncio.sleep(40)
    assert _nodes_of_workers(world) == set()
    await _quiet_end(world, ledger, 60)


def test_reports_go_through_zookeeper_while_the_way_to_nimbus_is_cut() -> None:
    _play(cut_from_nimbus)


@pytest.mark.parametrize("nimbus_too", [False, True])
def test_without_zookeeper_nothing_stops_and_nothing_is_moved(nimbus_too: bool) -> None:
    async def script(world: World) -> None:
        ledger = await _running(world)
        world.keep_alive = not nimbus_too
        count = len(ledger.acked)

        def fault() -> None:
            world.ensemble.stop()
            if nimbus_too:
                for nimbus in world.processes("nimbus"):
                    nimbus.end(-9)

        await _unmoved(world, 150, fault)
        assert len(ledger.acked) > count + 200
        world.keep_alive = True

        def back() -> None:
            world.ensemble.restart()
            for address in world.nimbus_hosts if nimbus_too else ():
                world._start(world.hosts[address], "nimbus", world._nimbus)

        await _unmoved(world, 150, back)
        assert _reported(world) == 3
        await _quiet_end(world, ledger, 60)

    _play(script)
