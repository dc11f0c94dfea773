"""What a worker or a supervisor of a secured cluster reads: only what Nimbus has signed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.secured_nimbus import Certificates
from tests.support.signed_states import (
    Attacker,
    SignedNimbus,
    assignment,
    base,
    info,
    signed_supervisor,
)

from squall_common.authentication.files import trust_of
from squall_common.cluster import paths
from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores import verified
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.stores.verified import UnsignedError, VerifiedStore
from squall_common.cluster.values import ProfileAction, ProfileRequest, TopologyStatus
from squall_common.daemon.clock import ManualClock
from squall_common.security.identity import Role
from squall_common.security.signing import Trust
from squall_common.topology.model import WorkerSlot

ID, OTHER = "words-1-1700000000", "other-2-1700000000"


class World:
    """A leader with two topologies, a stranger, and what a worker of the first one reads."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates = certificates
        self.clock = ManualClock(time=time.time())
        self.ensemble = MemoryEnsemble()
        self.attacker = Attacker(self.ensemble)
        self.nimbus = SignedNimbus(certificates, "n1", folder, self.ensemble, self.clock)

    async def begin(self) -> None:
        await self.attacker.store.start()
        await self.nimbus.start()
        await self.nimbus.lead()
        for topology_id in (ID, OTHER):
            await self.nimbus.state.create_topology(topology_id, base(topology_id[:5]))
            await self.nimbus.state.put_assignment(topology_id, assignment(("node-1", 6700)))
        self.state = await self.reader()

    async def reader(self, floor: int = 0) -> ClusterState:
        trust = trust_of(str(self.certificates.authority.certificate))
        inner = MemoryStore(self.ensemble)
        await inner.start()
        return ClusterState(VerifiedStore(inner, trust, now=self.clock.time, floor={ID: floor}))


@pytest.fixture
async def world(tmp_path: Path) -> World:
    folder = tmp_path / "certificates"
    folder.mkdir()
    made = World(Certificates(folder).create(), tmp_path / "n1")
    await made.begin()
    return made


async def test_a_topology_is_read_as_nimbus_has_written_it(world: World) -> None:
    nimbus, state = world.nimbus.state, world.state
    assert await state.storm_and_zxid(ID) == await nimbus.storm_and_zxid(ID)
    assert await state.assignment(ID) == await nimbus.assignment(ID)
    await nimbus.remove_assignment(ID)
    assert await state.assignment(ID) is None


async def test_the_state_of_another_topology_does_not_count(world: World) -> None:
    signed, _ = await world.attacker.store.get(paths.signed_state(OTHER))
    await world.attacker.put(paths.signed_state(ID), signed)
    with pytest.raises(UnsignedError, match="it is of"):
        await world.state.assignment(ID)


@pytest.mark.parametrize("read_before", [False, True])
async def test_an_older_state_does_not_count(world: World, read_before: bool) -> None:
    """Than was read before, or than the one by which the worker was launched."""
    old, _ = await world.attacker.store.get(paths.signed_state(ID))
    killed = base("words", TopologyStatus.KILLED)
    await world.nimbus.state.put_storm_base(ID, killed)
    found = await world.nimbus.state.storm_and_zxid(ID)
    assert found is not None
    state = world.state if read_before else await world.reader(floor=found[1])
    if read_before:
        assert await state.storm_base(ID) == killed
    await world.attacker.put(paths.signed_state(ID), old)
    with pytest.raises(UnsignedError, match="is below"):
        await state.storm_base(ID)


async def test_little_is_kept_of_topologies_that_were_read_long_ago(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of those an older state does not count, although they are verified anew."""
    monkeypatch.setattr(verified, "_STATES_MAX", 1)
    old, _ = await world.attacker.store.get(paths.signed_state(ID))
    killed = base("words", TopologyStatus.KILLED)
    await world.nimbus.state.put_storm_base(ID, killed)
    store = world.state.store
    assert isinstance(store, VerifiedStore)
    for topology_id in (ID, OTHER, ID, OTHER):
        assert await world.state.storm_base(topology_id) is not None
        assert list(store._last) == [topology_id]
    await world.attacker.put(paths.signed_state(ID), old)
    with pytest.raises(UnsignedError, match="is below"):
        await world.state.storm_base(ID)
    monkeypatch.setattr(verified, "_FLOORS_MAX", 1)
    await world.nimbus.state.put_storm_base(OTHER, killed)
    assert await world.state.storm_base(OTHER) == killed
    assert list(store._floor) == [OTHER]


async def test_requests_are_forgotten_when_they_count_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "_NOTICES", 0)
    store = world.state.store
    assert isinstance(store, VerifiedStore)
    for port in range(6700, 6710):
        request = ProfileRequest(WorkerSlot("node-1", port), ProfileAction.JVM_RESTART)
        await world.nimbus.state.put_profile_request(ID, request)
        assert await world.state.profile_requests(ID) == [request]
        await world.state.remove_profile_request(ID, request)
        world.clock.advance(30_000)
    assert len(store._done) == 4  # of the last 90,000 s
    assert store._seen == {}


async def test_a_missing_or_forged_state_is_unreadable_and_a_new_one_is_noticed(
    world: World,
) -> None:
    changes: list[str] = []
    right, _ = await world.attacker.store.get(paths.signed_state(ID))
    for wrong in (None, b"", right[:-4] + b"AAAA"):
        await world.attacker.delete(paths.signed_state(ID))
        if wrong is not None:
            await world.attacker.put(paths.signed_state(ID), wrong)
        with pytest.raises(UnsignedError):
            await world.state.assignment(ID, changes.append)
        changes.clear()
        await world.attacker.put(paths.signed_state(ID), right)
        assert changes
        assert (await world.state.assignment(ID)) == await world.nimbus.state.assignment(ID)


async def test_a_supervisor_whose_certificate_is_revoked_does_not_speak_for_its_node(
    world: World, tmp_path: Path
) -> None:
    trusted = world.certificates.trusted(Role.SUPERVISOR, "node-1")
    assert trusted.own is not None
    _, node = await signed_supervisor(
        world.certificates, "node-1", tmp_path / "s", MemoryStore(world.ensemble), world.clock
    )
    await node.register_supervisor("node-1", info("node-1"))
    revoked: set[int] = set()
    trust = Trust(trusted.cluster, trusted.ca, lambda: revoked)
    inner = MemoryStore(world.ensemble)
    await inner.start()
    reader = ClusterState(VerifiedStore(inner, trust, now=world.clock.time))
    assert await reader.supervisors() == {"node-1": info("node-1")}
    revoked.add(trusted.own.holder.serial)
    await node.register_supervisor("node-1", info("node-1", (6700,)))
    assert await reader.supervisors() == {}
