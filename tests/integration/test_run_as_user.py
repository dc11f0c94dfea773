"""Workers of two users on one node: each reads and writes what is its own, and nothing else.

Needs root, two users that every machine has, and a Python that these can run."""

from __future__ import annotations

import json
import os
import pwd
import signal
import site
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import (
    ROOT,
    DevCluster,
    environment,
    fresh_name,
    is_alive,
    wait_dead,
    wait_for,
)
from tests.support.live_files import found
from tests.support.others import folder_for_others, missing, python_for_others

from squall_supervisor.confine.users import first_closed

PYTHON = python_for_others() or ""
BLUE, RED = "nobody", "games"


def _missing() -> str:
    if not PYTHON:
        return "no Python of this version that other users can run"
    try:
        ids = {pwd.getpwnam(name).pw_uid for name in (BLUE, RED)}
    except KeyError as error:
        return f"this machine lacks a user: {error}"
    return "" if len(ids) == 2 else f"{BLUE} and {RED} are one user"


pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run workers as other users"),
]

TOPOLOGY = '''
import json
import os
import pathlib
import subprocess
import sys

from squall import Bolt, ShellBolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.n = 0

    def next_tuple(self):
        self.n += 1
        self.emit([self.n], message_id=self.n)


def attempt(path):
    """What this user can do with a path."""
    path = pathlib.Path(path)
    try:
        if path.is_dir():
            return f"listed {len(os.listdir(path))}"
        return f"read {len(path.read_bytes())}"
    except OSError as error:
        return type(error).__name__


class Prober(Bolt):
    """Says who it is, and tries what the file "order" names, in its folder."""

    outputs = []

    def prepare(self, conf, context):
        self.count = 0
        child = subprocess.run(["id", "-u"], capture_output=True, text=True)
        self.about = {
            "uids": [*os.getresuid()], "groups": os.getgroups(), "pid": os.getpid(),
            "cwd": os.getcwd(), "home": os.environ["HOME"], "user": os.environ["USER"],
            "code": str(pathlib.Path(__file__).parent), "child": int(child.stdout),
            "blob": pathlib.Path("data.txt").read_text(),
            "blob_path": os.path.realpath("data.txt"),
        }

    def execute(self, tup):
        self.count += 1
        if self.count % 50:
            return
        if os.path.exists("order"):
            paths = json.loads(pathlib.Path("order").read_text())
            os.rename("order", "order.done")
            self.about["tried"] = {path: attempt(path) for path in paths}
        self.about["count"] = self.count
        pathlib.Path("about.part").write_text(json.dumps(self.about))
        os.rename("about.part", "about")


if __name__ == "__main__":
    name, user, blob = sys.argv[1:]
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("prober", Prober()).shuffle("numbers")
    conf = {
        "topology.workers": 1, "topology.max.spout.pending": 50,
        "topology.run.as.user": user,
        "topology.blobstore.map": {blob: {"localname": "data.txt"}},
    }
    submit_topology(name, conf, builder.build())
'''


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if (closed := first_closed(ROOT)) is not None:
        pytest.skip(f"other users cannot reach this checkout: they may not enter {closed}")
    if reason := _missing():
        missing(reason)
    with folder_for_others() as folder:
        yield folder


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[DevCluster]:
    key = "supervisor.run.worker.as.user"
    overrides = (f"{key}=true", f"{key}.choices=[{BLUE}, {RED}, root]", f"{key}.min.uid=1")
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *site.getsitepackages()])
    if python_sites := [p for p in _site_packages() if p not in env["PYTHONPATH"]]:
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *python_sites])
    # root is no choice that a supervisor takes.
    refused = DevCluster.start(
        folder / fresh_name("refused"), slots=1, overrides=overrides, python=PYTHON, env=env
    )
    with pytest.raises(AssertionError, match="workers are not run as root"), refused:
        pytest.fail("it started")
    overrides = (overrides[0], f"{key}.choices=[{BLUE}, {RED}]", overrides[2])
    with DevCluster.start(
        folder / fresh_name("cluster"), slots=3, overrides=overrides, python=PYTHON, env=env
    ) as cluster:
        yield cluster
        cluster.kill_all()


def _site_packages() -> list[str]:
    """Of what these tests run with, which the system's Python does not look at."""
    import msgspec

    return [str(Path(msgspec.__file__).parent.parent)]


def submit(cluster: DevCluster, folder: Path, kind: str, user: str) -> str:
    """Submit a topology with a blob, under a name of its own, which is returned."""
    cluster.kill_all(kind)  # one of an earlier try has a slot that this one needs
    name = fresh_name(kind)
    blob = folder / f"{name}.txt"
    blob.write_text(f"the data of {name}")
    cluster.storm("blobstore", "create", f"{name}-data", "-f", blob)
    package = folder / name
    package.mkdir()
    (package / "prober.py").write_text(TOPOLOGY)
    cluster.storm("jar", package, "prober.py", name, user, f"{name}-data")
    return name


class Prober:
    def __init__(self, cluster: DevCluster, folder: Path, kind: str, user: str) -> None:
        self.name = submit(cluster, folder, kind, user)
        self.cluster = cluster
        self.user = pwd.getpwnam(user)

    def worker_dir(self) -> Path | None:
        for words in self.cluster.worker_processes().values():
            if words[0].startswith(f"{self.name}-"):
                return Path(words[4]).parent
        return None

    def worker_pid(self) -> int:
        workers = self.cluster.worker_processes().items()
        return next(pid for pid, words in workers if words[0].startswith(f"{self.name}-"))

    def read(self) -> dict[str, Any] | None:
        worker_dir = self.worker_dir()
        if worker_dir is None:
            return None
        try:
            about: dict[str, Any] = json.loads((worker_dir / "about").read_text())
        except FileNotFoundError:  # it has not spoken yet, or has just ended
            return None
        return about

    @property
    def about(self) -> dict[str, Any]:
        return wait_for(f"{self.name} to speak", self.read, 60.0)

    def attempt(self, paths: list[str]) -> dict[str, str]:
        worker_dir = self.worker_dir()
        assert worker_dir is not None
        (worker_dir / "order.part").write_text(json.dumps(paths))
        for name in ("order.part",):
            os.chown(worker_dir / name, self.user.pw_uid, self.user.pw_gid)
        (worker_dir / "order.part").rename(worker_dir / "order")

        def tried() -> dict[str, str] | None:
            found: dict[str, str] = self.about.get("tried", {})
            return found if found.keys() == set(paths) else None

        return wait_for("the attempts", tried)


@pytest.fixture(scope="module")
def blue(cluster: DevCluster, folder: Path) -> Prober:
    return Prober(cluster, folder, "blue", BLUE)


@pytest.fixture(scope="module")
def red(cluster: DevCluster, folder: Path) -> Prober:
    return Prober(cluster, folder, "red", RED)


def test_a_worker_and_its_children_are_its_users(blue: Prober, red: Prober) -> None:
    for one in (blue, red):
        uid, about = one.user.pw_uid, one.about
        assert about["uids"] == [uid, uid, uid]
        assert about["child"] == uid
        assert 0 not in about["groups"]
        assert (about["home"], about["user"]) == (one.user.pw_dir, one.user.pw_name)
        assert about["blob"] == f"the data of {one.name}"
        worker_dir = one.worker_dir()
        assert worker_dir is not None
        found = worker_dir.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (uid, 0o700)
        # What the supervisor believes later stays its own.
        assert (worker_dir / "worker.json").stat().st_uid == 0


def test_neither_can_read_the_others_files(cluster: DevCluster, blue: Prober, red: Prober) -> None:
    def places(one: Prober) -> list[str]:
        about = one.about
        (log,) = found(cluster.data_dir, f"workers-artifacts/{one.name}-*/*/worker.log")
        code = Path(about["code"])
        inner = [about["cwd"], f"{about['cwd']}/launch.json", about["code"]]
        inner += [f"{about['code']}/prober.py", str(code.parent / "stormconf.ser")]
        return [*inner, about["blob_path"], str(log), str(log.parent)]

    for one, other in ((blue, red), (red, blue)):
        mine = one.attempt(places(one))
        assert all(said.startswith(("listed", "read")) for said in mine.values()), mine
        theirs = one.attempt(places(other))
        assert set(theirs.values()) == {"PermissionError"}, theirs
    (state,) = found(cluster.data_dir, "localstate")
    daemons = [str(state), str(state.parent), str(found(cluster.data_dir, "worker.json")[0])]
    assert set(blue.attempt(daemons).values()) == {"PermissionError"}


def test_a_supervisor_that_was_killed_adopts_them_and_ends_them(
    cluster: DevCluster, blue: Prober, red: Prober
) -> None:
    pids = [one.about["pid"] for one in (blue, red)]
    (log,) = found(cluster.data_dir / "logs", "supervisor.log")
    adopted = log.read_text().count("worker_adopted")
    (before,) = cluster.state()["supervisors"]
    os.kill(before["pid"], signal.SIGKILL)

    def another() -> bool:
        found = cluster.state()["supervisors"]
        return bool(found) and found[0]["pid"] not in (None, before["pid"])

    wait_for("another supervisor", another, 60.0)
    wait_for("both to be adopted", lambda: log.read_text().count("worker_adopted") >= adopted + 2)
    assert [one.about["pid"] for one in (blue, red)] == pids
    assert all(map(is_alive, pids))
    os.kill(pids[0], signal.SIGKILL)
    wait_for("blue to be started again", lambda: blue.about["pid"] != pids[0], 60.0)
    assert blue.about["uids"][0] == blue.user.pw_uid
    assert red.about["pid"] == pids[1]


def test_links_and_pipes_in_a_workers_folder_lead_the_supervisor_nowhere(
    cluster: DevCluster, blue: Prober, red: Prober, folder: Path
) -> None:
    """What a user can do to its own worker's folder: the worker ends, at worst."""
    worker_dir, pid = red.worker_dir(), red.about["pid"]
    assert worker_dir is not None
    victim = folder / "victim"
    victim.write_text("root's")
    victim.chmod(0o600)
    code = f"""
import os, shutil
os.chdir({str(worker_dir)!r})
for name in ("worker.json", "heartbeat", "blobs.json", "launch.json"):
    os.rename(name, name + ".old") if os.path.exists(name) else None
os.symlink({str(victim)!r}, "worker.json")
os.mkfifo("heartbeat")
os.mkfifo("launch.json")
os.symlink({str(victim)!r}, "blobs.json")
shutil.rmtree("pids")
os.symlink("/proc", "pids")
deep = "d"
for _ in range(1200):
    os.mkdir(deep); os.chdir(deep)
"""
    done = subprocess.run(
        [PYTHON, "-I", "-S", "-c", code], user=red.user.pw_uid, group=red.user.pw_gid,
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    blue_pid = blue.worker_pid()
    (supervisor,) = cluster.state()["supervisors"]
    os.kill(supervisor["pid"], signal.SIGKILL)
    # The next one does not believe the folder: it ends that worker and starts another.
    wait_for("red to be started again", lambda: red_pid(red) not in (None, pid), 90.0)
    wait_dead(pid)
    assert victim.read_text() == "root's"
    assert (victim.stat().st_uid, stat.S_IMODE(victim.stat().st_mode)) == (0, 0o600)
    assert blue.worker_pid() == blue_pid
    (after,) = cluster.state()["supervisors"]
    assert is_alive(after["pid"])


def red_pid(red: Prober) -> int | None:
    try:
        about = red.read()
    except (OSError, ValueError):
        return None
    return None if about is None else int(about["pid"])


def test_a_user_that_was_not_offered_is_refused_with_the_reason(
    cluster: DevCluster, folder: Path
) -> None:
    name = submit(cluster, folder, "mallory", "root")

    def reported() -> str | None:
        shown = json.loads(cluster.storm("get-errors", name, "--json").stdout)
        said = str(shown["Comp-Errors"].get("__system", ""))
        return said or None

    said = wait_for("the reason to be shown", reported, 60.0)
    assert "asks to run as 'root'" in said
    assert "supervisor.run.worker.as.user.choices" in said
    assert not any(w[0].startswith(f"{name}-") for w in cluster.worker_processes().values())
