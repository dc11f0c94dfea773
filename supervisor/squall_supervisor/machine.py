"""The processes of the machine that a supervisor runs on: starting, finding and opening them.

This is all that a supervisor asks of the operating system's process table, so that a simulation can
stand in for it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from squall.launch import LaunchSpec
from squall_supervisor import processes
from squall_supervisor.processes import ProcessIdentity
from squall_supervisor.worker_process import WorkerProcess

# What a worker has printed is kept up to this size, and once more in a file of the name with ".1".
_PRINTED_BYTES_MAX = 10 * 1024 * 1024


class Machine:
    """This one."""

    def start(
        self, spec: LaunchSpec, argv: list[str], environment: dict[str, str]
    ) -> WorkerProcess:
        """Start a worker's process; its folders exist. Raises OSError."""
        out = _open_printed(spec.artifacts_dir / "worker.log.out")
        try:
            err = _open_printed(spec.artifacts_dir / "worker.log.err")
            try:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=spec.worker_dir,
                    env=environment,
                    start_new_session=True,
                    umask=0o077,
                )
            finally:
                os.close(err)
        finally:
            os.close(out)
        # Our child, not collected: pid and start time are its own, even if it has ended already.
        stat = processes.read_stat(child.pid)
        assert stat is not None
        identity = ProcessIdentity(child.pid, stat.start_ticks, processes.boot_id())
        return WorkerProcess(
            identity,
            os.pidfd_open(child.pid),
            worker_id=spec.worker_id,
            pid_dir=spec.pid_dir,
            child=child,
        )

    def lives(self, identity: ProcessIdentity) -> bool:
        """Whether exactly this process lives."""
        fd = processes.open_process(identity)
        if fd is None:
            return False
        os.close(fd)
        return True

    def find(self, argument: str, mark: str) -> list[ProcessIdentity]:
        """See `processes.find_worker`."""
        return processes.find_worker(argument, mark)

    def open(
        self, identity: ProcessIdentity, *, worker_id: str, pid_dir: Path
    ) -> WorkerProcess | None:
        """A living process that somebody else started; None when it has ended."""
        fd = processes.open_process(identity)
        if fd is None:
            return None
        return WorkerProcess(identity, fd, worker_id=worker_id, pid_dir=pid_dir)


def _open_printed(path: Path) -> int:
    try:
        if path.stat().st_size > _PRINTED_BYTES_MAX:
            path.replace(path.with_name(path.name + ".1"))
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)
