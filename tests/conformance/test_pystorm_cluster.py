"""pystorm on a cluster: ReliableSpout, BatchingBolt with ticks, bolts that fail."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.conftest import COUNT, Notes, as_json, children, errors, kill_and_wait
from tests.support.devcluster import DevCluster, wait_for
from tests.support.thirdparty import pystorm_python

pytestmark = pytest.mark.conformance
PROJECTS = Path(__file__).parent / "projects"


def check_words(notes: Notes) -> None:
    words = [(n, word) for n in range(COUNT) for word in ("odd" if n % 2 else "even", "number")]
    assert notes.lines("batched") == Counter(f"{n} {word}" for n, word in words)
    sizes: Counter[str] = Counter()
    for line, times in notes.lines("sizes").items():
        word, size = line.split()
        sizes[word] += times * int(size)
    assert sizes == Counter(word for _, word in words)


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_pystorm_on_a_cluster(
    cluster: DevCluster, notes: Notes, tmp_path: Path, serializer: str
) -> None:
    python = pystorm_python()
    package = tmp_path / "package"
    shutil.copytree(PROJECTS / "pystorm", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "resources").mkdir()
    shutil.copy(PROJECTS / "streamparse" / "src" / "numbers_components.py", package / "resources")
    name = f"pystorm-{serializer}"
    topology = "pystorm_topology.py"
    cluster.storm("jar", package, topology, name, python, serializer, as_json(notes.conf))
    notes.wait_acked(cluster)
    notes.check_spout()
    check_words(notes)
    wait_for("its children", lambda: len(children(cluster, name)) == 6)
    wait_for("the error", lambda: "at the first try" in errors(cluster, name), 60, 0.5)
    kill_and_wait(cluster, name)
