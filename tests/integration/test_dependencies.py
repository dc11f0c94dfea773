"""Topologies that bring dependencies, on a real cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, fresh_name, wait_empty, wait_for
from tests.support.effort import SOAK
from tests.support.live_files import found
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.integration

# From a submit to the supervisor's death.
PAUSES_SECS = (0.0, 0.1, 0.2, 0.3, 0.5) if SOAK else (0.0, 0.2)

JOB = '''
import subprocess
import sys

import onelib
from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Ticks(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.n = 0

    def next_tuple(self):
        self.n += 1
        self.emit([self.n])


class Note(Bolt):
    """Writes which version this worker, and a child of its own, import."""

    def __init__(self, path):
        self.path = path

    def prepare(self, conf, context):
        child = [sys.executable, "-c", "import onelib; print(onelib.VERSION)"]
        said = subprocess.run(child, capture_output=True, text=True).stdout.strip()
        program = subprocess.run(["say-one"], capture_output=True, text=True).stdout.strip()
        with open(self.path, "w") as file:
            file.write(f"{onelib.VERSION} {said} {program}")

    def execute(self, tup):
        pass


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("ticks", Ticks())
    builder.bolt("note", Note(sys.argv[2])).shuffle("ticks")
    submit_topology(sys.argv[1], {}, builder.build())
'''


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("dependencies")
    with DevCluster.start(folder, supervisors=1, slots=3) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_topology_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()
    wait_empty("environments that nobody uses", lambda: environments(cluster), 60)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    return folder


def one(tmp_path: Path, version: str) -> Path:
    """A folder with one version of the library, which no other try has uploaded."""
    code = f"VERSION = {version!r}\n\n\ndef main():\n    print(VERSION)\n"
    files = {"onelib.py": f"# {fresh_name('try')}\n{code}"}
    folder = tmp_path / f"wheels-{version}"
    make_wheel(folder, "onelib", version, files=files, scripts={"say-one": "onelib:main"})
    return folder


def environments(cluster: DevCluster) -> list[str]:
    return [path.name for path in found(cluster.data_dir, "supervisor/environments/*")]


def supervisor_pid(cluster: DevCluster) -> int:
    (supervisor,) = cluster.state()["supervisors"]
    return int(supervisor["pid"])


def test_two_versions_of_a_project_run_on_one_node(
    cluster: DevCluster, package: Path, tmp_path: Path
) -> None:
    said = {}
    for version in ("1.0", "2.0"):
        wheels = one(tmp_path, version)
        note = tmp_path / f"note-{version}"
        name = f"job{version[0]}"
        done = cluster.storm("jar", "--wheels", wheels, package, "job", name, note)
        assert "uploading wheel 1 of 1: onelib" in done.stderr
        said[version] = wait_for(
            f"{name} to run", lambda note=note: note.exists() and note.read_text(), 60
        )
    assert said == {"1.0": "1.0 1.0 1.0", "2.0": "2.0 2.0 2.0"}
    wait_for("two environments", lambda: len(environments(cluster)) == 2)
    # The same again: nothing is uploaded, and the environment is shared.
    note = tmp_path / "again"
    done = cluster.storm("jar", "--wheels", wheels, package, "job", "again", note)
    assert "the cluster has the wheel already" in done.stderr
    wait_for("it to run", lambda: note.exists() and note.read_text() == "2.0 2.0 2.0", 60)
    assert len(environments(cluster)) == 2
    # The last that uses an environment takes it along.
    for name in ("job1", "job2"):
        cluster.storm("kill", name, "-w", "0")
    wait_for("one environment to go", lambda: len(environments(cluster)) == 1, 60)
    cluster.storm("kill", "again", "-w", "0")
    wait_for("the other to go", lambda: not environments(cluster), 60)
    for name in ("job1", "job2", "again"):
        cluster.wait_gone(name)


def test_missing_or_wrong_dependencies_fail_before_anything_runs(
    cluster: DevCluster, package: Path, tmp_path: Path
) -> None:
    lacking = tmp_path / "lacking"
    make_wheel(lacking, "onelib", requires=["twolib"])
    foreign = tmp_path / "foreign"
    make_wheel(foreign, "onelib", tag="cp311-cp311-win_amd64")
    spoiled = tmp_path / "spoiled"
    make_wheel(spoiled, "onelib", spoil="onelib.py")
    for folder, message in (
        (lacking, "onelib-1.0-py3-none-any.whl requires twolib"),
        (foreign, "onelib-1.0-cp311-cp311-win_amd64.whl does not run on the cluster"),
        (spoiled, "onelib-1.0-py3-none-any.whl is damaged"),
        (tmp_path / "none", "there is no folder"),
    ):
        done = cluster.storm(
            "jar", "--wheels", folder, package, "job", "bad", tmp_path / "x", check=False
        )
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    # Without them the client's check finds it.
    done = cluster.storm("jar", package, "job", "bad", tmp_path / "x", check=False)
    assert done.returncode == 1
    assert "onelib" in done.stderr
    assert "bad" not in cluster.topologies()


def test_a_supervisor_killed_during_a_build_leaves_nothing_half_done(
    cluster: DevCluster, package: Path, tmp_path: Path
) -> None:
    """Kill -9 at several moments after a submit: whatever it finds afterwards, the topology runs,
    and exactly its environment is there."""
    big = {f"big/m{n}.py": f"X = {n}\n" * 200 for n in range(1500)}
    for number, pause in enumerate(PAUSES_SECS):
        wheels = one(tmp_path, f"3.{number}")
        make_wheel(wheels, "big", f"1.{number}", files=big)
        note = tmp_path / f"killed-{number}"
        name = f"killed{number}"
        cluster.storm("jar", "--wheels", wheels, package, "job", name, note)
        time.sleep(pause)  # which moment it hits is not essential
        os.kill(supervisor_pid(cluster), signal.SIGKILL)
        wait_for("it to run", lambda note=note: note.exists() and note.read_text(), 90)
        wait_for("one environment", lambda: len(environments(cluster)) == 1)
        cluster.storm("kill", name, "-w", "0")
        wait_for("it to go", lambda: not environments(cluster), 60)
        cluster.wait_gone(name)
