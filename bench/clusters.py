"""Real clusters for benchmarks: `storm dev`, and what its processes use."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from tests.support.devcluster import DevCluster

from bench.runs import ROOT

TOPOLOGIES = ROOT / "bench" / "cluster_topologies"


@contextlib.contextmanager
def cluster(slots: int) -> Iterator[DevCluster]:
    """A cluster with one supervisor in a folder of its own, which is removed when all went well."""
    folder = Path(tempfile.mkdtemp(prefix="squall-bench-"))
    with DevCluster.start(folder, supervisors=1, slots=slots) as started:
        yield started
    shutil.rmtree(folder, ignore_errors=True)


def processes(started: DevCluster, workers: int) -> dict[str, psutil.Process]:
    """Nimbus, the supervisor and the workers, by name; waits for the workers."""
    state = started.state()
    found = {
        "Nimbus": psutil.Process(state["nimbus"]["pid"]),
        "supervisor": psutil.Process(state["supervisors"][0]["pid"]),
    }
    for number, pid in enumerate(sorted(started.worker_pids(workers, timeout_secs=60)), 1):
        found[f"worker {number}" if workers > 1 else "worker"] = psutil.Process(pid)
    return found


def cpu_secs(process: psutil.Process) -> float:
    """Of all its threads that live: the scheduler's nanoseconds where it gives them, since clock
    ticks miss what sleeps most of the time."""
    try:
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except (OSError, ValueError, IndexError):
        times = process.cpu_times()
        return float(times.user + times.system)


def rss_mb(process: psutil.Process) -> float:
    """10**6 bytes."""
    return float(process.memory_info().rss / 1e6)


def wait_for_calm(found: dict[str, psutil.Process], timeout_secs: float = 30.0) -> None:
    """Until none of them uses more than a twentieth of a core for a second: what starts has
    started. Goes on after the timeout, which is then the figure."""
    deadline = time.monotonic() + timeout_secs
    while time.monotonic() < deadline:
        before = {name: cpu_secs(process) for name, process in found.items()}
        time.sleep(1.0)
        if all(cpu_secs(process) - before[name] < 0.05 for name, process in found.items()):
            return
