"""Real worker processes under a test's control: what a supervisor and Nimbus would do for them.

A `Cluster` has one topology, two slots on one "node", the assignment in a real ZooKeeper, and the
folders that a supervisor prepares.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.config.options.typed import WorkerOptions
from squall_common.topology.model import Executor, Topology, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_common.topology.thrift import to_thrift
from squall_common.worker_files.heartbeat_file import Beat, Phase, read_heartbeat
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_thrift.codec import to_bytes

NODE = "node-1"
TOPOLOGY_ID = "words-1-1700000000"

# A reliable source that keeps each line until its ack, over restarts too, and a sink outside.
WORDS = '''
"""Word count whose every effect can be read from files."""
import os
import threading
from collections import Counter, deque
from pathlib import Path

from squall import Bolt, Spout
from squall.metrics import MetricsConsumer


def words_of(line):
    return [f"word{(line * 7 + i * i) % 101}" for i in range(line % 9 + 1)]


class Lines(Spout):
    outputs = ["line", "text"]

    def __init__(self, count, folder):
        self.count = count
        self.folder = folder

    def open(self, conf, context):
        path = Path(self.folder, "acked")
        acked = {int(line) for line in path.read_text().split()} if path.exists() else set()
        self.acked = len(acked)
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.todo = deque(i for i in range(self.count) if i not in acked)
        self.failed = 0

    def next_tuple(self):
        if self.todo:
            line = self.todo.popleft()
            self.emit([line, " ".join(words_of(line))], message_id=line)

    def ack(self, line):
        os.write(self.file, b"%d\\n" % line)
        self.acked += 1

    def fail(self, line):
        self.todo.append(line)


class Split(Bolt):
    outputs = ["line", "index", "word"]

    def execute(self, tup):
        for index, word in enumerate(tup["text"].split()):
            self.emit([tup["line"], index, word])


class Record(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        name = f"sink-{context.this_task_id}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.file = os.open(Path(self.folder, name), flags)

    def execute(self, tup):
        os.write(self.file, b"%d %d %s\\n" % (tup["line"], tup["index"], tup["word"].encode()))


class Broken(Bolt):
    def prepare(self, conf, context):
        raise RuntimeError("this bolt never starts")

    def execute(self, tup):
        pass


class Angry(Bolt):
    def execute(self, tup):
        raise ValueError("bad line %d" % tup["line"])


class HangingConsumer(MetricsConsumer):
    def handle_data_points(self, task_info, data_points):
        threading.Event().wait(60)


class Backtracking(Bolt):
    def execute(self, tup):
        import re
        re.match("(a+)+$", "a" * 64 + "b")


class Stuck(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def execute(self, tup):
        import time
        while not Path(self.folder, "go").exists():
            time.sleep(0.01)
'''


@contextlib.contextmanager
def imported(folder: Path, name: str) -> Iterator[ModuleType]:
    """A module of `folder`, as a client that submits it would import it."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]], secs: float = 60.0, what: str = "condition"
) -> None:
    deadline = time.monotonic() + secs
    while True:
        result = condition()
        if not isinstance(result, bool):
            result = await result
        if result:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {secs} s")
        await asyncio.sleep(0.01)


class WorkerProcess:
    """One started worker."""

    def __init__(self, spec: LaunchSpec, launch_file: Path) -> None:
        self.spec = spec
        self.err = spec.artifacts_dir / "worker.log.err"
        spec.artifacts_dir.mkdir(parents=True, exist_ok=True)
        spec.pid_dir.mkdir(parents=True, exist_ok=True)
        spec.write(launch_file)
        with self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "squall_worker", spec.topology_id, spec.supervisor_id,
                    str(spec.port), spec.worker_id, str(launch_file),
                ],
                stdin=subprocess.DEVNULL, stdout=err, stderr=err, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys_path()), "PYTHONWARNINGS": ""},
            )  # fmt: skip
        self.started_at = time.monotonic()

    @property
    def log(self) -> str:
        path = self.spec.artifacts_dir / "worker.log"
        return path.read_text() if path.exists() else ""

    @property
    def beat(self) -> Beat | None:
        beat = read_heartbeat(self.spec.heartbeat_file)
        return beat if beat is not None and beat.pid == self.process.pid else None

    async def wait_running(self) -> float:
        """Seconds from the launch to RUNNING."""

        def running() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"exit {self.process.returncode}:\n{self.dump()}")
            return self.beat is not None and self.beat.phase is Phase.RUNNING

        await wait_until(running, what="RUNNING")
        return time.monotonic() - self.started_at

    async def wait_exit(self, secs: float = 60.0) -> int:
        await wait_until(lambda: self.process.poll() is not None, secs, "exit")
        assert self.process.returncode is not None
        return self.process.returncode

    def dump(self) -> str:
        return f"{self.log}\n--- stderr\n{self.err.read_text()}"

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def sys_path() -> list[str]:
    """Absolute: workers run in folders of their own."""
    return [str(Path(entry).resolve()) for entry in sys.path if entry]


class Cluster:
    """One topology on slots of one node."""

    def __init__(
        self, folder: Path, conf: Mapping[str, Any], build: Callable[[ModuleType, str], Topology],
        topology_conf: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.folder = folder
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.stormdist = folder / "stormdist"
        code = self.stormdist / "code"
        code.mkdir(parents=True)
        (code / "words.py").write_text(WORDS)
        self.conf = dict(conf)
        self.topology_conf = dict(topology_conf)
        with imported(code, "words") as module:
            self.words_of = module.words_of
            submitted = build(module, str(self.out))
        (self.stormdist / "stormcode.ser").write_bytes(to_bytes(to_thrift(submitted)))
        (self.stormdist / "stormconf.ser").write_text(json.dumps(self.topology_conf))
        prepared = prepare(submitted, self.topology_conf)
        self.topology = prepared.topology
        self.task_to_component = prepared.task_to_component
        self.executors = prepared.executors
        self.state = ClusterState.of(WorkerOptions.read(conf))
        self.workers: list[WorkerProcess] = []
        self.launches = 0
        self.zxid = 0

    async def start(self, status: TopologyStatus = TopologyStatus.ACTIVE) -> None:
        await self.state.start()
        base = StormBase("words", status, 2, launch_time_secs=int(time.time()))
        await self.state.create_topology(TOPOLOGY_ID, base)

    async def set_status(self, status: TopologyStatus) -> None:
        base = StormBase("words", status, 2, launch_time_secs=int(time.time()))
        await self.state.put_storm_base(TOPOLOGY_ID, base)

    async def assign(self, where: Callable[[Executor, str], int]) -> None:
        """Write the assignment: `where` gives the port of an executor of a component."""
        slots = {
            executor: WorkerSlot(NODE, where(executor, self.task_to_component[executor.task_start]))
            for executor in self.executors
        }
        assignment = Assignment(
            str(self.stormdist), {NODE: "localhost"}, slots, {e: int(time.time()) for e in slots}
        )
        await self.state.put_assignment(TOPOLOGY_ID, assignment)
        found = await self.state.assignment(TOPOLOGY_ID)
        assert found is not None
        self.zxid = found[1]

    def launch(self, port: int, **daemon_conf: Any) -> WorkerProcess:
        self.launches += 1
        worker_id = f"worker-{self.launches}"
        spec = LaunchSpec(
            topology_id=TOPOLOGY_ID,
            supervisor_id=NODE,
            hostname="localhost",
            port=port,
            worker_id=worker_id,
            incarnation=Incarnation(self.zxid, self.launches),
            stormdist=self.stormdist,
            worker_dir=self.folder / "workers" / worker_id,
            artifacts_dir=self.folder / "artifacts" / worker_id,
            daemon_conf={**self.conf, **daemon_conf},
        )
        worker = WorkerProcess(spec, self.folder / f"launch-{self.launches}.json")
        self.workers.append(worker)
        return worker

    async def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        await self.state.close()

    # -- what the topology did ----------------------------------------------------------------

    def acked(self) -> int:
        """How many lines the source has let go."""
        path = self.out / "acked"
        return len(set(path.read_text().split())) if path.exists() else 0

    def recorded(self) -> list[tuple[int, int, str]]:
        """What the sink outside the workers has seen, in no order."""
        rows = []
        for path in self.out.glob("sink-*"):
            for row in path.read_text().splitlines():
                line, index, word = row.split(" ")
                rows.append((int(line), int(index), word))
        return rows

    def expected(self, lines: int) -> set[tuple[int, int, str]]:
        return {
            (line, index, word)
            for line in range(lines)
            for index, word in enumerate(self.words_of(line))
        }
