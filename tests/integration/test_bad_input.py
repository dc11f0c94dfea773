"""What users get wrong: each gives one clear message and status 1, and leaves nothing half done."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, storm, wait_empty

pytestmark = pytest.mark.integration

HEAD = """
from squall import Bolt, Spout, TopologyBuilder, submit_topology

class Numbers(Spout):
    outputs = ["number"]
    def __init__(self, source=None): self.source = source
    def next_tuple(self): pass

class Double(Bolt):
    outputs = ["number"]
    def __init__(self, how=None): self.how = how
    def execute(self, tup): pass

def make():
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    return builder
"""
GUARD = '\nif __name__ == "__main__":\n'

# A program, and what its message must name.
PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "entry_that_raises": (
        HEAD + GUARD + "    raise ValueError('the price is wrong')\n",
        ("ValueError", "the price is wrong"),
    ),
    "unguarded": (
        HEAD + "\nsubmit_topology('bad', {}, make().build())\n",
        ("submit_topology", "__main__"),
    ),
    # Each mistake that the builder finds has its unit test.
    "many_mistakes": (
        HEAD + GUARD + "    b = TopologyBuilder()\n"
        "    b.bolt('double', Double(lambda x: x)).shuffle('nowhere')\n"
        "    b.bolt('double', Double())\n"
        "    submit_topology('bad', {}, b.build())\n",
        ("4 things are wrong", "already", "no spout", "cannot travel", "nowhere"),
    ),
    "conf_of_a_wrong_type": (
        HEAD + GUARD + "    submit_topology('bad', {'topology.workers': 'many'}, make().build())\n",
        ("topology.workers", "many"),
    ),
    "name_with_a_slash": (
        HEAD + GUARD + "    submit_topology('a/b', {}, make().build())\n",
        ("a/b",),
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path_factory.mktemp("bad"), supervisors=1, slots=1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _nothing_half_done(cluster: DevCluster) -> Iterator[None]:
    znodes, files = cluster.znodes(), _nimbus_files(cluster)
    yield
    assert cluster.names() == set()
    wait_empty("new or missing znodes", lambda: cluster.znodes() ^ znodes)
    wait_empty("new or missing files", lambda: _nimbus_files(cluster) ^ files)
    wait_empty("workers", cluster.worker_pids)


def _nimbus_files(cluster: DevCluster) -> set[str]:
    return {path for path in cluster.files() if path.startswith("nimbus/")}


def package(folder: Path, program: str) -> Path:
    code = folder / "package"
    code.mkdir()
    (code / "topology.py").write_text(program)
    return code


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """One message on stderr that has these words, no traceback of ours, status 1."""
    assert result.returncode == 1, result.stderr
    for word in words:
        assert word in result.stderr, f"no {word!r} in:\n{result.stderr}"
    assert result.stderr.count("error: ") <= 1, result.stderr
    assert "squall_cli" not in result.stderr
    assert result.stderr.count("Traceback") <= result.stderr.count("topology.py"), result.stderr


@pytest.mark.parametrize("case", sorted(PROGRAMS))
def test_a_program_that_cannot_be_submitted(cluster: DevCluster, case: str, tmp_path: Path) -> None:
    program, words = PROGRAMS[case]
    result = cluster.storm("jar", package(tmp_path, program), "topology.py", check=False)
    refused(result, *words)
    if case == "entry_that_raises":  # the user's own traceback, and nothing of ours
        assert "topology.py" in result.stderr
        assert "api/squall/_entry.py" not in result.stderr
    else:
        assert "Traceback" not in result.stderr


def test_a_package_that_is_not_an_archive(cluster: DevCluster, tmp_path: Path) -> None:
    path = tmp_path / "package.zip"
    path.write_bytes(b"no archive at all")
    refused(cluster.storm("jar", path, "topology.py", check=False), "package.zip")


def test_a_missing_package(cluster: DevCluster, tmp_path: Path) -> None:
    refused(cluster.storm("jar", tmp_path / "nothing.zip", "topology.py", check=False), "nothing")


def test_a_package_with_a_member_outside_itself(cluster: DevCluster, tmp_path: Path) -> None:
    path = tmp_path / "package.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("topology.py", HEAD + GUARD + "    pass\n")
        archive.writestr("../evil.py", "evil")
    refused(cluster.storm("jar", path, "topology.py", check=False), "evil.py")


def test_a_missing_entry_point(cluster: DevCluster, tmp_path: Path) -> None:
    code = package(tmp_path, HEAD)
    refused(cluster.storm("jar", code, "topology:missing", check=False), "missing")


def test_a_wrong_nimbus_address(cluster: DevCluster, tmp_path: Path) -> None:
    program = HEAD + GUARD + "    submit_topology('bad', {}, make().build())\n"
    code = package(tmp_path, program)
    wrong = [
        "-c",
        "nimbus.thrift.port=1",
        "-c",
        "storm.nimbus.retry.times=1",
        "-c",
        "storm.nimbus.retry.interval.millis=10",
    ]
    refused(storm("jar", *wrong, code, "topology.py"), "localhost:1")
    refused(storm("list", *wrong, "-c", "nimbus.seeds=[nowhere.invalid]"), "nowhere.invalid")
