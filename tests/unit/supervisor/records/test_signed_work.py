"""What a supervisor of a secured cluster goes by, while a stranger writes to ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.secured_nimbus import Certificates
from tests.support.signed_states import (
    Attacker,
    SignedNimbus,
    assignment,
    base,
    signed_supervisor,
)

from squall_common.cluster import codec, paths
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import StormBase
from squall_common.daemon.clock import ManualClock
from squall_common.errors import ConfigError
from squall_common.security.records import LIFE_SECS
from squall_supervisor.node.manifest_sync import ManifestSync
from squall_supervisor.records.assignments import UNREADABLE, Assignments, PortAssignment

ID = "words-1-1700000000"
OTHER = "other-2-1700000000"
PORTS = (6700, 6701)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), days=300).create()


class Node:
    """A leader, the supervisor of node-1, and a stranger."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates, self.folder = certificates, folder
        self.clock = ManualClock(time=time.time())
        self.ensemble = MemoryEnsemble()
        self.attacker = Attacker(self.ensemble)
        self.ports: Mapping[int, PortAssignment] = {}
        self.known: Assignments | None = None
        self.bases: Mapping[str, StormBase] = {}

    async def begin(self) -> None:
        await self.attacker.store.start()
        self.leader = await SignedNimbus(
            self.certificates, "n1", self.folder / "n1", self.ensemble, self.clock
        ).start()
        await self.leader.lead()
        await self.restart()

    async def restart(self) -> None:
        """The supervisor starts, with the disk that it has."""
        store = MemoryStore(self.ensemble)
        self.work, self.state = await signed_supervisor(
            self.certificates, "node-1", self.folder / "node-1", store, self.clock
        )
        self.ports = {}

    async def submit(self, topology_id: str, *slots: tuple[str, int]) -> None:
        name = topology_id[:5]
        await self.leader.state.create_topology(topology_id, base(name), guard=self.leader)
        await self.place(topology_id, *slots)

    async def place(self, topology_id: str, *slots: tuple[str, int]) -> None:
        await self.leader.state.put_assignment(topology_id, assignment(*slots), guard=self.leader)

    async def read(self) -> dict[int, str]:
        """One round of the supervisor: what runs now, by port."""
        taken = asyncio.Event()

        async def take(known: Assignments | None, bases: Mapping[str, StormBase]) -> None:
            self.known, self.bases = known, bases
            if known is not None:
                self.ports = self.work.desired(PORTS, self.ports).ports
            taken.set()

        sync = ManifestSync(self.state, self.work, take, node="node-1", every_secs=60.0)
        task = asyncio.create_task(sync.run())
        waiting = asyncio.create_task(taken.wait())
        await asyncio.wait({task, waiting}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert taken.is_set()
        task.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
        return {port: one.topology_id for port, one in self.ports.items()}


@pytest.fixture
async def node(certificates: Certificates, tmp_path: Path) -> Node:
    made = Node(certificates, tmp_path)
    await made.begin()
    return made


async def test_a_node_that_has_never_seen_a_manifest_does_nothing(node: Node) -> None:
    await node.attacker.put(paths.manifest("node-1"), b"")
    await node.read()
    assert node.known is None


async def test_it_runs_what_the_newest_manifest_lists(node: Node) -> None:
    await node.submit(ID, ("node-1", 6700), ("node-2", 6700))
    await node.submit(OTHER, ("node-1", 6701))
    assert await node.read() == {6700: ID, 6701: OTHER}
    work = node.ports[6700]
    assert work.owner == "alice"
    assert node.work.hashes_of(ID) == {"a-code": "0" * 64}
    assert node.work.is_signed("a-code", "0" * 64)
    assert not node.work.is_signed("a-code", "1" * 64)
    assert node.known is not None
    assert node.known[ID] == await node.leader.state.assignment(ID)
    assert node.bases[ID] == base("words")
    await node.place(ID, ("node-1", 6700), ("node-3", 6700))
    assert await node.read() == {6700: ID, 6701: OTHER}
    assert node.ports[6700] == work  # its executors are the same: its worker runs on
    await node.place(ID, ("node-2", 6700))
    assert await node.read() == {6701: OTHER}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("harm", ["deleted", "forged", "rolled back", "another node's"])
async def test_what_a_stranger_writes_starts_and_stops_nothing(
    node: Node, harm: str, restarted: bool
) -> None:
    """Also when this supervisor was stopped and started meanwhile."""
    path, attacker = paths.manifest("node-1"), node.attacker
    await node.submit(OTHER, ("node-1", 6701))
    await attacker.look()
    await node.submit(ID, ("node-1", 6700), ("node-2", 6700))
    await node.leader.state.remove_topology(OTHER, guard=node.leader)
    assert await node.read() == {6700: ID}
    await attacker.look()
    forged = codec.encode_assignment(assignment(("node-1", 6701), owner="mallory"))
    await attacker.put(paths.assignment(OTHER), forged)
    await attacker.put(paths.assignment(ID), forged)
    await attacker.put(paths.storm(OTHER), codec.encode_storm_base(base("other")))
    match harm:
        case "deleted":
            await attacker.delete(paths.SECURITY)
            await attacker.delete(paths.ASSIGNMENTS)
        case "forged":
            await attacker.put(path, attacker.seen[path][-1][:-20])
        case "rolled back":
            for signed, values in attacker.seen.items():
                if values and signed.startswith(paths.SECURITY):
                    await attacker.put(signed, values[0])
        case "another node's":  # which is newer than our own
            await node.submit("newer-3-1700000000", ("node-2", 6701))
            await attacker.look()
            await attacker.put(path, attacker.seen[paths.manifest("node-2")][-1])
    if restarted:
        await node.restart()
    assert await node.read() == {6700: ID}
    assert node.ports[6700].owner == "alice"
    if harm == "deleted":
        assert node.known == {ID: UNREADABLE}


async def test_a_record_that_has_expired_begins_nothing_new(node: Node) -> None:
    """A node with an empty disk is shown what was signed long ago; one that knows the topology runs
    it on, also after a restart."""
    await node.submit(ID, ("node-1", 6700))
    node.clock.advance(LIFE_SECS + 3_600)
    assert await node.read() == {}
    await node.restart()
    assert await node.read() == {}
    await node.leader.store.maintain(node.leader)  # signs it again
    assert await node.read() == {6700: ID}
    node.clock.advance(LIFE_SECS + 3_600)
    await node.restart()
    assert await node.read() == {6700: ID}
    node.clock.advance(-2 * LIFE_SECS)
    assert await node.read() == {6700: ID}


async def test_a_full_disk_delays_a_manifest_and_forgets_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.submit(ID, ("node-1", 6700))
    assert await node.read() == {6700: ID}
    await node.place(ID, ("node-2", 6700))
    data, _ = await node.state.store.get(paths.manifest("node-1"))

    def full(path: Path, data: bytes, *, mode: int = 0) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("squall_supervisor.records.signed_work.write_atomic", full)
        assert not await node.work.take(data)  # it does not count before it is on the disk
    assert await node.read() == {}
    await node.restart()
    assert await node.read() == {}


async def test_a_damaged_manifest_on_the_disk_is_reported(node: Node, tmp_path: Path) -> None:
    await node.submit(ID, ("node-1", 6700))
    await node.read()
    (tmp_path / "node-1" / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"manifest\.json, cannot be read"):
        await node.restart()
