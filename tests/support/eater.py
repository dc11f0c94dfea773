"""A topology that counts, and eats memory when it is told to."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.devcluster import DevCluster, fresh_name, wait_for

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
    """Counts into a file, and eats what the file "order" says, once; then makes "eaten"."""

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
            (folder / "eaten").touch()
        else:
            code = (
                "import pathlib, sys, time, eater; eaten = eater.touched(int(sys.argv[1])); "
                "pathlib.Path(sys.argv[2]).touch(); time.sleep(600)"
            )
            argv = [sys.executable, "-c", code, mib, folder / "eaten"]
            self.eaten.append(subprocess.Popen(argv, cwd=HERE))


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

    def __init__(self, cluster: DevCluster, folder: Path, kind: str, limit: str) -> None:
        # One of an earlier try has a slot that this one needs.
        cluster.kill_all(kind)
        self.cluster = cluster
        self.name = fresh_name(kind)
        self.folder = folder / self.name
        self.folder.mkdir()
        package = folder / f"package-{self.name}"
        package.mkdir()
        (package / "eater.py").write_text(TOPOLOGY)
        cluster.storm("jar", package, "eater.py", self.name, self.folder, limit)

    def error(self) -> str:
        """What is shown of its workers' ends; "" when there is nothing."""
        shown = json.loads(self.cluster.storm("get-errors", self.name, "--json").stdout)
        return str(shown["Comp-Errors"].get("__system", ""))

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
        (self.folder / "eaten").unlink(missing_ok=True)
        (self.folder / "order.part").write_text(f"{who} {mib}")
        os.replace(self.folder / "order.part", self.folder / "order")

    def wait_eaten(self) -> None:
        """Until all of it is there; something may end the worker before."""
        wait_for("all to be eaten", (self.folder / "eaten").exists)

    def wait_restarted(self, before: int) -> int:
        def restarted() -> int | None:
            read = self.read()
            return read[0] if read is not None and read[0] != before else None

        return wait_for("the worker to be started again", restarted, 60.0)

    def wait_counts_on(self) -> None:
        before = wait_for("a count", self.read)[1]
        wait_for("the count to go on", lambda: (self.read() or (0, 0))[1] > before)
