"""A secured cluster in virtual time: what Nimbus has signed counts, whatever ZooKeeper shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.ledger import Ledger
from tests.simulation.run import simulate
from tests.simulation.world import DIGEST, World
from tests.support.effort import ORDERS

from squall_common.cluster import codec, paths
from squall_common.cluster.access.digests import identity_of
from squall_common.cluster.store import AccessDeniedError, NoNodeError, Store
from squall_common.cluster.stores.tree import Client
from squall_common.cluster.values import Assignment, StormBase, TopologyStatus

pytestmark = pytest.mark.timeout(600)

# A day in `make soak`; otherwise an hour, since a virtual hour takes some 6 s of a core.
HOUR_SECS = 3600.0 if ORDERS > 1 else 150.0
# A day is to take minutes.
SLOWLY = {
    "worker.heartbeat.frequency.secs": 120,
    "task.heartbeat.frequency.secs": 300,
    "supervisor.heartbeat.frequency.secs": 600,
    "supervisor.worker.timeout.secs": 900,
    "nimbus.task.timeout.secs": 1_000,
    "supervisor.monitor.frequency.secs": 600,
    "supervisor.localizer.update.blob.interval.secs": 3_600,
    "task.credentials.poll.secs": 3_600,
}


def _play(script: Callable[[World], Coroutine[Any, Any, None]], **shape: Any) -> None:
    for seed in range(1, ORDERS + 1):
        outcome = simulate(seed, script=script, watch=False, secured=True, **shape)
        assert outcome.violations == []


async def _as_user(world: World, call: Coroutine[Any, Any, Any]) -> Any:
    task = world.client.start(call)
    world.client.tasks.add(task)
    return await task


async def _running(world: World) -> Ledger:
    ledger = world.ledger("alpha", 20.0)
    world.start_all()
    await asyncio.sleep(5)
    assert await _as_user(world, world.submit("alpha", workers=2)) == "ok"
    await asyncio.sleep(60)
    assert len(world.processes("worker")) == 2
    assert ledger.acked
    return ledger


def _workers(world: World) -> set[str]:
    return {process.worker.spec.worker_id for process in world.processes("worker")}  # type: ignore[attr-defined]


async def _attack(world: World, old: dict[str, bytes], harm: str) -> None:
    """As a client of ZooKeeper that may write everything."""
    state = world.store(next(iter(world.hosts.values())))
    store: Store = state.store
    await store.start()
    try:
        if harm == "deleted":
            for path in (paths.SECURITY, paths.ASSIGNMENTS, paths.STORMS):
                await store.delete_tree(path)
        for path, value in old.items() if harm == "rolled back" else ():
            await _put(store, path, value)
        if harm == "forged":
            for path in await _below(store, paths.SECURITY):
                value, _ = await store.get(path)
                await _put(store, path, value[:-7] + b"forged.")
            for topology_id in await store.children(paths.SIGNED_STATES):
                base = StormBase("alpha", TopologyStatus.KILLED, 1, owner="mallory")
                await _put(store, paths.storm(topology_id), codec.encode_storm_base(base))
                nowhere = codec.encode_assignment(Assignment("x", owner="mallory"))
                await _put(store, paths.assignment(topology_id), nowhere)
    finally:
        await store.close()


async def _put(store: Store, path: str, value: bytes) -> None:
    try:
        await store.set(path, value)
    except NoNodeError:
        await store.create(path, value, make_parents=True)


async def _below(store: Store, path: str) -> list[str]:
    found = []
    for name in await store.children(path):
        found += [f"{path}/{name}", *await _below(store, f"{path}/{name}")]
    return found


def _signed(world: World) -> dict[str, bytes]:
    tree, found = world.ensemble.tree, {}
    daemon = Client(who=[identity_of(DIGEST)])
    with pytest.raises(AccessDeniedError):
        tree.get(paths.SECURITY)  # as a stranger

    def walk(path: str) -> None:
        found[path] = tree.get(path, daemon)[0]
        for name in tree.children(path, daemon):
            walk(f"{path}/{name}")

    walk(paths.SECURITY)
    return found


def test_nimbus_away_for_a_day_stops_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile a worker dies and a supervisor starts again, and ZooKeeper is an attacker's."""
    # Half a million looks at whether the machine was asleep would be most of the run.
    monkeypatch.setattr("squall_supervisor.supervisor._PULSE_SECS", 60.0)
    monkeypatch.setattr("squall_supervisor.supervisor._STALL_SECS", 600.0)

    async def script(world: World) -> None:
        ledger = await _running(world)
        [nimbus] = world.nimbus_hosts
        before, old = _workers(world), _signed(world)
        away = world.isolate(nimbus)
        world.cut(away)
        for hour in range(24):
            await asyncio.sleep(HOUR_SECS)
            if hour == 8:
                await _as_user(world, _attack(world, old, "forged"))
            if hour == 12:
                await _as_user(world, _attack(world, old, "deleted"))
            if hour == 16:
                await _as_user(world, _attack(world, old, "rolled back"))
            assert _workers(world) == before, hour
        world.processes("supervisor")[0].end(-9)
        await asyncio.sleep(600)
        assert _workers(world) == before
        world.processes("worker")[0].end(-9)
        await asyncio.sleep(1_200)
        after = _workers(world)
        assert len(after) == 2
        assert len(after & before) == 1
        world.heal(away)
        await asyncio.sleep(1_200)
        assert _workers(world) == after
        assert _signed(world)[paths.CATALOG] == old[paths.CATALOG]
        ledger.open = False
        await asyncio.sleep(600)
        assert ledger.lost == []

    _play(script, nimbuses=1, supervisors=2, **SLOWLY)


@pytest.mark.parametrize("hours", [1, 36])
def test_clocks_that_say_nimbus_was_away_for_24_hours_or_36_days_stop_no_worker(hours: int) -> None:
    """24 jumps of all wall clocks; monotonic time goes on by minutes. After 36 days the records of
    topologies have expired: what is known may begin again nevertheless."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        [nimbus] = world.nimbus_hosts
        before, acked = _workers(world), len(ledger.acked)
        away = world.isolate(nimbus)
        world.cut(away)
        for jump in range(24):
            for host in world.hosts.values():
                host.clock.wall_offset += hours * 3600.0
            await asyncio.sleep(10)
            assert _workers(world) == before, jump
        assert len(ledger.acked) > acked
        supervisors = world.processes("supervisor")
        assert len(supervisors) == 2
        for one in supervisors:
            one.end(-9)
        await asyncio.sleep(90)
        assert len(world.processes("supervisor")) == 2
        assert _workers(world) == before
        world.processes("worker")[0].end(-9)
        await asyncio.sleep(120)
        after = _workers(world)
        assert len(after) == 2
        assert len(after & before) == 1
        world.heal(away)
        await asyncio.sleep(120)
        assert _workers(world) == after
        ledger.open = False
        await asyncio.sleep(120)
        assert ledger.lost == []

    _play(script, nimbuses=1, supervisors=2)


@pytest.mark.parametrize("harm", ["forged", "deleted", "rolled back"])
def test_an_attacked_zookeeper_revives_and_ends_nothing(harm: str) -> None:
    """A topology has ended, another runs; the leader changes in the middle of it."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        world.ledger("beta", 20.0)
        assert await _as_user(world, world.submit("beta", workers=1)) == "ok"
        await asyncio.sleep(60)
        old = _signed(world)
        await _as_user(world, world.ask("killTopology", "beta"))
        await asyncio.sleep(120)
        before = _workers(world)
        assert len(before) == 2
        await _as_user(world, _attack(world, old, harm))
        await asyncio.sleep(30)
        world.leaders()[0].end(-9)
        await _as_user(world, _attack(world, old, harm))
        await asyncio.sleep(180)
        assert _workers(world) == before
        assert len(world.leaders()) == 1
        found = await world.leaders()[0].nimbus.state.topology_ids()  # type: ignore[attr-defined]
        assert [one.partition("-")[0] for one in found] == ["alpha"]
        ledger.open = False
        await asyncio.sleep(120)
        assert ledger.lost == []

    _play(script, nimbuses=2, supervisors=3)
