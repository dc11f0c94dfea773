"""The signed cluster state of some Nimbus nodes and supervisors over one ZooKeeper in memory, and a
stranger who may write anything there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.secured_nimbus import Certificates

from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import Create, NoNodeError, Op, Set, Store
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import Assignment, StormBase, SupervisorInfo, TopologyStatus
from squall_common.daemon.clock import Clock
from squall_common.security.identity import Role
from squall_common.security.signing import Trust
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.access.keys import SigningKeys
from squall_nimbus.access.ledger import Ledger
from squall_nimbus.access.signed_store import SignedStore
from squall_supervisor.records.signed_work import SignedWork


def base(
    name: str, status: TopologyStatus = TopologyStatus.ACTIVE, owner: str = "alice"
) -> StormBase:
    return StormBase(name, status, 1, owner=owner)


def assignment(*slots: tuple[str, int], owner: str = "alice") -> Assignment:
    """An executor on each slot."""
    places = {Executor(i, i): WorkerSlot(*slot) for i, slot in enumerate(slots, start=1)}
    return Assignment(
        "here", {slot.node: slot.node for slot in places.values()}, places, owner=owner
    )


class SignedNimbus:
    """One Nimbus' part: reads and writes topologies through `state`. It is its own fence."""

    def __init__(
        self,
        certificates: Certificates,
        name: str,
        folder: Path,
        ensemble: MemoryEnsemble,
        clock: Clock,
    ) -> None:
        trusted = certificates.trusted(Role.NIMBUS, name)
        self.revoked: set[int] = set()
        self.ledger = Ledger(
            folder,
            Trust(trusted.cluster, trusted.ca, lambda: self.revoked),
            Trust(trusted.cluster, trusted.ca),
        )
        self.inner = MemoryStore(ensemble)
        keys = SigningKeys(trusted, clock)
        self.store = SignedStore(
            self.inner, self.ledger, keys, trusted, revoked=lambda: self.revoked, clock=clock
        )
        self.hashes = {"a-code": "0" * 64}
        self.store.signer.hashes_of = lambda topology_id: self.hashes
        self.state = ClusterState(self.store)
        self.serial = trusted.own.holder.serial if trusted.own is not None else 0

    async def start(self) -> SignedNimbus:
        self.ledger.open()
        await self.state.start()
        return self

    async def transaction(self, ops: Sequence[Op]) -> None:
        await self.store.transaction(ops)

    async def lead(self) -> None:
        """Begin a term."""
        self.store.expire()
        await self.store.maintain(self)

    async def follow(self) -> None:
        """Read what has changed, and write the disk, as the loop of every Nimbus does."""
        await self.store.look()


async def signed_supervisor(
    certificates: Certificates, name: str, folder: Path, store: Store, clock: Clock
) -> tuple[SignedWork, ClusterState]:
    """A supervisor's part: the work of its node, and the cluster as it reads it."""
    trusted = certificates.trusted(Role.SUPERVISOR, name)
    work = SignedWork(trusted, name, folder, revoked=frozenset, clock=clock)
    work.open()
    state = ClusterState(work.verified(store))
    await state.start()
    return work, state


def info(node: str, ports: Sequence[int] = (6700, 6701)) -> SupervisorInfo:
    return SupervisorInfo(0, node, node, meta=tuple(ports))


class Attacker:
    """Writes what it likes, and remembers everything that it has ever seen."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self.store = MemoryStore(ensemble)
        self.seen: dict[str, list[bytes]] = {}

    async def look(self, path: str = "/") -> None:
        """Remember what is there now."""
        for name in await self.store.children(path):
            below = f"{path.rstrip('/')}/{name}"
            value, _ = await self.store.get(below)
            kept = self.seen.setdefault(below, [])
            if value and value not in kept:
                kept.append(value)
            await self.look(below)

    async def put(self, path: str, value: bytes) -> None:
        try:
            await self.store.transaction([Set(path, value)])
        except NoNodeError:
            try:
                await self.store.transaction([Create(path, value)])
            except NoNodeError:
                await self.store.create(path, value, make_parents=True)

    async def delete(self, path: str) -> None:
        await self.store.delete_tree(path)
