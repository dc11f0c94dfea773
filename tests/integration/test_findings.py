"""What holds a topology up is named soon, on a real cluster: a slow bolt, a skewed key, a slow peer
and a blocked sink, each in a topology that ran well before.

The figures are those of the last ten seconds, so within ten seconds a cause has all of the weight
that it can have, and most of it before: on a quiet machine the four are named after 5 to 9 s. The
limit here allows for a busy one.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import ROOT, DevCluster, wait_for

pytestmark = pytest.mark.integration

TROUBLED = ROOT / "tests" / "topologies" / "troubled"
KINDS = ("slow", "skewed", "blocked", "peer")
SECS_MAX = 60.0
# Stops a process for most of the time, until it is ended itself.
_SLOW_DOWN = """
import os, signal, sys, time
while True:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(0.9)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files appear that begin a trouble."""
    return tmp_path_factory.mktemp("troubles")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[DevCluster]:
    """With four topologies, in two workers each, that have no findings."""
    with DevCluster.start(tmp_path_factory.mktemp("dev"), supervisors=2, slots=4) as cluster:
        for kind in KINDS:
            cluster.storm("jar", "--wait", TROUBLED, "troubled", kind, folder / kind)
        for kind in KINDS:
            wait_for(f"{kind} to run well", lambda kind=kind: runs_well(cluster, kind), 90, 0.5)
        yield cluster
        cluster.kill_all()


def state(cluster: DevCluster, name: str) -> dict[str, Any]:
    """A topology as its page in the UI has it."""
    ids = {one.name: one.id for one in cluster.call("getTopologySummaries")}
    port = cluster.first_state["ui"]["port"]
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/live/topology/{ids[name]}/state", timeout=20
    ) as response:
        body = response.read()
        if response.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
    found: dict[str, Any] = json.loads(body)["state"]
    return found


def runs_well(cluster: DevCluster, name: str) -> bool:
    """It has been read often enough to have rates, and nothing is wrong."""
    found = state(cluster, name)
    rates = [one["emitRate"] for one in found["components"].values() if one["type"] == "spout"]
    return min(rates) > 100 and found["findings"] == []


def named(cluster: DevCluster, name: str, kinds: set[str], component: str) -> None:
    """Wait for one of these findings."""

    def there() -> bool:
        return any(
            one["kind"] in kinds and one["component"] == component
            for one in state(cluster, name)["findings"]
        )

    wait_for(f"{name}: {component} to be named", there, SECS_MAX, 0.3)


@pytest.mark.parametrize(
    ("name", "kinds", "component"),
    [
        ("slow", {"slow bolt"}, "work"),
        ("skewed", {"skew"}, "work"),
        # It waits for another system: its own worker has nothing to do.
        ("blocked", {"slow peer"}, "store"),
    ],
)
def test_a_trouble_in_a_component_is_named(
    cluster: DevCluster, folder: Path, name: str, kinds: set[str], component: str
) -> None:
    file = folder / name
    file.touch()
    try:
        named(cluster, name, kinds, component)
    finally:
        file.unlink()


def test_a_slow_peer_is_named(cluster: DevCluster) -> None:
    """The worker that gets the tuples hardly runs, as on a node that is overloaded."""
    with slowed(worker_of(cluster, "peer", "far")):
        named(cluster, "peer", {"slow peer"}, "far")


def worker_of(cluster: DevCluster, name: str, component: str) -> int:
    """The process that runs a component's only executor."""
    (summary,) = [one for one in cluster.call("getTopologySummaries") if one.name == name]
    info = cluster.call("getTopologyInfo", summary.id)
    (port,) = [one.port for one in info.executors if one.component_id == component]
    (pid,) = [
        pid
        for pid, words in cluster.worker_processes().items()
        if words[0] == summary.id and words[2] == str(port)
    ]
    return pid


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", _SLOW_DOWN, str(pid)])
    try:
        yield
    finally:
        process.kill()
        process.wait()
        os.kill(pid, signal.SIGCONT)
