"""Shell components under `storm local`, with the project's own resources/."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.support.devcluster import STORM, environment, wait_for

pytestmark = pytest.mark.integration

TOPOLOGY = """
import sys
from squall import ShellBolt, ShellSpout, TopologyBuilder, submit_topology

if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("numbers", ShellSpout(sys.executable, "numbers_.py", outputs=["n"]))
    doubles = ShellBolt(sys.executable, "doubles.py", outputs=[])
    builder.bolt("doubles", doubles, 2).shuffle("numbers")
    submit_topology("local", {"notes": sys.argv[1]}, builder.build())
"""
PARTS = """
import os, sys
from squall.multilang import BasicBolt, Spout

assert os.path.basename(os.getcwd()) == "resources", os.getcwd()


class Part:
    def note(self, name, line):
        with open(os.path.join(self.conf["notes"], name), "a") as file:
            file.write(f"{line}\\n")


class Numbers(Part, Spout):
    def initialize(self, conf, context):
        self.left = list(range(100))

    def next_tuple(self):
        if self.left:
            n = self.left.pop(0)
            self.emit([n], id=n)

    def ack(self, message_id):
        self.note("acked", repr(message_id))


class Doubles(Part, BasicBolt):
    def process(self, tup):
        self.note("doubles", 2 * tup["n"])

"""


def test_a_topology_of_shell_components_runs_until_it_is_stopped(tmp_path: Path) -> None:
    package, notes = tmp_path / "package", tmp_path / "notes"
    resources = package / "resources"
    resources.mkdir(parents=True)
    notes.mkdir()
    (package / "topology.py").write_text(TOPOLOGY)
    (resources / "parts.py").write_text(PARTS)
    (resources / "numbers_.py").write_text("from parts import Numbers\n\nNumbers().run()\n")
    (resources / "doubles.py").write_text("from parts import Doubles\n\nDoubles().run()\n")

    def lines(name: str) -> Counter[str]:
        path = notes / name
        return Counter(path.read_text().split() if path.exists() else ())

    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*STORM, "local", "--local-ttl", "100", package, "topology.py", notes],
            env=environment(),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for("all acks", lambda: lines("acked").total() >= 100 or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = (tmp_path / "log").read_text()
    assert lines("acked") == Counter(str(n) for n in range(100)), said
    assert lines("doubles") == Counter(str(2 * n) for n in range(100)), said
    assert process.returncode in (0, 143), said
