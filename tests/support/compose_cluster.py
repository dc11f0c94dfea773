"""The cluster of deploy/compose in containers, and what can befall it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.devcluster import ROOT, wait_for
from tests.support.docker_engine import PYTHON_IMAGE, SQUALL_IMAGE, ZOOKEEPER_IMAGE, Docker
from tests.support.ledger import Ledger

_FILES = (
    ROOT / "deploy" / "compose" / "compose.yaml",
    ROOT / "tests" / "compose" / "override.yaml",
)
# Processes of a container whose command line has a word, and their ids in there.
_LIST = """\
import json, os, signal, sys
word, act = sys.argv[1:3]
def words(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\\0")
    except OSError:
        return []
found = [int(p) for p in os.listdir("/proc") if p.isdigit() and word in words(p)]
found = sorted(pid for pid in found if pid != os.getpid())
found = found[:1] if act == "kill-one" else found
for pid in found:
    if act != "list":
        os.kill(pid, signal.SIGKILL)
print(json.dumps(found))
"""


class ComposeCluster:
    """`docker compose` with the files of deploy/compose, under a project name of the test's own."""

    def __init__(
        self, docker: Docker, conf: Mapping[str, Any], prometheus: str | None = None
    ) -> None:
        self.docker = docker
        self.project = f"squalltest{os.getpid()}"
        # By user: a container in which commands are run as documented, but started once.
        self.clients: dict[str, str] = {}
        # JSON is YAML, a key a line.
        site = "\n".join(f"{key}: {json.dumps(value)}" for key, value in conf.items())
        docker.env |= {
            "COMPOSE_PROJECT_NAME": self.project,
            "PYTHON_IMAGE": PYTHON_IMAGE,
            "SQUALL_IMAGE": SQUALL_IMAGE,
            "ZOOKEEPER_IMAGE": ZOOKEEPER_IMAGE,
            "SQUALL_CONF": site,
        }
        if prometheus is not None:
            docker.env["PROMETHEUS_IMAGE"] = prometheus

    @classmethod
    @contextmanager
    def up(
        cls,
        docker: Docker,
        *,
        supervisors: int,
        conf: Mapping[str, Any],
        prometheus: str | None = None,
    ) -> Iterator[ComposeCluster]:
        """Up and healthy; down at the end, volumes too. When the block fails, the ends of all logs
        are printed."""
        cluster = cls(docker, conf, prometheus)
        try:
            cluster.scale(supervisors)
            cluster.start_clients()
            yield cluster
        except BaseException:
            print(cluster.logs())
            raise
        finally:
            for client in cluster.clients.values():
                docker.run("rm", "--force", "--volumes", client, check=False)
            cluster.compose(
                "--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "10"
            )

    def compose(self, *arguments: str | Path, timeout_secs: float = 300.0) -> str:
        files = [word for path in _FILES for word in ("-f", str(path))]
        return self.docker.run("compose", *files, *arguments, timeout_secs=timeout_secs)

    def scale(self, supervisors: int) -> None:
        """`up --wait`, with so many supervisors."""
        self.compose(
            "up", "--detach", "--no-build", "--wait", "--wait-timeout", "280", "--no-recreate",
            "--scale", f"supervisor={supervisors}",
        )  # fmt: skip

    def containers(self, service: str) -> list[str]:
        """The running ones' ids; paused ones too."""
        return self.compose("ps", "-q", service).split()

    def inspect(self, container: str, template: str) -> str:
        return self.docker.run("inspect", "-f", template, container).strip()

    def wait_healthy(self, container: str, timeout_secs: float = 120.0) -> None:
        wait_for(
            "a healthy container",
            lambda: self.inspect(container, "{{.State.Health.Status}}") == "healthy",
            timeout_secs,
            0.5,
        )

    def start_clients(self, *users: str) -> None:
        """Containers with the certificates of these users, besides the administrator's."""
        for user in ("storm", *users):
            if user not in self.clients:
                name = f"{self.project}-{user}"
                self.compose(
                    "run", "--detach", "--name", name, "-e", f"STORM_USER={user}",
                    "wordcount", "sleep", "infinity",
                )  # fmt: skip
                self.clients[user] = name

    def storm(self, *arguments: str, user: str = "storm") -> str:
        """A command of a user's."""
        return self.docker.run("exec", self.clients[user], "storm", *arguments)

    def network(self, name: str = "default") -> str:
        return f"{self.project}_{name}"

    def ca(self) -> str:
        """The certificate of the cluster's CA, in PEM."""
        return self.docker.run("exec", self.clients["storm"], "cat", "/enrol/ca.pem")

    def gateway(self) -> str:
        """This machine's address on the containers' network."""
        return self.docker.run(
            "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", self.network()
        ).strip()

    def published(self, service: str, port: int) -> tuple[str, int]:
        host, _, number = self.compose("port", service, str(port)).strip().rpartition(":")
        return host, int(number)

    def submit_ledger(self, ledger: Ledger, *, workers: int, conf: Mapping[str, Any]) -> None:
        folder = ROOT / "tests" / "topologies" / "ledger"
        self.docker.run("cp", folder, f"{self.clients['storm']}:/tmp/ledger")
        address = f"{ledger.host}:{ledger.port}"
        arguments = ("ledger", address, str(workers), json.dumps(conf))
        self.storm("jar", "/tmp/ledger", "ledger_topology.py", *arguments)

    def processes(self, container: str, word: str, act: str = "list") -> set[int]:
        """Ids, as the container sees them, of the processes with this word in their command line;
        `act` "kill" kills them all with SIGKILL, "kill-one" one of them."""
        python = ("exec", container, "python", "-c", _LIST, word, act)
        # Killed with what it ran for, the container may end before it has answered.
        return set(json.loads(self.docker.run(*python, check=act == "list") or "[]"))

    def workers(self) -> dict[str, set[int]]:
        """The workers' process ids by supervisor's container, those with any only."""
        found = {one: self.processes(one, "squall_worker") for one in self.containers("supervisor")}
        return {one: pids for one, pids in found.items() if pids}

    def workers_per_container(
        self, timeout_secs: float = 120.0, *, total: int
    ) -> dict[str, set[int]]:
        """`workers`, once there are so many in all."""

        def all_there() -> dict[str, set[int]] | None:
            try:
                found = self.workers()
            except AssertionError:  # a container has just ended, or does not run yet
                return None
            return found if sum(map(len, found.values())) == total else None

        return wait_for(f"{total} workers", all_there, timeout_secs, 0.5)

    def logs(self) -> str:
        """The end of every container's output and logs."""
        parts = [self.compose("ps", "--all")]
        for line in self.docker.run(
            "ps", "-a", "--filter", f"label=com.docker.compose.project={self.project}",
            "--format", "{{.Names}}",
        ).split():  # fmt: skip
            parts.append(f"--- {line}\n{self.docker.run('logs', '--tail', '15', line)}")
            tail = "find /logs -type f | xargs -r tail -n 40"
            parts.append(self.docker.run("exec", line, "sh", "-c", tail, check=False))
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", "\n".join(parts))
