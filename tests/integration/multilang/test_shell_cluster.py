"""Shell components on a real cluster: counted exactly, and gone when they should be."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.leftovers import processes_of
from tests.support.devcluster import DevCluster, is_alive, wait_dead, wait_empty, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import found
from tests.support.shells import PACKAGE
from tests.support.submit import LEDGER

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package") / "multilang"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(LEDGER / "ledger_topology.py", folder)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path_factory.mktemp("shells"), slots=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _nothing_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()
    wait_empty("workers", cluster.worker_pids)


def submit(cluster: DevCluster, package: Path, ledger: Ledger, workers: int = 1) -> None:
    words = ("jar", package, "multilang_ledger.py", "shells", str(ledger.port), str(workers))
    cluster.storm(*words, sys.executable)


def children(cluster: DevCluster) -> set[int]:
    """The splitters, and what they started."""
    return {
        pid
        for pid, command in processes_of(cluster.data_dir).items()
        if ("ledger_split.py" in command or command.startswith("sleep 600")) and is_alive(pid)
    }


def wait_children(cluster: DevCluster, count: int) -> set[int]:
    return wait_for(
        f"{count} children",
        lambda: now if len(now := children(cluster)) == count else None,
    )


def test_words_are_counted_exactly_and_no_child_outlives_the_topology(
    cluster: DevCluster, package: Path
) -> None:
    with Ledger(text(20_000)) as ledger:
        submit(cluster, package, ledger, workers=2)
        ledger.wait_done(timeout_secs=90)
        ledger.check()
        assert (ledger.duplicates(), ledger.fails) == (0, 0)
        pids = wait_children(cluster, 4)

        def noted() -> set[int]:
            files = found(cluster.data_dir, "pids/*")
            return {int(file.name) for file in files if file.name.isdecimal()}

        wait_for("both to be noted", lambda: len(noted() & pids) == 2)
        cluster.storm("kill", "shells", "-w", "0")
        cluster.wait_gone("shells")
        wait_empty("children after storm kill", lambda: children(cluster))


def test_children_end_with_a_killed_worker_but_not_with_a_killed_child(
    cluster: DevCluster, package: Path
) -> None:
    with Ledger(text(150_000)) as ledger:
        submit(cluster, package, ledger)
        ledger.wait_done(1, timeout_secs=60)
        (worker,) = cluster.worker_pids(1)
        before = wait_children(cluster, 4)

        (child, *_) = [p for p, c in processes_of(cluster.data_dir).items() if "ledger_split" in c]
        os.kill(child, signal.SIGKILL)
        wait_for(
            "another child in its place",
            lambda: len(now := children(cluster)) == 4 and child not in now,
        )
        assert cluster.worker_pids(1) == {worker}
        wait_for(
            "the error", lambda: "SIGKILL" in cluster.storm("get-errors", "shells").stdout, 60, 0.5
        )

        before = children(cluster)
        os.kill(worker, signal.SIGKILL)
        wait_for("the worker to be back", lambda: worker not in cluster.worker_pids(1))
        wait_children(cluster, 4)
        wait_dead(*before)
        assert ledger.done < len(ledger.lines), "all was done before: a larger text is due"
        ledger.wait_done(timeout_secs=120)
        ledger.check()
        cluster.storm("kill", "shells", "-w", "0")
        cluster.wait_gone("shells")
        wait_empty("children after storm kill", lambda: children(cluster))


def test_children_end_although_the_supervisor_was_killed_and_restarted(
    cluster: DevCluster, package: Path
) -> None:
    with Ledger(text(20_000)) as ledger:
        submit(cluster, package, ledger)
        ledger.wait_done(1, timeout_secs=60)
        before = wait_children(cluster, 4)
        supervisor = cluster.state()["supervisors"][0]["pid"]
        os.kill(supervisor, signal.SIGKILL)
        wait_for(
            "the supervisor to be back",
            lambda: cluster.state()["supervisors"][0]["pid"] != supervisor,
        )
        ledger.wait_done(timeout_secs=90)
        ledger.check()
        assert children(cluster) == before, "they were left alone"
        cluster.storm("kill", "shells", "-w", "0")
        cluster.wait_gone("shells")
        wait_empty("children after storm kill", lambda: children(cluster))
