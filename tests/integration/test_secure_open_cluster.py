"""`storm admin secure`: a running open cluster becomes a secured one, with kills; nothing is lost.

Real processes: ZooKeeper, two Nimbus, a supervisor, two workers of a topology under load.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.leftovers import processes_of
from tests.support.devcluster import STORM, environment, is_alive, storm, wait_dead, wait_for
from tests.support.effort import SOAK
from tests.support.ledger import Ledger, text
from tests.support.submit import LEDGER
from tests.support.zookeeper import own_zookeeper  # noqa: F401

from squall_cli.cluster.zookeeper import DevZooKeeper
from squall_common.daemon.ports import free_ports

# It takes a minute and a half, most of it the starts of daemons.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not SOAK, reason="in make soak"),
]

NODE = "node-1"
QUICK = {
    "storm.zookeeper.session.timeout": 4000,
    "nimbus.monitor.freq.secs": 1,
    "nimbus.task.timeout.secs": 20,
    "supervisor.monitor.frequency.secs": 0.3,
    "storm.nimbus.retry.times": 20,
    "storm.local.hostname": "127.0.0.1",
}


class Machine:
    """A cluster whose daemons are started by hand, open or secured."""

    def __init__(self, folder: Path, zookeeper: DevZooKeeper) -> None:
        self.folder = folder
        self.ca = folder / "ca"
        ports = free_ports(5)
        self.nimbuses = dict(zip(("n1", "n2"), ports[:2], strict=True))
        self.common = {
            **QUICK,
            "storm.zookeeper.servers": [zookeeper.host],
            "storm.zookeeper.port": zookeeper.port,
            "nimbus.seeds": [f"127.0.0.1:{port}" for port in self.nimbuses.values()],
            "storm.log.dir": str(folder / "logs"),
        }
        self.supervisor = {
            "supervisor.slots.ports": ports[2:4],
            "supervisor.thrift.port": ports[4],
            "supervisor.workers.share.user": True,
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *, certificate: str | None = None) -> None:
        """Start a daemon, with a certificate of the folder `issued` if the cluster is secured."""
        conf: dict[str, Any] = {**self.common, "storm.local.dir": str(self.folder / name)}
        if name in self.nimbuses:
            kind = "nimbus"
            conf["nimbus.thrift.port"] = self.nimbuses[name]
            conf["nimbus.admins"] = ["admin"]
        else:
            kind = "supervisor"
            conf |= self.supervisor
        if certificate is not None:
            stem = self.ca / "issued" / f"{kind}-{certificate}"
            conf |= self.proof(stem)
        elif kind == "supervisor":
            conf["storm.id"] = NODE
        with (self.folder / f"{name}.out").open("ab") as output:
            self.running[name] = subprocess.Popen(
                [*STORM, kind, "--config", self.yaml(name, conf)],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def proof(self, stem: Path) -> dict[str, str]:
        return {
            "storm.security.ca": str(self.ca / "ca.pem"),
            "storm.security.certificate": f"{stem}.pem",
            "storm.security.key": f"{stem}.key",
        }

    def yaml(self, name: str, conf: dict[str, Any]) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(conf))
        return file

    def kill(self, *names: str) -> None:
        for name in names:
            process = self.running.pop(name)
            process.kill()
            process.wait(30)

    def storm(self, *arguments: str | Path, user: str | None = None, check: bool = True) -> Any:
        conf = dict(self.common)
        if user is not None:
            stem = self.folder / "people" / f"user-{user}"
            if not stem.with_suffix(".pem").exists():
                issued = ("admin", "ca", "issue", "user", user, "--dir", self.ca)
                storm(*issued, "--out", stem.parent, check=True)
            conf |= self.proof(stem)
        file = self.yaml(f"client-{user}", conf)
        return storm(*arguments[:1], *self.placed(arguments[1:], file), check=check)

    @staticmethod
    def placed(arguments: tuple[str | Path, ...], file: Path) -> list[str | Path]:
        """With --config behind the subcommands."""
        words = list(arguments)
        at = 2 if words[:1] == ["secure"] else 0
        return [*words[:at], "--config", file, *words[at:]]

    def secure(self, *arguments: str | Path, check: bool = True) -> Any:
        return self.storm("admin", "secure", *arguments, "--dir", self.ca, check=check)

    def workers(self) -> set[int]:
        found = processes_of(self.folder)
        return {pid for pid, words in found.items() if "squall_worker" in words}

    def logs(self) -> str:
        parts = [path.read_text()[-3000:] for path in sorted(self.folder.glob("*.out"))]
        parts += [path.read_text()[-6000:] for path in sorted((self.folder / "logs").glob("*.log"))]
        return "\n".join(parts)


@pytest.fixture
def machine(tmp_path: Path, own_zookeeper: DevZooKeeper) -> Iterator[Machine]:  # noqa: F811
    machine = Machine(tmp_path, own_zookeeper)
    try:
        yield machine
    finally:
        print(machine.logs())  # shown when the test has failed
        machine.kill(*list(machine.running))
        left = processes_of(tmp_path / "s1")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_dead(*left)


def test_an_open_cluster_becomes_a_secured_one_and_its_workers_run_on(machine: Machine) -> None:
    for name in ("n1", "n2", "s1"):
        machine.start(name)
    with Ledger(text(200_000)) as ledger:
        ledger.pace(200)
        port, conf = str(ledger.port), {"topology.message.timeout.secs": 8}
        machine.storm("jar", LEDGER, "ledger_topology.py", "ledger", port, "2", json.dumps(conf))
        ledger.wait_done(100, timeout_secs=90)
        workers = machine.workers()
        assert len(workers) == 2

        # Listed, with an owner.
        storm("admin", "ca", "init", "prod", "--dir", machine.ca, check=True)
        assert "whose is it?" in machine.secure("begin").stderr
        refused = machine.secure("confirm", check=False)
        assert "Nimbus still runs" in refused.stderr
        machine.secure("begin", "--owner", "ledger=alice")

        # Confirmed, without Nimbus. Each command may be repeated.
        machine.kill("n1", "n2")
        wait_for(
            "both sessions to end",
            lambda: machine.secure("confirm", check=False).returncode == 0,
            60,
            0.5,
        )
        machine.secure("confirm")
        assert machine.secure("status", check=False).returncode == 1

        # The supervisor, then Nimbus; one is killed while it may be taking over.
        machine.kill("s1")
        machine.start("s1", certificate=NODE)
        host = "127.0.0.1"
        machine.start("n1", certificate=host)
        log = machine.folder / "logs" / "nimbus.log"
        wait_for("a leader", lambda: log.read_text().count("leadership_gained") >= 2, 60, 0.05)
        machine.kill("n1")
        machine.start("n2", certificate=host)
        wait_for(
            "the takeover", lambda: machine.secure("status", check=False).returncode == 0, 60, 0.5
        )
        machine.start("n1", certificate=host)

        [listed] = json.loads(machine.storm("list", "--json", user="alice").stdout)
        assert (listed["name"], listed["owner"], listed["status"]) == ("ledger", "alice", "ACTIVE")
        assert json.loads(machine.storm("list", "--json", user="eve").stdout) == []
        stranger = machine.storm("list", "-c", "storm.nimbus.retry.times=0", check=False)
        assert stranger.returncode == 1
        ledger.watch(16)
        ledger.wait_watched(90)
        assert machine.workers() == workers  # they have run on

        # What is launched now belongs to the secured cluster, and talks to the one that ran on.
        killed = min(workers)
        os.kill(killed, signal.SIGKILL)
        wait_for("another worker", lambda: len(machine.workers() - {killed}) == 2, 60, 0.2)
        ledger.watch(16)
        ledger.wait_watched(90)
        assert max(workers) in machine.workers()  # it has not ended for the new one

        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=90)
        ledger.check()
        machine.storm("kill", "ledger", "-w", "0", "--wait", user="alice")
    wait_for("no worker", lambda: not machine.workers(), 60, 0.2)
    assert machine.secure("status").returncode == 0
    refused = machine.secure("begin", check=False)
    assert "this cluster is secured" in refused.stderr
    assert all(is_alive(one.pid) for one in machine.running.values())
