"""`python -m squall_supervisor` as its operator has it: a process, signals, a real ZooKeeper."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.supervisor.standin import wait_until
from tests.support.zookeeper import fresh_root, zookeeper  # noqa: F401

from squall_cli.cluster.zookeeper import DevZooKeeper
from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import Assignment
from squall_common.config.load import default_conf
from squall_common.config.options.typed import SupervisorOptions
from squall_common.topology.model import Executor, WorkerSlot
from squall_supervisor.records import processes
from squall_supervisor.records.worker_record import WorkerRecord
from squall_supervisor.settings import SupervisorSettings
from squall_thrift import storm
from squall_thrift.client import ThriftClient

pytestmark = pytest.mark.integration

WORDS = "words-1-100"
NODE = "this-node"
STANDINS = Path(__file__).with_name("standin_packages")
START_SECS = 30.0
# All that a supervisor prints on stderr: the warning that root gets once.
AT_START = (
    b"warning: this supervisor is root and runs every worker as root: "
    b"anyone who can submit a topology controls this machine. "
    b"Set supervisor.run.worker.as.user: true, or start it as another user.\n"
    if os.geteuid() == 0
    else b""
)


class Operator:
    """Starts and stops supervisor processes on one local folder."""

    def __init__(self, folder: Path, zookeeper_port: int) -> None:
        self.folder = folder
        self.conf: dict[str, Any] = {
            **default_conf(),
            "storm.local.dir": str(folder / "local"),
            "storm.zookeeper.servers": ["127.0.0.1"],
            "storm.zookeeper.port": zookeeper_port,
            "storm.zookeeper.root": fresh_root(),
            "storm.zookeeper.session.timeout": 2000,
            "storm.id": NODE,
            "supervisor.slots.ports": [6700, 6701],
            "supervisor.thrift.port": 0,
            "supervisor.worker.shutdown.sleep.secs": 1,
        }
        self.settings = SupervisorSettings.from_conf(self.conf)
        self.running: list[asyncio.subprocess.Process] = []

    def provide(self, topology_id: str) -> None:
        """Put a topology on the disk, as if it had been downloaded."""
        path = self.settings.stormdist_dir / topology_id
        (path / "code").mkdir(parents=True)
        (path / "stormcode.ser").write_bytes(b"")
        (path / "stormconf.ser").write_bytes(b"{}")

    async def run(self, *arguments: str) -> asyncio.subprocess.Process:
        conf_file = self.folder / "conf.json"
        conf_file.write_text(json.dumps(self.conf))
        path = [str(STANDINS), *(p for p in sys.path if p and "site-packages" not in p)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "squall_supervisor", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "SQUALL_DAEMON_CONF": str(conf_file),
                 "PYTHONPATH": os.pathsep.join([str(STANDINS), *_squall_folders(path)])},
        )  # fmt: skip
        self.running.append(process)
        return process

    async def start(self) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
        process = await self.run()
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), START_SECS)
        assert line, self.log()
        return process, json.loads(line)["supervisor"]

    def log(self) -> str:
        file = self.settings.log_dir / "supervisor.log"
        return file.read_text() if file.exists() else ""

    def workers(self) -> dict[int, int]:
        """Pids of the living workers by port, as recorded."""
        found = {}
        for folder in self.settings.workers_dir.iterdir():
            try:
                record = WorkerRecord.read(folder)
            except (OSError, ValueError):
                continue
            if record.process is not None and processes.identify(record.process.pid):
                found[record.port] = record.process.pid
        return found

    async def close(self) -> None:
        for process in self.running:
            if process.returncode is None:
                process.kill()
            await process.communicate()
        done = await self.run("--kill-workers")
        await done.communicate()


def _squall_folders(path: list[str]) -> list[str]:
    return [p for p in path if any((Path(p) / name).is_dir() for name in _PACKAGES)]


_PACKAGES = ("squall_common", "squall_thrift", "squall_supervisor")


@pytest.fixture
async def operator(
    tmp_path: Path,
    zookeeper: DevZooKeeper,  # noqa: F811
) -> AsyncIterator[Operator]:
    operator = Operator(tmp_path, zookeeper.port)
    yield operator
    await operator.close()


@pytest.fixture
async def cluster(operator: Operator) -> AsyncIterator[ClusterState]:
    cluster = ClusterState.of(SupervisorOptions.read(operator.conf))
    await cluster.start()
    yield cluster
    await cluster.close()


async def assign(cluster: ClusterState, *ports: int) -> None:
    """Assign a task to each port. Before the supervisor starts, or it removes what was provided."""
    slots = {Executor(n, n): WorkerSlot(NODE, port) for n, port in enumerate(ports, start=1)}
    await cluster.put_assignment(WORDS, Assignment("", executor_slot=slots))


async def test_a_killed_supervisors_workers_run_on_and_are_adopted(
    operator: Operator, cluster: ClusterState
) -> None:
    operator.provide(WORDS)
    await assign(cluster, 6700, 6701)
    process, ready = await operator.start()
    assert (ready["id"], ready["pid"]) == (NODE, process.pid)
    assert ready["slots"] == [6700, 6701]
    await wait_until("two workers", lambda: len(operator.workers()) == 2)
    workers = operator.workers()
    process.kill()
    await process.wait()
    launched = operator.log().count("worker_launched")
    began = time.monotonic()
    process, again = await operator.start()
    took = time.monotonic() - began
    assert again["id"] == ready["id"]
    assert operator.workers() == workers
    assert operator.log().count("worker_adopted") == 2
    assert operator.log().count("worker_launched") == launched
    assert took < 20.0
    os.kill(workers[6700], signal.SIGKILL)
    await wait_until("a new one", lambda: operator.workers().get(6700) not in (None, workers[6700]))
    assert operator.workers()[6701] == workers[6701]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopped_supervisor_leaves_its_workers_and_its_place_is_free(
    operator: Operator, cluster: ClusterState, number: signal.Signals
) -> None:
    operator.provide(WORDS)
    await assign(cluster, 6700)
    process, _ = await operator.start()
    await wait_until("a worker", lambda: len(operator.workers()) == 1)
    workers = operator.workers()
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err) == (0, AT_START)
    assert operator.workers() == workers
    assert await cluster.supervisors() == {}
    killing = await operator.run("--kill-workers")
    out, err = await killing.communicate()
    assert (killing.returncode, err) == (0, b"")
    (killed,) = json.loads(out)["killed"]
    assert (killed["pid"], killed["port"], killed["topology_id"]) == (workers[6700], 6700, WORDS)
    assert operator.workers() == {}
    assert list(operator.settings.workers_dir.iterdir()) == []


async def test_a_second_supervisor_on_the_same_folder_is_refused(operator: Operator) -> None:
    await operator.start()
    second = await operator.run()
    out, err = await asyncio.wait_for(second.communicate(), START_SECS)
    assert second.returncode == 1
    assert out == b""
    assert b"another supervisor is using" in err
    assert b"Traceback" not in err


async def test_a_port_in_use_is_reported_in_one_message(operator: Operator) -> None:
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    async with server:
        operator.conf["supervisor.thrift.port"] = server.sockets[0].getsockname()[1]
        process = await operator.run()
        _, err = await asyncio.wait_for(process.communicate(), START_SECS)
    assert process.returncode == 1
    assert b"the supervisor cannot start" in err
    assert b"supervisor.thrift.port" in err
    assert b"Traceback" not in err


async def test_a_supervisor_waits_for_zookeeper_and_says_so(
    operator: Operator,
    zookeeper: DevZooKeeper,  # noqa: F811
) -> None:
    operator.conf["storm.zookeeper.port"] = 1
    process = await operator.run()
    await wait_until("it says so", lambda: "waiting_for_zookeeper" in operator.log(), 30)
    assert process.returncode is None
    process.send_signal(signal.SIGTERM)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out, err) == (0, b"", AT_START)


async def test_the_thrift_service_answers(operator: Operator, cluster: ClusterState) -> None:
    operator.provide(WORDS)
    await assign(cluster, 6700)
    _, ready = await operator.start()
    await wait_until("a worker", lambda: len(operator.workers()) == 1)
    async with ThriftClient(storm.Supervisor, "127.0.0.1", ready["port"]) as client:
        answer = await client.call("getLocalAssignmentForStorm", WORDS)
        ((executor, slot),) = answer.executor_node_port.items()
        assert list(executor) == [1, 1]
        assert (slot.node, set(slot.port)) == (ready["id"], {6700})
        with pytest.raises(storm.NotAliveException):
            await client.call("getLocalAssignmentForStorm", "unknown")
        await client.call("sendSupervisorAssignments", storm.SupervisorAssignments())
        beat = storm.SupervisorWorkerHeartbeat(storm_id=WORDS, executors=[], time_secs=1)
        await client.call("sendSupervisorWorkerHeartbeat", beat)


@pytest.mark.parametrize(
    ("content", "why"), [(None, b"SQUALL_DAEMON_CONF is not set"), ("[]", b"no configuration")]
)
async def test_a_bad_configuration_is_reported_in_one_message(
    tmp_path: Path, content: str | None, why: bytes
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "SQUALL_DAEMON_CONF"}
    environment["PYTHONPATH"] = os.pathsep.join(_squall_folders(sys.path))
    if content is not None:
        (tmp_path / "conf").write_text(content)
        environment["SQUALL_DAEMON_CONF"] = str(tmp_path / "conf")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "squall_supervisor", env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert why in err
    assert b"Traceback" not in err
