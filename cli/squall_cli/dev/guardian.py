"""Stops the processes that a killed keeper left: its daemons, and the workers, which outlive them.

The keeper holds the other end of this process' standard input. It writes "done\\n"
and closes it after stopping everything itself; when it dies (kill -9, out of memory), the pipe ends
without that word.

Every process that the keeper starts has a mark in its environment, which children inherit. The mark
identifies the processes of the cluster; a list could be missing or out of date. The daemons get
SIGTERM from the kernel when the keeper dies (`process.KeptProcess`); processes that still have the
mark after a grace period are killed. Then each supervisor's workers, which have the environment of
their topology, are stopped through the supervisor's own records.

    python -m squall_cli.dev.guardian MARK DATA_DIR

Only the standard library is imported: this process waits in every development cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# The variable that marks the processes of one run of `storm dev`.
MARK_VARIABLE = "SQUALL_DEV_CLUSTER"
DONE = b"done\n"
_GRACE_SECS = 8.0
_POLL_SECS = 0.05
# How many times to look again for processes that killed ones have started.
_ROUNDS_MAX = 20


def marked(mark: str) -> list[int]:
    """The living processes that carry a mark, but not this one."""
    needle = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            # A process that has ended and waits for its parent no longer has an environment.
            if needle in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
    return found


def end_marked(mark: str, grace_secs: float = _GRACE_SECS) -> list[int]:
    """Wait for the processes with a mark to end, and kill those that do not; returns these."""
    deadline = time.monotonic() + grace_secs
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
    killed: list[int] = []
    for _ in range(_ROUNDS_MAX):
        left = marked(mark)
        if not left:
            break
        for pid in left:
            _kill(pid, lambda: marked(mark))
        killed += [pid for pid in left if pid not in killed]
        time.sleep(_POLL_SECS)
    return killed


def _kill(pid: int, find: Callable[[], list[int]]) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if pid in find():  # check again: process ids are reused
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(pidfd)


def end_workers(data_dir: Path) -> None:
    """Kill the workers of every supervisor that has run in this folder."""
    for conf in sorted(data_dir.glob("supervisor-*/daemon-conf.json")):
        try:
            subprocess.run(
                [sys.executable, "-P", "-m", "squall_supervisor", "--kill-workers"],
                env={**os.environ, "SQUALL_DAEMON_CONF": str(conf)},
                check=False,
            )
        except OSError:
            continue


def workers_of(data_dir: Path) -> list[int]:
    """The living workers of a cluster, whether its folder is still there or not, and what they have
    started in their sessions."""
    inside = os.fsencode(f"{data_dir.absolute()}/")
    sessions: dict[int, int] = {}
    workers = set()
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")[:-1]
            stat = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        state, _, _, session, *_ = stat.rpartition(b")")[2].split()
        if state in b"ZX":
            continue
        sessions[int(name)] = int(session)
        if b"squall_worker" in words and words[-1].startswith(inside):
            workers.add(int(name))
    return [pid for pid, session in sessions.items() if pid in workers or session in workers]


def end_workers_left(data_dir: Path) -> None:
    """Kill the workers that no supervisor's records have ended."""
    for _ in range(_ROUNDS_MAX):
        left = workers_of(data_dir)
        if not left:
            return
        for pid in left:
            _kill(pid, lambda: workers_of(data_dir))
        time.sleep(_POLL_SECS)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mark, data_dir = sys.argv[1], Path(sys.argv[2])
    if sys.stdin.buffer.read() == DONE:
        return
    end_marked(mark)
    end_workers(data_dir)
    end_workers_left(data_dir)


if __name__ == "__main__":
    main()
