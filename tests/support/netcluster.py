"""A cluster of many nodes on one machine, for chaos: three ZooKeeper servers, two Nimbus and three
supervisors with two slots each, every one in a network namespace of its own
(`tests/support/netns.py`). Time-outs are a tenth of the defaults.

    with NetCluster.start(tmp_path) as cluster:
        cluster.storm("list")
        cluster.network.pull("s1")

Nobody but the test starts a daemon again. Leaving the block ends all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.leftovers import processes_of
from tests.support.bugs import bug_environment
from tests.support.devcluster import environment, is_alive, storm, wait_for
from tests.support.live_files import found
from tests.support.netns import Network
from tests.support.wall_clock import WallClocks

from squall_cli.cluster.zookeeper import _JAVA_FLAGS, _LOG_CONFIG, find_classpath, find_java
from squall_common.config.load import default_conf
from squall_common.config.options.typed import ClientOptions

ZOOKEEPERS = ("z1", "z2", "z3")
NIMBUSES = ("n1", "n2")
SUPERVISORS = ("s1", "s2", "s3")
SLOTS = (6700, 6701)

# The node whose local folder is a disk of its own, which is soon full.
SMALL_DISK = "s3"
SMALL_DISK_BYTES = 16 * 1024 * 1024

SESSION_SECS = 2.0

# A tenth of the defaults.
PROFILE: dict[str, Any] = {
    "storm.zookeeper.session.timeout": int(SESSION_SECS * 1000),
    "storm.zookeeper.connection.timeout": 1500,
    "storm.zookeeper.operation.timeout.ms": 1000,
    "storm.zookeeper.retry.interval": 100,
    "storm.zookeeper.retry.intervalceiling.millis": 1000,
    "storm.nimbus.retry.times": 0,
    "nimbus.task.timeout.secs": 5,
    "nimbus.task.launch.secs": 12,
    "nimbus.supervisor.timeout.secs": 6,
    "nimbus.monitor.freq.secs": 1,
    "nimbus.code.sync.freq.secs": 12,
    "supervisor.worker.start.timeout.secs": 12,
    "supervisor.worker.timeout.secs": 3,
    "supervisor.monitor.frequency.secs": 0.3,
    "supervisor.heartbeat.frequency.secs": 0.5,
    "supervisor.assignment.sync.secs": 1,
    # Kills in quick succession are no crash loop.
    "supervisor.worker.min.uptime.secs": 0,
    "task.heartbeat.frequency.secs": 1,
    "task.refresh.poll.secs": 1,
    "topology.message.timeout.secs": 3,
    "storm.security.insecure": True,
}

_ZOO_CFG = """\
tickTime=500
initLimit=40
syncLimit=8
dataDir={folder}
clientPort=2181
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
"""


class NetCluster:
    """Daemons by the name of their node: z1 to z3, n1, n2, s1 to s3."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._bugs: dict[str, str] = {}
        self.network = network
        # One for each node's daemon, and one for all workers.
        self.clocks = WallClocks(folder)
        nodes = (*ZOOKEEPERS, *NIMBUSES, *SUPERVISORS)
        self.addresses = {name: self.network.node(name) for name in nodes}
        self.conf_file = folder / "storm.yaml"
        self.conf_file.write_text(json.dumps(self._client_conf()))  # JSON is YAML
        self._prepare_zookeepers()
        self._small = self.local_dir(SMALL_DISK)
        self._small.mkdir()
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs"]
        subprocess.run([*mounting, str(self._small)], check=True, timeout=30)

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[NetCluster]:
        folder.mkdir(parents=True, exist_ok=True)
        network = Network()
        try:
            cluster = cls(folder, network)
        except BaseException:
            network.close()
            raise
        try:
            cluster.heal()
            yield cluster
        except BaseException:
            sys.stderr.write(cluster.logs())
            raise
        finally:
            cluster.close()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        # Workers are nobody's children when their supervisor was killed.
        deadline = time.monotonic() + 60
        while (left := processes_of(self.folder)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for process in self.processes.values():
            process.wait(60)
        self.network.close()
        subprocess.run(["umount", "-l", str(self._small)], check=True, timeout=30)
        assert not left, f"processes left behind: {left}"

    # Configuration --------------------------------------------------------------------------------

    def _client_conf(self) -> dict[str, Any]:
        return {
            **PROFILE,
            "storm.zookeeper.servers": [self.addresses[name] for name in ZOOKEEPERS],
            "nimbus.seeds": [self.addresses[name] for name in NIMBUSES],
            "storm.local.dir": str(self.folder / "client"),
            "storm.log.dir": str(self.folder / "logs" / "client"),
        }

    def local_dir(self, name: str) -> Path:
        return self.folder / name

    def _daemon_conf(self, name: str) -> dict[str, Any]:
        return {
            **default_conf(),
            **self._client_conf(),
            "storm.local.hostname": self.addresses[name],
            "storm.bind.host": self.addresses[name],
            "storm.local.dir": str(self.local_dir(name)),
            "storm.log.dir": str(self.folder / "logs" / name),
            "supervisor.slots.ports": list(SLOTS),
        }

    def _prepare_zookeepers(self) -> None:
        servers = "".join(
            f"server.{n}={self.addresses[name]}:2888:3888\n"
            for n, name in enumerate(ZOOKEEPERS, start=1)
        )
        for n, name in enumerate(ZOOKEEPERS, start=1):
            folder = self.local_dir(name)
            folder.mkdir()
            (folder / "myid").write_text(str(n))
            own = f"clientPortAddress={self.addresses[name]}\n"
            (folder / "zoo.cfg").write_text(_ZOO_CFG.format(folder=folder) + own + servers)
            (folder / "log4j2.properties").write_text(_LOG_CONFIG)

    # Daemons --------------------------------------------------------------------------------------

    def launch(self, name: str) -> None:
        """Start the daemon of a node, without waiting for it."""
        logs = self.folder / "logs" / name
        logs.mkdir(parents=True, exist_ok=True)
        env = environment()
        if name in self._bugs:
            env |= bug_environment(self._bugs[name], env["PYTHONPATH"])
        env |= self.clocks.environment(name)
        if name in ZOOKEEPERS:
            folder = self.local_dir(name)
            argv = [find_java(), *_JAVA_FLAGS]
            argv += [f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"]
            argv += ["-cp", find_classpath(), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
            argv += [str(folder / "zoo.cfg")]
        else:
            conf = self.folder / f"{name}.json"
            conf.write_text(json.dumps(self._daemon_conf(name)))
            env["SQUALL_DAEMON_CONF"] = str(conf)
            package = "squall_nimbus" if name in NIMBUSES else "squall_supervisor"
            argv = [sys.executable, "-P", "-m", package]
        with (logs / "output").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                self.network.run_in(name, argv),
                env=env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def restart_with(self, name: str, bug: str | None) -> None:
        """Start the daemon of a node anew with a fault of `tests/support/bugs`, or without."""
        self._bugs.pop(name, None)
        if bug is not None:
            self._bugs[name] = bug
        self.signal(name, signal.SIGKILL)
        self.heal()

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[Callable[[], None]]:
        """No byte is left on SMALL_DISK when the block begins, nor after a call of what it gets:
        for what was deleted meanwhile."""
        filler = self._small / "filler"

        def fill() -> None:
            with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    assert filler.stat().st_size <= SMALL_DISK_BYTES

        try:
            fill()
            yield fill
        finally:
            filler.unlink(missing_ok=True)

    def runs(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the daemon of a node; wait for its end if that is SIGKILL."""
        process = self.processes[name]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait(60)

    def heal(self) -> None:
        """Set all clocks right, put all cables back, let what was stopped go on, start what does
        not run, and wait until the cluster is whole."""
        self.clocks.set_right()
        for name in self.addresses:
            self.network.put_back(name)
            if self.runs(name):
                self.signal(name, signal.SIGCONT)
            else:
                self.launch(name)
        for pid in self.worker_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        wait_for("ZooKeeper to serve", lambda: len(self.zookeeper_modes()) == 3, 90)
        wait_for("all supervisors to be known", self.whole, 90, 0.2)

    def whole(self) -> bool:
        """Whether a leader answers, all Nimbus are known, and all supervisors."""
        try:
            summary = self.call("getClusterInfo")
        except Exception:  # whatever keeps it from answering: it is not whole yet
            return False
        return len(summary.supervisors) == 3 and len(summary.nimbuses) == 2

    @contextlib.contextmanager
    def zookeeper(self) -> Iterator[Any]:
        """A KazooClient (which has no types) of the ensemble."""
        from kazoo.client import KazooClient

        hosts = ",".join(f"{self.addresses[name]}:2181" for name in ZOOKEEPERS)
        client = KazooClient(hosts)
        client.start(timeout=20)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def zookeeper_connections(self) -> int:
        """Clients of the ensemble."""
        found = 0
        for name in ZOOKEEPERS:
            for line in self._ask_zookeeper(name).splitlines():
                if line.startswith("Connections: "):
                    found += int(line.removeprefix("Connections: "))
        return found

    def assignment(self, name: str) -> tuple[str, int]:
        """The id of a topology, and how often its assignment was written."""
        topology_id = self.call("getTopologySummaryByName", name).id
        with self.zookeeper() as client:
            return topology_id, client.get(f"/storm/assignments/{topology_id}")[1].version

    def _ask_zookeeper(self, name: str) -> str:
        """What one server says to `srvr`; raises OSError."""
        with socket.create_connection((self.addresses[name], 2181), 1) as connection:
            connection.settimeout(1)
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        return answer.decode(errors="replace")

    def zookeeper_modes(self) -> dict[str, str]:
        """Who serves as what: "leader" or "follower"."""
        modes = {}
        for name in ZOOKEEPERS:
            if not self.runs(name):
                continue
            try:
                answer = self._ask_zookeeper(name)
            except OSError:
                continue
            for line in answer.splitlines():
                if line.startswith("Mode: "):
                    modes[name] = line.removeprefix("Mode: ")
        return modes

    def zookeeper_leader(self) -> str:
        return wait_for(
            "a ZooKeeper leader",
            lambda: next((n for n, m in self.zookeeper_modes().items() if m == "leader"), None),
        )

    def nimbus_leader(self) -> str:
        def find() -> str | None:
            try:
                host = self.call("getLeader").host
            except Exception:  # none yet
                return None
            return next((n for n in NIMBUSES if self.addresses[n] == host), None)

        return wait_for("a Nimbus leader", find, 90)

    # Workers --------------------------------------------------------------------------------------

    def worker_processes(self, node: str | None = None) -> dict[int, str]:
        """The node of each living worker (of one node) by process id."""
        workers = {}
        for pid in processes_of(self.folder):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "squall_worker" not in words or not is_alive(pid):
                continue
            text = " ".join(words)
            for name in SUPERVISORS:
                if f"{self.local_dir(name)}/" in text and node in (None, name):
                    workers[pid] = name
        return workers

    def launches(self) -> int:
        """How many workers were ever started."""
        logs = [self.folder / "logs" / name / "supervisor.log" for name in SUPERVISORS]
        return sum(log.read_bytes().count(b" worker_launched ") for log in logs if log.exists())

    def losses(self) -> int:
        """How often Nimbus has found that executors are dead, and moved them."""
        logs = [self.folder / "logs" / name / "nimbus.log" for name in NIMBUSES]
        return sum(log.read_bytes().count(b" executors_dead ") for log in logs if log.exists())

    def wait_workers(self, count: int, timeout_secs: float = 90.0) -> dict[int, str]:
        return wait_for(
            f"{count} workers",
            lambda: found if len(found := self.worker_processes()) == count else None,
            timeout_secs,
        )

    # What one does with it ------------------------------------------------------------------------

    def storm(
        self, *arguments: str | Path, check: bool = True, timeout_secs: float = 110.0
    ) -> subprocess.CompletedProcess[str]:
        return storm("--config", self.conf_file, *arguments, check=check, timeout_secs=timeout_secs)

    def call(self, method: str, *arguments: Any) -> Any:
        """One Thrift call to the leader (Any: the result is a Thrift struct)."""
        from squall_common.client.nimbus import NimbusClient

        async def ask() -> Any:
            async with asyncio.timeout(10):
                client = await NimbusClient.connect(ClientOptions.read(self._client_conf()))
                async with client:
                    return await client.call(method, *arguments)

        return asyncio.run(ask())

    def logs(self, lines: int = 25) -> str:
        """The ends of all logs, for the report of a failed test."""
        parts = []
        for path in found(self.folder / "logs"):
            if path.is_file() and path.stat().st_size:
                tail = path.read_text(errors="replace").splitlines()[-lines:]
                parts.append(f"--- {path.relative_to(self.folder)}\n" + "\n".join(tail))
        return "\n".join(parts) + "\n"
