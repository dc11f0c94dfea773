"""A program with a LocalCluster (as `storm local` is one) that is killed leaves no child."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.devcluster import environment, is_alive, wait_for

pytestmark = pytest.mark.integration

STUBBORN = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while sys.stdin.readline() != "end\\n":
    pass
print(json.dumps({"pid": os.getpid()}), "end", sep="\\n", flush=True)
with open(os.environ["PID_FILE"] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, os.environ["PID_FILE"])
time.sleep(600)  # whatever happens to its pipes
"""
PROGRAM = """
import sys, time
from squall import LocalCluster, ShellSpout, TopologyBuilder
builder = TopologyBuilder()
builder.spout("stubborn", ShellSpout(sys.executable, "stubborn.py", outputs=["x"]))
with LocalCluster() as cluster:
    conf = {"topology.environment": {"PID_FILE": sys.argv[1]}}
    cluster.submit_topology("t", conf, builder.build())
    time.sleep(600)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no `setpriv`")
def test_the_children_of_a_killed_local_cluster_die_with_it(tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "program.py").write_text(PROGRAM)
    pid_file = tmp_path / "pid"
    program = subprocess.Popen(
        [sys.executable, "program.py", pid_file],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    child = None
    try:
        child = wait_for("the child", lambda: pid_file.exists() and int(pid_file.read_text()))
        program.kill()
        program.wait()
        wait_for("the child's end", lambda: not is_alive(child))
    finally:
        program.kill()
        program.wait()
        if child is not None and is_alive(child):
            os.kill(child, signal.SIGKILL)
