"""A topology that eats memory is restarted, is told why, and its neighbour goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, is_alive, wait_for

pytestmark = pytest.mark.integration

TOPOLOGY = '''
import os
import pathlib
import subprocess
import sys

from squall import Bolt, Spout, TopologyBuilder, submit_topology


HERE = pathlib.Path(__file__).parent


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.n = 0

    def next_tuple(self):
        self.n += 1
        self.emit([self.n], message_id=self.n)


def touched(mib):
    """Memory that is really there."""
    eaten = bytearray(mib << 20)
    for page in range(0, len(eaten), 4096):
        eaten[page] = 1
    return eaten


class Eater(Bolt):
    """Counts into a file, and eats what the file "order" says, once."""

    outputs = []

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.count = 0
        self.eaten = []

    def execute(self, tup):
        self.count += 1
        if self.count % 100:
            return
        folder = pathlib.Path(self.folder)
        (folder / "part").write_text(f"{os.getpid()} {self.count}")
        (folder / "part").replace(folder / "count")
        order = folder / "order"
        if not order.exists():
            return
        who, mib = order.read_text().split()
        order.unlink()
        if who == "worker":
            self.eaten.append(touched(int(mib)))
        else:
            code = f"import time, eater; eaten = eater.touched({mib}); time.sleep(600)"
            self.eaten.append(subprocess.Popen([sys.executable, "-c", code], cwd=HERE))


if __name__ == "__main__":
    name, folder, limit = sys.argv[1:]
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("eater", Eater(folder)).shuffle("numbers")
    conf = {"topology.workers": 1, "topology.max.spout.pending": 50}
    if limit != "none":
        conf["topology.worker.max.heap.size.mb"] = int(limit)
    submit_topology(name, conf, builder.build())
'''


class Counter:
    """A submitted topology, as its files tell."""

    def __init__(self, cluster: DevCluster, folder: Path, name: str, limit: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        package = folder / f"package-{name}"
        package.mkdir()
        (package / "eater.py").write_text(TOPOLOGY)
        cluster.storm("jar", package, "eater.py", name, self.folder, limit)

    def read(self) -> tuple[int, int] | None:
        """Pid and count."""
        try:
            pid, count = (self.folder / "count").read_text().split()
        except FileNotFoundError:
            return None
        return int(pid), int(count)

    @property
    def pid(self) -> int:
        return wait_for("a count", self.read)[0]

    def eat(self, who: str, mib: int) -> None:
        (self.folder / "order.part").write_text(f"{who} {mib}")
        os.replace(self.folder / "order.part", self.folder / "order")

    def wait_restarted(self, before: int) -> int:
        def restarted() -> int | None:
            read = self.read()
            return read[0] if read is not None and read[0] != before else None

        return wait_for("the worker to be started again", restarted, 60.0)

    def wait_counts_on(self) -> None:
        before = wait_for("a count", self.read)[1]
        wait_for("the count to go on", lambda: (self.read() or (0, 0))[1] > before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[DevCluster]:
    overrides = (
        "supervisor.monitor.frequency.secs=0.5",
        "storm.supervisor.memory.limit.tolerance.margin.mb=64",
    )
    with DevCluster.start(folder / "cluster", slots=2, overrides=overrides) as cluster:
        yield cluster
        for name in cluster.topologies():
            cluster.storm("kill", name, "-w", "0")
            cluster.wait_gone(name)


@pytest.fixture(scope="module")
def neighbour(cluster: DevCluster, folder: Path) -> Counter:
    return Counter(cluster, folder, "neighbour", "none")


@pytest.fixture(scope="module")
def eater(cluster: DevCluster, folder: Path) -> Counter:
    return Counter(cluster, folder, "eater", "128")


def errors(cluster: DevCluster) -> str:
    shown = json.loads(cluster.storm("get-errors", "eater", "--json").stdout)
    return str(shown["Comp-Errors"].get("__system", ""))


def supervisor_log(cluster: DevCluster) -> str:
    return "".join(path.read_text() for path in cluster.data_dir.rglob("supervisor.log"))


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
    eater.eat(who, mib)
    assert eater.wait_restarted(eater_pid) != eater_pid
    assert not is_alive(eater_pid)
    log = supervisor_log(cluster)[logged:]
    assert ("MemoryFarExceeded" in log) == (how == "KillWorker"), log

    def told() -> str | None:
        said = errors(cluster)
        return said if said and said in log else None

    said = wait_for("the error to be shown", told)
    used = int(said.partition("used ")[2].split()[0])
    least = 2 * 128 + 64 if how == "KillWorker" else mib  # it may have been about to eat more
    assert least < used < mib + 120, said
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
    wait_for("the order to be taken", lambda: not (neighbour.folder / "order").exists())
    neighbour.wait_counts_on()
    eater.eat("worker", 180)  # so that all are looked at again
    eater.wait_restarted(before)
    assert neighbour.pid == neighbour_pid


@pytest.mark.parametrize("limit", ["0", "-5"])
def test_a_limit_that_is_none_is_refused_at_submit(
    cluster: DevCluster, folder: Path, limit: str
) -> None:
    package = folder / f"refused{limit}"
    package.mkdir()
    (package / "eater.py").write_text(TOPOLOGY)
    result = cluster.storm("jar", package, "eater.py", "refused", folder, limit, check=False)
    assert result.returncode != 0
    assert "topology.worker.max.heap.size.mb" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
