"""node-storm: components in JavaScript, packed and submitted by node-storm itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.conftest import (
    COUNT,
    Notes,
    as_json,
    children,
    errors,
    kill_and_wait,
    nimbus,
)
from tests.conformance.test_pystorm_cluster import PROJECTS
from tests.support.devcluster import DevCluster, wait_for
from tests.support.thirdparty import command, node_storm_path

pytestmark = pytest.mark.conformance
NAME = "node"
# node-storm calls the JDK's `jar cf FILE .`; a JRE has none.
JAR = f"""#!/bin/sh
[ "$1" = cf ] && [ "$3" = . ] && exec "{sys.executable}" -m zipfile -c "$2" ./*
exit 2
"""


def test_node_storm_submits_and_runs(cluster: DevCluster, notes: Notes, tmp_path: Path) -> None:
    node, modules = command("node"), node_storm_path()
    project, commands = tmp_path / "project", tmp_path / "bin"
    shutil.copytree(PROJECTS / "node", project)
    commands.mkdir()
    (commands / "jar").write_text(JAR)
    (commands / "jar").chmod(0o755)
    conf = {**notes.conf, "topology.environment": {"NODE_PATH": modules}}
    env = {**os.environ, "NODE_PATH": modules, "PATH": f"{commands}:{os.environ['PATH']}"}
    done = subprocess.run(
        [node, project / "numbers.js", ":".join(nimbus(cluster)), NAME, as_json(conf)],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert NAME in cluster.topologies(), done.stdout + done.stderr
    notes.wait_acked(cluster)
    notes.check_spout()
    assert notes.lines("doubles") == Counter(f"{n} {2 * n}" for n in range(COUNT))
    wait_for("its children", lambda: len(children(cluster, NAME)) == 6)
    assert "Error" not in errors(cluster, NAME)
    kill_and_wait(cluster, NAME)
