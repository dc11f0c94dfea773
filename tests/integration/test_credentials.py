"""Credentials in a real cluster: they reach the workers, and are nowhere else to be found.

A canary is searched for in everything that the cluster wrote, said, or handed to a process.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_curve import files_with, znode_values
from tests.support.devcluster import ROOT, DevCluster, wait_for
from tests.support.live_files import texts
from tests.topologies.credentials.credentials_topology import digest

from squall_common.names import credentials_blob_key
from squall_thrift import storm

pytestmark = pytest.mark.integration

TOPOLOGY = ROOT / "tests" / "topologies" / "credentials"
FIRST = {"user": "ann", "password": "canary-5f0c-first"}
SECOND = {"user": "ann", "password": "canary-9be1-second"}


def write(path: Path, values: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    path.chmod(0o600)
    return path


def worker_logs(cluster: DevCluster) -> list[str]:
    return list(texts(cluster.data_dir, "worker.log"))


def in_processes(secret: bytes) -> list[str]:
    """The processes of this machine that have it in their environment or arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                if secret in (process / name).read_bytes():
                    found.append(f"{process}/{name}")
            except OSError:
                continue
    return found


def answers(cluster: DevCluster, name: str) -> str:
    """What Nimbus says about the topology, and a read of each blob that it lists."""
    topology_id = cluster.call("getTopologySummaryByName", name).id
    said: list[Any] = [
        cluster.call("getClusterInfo"),
        cluster.call("getNimbusConf"),
        cluster.call("getTopology", topology_id),
        cluster.call("getTopologyConf", topology_id),
        cluster.call("getTopologyInfo", topology_id),
        cluster.call("getTopologyPageInfo", topology_id, ":all-time", True),
        cluster.call("listBlobs", ""),
    ]
    for method in ("getBlobMeta", "beginBlobDownload"):
        with pytest.raises(storm.AuthorizationException):
            cluster.call(method, credentials_blob_key(topology_id))
    return repr(said)


def check_canary(cluster: DevCluster, name: str, secret: str, *, workers: int) -> None:
    """It is in the blobs of Nimbus, the topology's folder of each supervisor and the folder of each
    worker, readable by the cluster's user alone; and nowhere else."""
    canary = secret.encode()
    files = files_with(cluster, canary)
    of_workers = [path for path in files if path.name == "credentials.json"]
    of_nimbus = [path for path in files if path not in of_workers]
    assert len([path for path in of_workers if "workers" in path.parts]) == workers
    assert [path.parent.parent.name for path in of_nimbus] == ["blobs"], files
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files} == {0}
    assert not [value for value in znode_values(cluster) if canary in value]
    assert canary not in cluster.messages().encode()
    assert not in_processes(canary)
    assert secret not in answers(cluster, name)


def test_credentials_reach_workers_and_are_nowhere_else(tmp_path: Path) -> None:
    quick = ["task.credentials.poll.secs=1"]
    with DevCluster.start(tmp_path / "c", supervisors=2, slots=1, overrides=quick) as cluster:
        first = write(tmp_path / "first.properties", FIRST)
        second = write(tmp_path / "second.properties", SECOND)
        program = "credentials_topology.py"
        cluster.storm("jar", "--credentials", first, TOPOLOGY, program, "secretive")
        opened, updated = f"opened with {digest(FIRST)}", f"updated to {digest(SECOND)}"

        def seen(line: str) -> bool:
            return sum(log.count(line) for log in worker_logs(cluster)) == 2

        wait_for("components have the first ones", lambda: seen(opened), timeout_secs=60)
        check_canary(cluster, "secretive", FIRST["password"], workers=2)
        answer = cluster.storm("upload-credentials", "secretive", "--file", second, "--json")
        assert json.loads(answer.stdout)["keys"] == ["password", "user"]
        wait_for("components hear of the second ones", lambda: seen(updated), timeout_secs=60)
        check_canary(cluster, "secretive", SECOND["password"], workers=2)
        assert not files_with(cluster, FIRST["password"].encode()), "the old ones are gone"
        cluster.kill("secretive")
        cluster.wait_gone("secretive")
        wait_for(
            "all of them are removed",
            lambda: not files_with(cluster, SECOND["password"].encode()),
            timeout_secs=60,
        )
