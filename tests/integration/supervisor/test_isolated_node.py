"""A supervisor with real workers whose node is cut off from ZooKeeper, its neighbours, or both."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.supervisor.standin import WAIT_SECS, TestNode, wait_until

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryStore
from squall_common.cluster.values import NimbusInfo, SupervisorInfo
from squall_supervisor.composition import build_supervisor
from squall_supervisor.node.neighbourhood import connects
from squall_supervisor.records.neighbours import Address
from squall_supervisor.supervisor import Supervisor

pytestmark = pytest.mark.integration

WORDS = "words-1-100"


class _Network:
    """What probes meet."""

    def __init__(self) -> None:
        self.cut = False
        self.probed: set[Address] = set()

    async def probe(self, address: Address, secs: float) -> bool:
        self.probed.add(address)
        return not self.cut


class _Cluster:
    """The node under test, with two neighbours and a Nimbus in the cluster state."""

    def __init__(self, tmp_path: Path) -> None:
        self.node = TestNode(tmp_path)
        self.node.blobs.put(WORDS)
        self.network = _Network()

    async def start(self) -> Supervisor:
        node = self.node
        self.store = MemoryStore(node.ensemble, session_timeout_secs=1.0)
        node.supervisor = await build_supervisor(
            node.conf,
            cluster=ClusterState(self.store),
            blobs=node.blobs,
            command=node.command,
            probe=self.network.probe,
        )
        await node.supervisor.start()
        return node.supervisor

    async def settle(self) -> None:
        """A worker runs, and the supervisor knows its neighbours."""
        cluster = await self.node.cluster()
        for number in (1, 2):
            info = SupervisorInfo(0, f"127.0.0.{number}", f"s{number}", server_port=6628)
            await cluster.register_supervisor(f"s{number}", info)
        await cluster.register_nimbus(NimbusInfo("127.0.0.9", 6627, 0, True, "1"))
        supervisor = await self.start()
        await asyncio.wait_for(supervisor.wait_ready(), WAIT_SECS)
        await self.node.assign(WORDS, {6700: 1})
        await self.node.wait_running()
        saved_state = supervisor._saved_state
        await wait_until("neighbours known", lambda: saved_state.state.neighbours.supervisors)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[_Cluster]:
    cluster = _Cluster(tmp_path)
    yield cluster
    await cluster.node.close()


async def test_an_isolated_node_stops_its_workers_and_starts_them_after_the_heal(
    cluster: _Cluster,
) -> None:
    node = cluster.node
    await cluster.settle()
    cluster.network.cut = True
    node.ensemble.suspend(cluster.store)
    await wait_until("workers stopped", lambda: not node.living_workers())
    await node.wait_empty()
    assert node.supervisor is not None
    folder = node.supervisor.settings.stormdist_dir
    assert list(folder.iterdir()), "the code is kept for the start after the heal"
    cluster.network.cut = False
    node.ensemble.resume(cluster.store)
    await node.wait_running()


async def test_a_zookeeper_outage_alone_stops_nothing(cluster: _Cluster) -> None:
    node = cluster.node
    await cluster.settle()
    pid = await node.wait_running()
    node.ensemble.suspend(cluster.store)
    network = cluster.network
    all_probed = {("127.0.0.1", 6628), ("127.0.0.2", 6628), ("127.0.0.9", 6627)}
    for _ in range(3):  # each more than the timeout of a second
        network.probed.clear()
        await wait_until("all probed", lambda: network.probed == all_probed)
        await asyncio.sleep(0.5)
    assert node.living_workers() == [pid]


async def test_a_supervisor_restarted_on_an_isolated_node_starts_nothing(
    cluster: _Cluster,
) -> None:
    node = cluster.node
    await cluster.settle()
    cluster.network.cut = True
    node.ensemble.suspend(cluster.store)
    await node.wait_empty()
    await wait_until("workers stopped", lambda: not node.living_workers())
    await node.stop()
    node.ensemble.stop()
    supervisor = await cluster.start()
    assert supervisor._saved_state.state.neighbours.supervisors
    assert not supervisor._saved_state.state.ports
    cluster.network.cut = False
    node.ensemble.start()
    await node.wait_running()


async def test_work_stopped_by_isolation_is_not_started_without_zookeeper(
    cluster: _Cluster,
) -> None:
    """The supervisor is started there, adopts, stops what it adopted, and then the time comes to
    go on with what was last known."""
    node = cluster.node
    await cluster.settle()
    await node.stop()
    assert len(node.living_workers()) == 1
    cluster.network.cut = True
    node.ensemble.stop()
    await cluster.start()
    await node.wait_empty()
    began = {task for task in asyncio.all_tasks() if task.get_name() == "without ZooKeeper"}
    assert began, "the node is isolated before that time"
    await asyncio.wait(began, timeout=WAIT_SECS)
    assert node.runner().slot.wanted is None
    assert len(node.launches) == 1
    cluster.network.cut = False
    node.ensemble.start()
    await node.wait_running()


async def test_a_refused_connection_counts_as_reached_and_a_missing_route_does_not() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        assert await connects(address, 5.0)  # refused: bound, and not listening
        listener.listen()
        assert await connects(address, 5.0)
    assert not await connects(("255.255.255.255", 6628), 5.0)  # no route
