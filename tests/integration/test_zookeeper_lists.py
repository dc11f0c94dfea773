"""The access lists of a secured cluster's ZooKeeper: a stranger, and a topology's worker, try
everything with every node."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from tests.support.devcluster import ROOT, DevCluster, found, wait_for
from tests.support.zookeeper_rights import not_listed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

SLEEPER = ROOT / "tests" / "topologies" / "sleeper"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path, secure=True) as cluster:
        yield cluster


def submit(cluster: DevCluster, name: str, folder: Path) -> str:
    folder.mkdir()
    cluster.storm("jar", "--wait", SLEEPER, "sleeper_topology.py", name, str(folder))
    topology_id: str = cluster.topologies()[name]["id"]
    return topology_id


def tree(client: KazooClient, path: str = "/storm") -> list[str]:
    """Every node, those below first."""
    try:
        below = [tree(client, f"{path}/{name}") for name in client.get_children(path)]
    except NoNodeError:
        return []  # it went meanwhile
    return [*(one for some in below for one in some), path]


def attempts(client: KazooClient, path: str) -> dict[str, Callable[[], object]]:
    """All that can be tried with a node, without harm where it succeeds."""
    return {
        "get": lambda: client.get(path),
        "list": lambda: client.get_children(path),
        "lists": lambda: client.get_acls(path),
        "create": lambda: client.create(f"{path}/made-by-the-test", ephemeral=True),
        "set": lambda: client.set(path, b"", version=987_654),
        "delete": lambda: client.delete(path, version=987_654),
        "close": lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
    }


def successes(client: KazooClient, paths: list[str]) -> set[tuple[str, str]]:
    """What was not refused: (attempt, path below the root)."""
    done = set()
    for path in paths:
        for name, attempt in attempts(client, path).items():
            try:
                attempt()
            except NoAuthError:
                continue
            except NoNodeError:
                continue  # a node of a session that has ended
            except Exception:  # a version that never is: the right was there
                pass
            done.add((name, path.removeprefix("/storm") or "/"))
    # The node above the root is not the cluster's; and the root is never empty.
    return done - {("delete", "/")}


def payload_of(cluster: DevCluster, topology_id: str) -> str:
    """What the workers of a topology show."""
    [file] = [
        one.parent / "zookeeper.json"
        for one in found(cluster.data_dir, "launch.json")
        if json.loads(one.read_text())["topology_id"] == topology_id
    ]
    value: dict[str, Any] = json.loads(file.read_text())
    assert file.stat().st_mode & 0o077 == 0
    payload: str = value["payloads"][0]
    return payload


def works(folder: Path) -> int:
    """How much the workers of a topology have done."""
    return sum(file.stat().st_size for file in folder.iterdir())


def works_on(folder: Path) -> None:
    before = works(folder)
    wait_for("it to work on", lambda: works(folder) > before, 90.0)


def test_strangers_and_workers_get_nothing_but_what_is_listed(
    cluster: DevCluster, tmp_path: Path
) -> None:
    mine = submit(cluster, "mine", tmp_path / "mine")
    submit(cluster, "other", tmp_path / "other")
    for name in ("mine", "other"):
        wait_for(f"{name} to work", lambda name=name: works(tmp_path / name) > 0, 90.0)
    daemon = cluster.zookeeper()
    paths = tree(daemon)
    assert f"/storm/security/topologies/{mine}" in paths
    assert len(paths) > 20

    another = tmp_path / "another.digest"
    cluster.storm("admin", "zookeeper-digest", another)
    for conf, status in ((), 0), (("-c", f"storm.zookeeper.auth.payload.file={another}"), 1):
        asked = cluster.storm("admin", "print_topo", mine, *conf, check=False)
        assert asked.returncode == status, asked.stderr
        assert ("ZooKeeper refused it: not allowed" in asked.stderr) == bool(status)
        assert "Traceback" not in asked.stderr
    stranger = cluster.zookeeper(payload="")
    assert successes(stranger, paths) == set()
    worker = cluster.zookeeper(payload=payload_of(cluster, mine))
    done = successes(worker, paths)
    assert not_listed(done, mine) == set()
    assert {
        ("get", f"/security/topologies/{mine}"),
        ("create", f"/workerbeats/{mine}"),
        ("create", f"/errors/{mine}"),
    } <= done

    # A worker that closes nodes to the daemons disturbs its own topology, and no one else's.
    own = [make_digest_acl("me", "x" * 20, all=True)]
    worker.add_auth("digest", "me:" + "x" * 20)
    worker.create(f"/storm/errors/{mine}/hidden", acl=own)
    worker.create(f"/storm/errors/{mine}/hidden/below", acl=own)
    worker.create(f"/storm/workerbeats/{mine}/somewhere-6700", b"?", acl=own)
    cluster.storm("get-errors", "mine", check=False)

    cluster.storm("rebalance", "mine", "-w", "0", "-n", "2")
    works_on(tmp_path / "mine")
    nimbus = cluster.state()["nimbus"]["pid"]
    os.kill(nimbus, signal.SIGKILL)
    wait_for(
        "another leader",
        lambda: (
            cluster.state()["nimbus"]["pid"] != nimbus
            and cluster.storm("list", check=False).returncode == 0
        ),
        90.0,
    )
    works_on(tmp_path / "mine")
    works_on(tmp_path / "other")
    cluster.storm("kill", "mine", "-w", "0")
    wait_for("it to be gone", lambda: "mine" not in cluster.topologies(), 90.0)
    works_on(tmp_path / "other")
    assert (
        successes(stranger, [f"/storm/{name}" for name in daemon.get_children("/storm")]) == set()
    )
    for client in (daemon, stranger, worker):
        client.stop()
        client.close()
