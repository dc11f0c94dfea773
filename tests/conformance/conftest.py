"""One real cluster for all of what others wrote, and the notes that their components make."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.leftovers import processes_of
from tests.support.devcluster import DevCluster, is_alive, wait_empty, wait_for

COUNT = 200
FAILED = range(0, COUNT, 10)  # each once


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path_factory.mktemp("cluster"), slots=6) as cluster:
        yield cluster


class Notes:
    """What the components of one topology wrote down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf: dict[str, Any] = {
            "conformance.results": str(folder),
            "conformance.count": COUNT,
            "topology.workers": 1,
            "topology.message.timeout.secs": 60,
        }

    def lines(self, name: str) -> Counter[str]:
        path = self.folder / name
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def wait_acked(self, cluster: DevCluster) -> None:
        """Until every number was acked."""
        try:
            wait_for("all acks", lambda: self.lines("acked").total() >= COUNT, 60)
        except AssertionError as error:
            kept = {path.name: self.lines(path.name).total() for path in self.folder.iterdir()}
            raise AssertionError(f"{error}; noted: {kept}") from None

    def check_spout(self) -> None:
        """Each number was acked once, and failed as often as its bolt failed it; the ids are the
        numbers that they were."""
        assert self.lines("acked") == Counter(str(n) for n in range(COUNT))
        assert self.lines("failed") == Counter(str(n) for n in FAILED)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    folder = tmp_path / "notes"
    folder.mkdir()
    return Notes(folder)


def nimbus(cluster: DevCluster) -> tuple[str, str]:
    """Host and port."""
    where = cluster.state()["nimbus"]
    return where["host"], str(where["port"])


def children(cluster: DevCluster, name: str) -> list[int]:
    """Living processes whose handshake named a topology: they run in its package."""
    found = []
    for pid in processes_of(cluster.data_dir):
        with contextlib.suppress(OSError):
            cwd = os.readlink(f"/proc/{pid}/cwd")
            if re.search(rf"/{re.escape(name)}-\d+-\d+(/|$)", cwd) and "/resources" in cwd:
                found += [pid] if is_alive(pid) else []
    return found


def kill_and_wait(cluster: DevCluster, name: str) -> None:
    cluster.storm("kill", name, "-w", "0")
    wait_killed(cluster, name)


def wait_killed(cluster: DevCluster, name: str) -> None:
    """Until nothing is left of a topology that was killed."""
    cluster.wait_gone(name)
    wait_empty(f"children of {name}", lambda: children(cluster, name))


def errors(cluster: DevCluster, name: str) -> str:
    return cluster.storm("get-errors", name).stdout


def as_json(conf: dict[str, Any]) -> str:
    return json.dumps(conf)
