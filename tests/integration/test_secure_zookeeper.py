"""A secured cluster whose ZooKeeper belongs to an attacker: real processes, a real ZooKeeper."""

from __future__ import annotations

import getpass
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError
from tests.support.devcluster import ROOT, DevCluster, wait_for

from squall_common.cluster import blob_codec, codec, paths
from squall_common.cluster.values import (
    Assignment,
    BlobMeta,
    BlobRecord,
    ProfileAction,
    ProfileRequest,
    StormBase,
    SupervisorInfo,
    TopologyStatus,
)
from squall_common.names import conf_blob_key, jar_blob_key
from squall_common.topology.model import Executor, WorkerSlot

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

SLEEPER = ROOT / "tests" / "topologies" / "sleeper"


class Attacker:
    """Reads and writes everything in ZooKeeper: it has got the daemons' digest."""

    def __init__(self, cluster: DevCluster) -> None:
        self.client = cluster.zookeeper("/storm")

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def values(self, path: str) -> dict[str, bytes]:
        """Everything at a path and below that is not ephemeral."""
        found: dict[str, bytes] = {}
        try:
            value, stat = self.client.get(path)
            if stat.ephemeralOwner == 0:
                found[path] = value
            for name in self.client.get_children(path):
                found |= self.values(f"{path.rstrip('/')}/{name}")
        except NoNodeError:
            pass
        return found

    def signed(self) -> dict[str, bytes]:
        """What is signed of topologies. (The register of tokens has tests of its own.)"""
        found = self.values(paths.SECURITY)
        return {path: value for path, value in found.items() if path != paths.TOKEN_REGISTER}

    def put(self, path: str, value: bytes) -> None:
        try:
            self.client.create(path, value, makepath=True)
        except NodeExistsError:
            self.client.set(path, value)

    def delete(self, path: str) -> None:
        """Also what workers make below it meanwhile."""

        def gone() -> bool:
            try:
                self.client.delete(path, recursive=True)
            except NotEmptyError:
                return False
            return True

        wait_for(f"{path} to be gone", gone)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path, secure=True) as cluster:
        yield cluster


def submit(cluster: DevCluster, name: str, folder: Path) -> str:
    folder.mkdir()
    cluster.storm("jar", "--wait", SLEEPER, "sleeper_topology.py", name, str(folder))
    found: str = cluster.topologies()[name]["id"]
    return found


def worker_of(cluster: DevCluster, topology_id: str) -> int | None:
    """The process of its only worker."""
    pids = [pid for pid, words in cluster.worker_processes().items() if words[0] == topology_id]
    return pids[0] if len(pids) == 1 else None


def done(folder: Path, pid: int) -> int:
    """How much a worker has done."""
    try:
        return (folder / str(pid)).stat().st_size
    except FileNotFoundError:
        return 0


def manifest_of(cluster: DevCluster) -> dict[str, Any]:
    [file] = cluster.data_dir.glob("supervisor-1/**/security/manifest.json")
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def forge(attacker: Attacker, topology_id: str, node: str) -> None:
    """Another owner, package and place for a topology that runs, and a topology of the attacker's
    own; no ports for the node; and a request to stop the worker."""
    slot = WorkerSlot(node, 6700)
    for forged in (topology_id, "forged-9-1700000000"):
        base = StormBase(forged.split("-")[0], TopologyStatus.ACTIVE, 1, owner="mallory")
        attacker.put(paths.storm(forged), codec.encode_storm_base(base))
        placed = Assignment("x", {node: "localhost"}, {Executor(1, 9): slot}, owner="mallory")
        attacker.put(paths.assignment(forged), codec.encode_assignment(placed))
    killed = StormBase("first", TopologyStatus.KILLED, 1, owner="mallory")
    attacker.put(paths.storm(topology_id), codec.encode_storm_base(killed))
    for key in (jar_blob_key(topology_id), conf_blob_key(topology_id)):
        meta = BlobMeta(key, 2**45, 3, "ab" * 32)
        attacker.put(paths.blob(key), blob_codec.encode_blob_record(BlobRecord(meta)))
    attacker.put(
        paths.supervisor(node), codec.encode_supervisor(SupervisorInfo(0, "x", node, meta=()))
    )
    request = ProfileRequest(slot, ProfileAction.JVM_RESTART)
    path = paths.profilerconfig(topology_id, node, 6700, "JVM_RESTART")
    attacker.put(path, codec.encode_profile_request(request))


def test_who_writes_to_zookeeper_starts_stops_and_takes_over_nothing(
    cluster: DevCluster, tmp_path: Path
) -> None:
    attacker = Attacker(cluster)
    try:
        _attack(cluster, attacker, tmp_path)
    finally:
        attacker.close()


def _attack(cluster: DevCluster, attacker: Attacker, tmp_path: Path) -> None:
    gone = submit(cluster, "gone", tmp_path / "gone")
    first = submit(cluster, "first", tmp_path / "first")
    worker = wait_for("its worker", lambda: worker_of(cluster, first), 60.0)
    wait_for("it to work", lambda: done(tmp_path / "first", worker) > 0, 60.0)
    [node] = attacker.client.get_children(paths.MANIFESTS)
    old = attacker.signed()
    cluster.storm("kill", "gone", "-w", "0", "--wait")
    wait_for("its end", lambda: worker_of(cluster, gone) is None, 60.0)
    before = attacker.signed()
    kept = manifest_of(cluster)

    def put_right() -> bool:
        """Nimbus has written again what it had signed."""
        now = attacker.signed()
        return all(now.get(path) == value for path, value in before.items())

    def runs_on() -> None:
        """The same worker works, for the same owner, and the others are not there."""
        wait_for("what was signed is back", put_right, 90.0)
        did = done(tmp_path / "first", worker)
        wait_for("it to work on", lambda: done(tmp_path / "first", worker) > did, 60.0)
        assert worker_of(cluster, first) == worker
        listed = {name: (one["id"], one["owner"]) for name, one in cluster.topologies().items()}
        assert listed == {"first": (first, getpass.getuser())}
        assert {words[0] for words in cluster.worker_processes().values()} == {first}
        assert manifest_of(cluster) == kept

    forge(attacker, first, node)
    for path in before:
        if path != paths.SECURITY and before[path]:
            attacker.put(path, before[path][: len(before[path]) // 2])
    runs_on()
    for path, value in old.items():  # rolled back: both topologies, as they were signed
        attacker.put(path, value)
    runs_on()
    for path in (paths.SECURITY, paths.ASSIGNMENTS, paths.STORMS, paths.SUPERVISORS):
        attacker.delete(path)
    runs_on()

    # The daemons start again, and find an old ZooKeeper.
    for path, value in old.items():
        attacker.put(path, value)
    pids = {name: cluster.state()[name]["pid"] for name in ("nimbus",)}
    supervisor = cluster.state()["supervisors"][0]["pid"]
    os.kill(pids["nimbus"], signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    for path, value in old.items():
        attacker.put(path, value)
    wait_for(
        "both to be back",
        lambda: (
            cluster.state()["nimbus"]["pid"] != pids["nimbus"]
            and cluster.state()["supervisors"][0]["pid"] != supervisor
            and cluster.storm("list", check=False).returncode == 0
        ),
        90.0,
    )
    runs_on()

    # The worker dies, and comes back as what was signed: this owner, these bytes.
    os.kill(worker, signal.SIGKILL)
    again = wait_for(
        "its successor",
        lambda: pid if (pid := worker_of(cluster, first)) not in (None, worker) else None,
        90.0,
    )
    wait_for("it to work", lambda: done(tmp_path / "first", again) > 0, 60.0)
    cluster.storm("kill", "first", "-w", "0", "--wait")
    wait_for("its end", lambda: not cluster.worker_processes(), 60.0)
