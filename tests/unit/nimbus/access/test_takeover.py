"""An open cluster becomes a secured one: the first leader signs what the CA has confirmed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
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
from squall_common.cluster.store import ConnectionLostError, NoNodeError, Op
from squall_common.cluster.stores.memory import MemoryEnsemble
from squall_common.cluster.values import TopologyStatus
from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_common.security.takeover import TAKEOVER_SECS, Taken, Takeover
from squall_common.topology.model import WorkerSlot
from squall_nimbus.access.signed_store import NODES_SECS

WORDS, LINES = "words-1-1700000000", "lines-2-1700000000"
BASE = codec.encode_storm_base(base("words", owner="anonymous"))
PLACE = codec.encode_assignment(assignment(("node-1", 6700), owner="anonymous"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), days=300).create()


class OpenCluster:
    """The state that an open cluster has left: two topologies, the second is not assigned."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates, self.folder = certificates, folder
        self.clock = ManualClock(time=time.time())
        self.ensemble = MemoryEnsemble()
        self.stranger = Attacker(self.ensemble)
        self.takeover = Takeover(
            {WORDS: Taken("alice", BASE, PLACE), LINES: Taken("bob", BASE)},
            {"a-code": "0" * 64},
            int(self.clock.time()),
        )

    async def begin(self, *, confirmed: bool = True) -> None:
        await self.stranger.store.start()
        for name in (WORDS, LINES):
            await self.stranger.put(paths.storm(name), BASE)
        await self.stranger.put(paths.assignment(WORDS), PLACE)
        if confirmed:
            await self.confirm(self.takeover)
        await self.register()

    async def register(self) -> None:
        """The supervisor has started with its certificate."""
        store = self.stranger.store
        _, state = await signed_supervisor(
            self.certificates, "node-1", self.folder / "register", store, self.clock
        )
        await state.register_supervisor("node-1", info("node-1"))

    async def confirm(self, takeover: Takeover) -> None:
        authority = self.certificates.authority.load()
        text = takeover.sign(authority.cluster, authority.key)
        await self.stranger.put(paths.TAKEOVER, text.encode())

    async def nimbus(self, name: str) -> SignedNimbus:
        folder = self.folder / name
        made = SignedNimbus(self.certificates, name, folder, self.ensemble, self.clock)
        return await made.start()


@pytest.fixture
def cluster(certificates: Certificates, tmp_path: Path) -> OpenCluster:
    return OpenCluster(certificates, tmp_path)


async def check_taken(nimbus: SignedNimbus) -> None:
    assert await nimbus.state.topology_ids() == [LINES, WORDS]
    found = await nimbus.state.storm_base(WORDS)
    assert found == replace(base("words"), owner="alice", principal="alice")
    placed = await nimbus.state.assignment(WORDS)
    assert placed is not None
    assert placed[0] == assignment(("node-1", 6700), owner="alice")
    assert await nimbus.state.assignment(LINES) is None
    record = nimbus.ledger.states[WORDS].record
    assert (record.owner, record.run_as, record.hashes) == ("alice", "alice", nimbus.hashes)


async def test_the_leader_takes_over_what_was_confirmed(cluster: OpenCluster) -> None:
    await cluster.begin()
    leader = await cluster.nimbus("n1")
    with pytest.raises(CorruptStateError, match="not taken the cluster over yet"):
        await leader.state.topology_ids()
    await leader.lead()
    await check_taken(leader)
    assert await cluster.stranger.store.exists(paths.TAKEOVER) is None
    await check_taken(await cluster.nimbus("n2"))
    again = await cluster.nimbus("n1")  # from its disk
    await check_taken(again)


async def test_supervisors_go_on_with_their_slots(
    cluster: OpenCluster, certificates: Certificates, tmp_path: Path
) -> None:
    """Before the takeover they do nothing at all."""
    await cluster.begin()
    work, _ = await signed_supervisor(
        certificates, "node-1", tmp_path / "s", cluster.stranger.store, cluster.clock
    )
    leader = await cluster.nimbus("n1")
    await leader.lead()
    data, _ = await cluster.stranger.store.get(paths.manifest("node-1"))
    assert await work.take(data)
    [(port, one)] = work.desired([6700, 6701], {}).ports.items()
    assert (port, one.topology_id, one.owner) == (6700, WORDS, "alice")


async def test_it_waits_for_the_supervisors_whose_workers_run(cluster: OpenCluster) -> None:
    """Else their work would be moved. One that does not come is lost."""
    await cluster.begin()
    await cluster.stranger.delete(paths.supervisor("node-1"))
    leader = await cluster.nimbus("n1")
    for _ in range(2):
        with pytest.raises(SquallError, match=r"waits for supervisors .*: node-1"):
            await leader.lead()
    await cluster.stranger.put(paths.supervisor("node-1"), b"of the open cluster")
    with pytest.raises(SquallError, match=r"waits for supervisors .*: node-1"):
        await leader.lead()
    await cluster.stranger.delete(paths.supervisor("node-1"))
    await cluster.register()
    await leader.lead()
    await check_taken(leader)


async def test_it_does_not_wait_forever(cluster: OpenCluster) -> None:
    await cluster.begin()
    await cluster.stranger.delete(paths.supervisor("node-1"))
    leader = await cluster.nimbus("n1")
    with pytest.raises(SquallError, match="waits for supervisors"):
        await leader.lead()
    cluster.clock.advance(NODES_SECS)
    await leader.lead()
    await check_taken(leader)


class Dies(SignedNimbus):
    """Ends at its Nth transaction, before or after that has arrived."""

    after = 0
    arrives = False

    async def transact(self, ops: Sequence[Op]) -> None:
        self.after -= 1
        if self.after < 0:
            if self.arrives:
                await self.whole(ops)
            raise ConnectionLostError("it has died")
        await self.whole(ops)


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_leader_that_dies_leaves_it_to_the_next_at_each_write(
    cluster: OpenCluster, arrives: bool
) -> None:
    await cluster.begin()
    folder, clock = cluster.folder, cluster.clock
    for writes in range(20):
        dying = Dies(cluster.certificates, "n1", folder / f"d{writes}", cluster.ensemble, clock)
        await dying.start()
        dying.after, dying.arrives = writes, arrives
        dying.whole = dying.inner.transaction  # type: ignore[attr-defined]
        dying.inner.transaction = dying.transact  # type: ignore[method-assign]
        try:
            await dying.lead()
        except ConnectionLostError:
            follower = await cluster.nimbus(f"f{writes}")
            try:
                known: Sequence[str] = await follower.state.topology_ids()
            except CorruptStateError as error:
                known = str(error).split()
            # All or nothing.
            assert known == [LINES, WORDS] or "taken" in known
        else:
            break
    assert writes > 2
    leader = await cluster.nimbus("n2")
    await leader.lead()
    await check_taken(leader)


async def test_what_has_changed_since_is_refused(cluster: OpenCluster) -> None:
    """A topology that was submitted (also one that half died, and came back), changed, or has
    other bytes; and then a new confirmation counts."""
    await cluster.begin()
    leader = await cluster.nimbus("n1")
    await cluster.stranger.put(paths.storm("late-3-1700000000"), BASE)
    with pytest.raises(SquallError, match="late-3-1700000000 was submitted after"):
        await leader.lead()
    await cluster.stranger.delete(paths.storm("late-3-1700000000"))
    other = codec.encode_storm_base(base("words", TopologyStatus.INACTIVE, owner="anonymous"))
    await cluster.stranger.put(paths.storm(WORDS), other)
    with pytest.raises(SquallError, match=rf"{WORDS} was changed after"):
        await leader.lead()
    await cluster.stranger.put(paths.storm(WORDS), BASE)
    leader.hashes = {"a-code": "1" * 64}
    with pytest.raises(SquallError, match=r"the blob a-code .* was changed after"):
        await leader.lead()
    assert await cluster.stranger.store.exists(paths.CATALOG) is None
    leader.hashes = {"a-code": "0" * 64}
    await leader.lead()
    await check_taken(leader)


async def test_a_topology_that_was_killed_meanwhile_does_not_come_back(
    cluster: OpenCluster,
) -> None:
    await cluster.begin()
    await cluster.stranger.delete(paths.storm(LINES))
    leader = await cluster.nimbus("n1")
    await leader.lead()
    assert await leader.state.topology_ids() == [WORDS]


@pytest.mark.parametrize("kind", ["forged", "old", "of another CA", "missing"])
async def test_without_a_confirmation_nothing_is_signed_and_nothing_ended(
    cluster: OpenCluster, tmp_path: Path, kind: str
) -> None:
    """Not even an empty manifest, which would stop workers."""
    await cluster.begin(confirmed=False)
    await cluster.stranger.put(paths.supervisor("node-1"), b"x")
    if kind == "forged":
        await cluster.confirm(cluster.takeover)
        text, _ = await cluster.stranger.store.get(paths.TAKEOVER)
        head, body, signature = text.split(b".")
        await cluster.stranger.put(
            paths.TAKEOVER, b".".join([head, body[:-4] + b"AAAA", signature])
        )
    elif kind == "old":
        await cluster.confirm(cluster.takeover)
        cluster.clock.advance(TAKEOVER_SECS + 100)
    elif kind == "of another CA":
        other = Certificates(tmp_path / "other").create().authority.load()
        text = cluster.takeover.sign("test", other.key)  # type: ignore[assignment]
        await cluster.stranger.put(paths.TAKEOVER, text.encode())  # type: ignore[attr-defined]
    leader = await cluster.nimbus("n1")
    with pytest.raises(CorruptStateError, match="topologies of an open cluster"):
        await leader.lead()
    with pytest.raises(CorruptStateError, match="topologies of an open cluster"):
        await leader.state.create_topology(LINES, base("lines"))
    for path in (paths.CATALOG, paths.manifest("node-1")):
        with pytest.raises(NoNodeError):
            await cluster.stranger.store.get(path)


async def test_it_counts_once(cluster: OpenCluster) -> None:
    """An old confirmation that somebody puts back revives nothing."""
    await cluster.begin()
    text, _ = await cluster.stranger.store.get(paths.TAKEOVER)
    leader = await cluster.nimbus("n1")
    await leader.lead()
    await leader.state.remove_topology(WORDS, guard=leader)
    await cluster.stranger.put(paths.TAKEOVER, text)
    for path in (paths.storm(WORDS), paths.storm(LINES)):
        await cluster.stranger.put(path, BASE)
    await leader.lead()
    assert await leader.state.topology_ids() == [LINES]
    other = await cluster.nimbus("n2")
    await other.lead()
    assert await other.state.topology_ids() == [LINES]


async def test_workers_of_the_open_cluster_are_kept_informed(cluster: OpenCluster) -> None:
    """They read what is not signed, until they are launched again."""
    await cluster.begin()
    leader = await cluster.nimbus("n1")
    await leader.lead()
    store, state = cluster.stranger.store, leader.state

    async def seen(path: str) -> bytes:
        return (await store.get(path))[0]

    await state.put_assignment(WORDS, assignment(("node-2", 6701)), guard=leader)
    found = codec.decode_assignment("", await seen(paths.assignment(WORDS)))
    assert list(found.executor_slot.values()) == [WorkerSlot("node-2", 6701)]
    await state.put_storm_base(WORDS, base("words", TopologyStatus.INACTIVE), guard=leader)
    assert codec.decode_storm_base("", await seen(paths.storm(WORDS))).status.name == "INACTIVE"
    await state.remove_topology(WORDS, guard=leader)
    for path in (paths.storm(WORDS), paths.assignment(WORDS)):
        assert await store.exists(path) is None
    # Of a topology that began in the secured cluster there are none.
    new = "new-4-1700000000"
    await state.create_topology(new, base("new"), guard=leader)
    assert await store.exists(paths.storm(new)) is None


async def test_the_next_leader_informs_them_of_what_the_one_before_has_signed_last(
    cluster: OpenCluster,
) -> None:
    """It may have ended between the two, and they would send to a node that is lost."""
    await cluster.begin()
    leader = await cluster.nimbus("n1")
    await leader.lead()
    await leader.state.put_assignment(WORDS, assignment(("node-2", 6701)), guard=leader)
    store = cluster.stranger.store
    await store.set(paths.assignment(WORDS), PLACE)  # as before
    await (await cluster.nimbus("n2")).lead()
    value, _ = await store.get(paths.assignment(WORDS))
    found = codec.decode_assignment("", value)
    assert list(found.executor_slot.values()) == [WorkerSlot("node-2", 6701)]
    assert await store.exists(paths.assignment(LINES)) is None
