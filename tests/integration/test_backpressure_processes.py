"""Real worker processes with bolts that are stuck and spouts at full speed, without
`topology.max.spout.pending`: memory stays bounded, what shares nothing with them goes on, and
afterwards everything comes through by itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import ROOT, DevCluster, wait_for

pytestmark = pytest.mark.integration

RSS_MB_MAX = 200.0
STUCK = ("coroutine", "thread", "child")
TOPOLOGY = ROOT / "tests" / "topologies" / "pressure"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("pressure")
    with DevCluster.start(folder, supervisors=2, slots=1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_topology_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Run:
    def __init__(self, cluster: DevCluster, folder: Path, acked: bool) -> None:
        self.cluster, self.folder = cluster, folder
        self.peak = 0.0
        folder.mkdir()
        cluster.storm(
            "jar", TOPOLOGY, "pressure_topology.py", "pressure", str(folder), "2",
            "yes" if acked else "no", sys.executable,
        )  # fmt: skip
        self.workers = cluster.worker_pids(2)

    def reported(self, name: str) -> list[str]:
        """What a component has told last; every look is a look at the memory, too."""
        for pid in self.workers:
            mb = rss_mb(pid)
            self.peak = max(self.peak, mb)
            assert mb < RSS_MB_MAX, f"worker {pid} takes {mb:.0f} MB"
        try:
            return (self.folder / name).read_text().split()
        except FileNotFoundError:
            return []

    def count(self, name: str) -> int:
        """How many a component has told; 0 also while it writes."""
        words = self.reported(name)
        return int(words[0]) if words else 0

    def watch(self, secs: float) -> None:
        deadline = time.monotonic() + secs
        while time.monotonic() < deadline:
            self.count("healthy")
            time.sleep(0.1)

    def wait_stuck(self) -> dict[str, int]:
        """Until the spouts that feed the stuck bolts have stopped; what they emitted."""
        seen: list[dict[str, int]] = []

        def still() -> dict[str, int] | None:
            seen.append({kind: self.count(f"spout-{kind}") for kind in STUCK})
            last = seen[-8:]
            quiet = len(last) == 8 and all(one == last[0] for one in last)
            return last[0] if quiet and all(last[0].values()) else None

        return wait_for("the spouts to stop", still, 60, poll_secs=0.25)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("acked", [False, True])
def test_stuck_bolts_cost_no_memory_and_lose_nothing(
    cluster: DevCluster, tmp_path: Path, acked: bool
) -> None:
    run = Run(cluster, tmp_path / "files", acked)
    try:
        stopped = run.wait_stuck()
        healthy = run.count("healthy")
        run.watch(5)
        wait_for("the healthy bolt", lambda: run.count("healthy") > healthy + 2_000, 60)
        # A worker that is stopped altogether: the other waits, and takes no more memory.
        (pid, *_) = run.workers
        os.kill(pid, signal.SIGSTOP)
        try:
            run.watch(4)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert all(run.count(f"spout-{kind}") < 4 * stopped[kind] for kind in STUCK)
        (run.folder / "go").touch()
        for kind in STUCK:
            wait_for(
                f"{kind} to go on",
                lambda kind=kind: run.count(kind) > min(1_000, stopped[kind]),  # type: ignore[misc]
                90,
            )
        (run.folder / "end").touch()
        for kind in (*STUCK, "healthy"):

            def through(kind: str = kind) -> bool:
                emitted = run.count(f"spout-{kind}")
                return run.reported(kind) == [str(emitted), "whole"] and (
                    not acked or run.count(f"spout-{kind}.acked") >= emitted
                )

            wait_for(f"all of {kind}", through, 120, poll_secs=0.2)
        assert run.workers == cluster.worker_pids(), "no worker was replaced"
    finally:
        cluster.storm("kill", "pressure", "-w", "0", check=False)
        cluster.wait_gone("pressure")
    print(f"peak of a worker: {run.peak:.0f} MB")
