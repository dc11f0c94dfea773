"""What went wrong in Apache Storm, as stories with a known course (STORM-... are its issues)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.invariants import check_end
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Process
from tests.simulation.run import simulate
from tests.simulation.world import World

from squall.cluster import codec, paths
from squall.config import default_conf
from squall_thrift import storm

pytestmark = pytest.mark.timeout(600)

Script = Callable[[World], Coroutine[Any, Any, None]]


def _play(script: Script, **shape: Any) -> None:
    """Play a script with two different orders of things."""
    for seed in (1, 2):
        assert simulate(seed, script=script, **shape).violations == []


async def _as_user(world: World, call: Coroutine[Any, Any, str]) -> str:
    task = world.client.start(call)
    world.client.tasks.add(task)
    return await task


async def _running(world: World, *, workers: int = 3) -> Ledger:
    """A cluster with one topology, "alpha", that runs."""
    ledger = world.ledger("alpha", 0.5)
    world.start_all()
    await asyncio.sleep(5)
    assert await _as_user(world, world.submit("alpha", workers=workers)) == "ok"
    await asyncio.sleep(20)
    assert len(world.processes("worker")) == workers
    assert ledger.acked
    return ledger


async def _quiet_end(world: World, ledger: Ledger, secs: float = 40) -> None:
    """Everything that was accepted is acked, and what must run does."""
    ledger.open = False
    await asyncio.sleep(secs)
    assert ledger.lost == []
    assert check_end(world, {"alpha": 1}, set()) == []


def _assignment(world: World) -> tuple[bytes, int]:
    """As it is stored, and the transaction that wrote it."""
    (topology_id,) = world.ensemble.tree.children("/assignments")
    value, stat = world.ensemble.tree.get(paths.assignment(topology_id))
    codec.decode_assignment("", value)
    return value, stat.mzxid


def test_a_hung_worker_is_restarted_in_place_before_it_is_moved() -> None:
    """STORM-589: with equal time-outs Nimbus and supervisor raced."""
    conf = default_conf()
    assert conf["nimbus.task.timeout.secs"] > conf["supervisor.worker.timeout.secs"]

    async def script(world: World) -> None:
        ledger = await _running(world)
        before = _assignment(world)
        hung = world.processes("worker")[0]
        hung.stop()
        await asyncio.sleep(conf["supervisor.worker.timeout.secs"] + 4)
        assert not hung.alive
        assert len(world.processes("worker")) == 3
        await asyncio.sleep(30)
        assert _assignment(world) == before
        await _quiet_end(world, ledger)

    _play(script)


def test_a_fail_over_long_after_the_start_moves_nothing() -> None:
    """STORM-3984: later than 600 s after the start, a new leader moved everything."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        await asyncio.sleep(700)
        before, workers = _assignment(world), world.processes("worker")
        for leader in world.leaders():
            leader.end(-9)
        await asyncio.sleep(90)
        assert len(world.leaders()) == 1
        assert _assignment(world) == before
        assert world.processes("worker") == workers
        await _quiet_end(world, ledger)

    _play(script)


def test_workers_of_a_killed_topology_end_without_their_supervisor() -> None:
    """STORM-3773: zombies survived `storm kill` while their supervisor was down."""

    async def script(world: World) -> None:
        await _running(world)
        world.keep_alive = False
        for supervisor in world.processes("supervisor"):
            supervisor.end(-9)
        options = storm.KillOptions(wait_secs=1)
        assert await _as_user(world, world.ask("killTopologyWithOpts", "alpha", options)) == "ok"
        refresh_secs = default_conf()["task.refresh.poll.secs"]
        await asyncio.sleep(2 * refresh_secs + 10)
        assert world.processes("worker") == []

    _play(script)


def test_a_nimbus_that_was_restarted_fast_does_not_wait_for_its_own_ghost() -> None:
    """STORM-3107: it took its own old ephemeral node for a leader."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        (leader,) = world.leaders()
        leader.end(-9)
        await asyncio.sleep(8)  # systemd starts it after at most five; a session lasts twenty
        (leader,) = world.leaders()
        assert await _as_user(world, world.ask("deactivate", "alpha")) == "ok"
        assert await _as_user(world, world.ask("activate", "alpha")) == "ok"
        await _quiet_end(world, ledger)

    _play(script, nimbuses=1)


def test_a_whole_cluster_and_its_zookeeper_come_back_after_a_power_failure() -> None:
    """STORM-3798: it took wiping ZooKeeper to get a cluster up again."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        world.ensemble.stop()
        for host in world.hosts.values():
            world.power_off(host)
        await asyncio.sleep(300)
        for host in world.hosts.values():
            world.power_on(host)
        await asyncio.sleep(10)  # the daemons are there first
        world.ensemble.restart()
        await asyncio.sleep(120)
        await _quiet_end(world, ledger)

    _play(script)


def test_workers_survive_a_peer_that_they_cannot_reach() -> None:
    """STORM-329, STORM-404: one unreachable peer took the others down, one after the other."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        workers = world.processes("worker")
        one, *others = (process.host for process in workers)
        pairs = {(one, other) for other in others if other != one}
        pairs |= {(other, one) for one, other in pairs}
        world.cut(pairs)
        await asyncio.sleep(120)
        world.heal(pairs)
        assert world.processes("worker") == workers
        await asyncio.sleep(30)
        await _quiet_end(world, ledger)

    _play(script)


def test_a_spout_that_was_restarted_on_its_slot_goes_on_where_it_was() -> None:
    """STORM-543, STORM-870, STORM-2426: acks went to a stale task, first tuples failed, clients
    never connected again."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        for _ in range(5):
            for worker in world.processes("worker"):
                worker.end(-9)
                await asyncio.sleep(7)
            before = len(ledger.acked)
            await asyncio.sleep(10)
            assert len(ledger.acked) >= before + 15
        await _quiet_end(world, ledger)

    _play(script)


def test_a_slow_launch_does_not_hold_up_the_supervisor() -> None:
    """STORM-577: launching workers kept the supervisor from its heartbeats."""

    async def script(world: World) -> None:
        for host in world.hosts.values():
            host.launch_secs = (50.0, 60.0)
        ledger = world.ledger("alpha", 0.5)
        world.start_all()
        await asyncio.sleep(5)
        assert await _as_user(world, world.submit("alpha", workers=3)) == "ok"
        tree = world.ensemble.tree
        supervisors = tree.children("/supervisors")
        assert len(supervisors) == 3
        versions = [
            world.ensemble.tree.get(f"/supervisors/{one}")[1].version for one in supervisors
        ]
        await asyncio.sleep(30)
        for one, version in zip(supervisors, versions, strict=True):
            assert tree.get(f"/supervisors/{one}")[1].version >= version + 2
        await asyncio.sleep(60)
        assert ledger.acked
        await _quiet_end(world, ledger)

    _play(script)


@pytest.mark.parametrize("what", ["kill", "rebalance"])
def test_what_waits_for_its_time_survives_nimbus(what: str) -> None:
    """STORM-3516: a kill or a rebalance that was pending was forgotten."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        if what == "kill":
            options: Any = storm.KillOptions(wait_secs=40)
            answer = await _as_user(world, world.ask("killTopologyWithOpts", "alpha", options))
        else:
            options = storm.RebalanceOptions(wait_secs=40, num_workers=1)
            answer = await _as_user(world, world.ask("rebalance", "alpha", options))
        assert answer == "ok"
        for _ in range(3):
            await asyncio.sleep(10)
            for process in list(world.leaders()):
                process.end(-9)
        await asyncio.sleep(120)
        if what == "kill":
            assert check_end(world, {}, {"alpha"}) == []
        else:
            assert len(world.processes("worker")) == 1
            await _quiet_end(world, ledger)

    _play(script)


def test_a_leader_that_was_stopped_writes_nothing_afterwards() -> None:
    """SIGSTOP for longer than a session: another leads; the first finds out before it acts."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        (first,) = world.leaders()
        first.stop()
        await asyncio.sleep(30)
        (second,) = [one for one in world.leaders() if one is not first]
        written: list[Process] = []
        world.ensemble.applied.append(lambda client, ops: written.append(client.process))
        first.resume()
        await asyncio.sleep(30)
        assert world.leaders() == [second]
        assert await _as_user(world, world.ask("deactivate", "alpha")) == "ok"
        assert await _as_user(world, world.ask("activate", "alpha")) == "ok"
        await _quiet_end(world, ledger)

    _play(script, nimbuses=2)
