"""Processes that belong to a folder: those that name it in their command line, their environment
or their working directory. Prints those that do not end by themselves, ends them, and exits with
status 1 when there were any.

    python tests/leftovers.py FOLDER [SECS]       30 seconds to end
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

# On a busy machine a process that has been told to end takes its time.
END_SECS_MAX = 30.0


def processes_of(folder: Path) -> dict[int, str]:
    """Command lines of the living processes that name `folder`, by process id: not this process,
    nor those that started it."""
    needle = os.fsencode(str(folder))
    mine = _ancestors()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in mine:
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if not command:  # a kernel thread, or one that has ended and waits for its parent
                continue
            folder_now = os.fsencode(os.readlink(entry / "cwd"))
            places = (command, (entry / "environ").read_bytes(), folder_now)
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if any(needle in place for place in places):
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def left_behind(folder: Path, secs: float = END_SECS_MAX) -> dict[int, str]:
    """Those of `processes_of` that are still there after so many seconds; at once when there are
    none."""
    deadline = time.monotonic() + secs
    while found := processes_of(folder):
        if time.monotonic() >= deadline:
            break
        time.sleep(0.2)
    return found


def _ancestors() -> set[int]:
    pids = set()
    pid = os.getpid()
    while pid > 0:
        pids.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended, and ours is another's child now
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return pids


def main() -> int:
    found = left_behind(Path(sys.argv[1]), *map(float, sys.argv[2:]))
    for pid, command in found.items():
        print(f"{pid} {command}", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
