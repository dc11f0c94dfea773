"""Workers' heartbeats on a real cluster: over Thrift, past a dead supervisor, and through ZooKeeper
while Nimbus stands still."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from tests.support.devcluster import DevCluster, stopped, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import texts
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.integration

ROOT = "/storm/workerbeats"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """With a topology "ledger" in two workers, one on each supervisor, that report every second."""
    overrides = ("task.heartbeat.frequency.secs=1",)
    with (
        DevCluster.start(
            tmp_path_factory.mktemp("dev"), supervisors=2, slots=1, overrides=overrides
        ) as cluster,
        Ledger(text(200)) as ledger,
    ):
        submit_ledger(cluster, ledger, workers=2)
        wait_for("both workers to report", lambda: len(reported(cluster)) == 2)
        yield cluster
        cluster.kill_all()


@pytest.fixture
def zookeeper(cluster: DevCluster) -> Iterator[KazooClient]:
    state = cluster.state()["zookeeper"]
    client = KazooClient(f"{state['host']}:{state['port']}")
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def topology_id(cluster: DevCluster) -> str:
    return str(cluster.call("getTopologySummaries")[0].id)


def reported(cluster: DevCluster) -> dict[str, int]:
    """Slots that report to Nimbus, with the times of their reports."""
    beats = cluster.call("getWorkerHeartbeats", topology_id(cluster))
    return {f"{one.supervisor_id}-{one.port}": one.time_secs for one in beats}


def nodes(client: KazooClient, topology: str) -> dict[str, int]:
    """Workers' heartbeats in ZooKeeper, with the transactions that wrote them."""
    found = {}
    for name in client.get_children(f"{ROOT}/{topology}"):
        stat = client.exists(f"{ROOT}/{topology}/{name}")
        if name != "questions" and stat is not None:
            found[name] = stat.mzxid
    return found


def reports_pass(cluster: DevCluster, count: int = 2) -> bool:
    """Whether all workers report anew."""
    before = reported(cluster)
    wait_for(
        "newer reports",
        lambda: sum(at > before.get(slot, 0) for slot, at in reported(cluster).items()) >= count,
        60,
    )
    return True


def test_workers_report_over_thrift_and_write_nothing(
    cluster: DevCluster, zookeeper: KazooClient
) -> None:
    topology = topology_id(cluster)
    wait_for("no worker's node", lambda: not nodes(zookeeper, topology))
    for _ in range(5):
        assert reports_pass(cluster)
        assert nodes(zookeeper, topology) == {}
    wait_for("Nimbus' own node", lambda: zookeeper.get(f"{ROOT}/{topology}")[0])
    listed = json.loads(
        cluster.storm("heartbeats", "list", f"/workerbeats/{topology}", "--json").stdout
    )
    slots = set(reported(cluster))
    assert set(listed) - {"questions"} == slots
    path = f"/workerbeats/{topology}/{min(slots)}"
    beat = json.loads(cluster.storm("heartbeats", "get", path).stdout)
    assert beat["topology_id"] == topology
    assert any(beat["executor_stats"].values())
    of_topology = cluster.storm("heartbeats", "get", f"/workerbeats/{topology}").stdout
    assert len(json.loads(of_topology)["workers"]) == 2


def test_a_worker_whose_supervisor_stands_still_reports_itself(
    cluster: DevCluster, zookeeper: KazooClient
) -> None:
    supervisor = cluster.state()["supervisors"][0]
    with stopped(supervisor["pid"]):
        for _ in range(3):
            assert reports_pass(cluster)
        assert nodes(zookeeper, topology_id(cluster)) == {}
    assert reports_pass(cluster)


def test_reports_go_through_zookeeper_while_nimbus_stands_still(
    cluster: DevCluster, zookeeper: KazooClient
) -> None:
    topology, workers = topology_id(cluster), set(cluster.worker_processes())
    assignment = zookeeper.get(f"/storm/assignments/{topology}")[1].mzxid
    slots = set(reported(cluster))
    with stopped(cluster.state()["nimbus"]["pid"]):
        wait_for("the workers' nodes", lambda: nodes(zookeeper, topology).keys() == slots, 60)
        before = nodes(zookeeper, topology)
        wait_for(
            "them to be written again",
            lambda: all(at > before[name] for name, at in nodes(zookeeper, topology).items()),
            60,
        )
    assert reports_pass(cluster)
    wait_for("the nodes to be removed", lambda: not nodes(zookeeper, topology), 60)
    assert zookeeper.get(f"/storm/assignments/{topology}")[1].mzxid == assignment
    assert set(cluster.worker_processes()) == workers

    def said() -> bool:
        logs = "".join(texts(cluster.data_dir / "logs", "supervisor.log"))
        there = "worker_reports_go_to way=ZooKeeper before=Nimbus" in logs
        return there and "worker_reports_go_to way=Nimbus before=ZooKeeper" in logs

    wait_for("the log to say where reports go", said)


def test_figures_go_on_after_nimbus_was_killed(cluster: DevCluster) -> None:
    old = cluster.state()["nimbus"]["pid"]
    os.kill(old, signal.SIGKILL)
    wait_for("another Nimbus", lambda: cluster.state()["nimbus"]["pid"] != old)

    def figures() -> bool:
        try:
            info = cluster.call("getTopologyInfo", topology_id(cluster))
        except Exception:  # it is starting
            return False
        return all(one.stats is not None for one in info.executors)

    wait_for("statistics of every executor", figures, 60)
    assert reports_pass(cluster)
