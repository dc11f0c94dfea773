"""The processes of the machine that a supervisor runs on: starting, finding and opening them.

This is everything that a supervisor asks of the operating system's process table, so that a
simulation can stand in for it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from squall_common.worker_files.launch_spec import LaunchSpec
from squall_supervisor.confine.confinement import UNCONFINED, Confinement, start_confined
from squall_supervisor.confine.ownership import owner_of
from squall_supervisor.launch import memory_use
from squall_supervisor.launch.worker_process import WORKER_ID_VARIABLE, WorkerProcess, noted_pids
from squall_supervisor.records import processes
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.records.worker_record import LAUNCH_FILE


class Machine:
    """This one."""

    def start(
        self,
        spec: LaunchSpec,
        argv: list[str],
        environment: dict[str, str],
        confinement: Confinement = UNCONFINED,
    ) -> WorkerProcess:
        """Start a worker's process; its folders exist. Raises OSError."""
        child = start_confined(
            argv,
            environment,
            confinement,
            cwd=spec.worker_dir,
            out=spec.artifacts_dir / "worker.log.out",
            err=spec.artifacts_dir / "worker.log.err",
            launch_file=spec.worker_dir / LAUNCH_FILE,
            marks={WORKER_ID_VARIABLE: spec.worker_id},
        )
        try:
            # Our child, not reaped: pid and start time are its own, even if it has ended.
            stat = processes.read_stat(child.pid)
            assert stat is not None
            identity = ProcessIdentity(child.pid, stat.start_ticks, processes.boot_id())
            pidfd = os.pidfd_open(child.pid)
        except BaseException:  # too many open files: it would never be watched
            child.kill()
            child.wait()
            raise
        return WorkerProcess(
            identity, pidfd, worker_id=spec.worker_id, pid_dir=spec.pid_dir, child=child
        )

    def boot_id(self) -> str:
        """The id of this boot; different after each boot."""
        return processes.boot_id()

    def lives(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process is alive."""
        fd = processes.open_process(identity)
        if fd is None:
            return False
        os.close(fd)
        return True

    def find(self, argument: str, mark: str) -> list[ProcessIdentity]:
        """See `processes.find_worker`. Only processes of the user that owns the folder of the file
        `argument`, or of ours (which a worker has at first) count: any user may call a process like
        another user's worker."""
        users = {owner_of(Path(argument).parent), os.geteuid()}
        found = processes.find_worker(argument, mark)
        return [one for one in found if processes.user_of(one.pid) in users]

    def open(
        self, identity: ProcessIdentity, *, worker_id: str, pid_dir: Path
    ) -> WorkerProcess | None:
        """A living process that was started by another supervisor; None if it has ended."""
        fd = processes.open_process(identity)
        if fd is None:
            return None
        return WorkerProcess(identity, fd, worker_id=worker_id, pid_dir=pid_dir)

    def kill_leftovers(self, leader: ProcessIdentity, *, worker_id: str, pid_dir: Path) -> int:
        """Kill the leftovers of a worker that ended unwatched; see `processes.kill_leftovers`."""
        return processes.kill_leftovers(
            leader,
            noted_pids(pid_dir),
            f"{WORKER_ID_VARIABLE}={worker_id}",
            long_ended=True,
        )

    def memory_of_workers(self, leaders: Collection[ProcessIdentity]) -> dict[int, int]:
        """See `memory_use.memory_of_workers`."""
        return memory_use.memory_of_workers(leaders)

    def exact_memory_of_worker(self, leader: ProcessIdentity) -> int | None:
        """See `memory_use.exact_memory_of_worker`."""
        return memory_use.exact_memory_of_worker(leader)
