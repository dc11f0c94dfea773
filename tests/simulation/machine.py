"""A machine: its processes by pid, its boot, its wall clock, and the workers that run on it.

Pids come from a small range and are used again soon, so that whoever trusts a number alone is found
out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tests.simulation.loop import Process, SimLoop, current_process

from squall_common.worker_files.heartbeat_file import Beat, HeartbeatWriter, Phase
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_supervisor.confine.confinement import UNCONFINED, Confinement
from squall_supervisor.launch.machine import Machine
from squall_supervisor.launch.worker_process import WorkerProcess
from squall_supervisor.records.processes import ProcessIdentity

EPOCH_SECS = 1_700_000_000.0
_PIDS = range(100, 130)


class SimClock:
    """A machine's clocks: `time` jumps when an administrator sets it, `monotonic` never does."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.wall_offset = 0.0

    def monotonic(self) -> float:
        return self._loop.time()

    def boottime(self) -> float:
        return self._loop.time()

    def time(self) -> float:
        return EPOCH_SECS + self._loop.time() + self.wall_offset


class SimHost:
    """One machine. `run_worker(spec)` is the worker's program."""

    def __init__(self, loop: SimLoop, name: str, address: str, seed: int) -> None:
        self.loop = loop
        self.name = name
        self.address = address
        self.clock = SimClock(loop)
        self.rng = random.Random(f"{name} {seed}")
        self.boot = 1
        self.powered = True
        self.launch_secs = (0.2, 1.5)  # an interpreter starts and imports
        self.processes: dict[int, Process] = {}
        self.run_worker: Callable[[LaunchSpec], Any]

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boot}"

    def spawn(self, name: str) -> Process:
        """A new process; what it does is started by the caller."""
        free = [pid for pid in _PIDS if pid not in self.processes]
        process = Process(self.loop, name, self.address)
        process.pid = self.rng.choice(free)
        process.start_ticks = int(self.loop.time() * 100)
        self.processes[process.pid] = process
        process.on_exit.append(lambda: self._ended(process))
        return process

    def _ended(self, process: Process) -> None:
        if self.processes.get(process.pid) is process:
            del self.processes[process.pid]

    def identity(self, process: Process) -> ProcessIdentity:
        return ProcessIdentity(process.pid, process.start_ticks, self.boot_id)

    def process_of(self, identity: ProcessIdentity) -> Process | None:
        """The living process of an identity."""
        process = self.processes.get(identity.pid)
        if process is None or self.identity(process) != identity:
            return None
        return process


class SimMachine(Machine):
    """The process table that a supervisor sees."""

    def __init__(self, host: SimHost) -> None:
        self._host = host

    def start(
        self,
        spec: LaunchSpec,
        argv: list[str],
        environment: dict[str, str],
        confinement: Confinement = UNCONFINED,
    ) -> WorkerProcess:
        host = self._host
        process = host.spawn(f"{host.name}:{spec.port}")
        process.argv = argv  # type: ignore[attr-defined]
        process.spec = spec  # type: ignore[attr-defined]

        def begin() -> None:
            task = process.start(_program(host, process, argv[-1]))
            process.tasks.add(task)

        host.loop.call_later(
            host.rng.uniform(*host.launch_secs), begin, context=process.context.copy()
        )
        return SimWorkerProcess(host, process, spec.worker_id)

    def boot_id(self) -> str:
        return self._host.boot_id

    def memory_of_workers(self, leaders: Collection[ProcessIdentity]) -> dict[int, int]:
        return {}

    def kill_leftovers(self, leader: ProcessIdentity, *, worker_id: str, pid_dir: Path) -> int:
        return 0

    def lives(self, identity: ProcessIdentity) -> bool:
        return self._host.process_of(identity) is not None

    def find(self, argument: str, mark: str) -> list[ProcessIdentity]:
        return [
            self._host.identity(process)
            for process in self._host.processes.values()
            if argument in getattr(process, "argv", ())
        ]

    def open(
        self, identity: ProcessIdentity, *, worker_id: str, pid_dir: Path
    ) -> WorkerProcess | None:
        process = self._host.process_of(identity)
        return None if process is None else SimWorkerProcess(self._host, process, worker_id)


async def _program(host: SimHost, process: Process, launch_file: str) -> None:
    """`python -m squall_worker`."""
    try:
        spec = LaunchSpec.read(Path(launch_file))
    except (OSError, ValueError, KeyError):
        process.end(2)
        return
    status = 1
    try:
        status = await host.run_worker(spec)
    except Exception as error:
        host.loop.errors.append(f"a worker ended with {type(error).__name__}: {error}")
    finally:
        process.end(status)


class SimWorkerProcess(WorkerProcess):
    """A worker's process as its supervisor holds it."""

    def __init__(self, host: SimHost, process: Process, worker_id: str) -> None:
        super().__init__(host.identity(process), -1, worker_id=worker_id, pid_dir=Path("/none"))
        self._process = process
        self._watcher: Callable[[], None] | None = None

    def watch(self, exited: Callable[[int | None], None]) -> None:
        supervisor = current_process()

        def tell() -> None:
            if self._watcher is not None:
                self._watcher = None
                exited(self._process.status)

        def ended() -> None:
            supervisor.call(tell)

        self._watcher = ended
        if self._process.alive:
            self._process.on_exit.append(ended)
        else:
            ended()

    def unwatch(self) -> None:
        if self._watcher is not None and self._watcher in self._process.on_exit:
            self._process.on_exit.remove(self._watcher)
        self._watcher = None

    def terminate(self) -> bool:
        if self._process.alive:
            self._process.terminate()
        return self._process.alive

    def kill(self) -> bool:
        alive = self._process.alive
        self._process.end(-9)
        return alive

    def clean_up(self) -> None:
        pass

    def close(self) -> None:
        self.unwatch()


class SimHeartbeats:
    """Stands for the heartbeat thread: it beats whatever the worker's loop does."""

    def __init__(
        self,
        path: Path,
        *,
        beat_secs: float,
        report_secs: float,
        turn_age_secs: Callable[[], float],
        report: Callable[[], float | None],
        look: Callable[[], object],  # profiles and dumps: nobody asks for them here
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = current_process()
        self._path = path
        self._writer: HeartbeatWriter | None = None
        self._beat_secs = beat_secs
        self._report_secs = report_secs
        self._report = report
        self._turn_age_secs = turn_age_secs
        self.phase = Phase.STARTING
        self._next_report = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._writer = HeartbeatWriter(self._path)
        self._run()

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0, self._run)

    def report_soon(self) -> None:
        self._next_report = 0.0
        self.enter(self.phase)

    def _run(self) -> None:
        if self._writer is None:
            return
        now = self._loop.time()
        self._turn_age_secs()
        self._writer.write(Beat(int(now * 1e9), 0, self._process.pid, self.phase))
        if self.phase is not Phase.STARTING and now >= self._next_report:
            secs = self._report()
            self._next_report = now + (self._report_secs if secs is None else secs)
        self._timer = self._loop.call_later(self._beat_secs, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
