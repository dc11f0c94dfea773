"""A node for tests: a supervisor on a cluster state in memory, with stand-ins for workers."""

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import Assignment
from squall_common.names import code_blob_key, conf_blob_key, jar_blob_key
from squall_common.security.credentials import TopologyCredentials
from squall_common.security.curve import CurveKey
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_supervisor.blobs.source import BlobError
from squall_supervisor.composition import build_supervisor
from squall_supervisor.records import processes
from squall_supervisor.slots.runner import SlotRunner
from squall_supervisor.slots.table import State
from squall_supervisor.supervisor import Supervisor
from squall_thrift import storm
from squall_thrift.codec import to_bytes

CODE = to_bytes(storm.StormTopology(spouts={}, bolts={}, state_spouts={}))
SCRIPT = Path(__file__).with_name("standin_worker.py")
WAIT_SECS = 60.0


async def wait_until(what: str, condition: Callable[[], Any], secs: float = WAIT_SECS) -> Any:
    """Wait until a condition is true, and return its value."""
    end = time.monotonic() + secs
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"in {secs} s this did not happen: {what}")
        await asyncio.sleep(0.005)
    return value


def package(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, data in files.items():
            zip_file.writestr(name, data)
    return buffer.getvalue()


class FakeBlobs:
    """Blobs as Nimbus would give them, and its troubles."""

    def __init__(self) -> None:
        self.blobs: dict[str, tuple[int, bytes]] = {}
        self.fetches = 0
        self.error: str | None = None
        self.sealing_key = ""
        self.credentials: TopologyCredentials | None = None

    def put(
        self, topology_id: str, conf: Mapping[str, Any] | None = None, jar: bytes | None = None,
        version: int = 1,
    ) -> None:  # fmt: skip
        jar = package({"app.py": b"x = 1\n", "resources/run.sh": b"#\n"}) if jar is None else jar
        self.blobs[jar_blob_key(topology_id)] = (version, jar)
        self.blobs[code_blob_key(topology_id)] = (version, CODE)
        self.blobs[conf_blob_key(topology_id)] = (version, json.dumps(conf or {}).encode())

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        self.fetches += 1
        await asyncio.sleep(0)
        for key, path in keys.items():
            if self.error is not None:
                raise BlobError(self.error)
            if key not in self.blobs:
                raise BlobError(f"no blob {key}")
            path.write_bytes(self.blobs[key][1])
        return {key: self.blobs[key][0] for key in keys}

    async def topology_credentials(
        self, topology_id: str, supervisor_id: str
    ) -> TopologyCredentials | None:
        return self.credentials

    async def topology_key(self, topology_id: str, supervisor_id: str) -> bytes:
        await asyncio.sleep(0)
        if self.error is not None:
            raise BlobError(self.error)
        return CurveKey(topology_id, b"p" * 40, b"s" * 40).to_bytes()

    async def versions(self, keys: list[str]) -> dict[str, int]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise BlobError(self.error)
        return {key: self.blobs[key][0] for key in keys}


class TestNode:
    """One supervisor's folder, and supervisors on it one after the other."""

    __test__ = False

    def __init__(self, tmp_path: Path, name: str = "node", **conf: Any) -> None:
        self.dir = tmp_path / name
        self.dir.mkdir()
        self.ensemble = MemoryEnsemble()
        self.blobs = FakeBlobs()
        self.behaviour_file = self.dir / "behaviour.json"
        self.behave()
        self.port = 6700
        self.conf: dict[str, Any] = {
            "storm.local.dir": str(self.dir / "local"),
            "storm.log.dir": str(self.dir / "logs"),
            "storm.id": name,
            "storm.bind.host": "127.0.0.1",
            "supervisor.slots.ports": [6700, 6701],
            "supervisor.thrift.port": 0,
            "supervisor.worker.timeout.secs": 1.0,
            "supervisor.worker.shutdown.sleep.secs": 1.0,
            "supervisor.heartbeat.frequency.secs": 0.2,
            **conf,
        }
        self.supervisor: Supervisor | None = None
        self.writer: ClusterState | None = None
        self.launches: list[float] = []

    def behave(self, **behaviour: Any) -> None:
        """How workers that are launched from now on behave."""
        self.behaviour_file.write_text(json.dumps(behaviour))

    def command(self, spec: LaunchSpec, launch_file: Path) -> list[str]:
        self.launches.append(time.monotonic())
        # -S: a stand-in needs nothing of site-packages, and tests start many.
        return [sys.executable, "-P", "-S", str(SCRIPT), str(launch_file), str(self.behaviour_file)]

    async def start(self, *, store: MemoryStore | None = None, ready: bool = True) -> Supervisor:
        cluster = ClusterState(store or MemoryStore(self.ensemble))
        self.supervisor = await build_supervisor(
            self.conf, cluster=cluster, blobs=self.blobs, command=self.command
        )
        await self.supervisor.start()
        if ready:
            await asyncio.wait_for(self.supervisor.wait_ready(), WAIT_SECS)
        return self.supervisor

    async def stop(self) -> None:
        if self.supervisor is not None:
            await self.supervisor.close()
            self.supervisor = None

    async def close(self) -> None:
        """End everything, workers first."""
        await self.stop()
        if self.writer is not None:
            await self.writer.close()
        for pid in self.living_workers():
            with contextlib.suppress(ProcessLookupError):  # it was ending
                os.kill(pid, signal.SIGKILL)
        await wait_until("all workers are gone", lambda: not self.living_workers())

    def living_workers(self) -> list[int]:
        """Pids of all processes that were started for this node's workers and live."""
        marker = os.fsencode(str(self.behaviour_file))
        found = []
        for stat in processes.all_stats():
            if not stat.ended and marker in processes._read_strings(stat.pid, "cmdline"):
                found.append(stat.pid)
        return found

    async def cluster(self) -> ClusterState:
        """The cluster state as Nimbus has it."""
        if self.writer is None:
            self.writer = ClusterState(MemoryStore(self.ensemble))
            await self.writer.start()
        return self.writer

    async def assign(self, topology_id: str, work: Mapping[int, int | list[int]]) -> None:
        """Assign the tasks (given by port) of a topology to this node."""
        slots: dict[Executor, WorkerSlot] = {}
        for port, tasks in work.items():
            for task in [tasks] if isinstance(tasks, int) else tasks:
                slots[Executor(task, task)] = WorkerSlot(str(self.conf["storm.id"]), port)
        cluster = await self.cluster()
        await cluster.put_assignment(topology_id, Assignment("", executor_slot=slots))

    async def unassign(self, topology_id: str) -> None:
        await (await self.cluster()).remove_assignment(topology_id)

    def runner(self, port: int = 6700) -> SlotRunner:
        assert self.supervisor is not None
        return self.supervisor.slots.runners[port]

    async def wait_running(self, port: int = 6700) -> int:
        """Wait until a worker runs on a port; returns its pid."""
        await wait_until(f"port {port} runs", lambda: self.runner(port).slot.state is State.RUNNING)
        process = self.runner(port).process
        assert process is not None
        return process.pid

    async def wait_empty(self, port: int = 6700) -> None:
        await wait_until(f"port {port} empty", lambda: self.runner(port).slot.state is State.EMPTY)
