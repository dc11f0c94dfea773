"""A topology that eats memory is restarted with the reason reported, and its neighbour goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import (
    DevCluster,
    fresh_name,
    is_alive,
    stopped,
    wait_dead,
    wait_for,
)
from tests.support.eater import TOPOLOGY, Counter
from tests.support.live_files import texts

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[DevCluster]:
    overrides = (
        "supervisor.monitor.frequency.secs=0.5",
        "storm.supervisor.memory.limit.tolerance.margin.mb=64",
    )
    with DevCluster.start(folder / fresh_name("cluster"), slots=2, overrides=overrides) as cluster:
        yield cluster
        cluster.kill_all()


@pytest.fixture(scope="module")
def neighbour(cluster: DevCluster, folder: Path) -> Counter:
    return Counter(cluster, folder, "neighbour", "none")


@pytest.fixture(scope="module")
def eater(cluster: DevCluster, folder: Path) -> Counter:
    return Counter(cluster, folder, "eater", "128")


def supervisor_log(cluster: DevCluster) -> str:
    return "".join(texts(cluster.data_dir / "logs", "supervisor.log"))


@pytest.mark.parametrize(
    ("who", "mib", "how"),
    [
        ("worker", 180, "TerminateWorker"),  # over 128 + 64 with the interpreter's own
        ("child", 180, "TerminateWorker"),
        ("worker", 400, "KillWorker"),  # over 2 * 128 + 64
    ],
)
def test_it_is_restarted_with_the_reason_and_its_neighbour_is_not_touched(
    cluster: DevCluster, eater: Counter, neighbour: Counter, who: str, mib: int, how: str
) -> None:
    eater_pid, neighbour_pid = eater.pid, neighbour.pid
    logged = len(supervisor_log(cluster))
    # It looks again when all of it is there: a slower one would first see that half is too much.
    with stopped(cluster.state()["supervisors"][0]["pid"]):
        eater.eat(who, mib)
        eater.wait_eaten()
    assert eater.wait_restarted(eater_pid) != eater_pid
    wait_dead(eater_pid)

    def reported() -> str | None:
        said = eater.error()
        return said if said and said in supervisor_log(cluster)[logged:] else None

    said = wait_for("the error to be shown", reported)
    log = supervisor_log(cluster)[logged:]
    assert ("MemoryFarExceeded" in log) == (how == "KillWorker"), log
    used = int(said.partition("used ")[2].split()[0])
    assert mib < used < mib + 120, said
    assert "its limit is 128 MB" in said
    assert "raise topology.worker.max.heap.size.mb" in said
    eater.wait_counts_on()
    neighbour.wait_counts_on()
    assert neighbour.pid == neighbour_pid
    assert is_alive(neighbour_pid)


def test_without_a_limit_nothing_happens(
    cluster: DevCluster, eater: Counter, neighbour: Counter
) -> None:
    before, neighbour_pid = eater.pid, neighbour.pid
    neighbour.eat("worker", 300)
    neighbour.wait_eaten()
    neighbour.wait_counts_on()
    eater.eat("worker", 180)  # so that all are looked at again
    eater.wait_restarted(before)
    assert neighbour.pid == neighbour_pid


@pytest.mark.parametrize("limit", ["0", "-5"])
def test_an_invalid_limit_is_refused_at_submit(
    cluster: DevCluster, folder: Path, limit: str
) -> None:
    package = folder / f"refused{limit}"
    package.mkdir(exist_ok=True)
    (package / "eater.py").write_text(TOPOLOGY)
    result = cluster.storm("jar", package, "eater.py", "refused", folder, limit, check=False)
    assert result.returncode != 0
    assert "topology.worker.max.heap.size.mb" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
