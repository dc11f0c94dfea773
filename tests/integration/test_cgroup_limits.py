"""The same with cgroups, where this machine lets us make some."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import (
    DevCluster,
    environment,
    fresh_name,
    wait_dead,
    wait_for,
)
from tests.support.eater import Counter
from tests.support.live_files import found, texts

from squall_common.config.load import default_conf
from squall_common.errors import ConfigError
from squall_supervisor.confine.cgroups import Cgroups, Hierarchies, hierarchies_of_machine

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def hierarchies() -> Hierarchies:
    try:
        found = hierarchies_of_machine(None)
        trial = Cgroups(
            found, rootdir=f"squall-test-{uuid.uuid4()}", local_dir=Path("/"),
            controllers=("cpu", "memory"), margin_mb=0.0,
        )  # fmt: skip
        trial.prepare()
    except ConfigError as error:
        pytest.skip(f"no cgroups may be made here: {error}")
    for home in set(trial._homes.values()):
        home.rmdir()
        home.parent.rmdir()
    return found


@pytest.fixture(scope="module")
def root(hierarchies: Hierarchies) -> Iterator[Path]:
    """Where the memory of this test's supervisors is controlled."""
    name = f"squall-test-{uuid.uuid4()}"
    yield hierarchies.folders["memory"] / name
    for controller in ("memory", "cpu"):
        path = hierarchies.folders[controller] / name
        folders = [Path(folder) for folder, _, _ in os.walk(path)]
        for folder in sorted(folders, reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cgroups")


@pytest.fixture(scope="module")
def cluster(folder: Path, root: Path) -> Iterator[DevCluster]:
    overrides = (
        "supervisor.monitor.frequency.secs=0.5",
        "storm.supervisor.memory.limit.tolerance.margin.mb=64",
        "storm.resource.isolation.plugin.enable=true",
        f"storm.supervisor.cgroup.rootdir={root.name}",
    )
    with DevCluster.start(folder / fresh_name("cluster"), slots=2, overrides=overrides) as cluster:
        yield cluster
        cluster.kill_all()
        wait_for("the cgroups to go", lambda: not workers_in(root))


@pytest.fixture(scope="module")
def neighbour(cluster: DevCluster, folder: Path) -> Counter:
    return Counter(cluster, folder, "neighbour", "none")


@pytest.fixture(scope="module")
def eater(cluster: DevCluster, folder: Path) -> Counter:
    return Counter(cluster, folder, "eater", "128")


def workers_in(root: Path) -> dict[str, set[int]]:
    """The pids in each worker's cgroup."""
    pids = {}
    for path in found(root, "supervisor-*/*/cgroup.procs"):
        with contextlib.suppress(OSError):
            pids[path.parent.name] = set(map(int, path.read_text().split()))
    return pids


def cgroup_of(root: Path, pid: int) -> str:
    return wait_for(
        f"the cgroup of {pid}",
        lambda: next((name for name, pids in workers_in(root).items() if pid in pids), None),
    )


def supervisor_log(cluster: DevCluster) -> str:
    return "".join(texts(cluster.data_dir / "logs", "supervisor.log"))


def test_the_kernel_kills_a_worker_that_uses_too_much_memory_and_its_neighbour_goes_on(
    cluster: DevCluster, eater: Counter, neighbour: Counter, root: Path
) -> None:
    eater_pid, neighbour_pid = eater.pid, neighbour.pid
    logged = len(supervisor_log(cluster))
    before = cgroup_of(root, eater_pid)
    assert before != cgroup_of(root, neighbour_pid)
    eater.eat("worker", 400)
    after = eater.wait_restarted(eater_pid)
    wait_dead(eater_pid)
    assert cgroup_of(root, after) != before
    wait_for("the old cgroup to go", lambda: before not in workers_in(root))

    def reported() -> str | None:
        said, log = eater.error(), supervisor_log(cluster)[logged:]
        return said if "ended by the kernel" in said and said in log else None

    said = wait_for("the error to be shown", reported)
    assert "its limit is 128 MB" in said
    assert "raise topology.worker.max.heap.size.mb" in said
    eater.wait_counts_on()
    neighbour.wait_counts_on()
    assert neighbour.pid == neighbour_pid


def test_the_memory_of_a_child_process_counts(
    cluster: DevCluster, eater: Counter, neighbour: Counter, root: Path
) -> None:
    neighbour_pid = neighbour.pid
    before = supervisor_log(cluster).count("ended by the kernel")
    eater.eat("child", 400)
    wait_for(
        "the kill to be reported",
        lambda: supervisor_log(cluster).count("ended by the kernel") > before,
    )
    eater.wait_counts_on()
    assert neighbour.pid == neighbour_pid


def test_a_restarted_supervisor_adopts_workers_and_removes_leftovers(
    cluster: DevCluster, eater: Counter, neighbour: Counter, root: Path
) -> None:
    pids = eater.pid, neighbour.pid
    cgroups = [cgroup_of(root, pid) for pid in pids]
    (home,) = root.glob("supervisor-*")
    # As if it had been killed after it had made a worker's cgroup, and another's worker had died
    # and left a child there.
    (home / "never-started").mkdir(exist_ok=True)
    (home / "left").mkdir(exist_ok=True)
    child = subprocess.Popen(["sleep", "600"])
    try:
        (home / "left" / "cgroup.procs").write_text(str(child.pid))
        (supervisor,) = cluster.state()["supervisors"]
        os.kill(supervisor["pid"], signal.SIGKILL)
        wait_for(
            "what was left to go", lambda: not {"never-started", "left"} & workers_in(root).keys()
        )
        assert child.wait(timeout=30) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()
    assert (eater.pid, neighbour.pid) == pids
    assert [cgroup_of(root, pid) for pid in pids] == cgroups
    eater.wait_counts_on()
    # And it goes on to be the one that says why.
    eater.eat("worker", 400)
    eater.wait_restarted(pids[0])
    wait_for("the old cgroup to go", lambda: cgroups[0] not in workers_in(root))


@pytest.mark.parametrize(
    ("files", "expected"),
    [({}, "has no cgroups"), ({"cgroup.controllers": "pids"}, "cpu, memory cannot be used here")],
)
def test_without_cgroups_the_supervisor_does_not_start(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    conf = {
        **default_conf(),
        "storm.local.dir": str(tmp_path / "local"), "supervisor.thrift.port": 0,
        "storm.resource.isolation.plugin.enable": True,
        "storm.cgroup.hierarchy.dir": str(tmp_path),
    }  # fmt: skip
    (tmp_path / "conf.json").write_text(json.dumps(conf))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "squall_supervisor"],
        env={**environment(), "SQUALL_DAEMON_CONF": str(tmp_path / "conf.json")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
