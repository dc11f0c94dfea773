"""A topology's life on a real cluster: exact counts, pause, rebalance, end."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, storm, wait_empty, wait_for
from tests.support.effort import SOAK
from tests.support.ledger import Ledger, text
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.integration

CYCLES = 20 if SOAK else 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("life")
    # The site's own secrets, in the configuration of every daemon.
    canaries = ("my.plugin.password=CANARY", "site.zookeeper.password=CANARY")
    with DevCluster.start(folder, supervisors=2, slots=2, overrides=canaries) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_topology_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_word_is_counted_exactly_once_when_nothing_fails(
    cluster: DevCluster, workers: int
) -> None:
    with Ledger(text(30_000)) as ledger:
        submit_ledger(cluster, ledger, workers=workers)
        ledger.wait_done(timeout_secs=90)
        cluster.worker_pids(workers)
        ledger.check()
        assert ledger.duplicates() == 0
        assert ledger.fails == 0
        assert ledger.acks == len(ledger.lines)
        assert "has reported no errors" in cluster.storm("get-errors", "ledger").stderr


def test_deactivated_spouts_are_silent_until_they_are_activated(cluster: DevCluster) -> None:
    with Ledger(text(30_000)) as ledger:
        ledger.serve_up_to(100)
        submit_ledger(cluster, ledger)
        ledger.wait_done(100, timeout_secs=60)
        cluster.storm("deactivate", "ledger")
        assert cluster.topologies()["ledger"]["status"] == "INACTIVE"
        asked = _wait_still(ledger)
        ledger.serve_up_to(None)
        cluster.storm("activate", "ledger")
        assert cluster.topologies()["ledger"]["status"] == "ACTIVE"
        ledger.wait_done(timeout_secs=60)
        assert ledger.asked > asked
        ledger.check()


def _wait_still(ledger: Ledger) -> int:
    """How often the spouts asked for lines, once they have not for a second: an active spout that
    has none asks twenty times a second."""
    seen: list[int] = []

    def still() -> int | None:
        seen.append(ledger.asked)
        return seen[-1] if len(seen) > 5 and len(set(seen[-6:])) == 1 else None

    return wait_for("the spouts to be silent", still, 60, poll_secs=0.2)


CYCLE = """
import pathlib
import sys

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Once(Spout):
    outputs = ["left"]

    def open(self, conf, context):
        self.sent = False

    def next_tuple(self):
        if not self.sent:
            self.sent = True
            self.emit([5], message_id=1)


class Down(Bolt):
    outputs = ["left"]

    def __init__(self, file):
        self.file = file

    def execute(self, tup):
        with open(self.file, "a") as file:
            file.write(f"{tup['left']} ")
        if tup["left"]:
            self.emit([tup["left"] - 1])


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("once", Once())
    builder.bolt("down", Down(sys.argv[1])).shuffle("once").shuffle("down")
    submit_topology("cycle", {}, builder.build())
"""


def test_a_topology_may_have_a_cycle(cluster: DevCluster, tmp_path: Path) -> None:
    package, seen = tmp_path / "package", tmp_path / "seen"
    package.mkdir()
    (package / "cycle.py").write_text(CYCLE)
    cluster.storm("jar", package, "cycle.py", seen)
    wait_for("the last turn", lambda: seen.exists() and seen.read_text() == "5 4 3 2 1 0 ")


SPY = """
import json
import os
import sys
from pathlib import Path

from squall import Spout, TopologyBuilder, submit_topology


class Spy(Spout):
    def __init__(self, out):
        self.out = out

    def open(self, conf, context):
        found = {"conf": conf, "environment": dict(os.environ)}
        launched = Path("launch.json").parent.resolve()
        code = Path(json.loads(Path("launch.json").read_text())["stormdist"])
        for folder in (launched, code):
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    found[str(path)] = path.read_bytes().decode("latin-1")
        Path(self.out + ".new").write_text(json.dumps(found))
        os.rename(self.out + ".new", self.out)

    def next_tuple(self):
        pass


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("spy", Spy(sys.argv[1]))
    submit_topology("spy", {"my.key": "mine"}, builder.build())
"""


def test_the_secrets_of_a_site_do_not_reach_a_topology(cluster: DevCluster, tmp_path: Path) -> None:
    """Seen from inside a worker: its configuration, its environment, its files."""
    package, out = tmp_path / "package", tmp_path / "seen"
    package.mkdir()
    (package / "spy.py").write_text(SPY)
    daemon_conf = cluster.data_dir / "supervisor-1" / "daemon-conf.json"
    assert "CANARY" in daemon_conf.read_text()
    cluster.storm("jar", package, "spy.py", out)
    seen = json.loads(wait_for("the spy", lambda: out.exists() and out.read_text()))
    assert [where for where, text in seen.items() if "CANARY" in str(text)] == []
    assert any(where.endswith("/launch.json") for where in seen)
    conf = seen["conf"]
    assert conf["my.key"] == "mine"
    assert conf["topology.name"] == "spy"
    assert conf["storm.zookeeper.port"] == cluster.state()["zookeeper"]["port"]
    assert {"storm.local.dir", "nimbus.seeds", "drpc.servers"} <= conf.keys()
    of_the_test = {str(cluster.data_dir / "storm-dev.err")}
    assert set(_open_to_others(cluster.data_dir)) <= of_the_test


def _open_to_others(folder: Path) -> list[str]:
    """Files that others could read if they could enter the folder."""
    found = []
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            found += _open_to_others(path) if mode & 0o055 else []
        elif stat.S_ISREG(mode) and mode & 0o077:
            found.append(str(path))
    return found


def test_a_live_name_is_refused_and_the_running_topology_untouched(cluster: DevCluster) -> None:
    with Ledger(text(1_000)) as ledger:
        submit_ledger(cluster, ledger)
        topology_id = cluster.topologies()["ledger"]["id"]
        znodes = {path for path in cluster.znodes() if "workerbeats" not in path}
        again = cluster.storm(
            "jar",
            "tests/topologies/ledger",
            "ledger_topology.py",
            "ledger",
            str(ledger.port),
            "1",
            check=False,
        )
        assert again.returncode == 1
        assert "ledger" in again.stderr
        assert "already" in again.stderr
        assert "Traceback" not in again.stderr
        assert cluster.topologies()["ledger"]["id"] == topology_id
        assert {path for path in cluster.znodes() if "workerbeats" not in path} == znodes


@pytest.mark.parametrize("command", ["kill", "activate", "deactivate", "rebalance", "get-errors"])
def test_an_unknown_name_is_refused(cluster: DevCluster, command: str) -> None:
    result = cluster.storm(command, "nobody", check=False)
    assert result.returncode == 1
    assert "nobody" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_many_submits_and_kills_leave_nothing_behind(cluster: DevCluster) -> None:
    with Ledger(text(200)) as ledger:

        def cycle(number: int) -> None:
            submit_ledger(cluster, ledger, name=f"cycle{number}")
            cluster.worker_pids(1)
            cluster.kill(f"cycle{number}")
            cluster.wait_gone(f"cycle{number}")

        cycle(0)  # what the first one makes and every later one uses
        wait_empty("workers", cluster.worker_pids)
        wait_empty("files", lambda: [file for file in cluster.files() if "cycle0" in file])
        before_znodes, before_files = cluster.znodes(), daemon_files(cluster)
        for number in range(1, CYCLES + 1):
            cycle(number)
        wait_empty("workers", cluster.worker_pids)
        wait_empty("znodes", lambda: cluster.znodes() - before_znodes)
        wait_empty("files", lambda: daemon_files(cluster) - before_files, 60)
        slots = [port for s in cluster.state()["supervisors"] for port in s["slots"]]
        from squall_common.daemon.ports import port_is_free

        assert all(map(port_is_free, slots))


def daemon_files(cluster: DevCluster) -> set[str]:
    """Without ZooKeeper's own log and snapshots, which it keeps as it likes, and without uploads,
    which may be submitted again until they expire."""
    elsewhere = ("zookeeper/", "nimbus/nimbus/inbox/")
    return {path for path in cluster.files() if not path.startswith(elsewhere)}


_MODES = """
import os, time
from squall import Bolt, Spout, TopologyBuilder, submit_topology

class Ticks(Spout):
    outputs = ["n"]
    def next_tuple(self):
        time.sleep(0.05)
        self.emit([1])

class Ends(Bolt):
    def __init__(self, mode):
        self.mode = mode
    def prepare(self, conf, context):
        if self.mode == "raises":
            raise ValueError("no database here")
    def execute(self, tup):
        if self.mode == "exits":
            os._exit(3)

def main(argv):
    builder = TopologyBuilder()
    builder.spout("ticks", Ticks())
    builder.bolt("ends", Ends(argv[1])).shuffle("ticks")
    submit_topology(argv[0], {"topology.workers": int(argv[2])}, builder.build())
"""


def test_a_submit_waits_until_its_topology_runs_or_says_why_it_does_not(
    cluster: DevCluster, tmp_path: Path
) -> None:
    (tmp_path / "modes.py").write_text(_MODES)
    conf = ("--config", cluster.conf_file)

    def jar(wait: str, name: str, mode: str, workers: int) -> subprocess.CompletedProcess[str]:
        return storm("jar", *conf, wait, tmp_path, "modes:main", name, mode, str(workers))

    def health(name: str) -> str:
        return str(cluster.topologies()[name]["health"])

    made = jar("--wait", "fine", "fine", 4)
    assert made.returncode == 0, made.stderr
    assert "every task of topology 'fine' is running" in made.stderr
    assert health("fine") == "ok"

    made = jar("--wait=1", "second", "fine", 1)
    assert made.returncode == 1
    assert "does not run after 1 s: no free slot" in made.stderr
    assert health("second") == "no free slot"

    cluster.kill_all()
    made = jar("--wait", "raises", "raises", 1)
    assert made.returncode == 1
    assert "'raises' does not run: crash loop" in made.stderr
    assert "ValueError: no database here" in made.stderr

    # One that starts well, and ends at its first tuple.
    jar("--wait", "exits", "exits", 1)
    wait_for("the loop to be noticed", lambda: health("exits") == "crash loop", 60)
    ended = cluster.topologies()["exits"]["last_exit"]
    assert ended["reason"] == "exited with status 3"
