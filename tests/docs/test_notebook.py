"""A topology is drawn in a notebook while it runs: in IPython's own shell, whose displays are kept
instead of being sent to a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.devcluster import environment
from tests.support.thirdparty import ipython_packages

TOPOLOGY = """
from squall import Spout

class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.n = 0

    def next_tuple(self):
        if self.n < 200:
            self.n += 1
            self.emit([self.n])
"""
# A cell that is run with `display` as a kernel would have it.
NOTEBOOK = """
import json, sys
sys.path.append(sys.argv[1])
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from numbers_topology import Numbers
from squall import Bolt, LocalCluster, TopologyBuilder

shell = InteractiveShell.instance()
shell.display_pub = CapturingDisplayPublisher()
builder = TopologyBuilder()
builder.spout("numbers", Numbers())
with LocalCluster() as cluster:
    cluster.submit_topology("sums", {}, builder.build())
    cluster.show(secs=1.0, every_secs=0.2)
print(json.dumps([
    {"html": one["data"]["text/html"], "update": one["update"], **one["transient"]}
    for one in shell.display_pub.outputs
]))
"""


@pytest.mark.timeout(450)  # it installs IPython
def test_a_running_topology_is_drawn_again_and_again_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "numbers_topology.py").write_text(TOPOLOGY)
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, ipython_packages()],
        cwd=tmp_path,
        env={**environment(), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[-1])
    assert len(shown) >= 3
    assert [one["update"] for one in shown] == [False] + [True] * (len(shown) - 1)
    assert len({one["display_id"] for one in shown}) == 1
    counts = [int(re.search(r"(\d+) emitted", one["html"])[1]) for one in shown]  # type: ignore[index]
    assert counts == sorted(counts)
    assert counts[-1] == 200
