"""What a worker is confined to, and starting a process that is: the supervisor's side of
`launch_step`."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from squall_supervisor.confine import launch_step

_STEP_FILE = os.path.abspath(launch_step.__file__)
# An interpreter starts and calls a few functions; on a machine that swaps even that can be slow.
_STEP_SECS = 60.0


@dataclass(frozen=True, slots=True)
class WorkerUser:
    """A user of the machine, resolved to the ids and groups that its processes have."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Confinement:
    """`limits` are by the names of the module `resource`, each for soft and hard; `cgroups` are
    folders; a `user` of None is the supervisor's own."""

    limits: Mapping[str, int] = field(default_factory=dict)
    cgroups: tuple[Path, ...] = ()
    user: WorkerUser | None = None


UNCONFINED = Confinement()


def start_confined(
    argv: list[str],
    environment: Mapping[str, str],
    confinement: Confinement,
    *,
    cwd: Path,
    out: Path,
    err: Path,
    launch_file: Path,
    marks: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own. From the first moment it can be recognized by
    `launch_file` among its arguments and by `marks` in its environment. Blocks until the program
    runs. Raises OSError that says which step failed; nothing is left running then."""
    request = {
        "argv": argv,
        "env": dict(environment),
        "cwd": str(cwd),
        "out": str(out),
        "err": str(err),
        "limits": dict(confinement.limits),
        "cgroups": [str(folder / "cgroup.procs") for folder in confinement.cgroups],
        "user": None
        if confinement.user is None
        else [confinement.user.uid, confinement.user.gid, list(confinement.user.groups)],
    }
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        stdin = os.memfd_create("launch", os.MFD_CLOEXEC)
        try:
            os.write(stdin, json.dumps(request).encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", _STEP_FILE, str(writer), str(launch_file)],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=dict(marks),
                start_new_session=True,
                umask=0o077,
                pass_fds=(writer,),
            )
        finally:
            os.close(stdin)
            os.close(writer)
        try:
            _wait_executed(reader, child)
        except BaseException:
            child.kill()
            child.wait()
            raise
    finally:
        os.close(reader)
    return child


def _wait_executed(reader: int, child: subprocess.Popen[bytes]) -> None:
    """Wait until the pipe's other end is closed: by the exec, or by the end of the process."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    if not poll.poll(_STEP_SECS * 1000):
        raise TimeoutError(f"a worker's process did not start within {_STEP_SECS:.0f} s")
    report = os.read(reader, 65536)
    if report:
        number, why = json.loads(report)
        raise OSError(number or 0, why)
    # No message: the exec was done, or the step was killed, which shows as an exit.
