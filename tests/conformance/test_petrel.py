"""petrel's components, packed by petrel and submitted by a plain Thrift client: Apache's `thrift`
package with generated bindings."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
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
from tests.support.live_files import texts
from tests.support.thirdparty import petrel_python

pytestmark = pytest.mark.conformance
NAME = "petrel"


@pytest.fixture
def _no_leftovers() -> Iterator[None]:
    """petrel's start scripts make folders and locks in /tmp, whatever TMPDIR says."""
    before = set(Path("/tmp").glob("petrel-*"))
    yield
    for path in set(Path("/tmp").glob("petrel-*")) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.usefixtures("_no_leftovers")
def test_petrel_through_a_plain_thrift_client(
    cluster: DevCluster, notes: Notes, tmp_path: Path
) -> None:
    python = petrel_python()
    project, logs = tmp_path / "project", tmp_path / "logs"
    shutil.copytree(PROJECTS / "petrel", project, ignore=shutil.ignore_patterns("__pycache__"))
    logs.mkdir()
    host, port = nimbus(cluster)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, project / "submit.py", host, port, NAME, as_json(notes.conf), logs],
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"refused: {NAME}" in done.stdout  # the exception came typed, with its message
    notes.wait_acked(cluster)
    notes.check_spout()
    assert notes.lines("doubles") == Counter(f"{n} {2 * n}" for n in range(COUNT))
    # 1 + 3 (topology.yaml) + 2
    wait_for("its children", lambda: len(children(cluster, NAME)) == 6)
    wait_for(
        "the log", lambda: "noted 7" in "".join(texts(cluster.data_dir / "logs", "worker.log*"))
    )
    assert "Error" not in errors(cluster, NAME)
    kill_and_wait(cluster, NAME)
