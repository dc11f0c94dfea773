"""One worker's process as its supervisor holds it: a pidfd that reports the exit at once.

The supervisor is the parent of the workers that it launched, but not of those that it adopted. Both
are watched and signalled through a pidfd; only a child has an exit status to collect. A child is
collected (reaped) after its leftovers were killed: until then its pid cannot be reused.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_supervisor.records import processes
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.records.worker_record import WorkerRecord

log = get_logger(__name__)

# Set in every worker's environment; its children inherit it, which marks them as that worker's.
WORKER_ID_VARIABLE = "SQUALL_WORKER_ID"


class WorkerProcess:
    """A living process and its pidfd, which this object owns."""

    def __init__(
        self,
        identity: ProcessIdentity,
        pidfd: int,
        *,
        worker_id: str,
        pid_dir: Path,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.identity = identity
        self.worker_id = worker_id
        self.record: WorkerRecord | None = None  # not None if this supervisor launched it
        self._pidfd = pidfd
        self._pid_dir = pid_dir
        self._child = child
        self.peak_bytes: int | None = None  # of memory; known after `clean_up` of a child
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pid(self) -> int:
        return self.identity.pid

    def watch(self, exited: Callable[[int | None], None]) -> None:
        """Call `exited` once, on the event loop, when the process has ended, with its exit status
        (negative: the signal) if it is our child. The caller must then call `clean_up`."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._on_exit, exited)

    def unwatch(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._pidfd)
            self._loop = None

    def _on_exit(self, exited: Callable[[int | None], None]) -> None:
        self.unwatch()
        exited(self._status())

    def _status(self) -> int | None:
        if self._child is None:
            return None
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        try:
            result = os.waitid(os.P_PIDFD, self._pidfd, flags)
        except ChildProcessError:
            return None
        if result is None:
            return None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def terminate(self) -> bool:
        """Ask it to end (SIGTERM)."""
        return processes.send_signal(self._pidfd, signal.SIGTERM)

    def dump_stacks(self) -> bool:
        """Make it write the stacks of its threads to its stderr (SIGUSR1). Only a worker that has
        sent its first heartbeat handles the signal: an earlier one would die."""
        return processes.send_signal(self._pidfd, signal.SIGUSR1)

    def kill(self) -> bool:
        """End it (SIGKILL). The processes that it started are killed in `clean_up`."""
        return processes.send_signal(self._pidfd, signal.SIGKILL)

    def clean_up(self) -> None:
        """After the exit: kill the processes it left behind, reap it, close the pidfd. Reads all of
        /proc: call it in a thread."""
        try:
            killed = processes.kill_leftovers(
                self.identity,
                noted_pids(self._pid_dir),
                f"{WORKER_ID_VARIABLE}={self.worker_id}",
            )
            if killed:
                log.info("worker_leftovers_killed", worker_id=self.worker_id, processes=killed)
        finally:
            self._collect()
            self.close()

    def _collect(self) -> None:
        """Reap our child, and keep what the kernel reports about its memory."""
        child = self._child
        if child is None or child.returncode is not None:
            return
        try:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            self.peak_bytes = usage.ru_maxrss * 1024

    def close(self) -> None:
        """Release the process, dead or alive."""
        self.unwatch()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._child is not None and self._child.returncode is None:
            # It outlives us on purpose; Popen would warn about a child that was never waited for.
            self._child.returncode = 0

    async def stop(self, grace_secs: float) -> None:
        """End it and everything that it started: SIGTERM, and SIGKILL after the grace. For workers
        that no slot drives."""
        ended = asyncio.Event()
        self.watch(lambda _: ended.set())
        self.terminate()
        try:
            await asyncio.wait_for(ended.wait(), grace_secs)
        except TimeoutError:
            self.kill()
            await ended.wait()
        await asyncio.to_thread(self.clean_up)


def noted_pids(pid_dir: Path) -> list[int]:
    """The processes that a worker has noted as started by it; by now their pids may belong to
    others."""
    try:
        return [int(name) for name in os.listdir(pid_dir) if name.isdecimal()]
    except OSError:  # gone, or replaced by the worker
        return []
