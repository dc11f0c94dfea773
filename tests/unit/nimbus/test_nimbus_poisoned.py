"""A poisoned topology beside a healthy one, which it does not affect.

Each poison is put in by hand, as a damaged disk, another version or a hostile worker would. Then
every loop of Nimbus is run, and the healthy topology is submitted, moved, rebalanced and removed.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually

from squall_common.cluster import codec, paths
from squall_common.cluster.store import NODE_BYTES_MAX, check_size
from squall_common.cluster.values import TopologyStatus
from squall_common.daemon.clock import ManualClock
from squall_common.names import code_blob_key, conf_blob_key
from squall_common.topology.model import WorkerSlot
from squall_nimbus.topologies import limits
from squall_thrift import storm

Poison = Callable[[LocalNimbus, str, pytest.MonkeyPatch], Awaitable[None]]


async def _storm_base(nimbus: LocalNimbus, poisoned: str, _: pytest.MonkeyPatch) -> None:
    await nimbus.store.set(paths.storm(poisoned), b"no StormBase")


async def _assignment(nimbus: LocalNimbus, poisoned: str, _: pytest.MonkeyPatch) -> None:
    await nimbus.store.set(paths.assignment(poisoned), b"\x1f\x8bno gzip")


async def _heartbeat(nimbus: LocalNimbus, poisoned: str, _: pytest.MonkeyPatch) -> None:
    path = paths.workerbeat(poisoned, WorkerSlot("sup-a", 6700))
    await nimbus.store.create(path, b"garbage")


async def _code_gone(nimbus: LocalNimbus, poisoned: str, _: pytest.MonkeyPatch) -> None:
    nimbus.nimbus.blobs.delete(code_blob_key(poisoned))


async def _code_damaged(nimbus: LocalNimbus, poisoned: str, _: pytest.MonkeyPatch) -> None:
    nimbus.nimbus.blobs.put(code_blob_key(poisoned), b"no topology")


def _conf(data: bytes) -> Poison:
    async def put(nimbus: LocalNimbus, poisoned: str, _: pytest.MonkeyPatch) -> None:
        nimbus.nimbus.blobs.put(conf_blob_key(poisoned), data)

    return put


async def _too_large(nimbus: LocalNimbus, poisoned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topology that a version without limits has accepted."""
    encode = codec.encode_assignment

    def padded(assignment: object) -> bytes:
        owned = getattr(assignment, "owner", None) == "poisoned"
        return bytes(NODE_BYTES_MAX + 1) if owned else encode(assignment)  # type: ignore[arg-type]

    found = await nimbus.state.assignment(poisoned)
    assert found is not None
    base = await nimbus.state.storm_base(poisoned)
    assert base is not None
    await nimbus.state.put_assignment(poisoned, replace(found[0], owner="poisoned"))
    await nimbus.state.put_storm_base(poisoned, replace(base, num_workers=2, owner="poisoned"))
    monkeypatch.setattr(codec, "encode_assignment", padded)


POISONS: dict[str, Poison] = {
    "its StormBase cannot be read": _storm_base,
    "its assignment cannot be read": _assignment,
    "its assignment does not fit": _too_large,
    "a heartbeat is garbage": _heartbeat,
    "its code is gone": _code_gone,
    "its code is damaged": _code_damaged,
    "its configuration is not JSON": _conf(b"{"),
    "its configuration is too deep": _conf(b"[" * 100_000),
    "its configuration is a list": _conf(b"[]"),
    "its configuration has text for a number": _conf(b'{"topology.acker.executors": "x"}'),
    "its configuration asks for too much": _conf(b'{"topology.acker.executors": 2147483648}'),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def nimbus(tmp_path, clock):
    # Rounds are made by the test; only the size of a znode limits a topology.
    conf = {"nimbus.monitor.freq.secs": 3600, "nimbus.executors.perTopology": None}
    async with LocalNimbus(tmp_path, conf=conf, clock=clock) as nimbus:
        yield await nimbus.leads()


async def look(nimbus: LocalNimbus) -> None:
    """One whole round of Nimbus' loop."""
    await nimbus.state.topology_ids()  # an answer: the term is fresh at this time
    await nimbus.nimbus._look()


async def slots(nimbus: LocalNimbus, topology_id: str) -> set[WorkerSlot]:
    found = await nimbus.state.assignment(topology_id)
    return set() if found is None else set(found[0].executor_slot.values())


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
async def test_it_does_not_affect_a_healthy_topology(
    nimbus, clock, monkeypatch, caplog, poison: Poison
) -> None:
    first = await nimbus.supervisor("sup-a", [6700, 6701])
    poisoned = await nimbus.submit("poisoned")
    early = await nimbus.submit("early")
    held = await slots(nimbus, poisoned)
    assert len(held) == 1
    await poison(nimbus, poisoned, monkeypatch)

    # The start of another, and a second supervisor's slots for it.
    second = await nimbus.supervisor("sup-b", [6700, 6701])
    await look(nimbus)
    healthy = await nimbus.submit("healthy")
    before = await slots(nimbus, healthy)
    assert before
    assert not before & held, "the poisoned one keeps its slot"
    base = await nimbus.state.storm_base(healthy)
    assert base is not None
    assert base.status is TopologyStatus.ACTIVE

    # The replacement of its dead worker: all others are beating.
    for _ in range(4):
        clock.advance(40)
        # Garbage stays where it is: its worker is dead, and replaced like any other.
        for topology_id in (early,) if poison is _heartbeat else (poisoned, early):
            with contextlib.suppress(Exception):
                for slot in await slots(nimbus, topology_id):
                    found = await nimbus.state.assignment(topology_id)
                    await nimbus.beat(topology_id, slot, dict.fromkeys(found[0].executor_slot))
        await look(nimbus)
    after = await slots(nimbus, healthy)
    assert after
    assert after != before, "the dead worker was not replaced"

    # Its rebalance, the answers about the cluster, its end, and the search for leftovers.
    await nimbus.call(
        "rebalance", "healthy", storm.RebalanceOptions(wait_secs=0, num_executors={"count": 1})
    )
    shown = {one.name for one in await nimbus.call("getTopologySummaries")}
    assert {"early", "healthy"} <= shown
    assert (await nimbus.call("getClusterInfo")).supervisors
    await nimbus.call("getTopologyInfo", healthy)
    await nimbus.state.setup_heartbeats("left-over-1-1")
    await nimbus.call("killTopologyWithOpts", "healthy", storm.KillOptions(wait_secs=0))
    await look(nimbus)
    assert healthy not in await nimbus.state.topologies_with_state()
    assert "left-over-1-1" not in await nimbus.state.topologies_with_state()

    # And the poisoned one can be removed, whatever is wrong with it, if it can be found at all.
    if poison is not _storm_base:
        await nimbus.call("killTopologyWithOpts", "poisoned", storm.KillOptions(wait_secs=0))
        assert poisoned not in await nimbus.state.topologies_with_state()
    assert not nimbus.nimbus.crashed.done()
    await first.close()
    await second.close()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
async def test_a_new_leader_takes_over_despite_it(tmp_path, monkeypatch, poison: Poison) -> None:
    """Its start and its timers are repaired, and a pending kill is finished."""
    async with LocalNimbus(tmp_path) as old:
        await old.leads()
        supervisor = await old.supervisor("sup-a", [6700, 6701])
        poisoned = await old.submit("poisoned")
        healthy = await old.submit("healthy")
        await old.call("killTopologyWithOpts", "healthy", storm.KillOptions(wait_secs=1))
        await poison(old, poisoned, monkeypatch)
        await old.crash()
        async with LocalNimbus(tmp_path, ensemble=old.ensemble, port=6628) as new:
            await new.leads()

            async def gone() -> bool:
                return healthy not in await new.state.topologies_with_state()

            await eventually(gone, "the healthy one is removed by the next leader")
            assert poisoned in await new.state.topology_ids()
        await supervisor.close()


async def test_a_supervisor_that_cannot_be_read_stops_no_round(nimbus) -> None:
    supervisor = await nimbus.supervisor("sup-a")
    damaged = await nimbus.supervisor("sup-b")
    await nimbus.store.set(paths.supervisor("sup-b"), b"garbage")
    topology_id = await nimbus.submit(conf={"topology.workers": 2})
    assert await slots(nimbus, topology_id) == {
        WorkerSlot("sup-a", 6700),
        WorkerSlot("sup-a", 6701),
    }
    await supervisor.close()
    await damaged.close()


async def test_an_accepted_topology_fits_and_one_that_cannot_fit_is_refused(nimbus) -> None:
    """10,000 executors in one topology, started, moved and rebalanced."""
    supervisors = [await nimbus.supervisor(f"sup-{n}", range(6700, 6710)) for n in range(10)]
    topology_id = await nimbus.submit("large", {"topology.workers": 100}, executors=10_000)
    assignment, _ = await nimbus.state.assignment(topology_id)
    assert len(assignment.executor_slot) == 10_101
    assert len(assignment.slots()) == 100
    value, _ = await nimbus.store.get(paths.assignment(topology_id))
    check_size("", value)
    assert len(value) < limits.worst_assignment_bytes(10_101, 100) < 300_000
    await nimbus.call("killTopologyWithOpts", "large", storm.KillOptions(wait_secs=0))
    with pytest.raises(storm.InvalidTopologyException, match="bytes in ZooKeeper"):
        await nimbus.submit("large", {"topology.workers": 5_000}, executors=30_000)
    for supervisor in supervisors:
        await supervisor.close()
