"""What Nimbus believes of its cluster state while a stranger writes to ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
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

from squall_common.cluster import codec, paths
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.store import (
    Check,
    ConnectionLostError,
    Create,
    NodeExistsError,
    NoNodeError,
    Op,
    Set,
)
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import (
    LogConfig,
    ProfileAction,
    ProfileRequest,
    TopologyStatus,
)
from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_common.security.records import LIFE_SECS
from squall_common.topology.model import WorkerSlot

ID = "words-1-1700000000"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), days=300).create()


class Cluster:
    """Two Nimbus nodes, of which the first leads, and a stranger."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates, self.folder = certificates, folder
        self.clock = ManualClock(time=time.time())
        self.ensemble = MemoryEnsemble()
        self.attacker = Attacker(self.ensemble)

    async def nimbus(self, name: str) -> SignedNimbus:
        folder = self.folder / name
        made = SignedNimbus(self.certificates, name, folder, self.ensemble, self.clock)
        return await made.start()

    async def begin(self) -> SignedNimbus:
        await self.attacker.store.start()
        leader = await self.nimbus("n1")
        await leader.lead()
        return leader


@pytest.fixture
def cluster(certificates: Certificates, tmp_path: Path) -> Cluster:
    return Cluster(certificates, tmp_path)


async def test_topologies_are_written_and_read_as_in_an_open_cluster(cluster: Cluster) -> None:
    leader = await cluster.begin()
    state = leader.state
    await state.create_topology(ID, base("words"), guard=leader)
    await state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    await state.put_storm_base(ID, base("words", TopologyStatus.INACTIVE), guard=leader)
    found = await state.storm_and_zxid(ID)
    placed = await state.assignment(ID)
    assert found is not None
    assert placed is not None
    assert found[0].status is TopologyStatus.INACTIVE
    assert found[1] > placed[1]  # each has the number of its own last change
    assert await state.topology_ids() == await state.assignments() == [ID]
    other = await cluster.nimbus("n2")
    assert await other.state.storm_and_zxid(ID) == found
    assert await other.state.assignment(ID) == placed
    await state.remove_topology(ID, guard=leader)
    assert await state.topology_ids() == await state.assignments() == []
    assert await state.storm_base(ID) is None
    await other.follow()
    assert await other.state.topology_ids() == []


async def test_errors_are_those_of_a_store(cluster: Cluster) -> None:
    leader = await cluster.begin()
    epoch, storm = paths.LEADER_EPOCH, paths.storm(ID)
    value = codec.encode_storm_base(base("words"))
    with pytest.raises(NoNodeError) as missing:
        await leader.transaction([Check(epoch), Set(storm, value)])
    assert missing.value.index == 1
    await leader.state.create_topology(ID, base("words"))
    with pytest.raises(NodeExistsError) as twice:
        await leader.transaction([Check(epoch), Create(storm, value)])
    assert twice.value.index == 1
    with pytest.raises(NoNodeError):
        await leader.transaction([Set(paths.assignment(ID), b"")])
    with pytest.raises(NodeExistsError) as beside:  # of an operation that is not signed
        await leader.transaction([Check(epoch), Set(storm, value), Create(paths.errors(ID))])
    assert beside.value.index == 2
    assert await leader.state.storm_base(ID) == base("words")


@pytest.mark.parametrize("harm", ["deleted", "forged", "emptied", "rolled back", "swapped"])
async def test_what_a_stranger_writes_changes_nothing_and_is_put_right(
    cluster: Cluster, harm: str
) -> None:
    """Each signed node, for the leader, for a Nimbus that follows, and for one that starts."""
    leader, attacker = await cluster.begin(), cluster.attacker
    follower = await cluster.nimbus("n2")
    other = "other-2-1700000000"
    for topology_id in (ID, other):
        await leader.state.create_topology(topology_id, base(topology_id[:5]), guard=leader)
    await leader.state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    await attacker.look()
    await leader.state.put_assignment(ID, assignment(("node-2", 6700)), guard=leader)
    await leader.state.put_storm_base(other, base("other", TopologyStatus.INACTIVE), guard=leader)
    await leader.state.create_topology("more-3-1700000000", base("more"), guard=leader)
    await follower.follow()
    signed = [
        paths.CATALOG,
        *(paths.signed_state(one) for one in (ID, other)),
        *(paths.manifest(node) for node in ("node-1", "node-2")),
    ]
    right = {path: (await attacker.store.get(path))[0] for path in signed}
    swapped = dict(zip(signed, right.values().__reversed__(), strict=True))
    for path in signed:
        match harm:
            case "deleted":
                await attacker.delete(paths.SECURITY)
            case "forged":
                await attacker.put(path, right[path][:-3] + b"AAA")
            case "emptied":
                await attacker.put(path, b"")
            case "rolled back":
                await attacker.put(path, attacker.seen.get(path, [b""])[0])
            case "swapped":
                await attacker.put(path, swapped[path])
    for nimbus in (leader, follower, await (await cluster.nimbus("n2")).start()):
        placed = await nimbus.state.assignment(ID)
        assert placed is not None
        assert placed[0] == assignment(("node-2", 6700))
        assert len(await nimbus.state.topology_ids()) == 3
        found = await nimbus.state.storm_base(other)
        assert found is not None
        assert found.status is TopologyStatus.INACTIVE
    await leader.follow()
    await leader.store.maintain(leader)
    assert {path: (await attacker.store.get(path))[0] for path in signed} == right
    await follower.follow()
    assert follower.ledger.catalog == leader.ledger.catalog
    await leader.state.put_storm_base(ID, base("words", TopologyStatus.KILLED), guard=leader)


async def test_a_write_succeeds_whatever_was_deleted_just_before(cluster: Cluster) -> None:
    leader, attacker = await cluster.begin(), cluster.attacker
    await leader.state.create_topology(ID, base("words"), guard=leader)
    await leader.state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    await attacker.delete(paths.SECURITY)
    await leader.state.put_assignment(ID, assignment(("node-2", 6700)), guard=leader)
    await attacker.put(f"{paths.signed_state(ID)}/below", b"x")
    await leader.state.remove_topology(ID, guard=leader)
    assert await leader.state.topology_ids() == []
    follower = await cluster.nimbus("n2")
    assert await follower.state.topology_ids() == []


async def test_plain_nodes_count_for_nothing(cluster: Cluster) -> None:
    """Where Storm keeps them, and where an open cluster does."""
    leader, attacker = await cluster.begin(), cluster.attacker
    await leader.state.create_topology(ID, base("words"), guard=leader)
    forged = codec.encode_storm_base(base("words", owner="mallory"))
    for topology_id in (ID, "forged-1-1700000000"):
        await attacker.put(paths.storm(topology_id), forged)
        placed = codec.encode_assignment(assignment(("node-9", 6700), owner="mallory"))
        await attacker.put(paths.assignment(topology_id), placed)
    await leader.follow()
    found = await leader.state.storm_base(ID)
    assert found is not None
    assert found.owner == "alice"
    assert await leader.state.topology_ids() == [ID]
    assert await leader.state.all_assignments() == {}
    assert leader.ledger.states[ID].record.owner == "alice"


async def test_a_topology_that_has_ended_is_not_revived_by_an_old_zookeeper(
    cluster: Cluster,
) -> None:
    leader, attacker = await cluster.begin(), cluster.attacker
    follower = await cluster.nimbus("n2")
    await leader.state.create_topology(ID, base("words"), guard=leader)
    await follower.follow()
    await attacker.look()
    await leader.state.remove_topology(ID, guard=leader)
    await follower.follow()
    for path, values in attacker.seen.items():
        if path.startswith(paths.SECURITY) and values:
            await attacker.put(path, values[-1])
    for nimbus in (leader, follower, await cluster.nimbus("n2")):
        await nimbus.lead()
        assert await nimbus.state.topology_ids() == []


async def test_a_state_that_no_one_has_is_unknown_and_not_absent(cluster: Cluster) -> None:
    """A Nimbus with an empty disk, while the state is deleted from ZooKeeper."""
    leader, attacker = await cluster.begin(), cluster.attacker
    await leader.state.create_topology(ID, base("words"), guard=leader)
    await leader.state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    await attacker.delete(paths.signed_state(ID))
    fresh = await cluster.nimbus("n2")
    assert await fresh.state.topology_ids() == [ID]
    with pytest.raises(CorruptStateError, match="no signed state"):
        await fresh.state.storm_base(ID)
    with pytest.raises(NoNodeError):  # nothing to go on from: what is written was read elsewhere
        await fresh.state.put_storm_base(ID, base("words", owner="mallory"), guard=fresh)
    await fresh.lead()  # its workers run on
    assert fresh.ledger.manifests["node-1"].manifest.slots[6700].topology_id == ID
    await leader.follow()
    await leader.store.maintain(leader)
    await fresh.follow()
    assert await fresh.state.storm_base(ID) == base("words")


async def test_an_unsigned_or_older_entry_of_a_supervisor_is_left_out(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    leader, attacker = await cluster.begin(), cluster.attacker
    _, node = await signed_supervisor(
        certificates, "node-1", tmp_path / "s", MemoryStore(cluster.ensemble), cluster.clock
    )
    await node.register_supervisor("node-1", info("node-1", ()))
    await leader.state.supervisors()
    [old] = [(await attacker.store.get(paths.supervisor("node-1")))[0]]
    await node.register_supervisor("node-1", info("node-1"))
    assert (await leader.state.supervisors())["node-1"] == info("node-1")
    await attacker.put(paths.supervisor("node-1"), old)  # it had no ports then
    await attacker.put(paths.supervisor("node-9"), codec.encode_supervisor(info("node-9")))
    await attacker.put(paths.supervisor("node-8"), old)
    assert await leader.state.supervisors() == {}
    await node.register_supervisor("node-1", info("node-1"))
    assert (await leader.state.supervisors()) == {"node-1": info("node-1")}


async def test_another_daemons_certificate_does_not_speak_for_a_node(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    leader = await cluster.begin()
    _, node = await signed_supervisor(
        certificates, "node-2", tmp_path / "s", MemoryStore(cluster.ensemble), cluster.clock
    )
    await node.register_supervisor("node-1", info("node-1"))
    assert await leader.state.supervisors() == {}


async def test_what_a_revoked_nimbus_has_signed_is_signed_again(cluster: Cluster) -> None:
    first = await cluster.begin()
    second = await cluster.nimbus("n2")
    await first.state.create_topology(ID, base("words"), guard=first)
    await first.state.put_assignment(ID, assignment(("node-1", 6700)), guard=first)
    await second.follow()
    second.revoked = {first.serial}
    fresh = await cluster.nimbus("n3")
    fresh.revoked = {first.serial}
    await fresh.follow()
    # It believes nothing of that, and does not take it for a cluster without topologies.
    with pytest.raises(CorruptStateError, match="was revoked"):
        await fresh.state.topology_ids()
    with pytest.raises(CorruptStateError):
        await fresh.lead()
    with pytest.raises(CorruptStateError):
        await fresh.state.create_topology("more-2-1700000000", base("more"), guard=fresh)
    await second.lead()
    await fresh.follow()
    assert await fresh.state.topology_ids() == [ID]
    assert await fresh.state.storm_base(ID) == base("words")
    assert fresh.ledger.states[ID].record.hashes == {"a-code": "0" * 64}
    assert fresh.ledger.manifests["node-1"].manifest.slots[6700].topology_id == ID


async def test_records_are_signed_again_at_half_of_their_life(cluster: Cluster) -> None:
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    first = leader.ledger.states[ID]
    cluster.clock.advance(LIFE_SECS / 2 - 100)
    await leader.store.maintain(leader)
    assert leader.ledger.states[ID] is first
    cluster.clock.advance(200)
    await leader.store.maintain(leader)
    again = leader.ledger.states[ID]
    assert again.record.issued > first.record.issued
    assert again.record.hashes == first.record.hashes
    assert again.state.base_number == first.state.base_number  # nothing else has changed


async def test_signing_again_takes_no_change_back_that_was_made_meanwhile(cluster: Cluster) -> None:
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    first = leader.ledger.states[ID]
    cluster.clock.advance(LIFE_SECS / 2 + 100)

    class Slow:
        async def transaction(self, ops: Sequence[Op]) -> None:
            await leader.state.put_storm_base(ID, killed, guard=leader)
            await leader.transaction(ops)

    killed = base("words", TopologyStatus.KILLED)
    await leader.store.maintain(Slow())  # type: ignore[arg-type]
    assert await leader.state.storm_base(ID) == killed
    assert leader.ledger.states[ID].record.issued > first.record.issued


async def test_a_clock_that_goes_back_stops_nothing(cluster: Cluster) -> None:
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    number = leader.ledger.states[ID].state.number
    cluster.clock.advance(-86_400.0)
    await leader.state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    assert leader.ledger.states[ID].state.number > number
    cluster.clock.advance(301 * 86_400.0)
    with pytest.raises(SquallError, match="cannot sign"):
        await leader.state.put_storm_base(ID, base("words"), guard=leader)
    cluster.clock.advance(-300 * 86_400.0)
    await leader.state.put_storm_base(ID, base("words"), guard=leader)


async def test_new_bytes_of_a_blob_are_signed_only_when_this_leader_wrote_them(
    cluster: Cluster,
) -> None:
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    leader.hashes = {"a-code": "1" * 64}  # the disk has other bytes, which no call wrote
    await leader.state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    assert leader.ledger.states[ID].record.hashes == {"a-code": "0" * 64}
    leader.store.blobs_written({"a-code": "2" * 64, "others": "3" * 64})
    await leader.store.maintain(leader)
    record = leader.ledger.states[ID].record
    assert (record.hashes, record.revision) == ({"a-code": "2" * 64}, 2)


@pytest.mark.parametrize("end", [ConnectionLostError, asyncio.CancelledError])
async def test_a_lost_answer_is_looked_up(cluster: Cluster, end: type[BaseException]) -> None:
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    transaction = leader.inner.transaction

    async def loses_the_answer(ops: object) -> None:
        await transaction(ops)  # type: ignore[arg-type]
        raise end("no answer")

    leader.inner.transaction = loses_the_answer  # type: ignore[method-assign,assignment]
    with pytest.raises(end):
        await leader.state.put_assignment(ID, assignment(("node-1", 6700)), guard=leader)
    leader.inner.transaction = transaction  # type: ignore[method-assign]
    placed = await leader.state.assignment(ID)
    assert placed is not None
    assert placed[0] == assignment(("node-1", 6700))


async def test_requests_to_daemons_are_signed_and_count_once(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    leader, attacker = await cluster.begin(), cluster.attacker
    _, node = await signed_supervisor(
        certificates, "node-1", tmp_path / "s", MemoryStore(cluster.ensemble), cluster.clock
    )
    await leader.state.create_topology(ID, base("words"), guard=leader)
    request = ProfileRequest(WorkerSlot("node-1", 6700), ProfileAction.JVM_RESTART)
    forged = ProfileRequest(WorkerSlot("node-1", 6701), ProfileAction.JVM_RESTART)
    await leader.state.put_profile_request(ID, request, guard=leader)
    path = paths.profilerconfig(ID, "node-1", 6700, "JVM_RESTART")
    signed, _ = await attacker.store.get(path)
    await attacker.put(path.replace("6700", "6701"), codec.encode_profile_request(forged))
    await attacker.put(path.replace("6700", "6702"), signed)
    assert await leader.state.profile_requests(ID) == [request]
    assert await node.profile_requests(ID) == [request]
    await node.remove_profile_request(ID, request)
    await attacker.put(path, signed)  # it is not carried out twice
    assert await node.profile_requests(ID) == []
    await leader.state.put_profile_request(ID, request, guard=leader)
    assert await node.profile_requests(ID) == [request]
    cluster.clock.advance(4_000)
    assert await node.profile_requests(ID) == []
    await leader.state.put_log_config(ID, LogConfig(), guard=leader)
    assert await node.log_config(ID) == LogConfig()
    await attacker.put(paths.logconfig(ID), codec.encode_log_config(LogConfig()))
    assert await node.log_config(ID) is None


async def test_a_damaged_disk_is_reported_by_its_path(cluster: Cluster) -> None:
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    await leader.follow()
    (cluster.folder / "n1" / "catalog.jws").write_bytes(b"damaged")
    with pytest.raises(SquallError, match=r"catalog\.jws, cannot be read"):
        await cluster.nimbus("n1")


async def test_manifests_of_many_nodes_go_out_though_one_transaction_is_too_small(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_nimbus.access.signed_store.NODE_BYTES_MAX", 20_000)
    leader = await cluster.begin()
    await leader.state.create_topology(ID, base("words"), guard=leader)
    nodes = [f"node-{number}" for number in range(12)]
    placed = assignment(*((node, 6700) for node in nodes))
    await leader.state.put_assignment(ID, placed, guard=leader)
    for node in nodes:
        value, _ = await cluster.attacker.store.get(paths.manifest(node))
        assert leader.ledger.manifests[node].data == value
