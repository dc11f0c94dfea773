"""Limits the output that a worker and its children print, while it runs.

All output goes to worker.log.out and worker.log.err through descriptors that outlive every file
name, so renaming the files would change nothing. A file above its limit is copied, its newest part,
to a name with the suffix ".1", and truncated: the descriptors append (`launch_step`), and go on
from there. A line that is printed in between is lost, as with logrotate's copytruncate.

The worker does this itself: it may write where its supervisor may not (as another user), and it
goes on while the supervisor is away.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

# As in launch_step, which rotates the files of an earlier worker.
PRINTED_BYTES_MAX = 10 * 1024 * 1024
_EVERY_SECS = 1.0
_CHUNK_BYTES = 256 * 1024


def bound_printed(artifacts_dir: Path) -> None:
    """Keep this process's standard output and error, if they are files in that folder, below twice
    the limit each, in a separate thread."""
    files = {1: artifacts_dir / "worker.log.out", 2: artifacts_dir / "worker.log.err"}

    def watch() -> None:
        while True:
            for fd, path in files.items():
                try:
                    turn_over(fd, path)
                except OSError as error:
                    log.warning("printed_not_bounded", file=path, error=error)
            pause.wait(_EVERY_SECS)

    pause = threading.Event()
    threading.Thread(target=watch, name="printed", daemon=True).start()


def turn_over(fd: int, path: Path, bytes_max: int = PRINTED_BYTES_MAX) -> bool:
    """Truncate the file that `fd` appends to if it is above the limit; returns whether it was. Its
    newest `bytes_max` bytes are then in PATH.1, or lost if there is no room for them. Raises
    OSError."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size <= bytes_max:
        return False
    older = path.with_name(path.name + ".1")
    try:
        _copy_end(path, older, found, bytes_max)
    except OSError as error:  # most likely a full disk: all the more reason to cut it
        log.warning("printed_not_kept", file=older, error=error)
    os.ftruncate(fd, 0)
    return True


def _copy_end(path: Path, target: Path, expected: os.stat_result, bytes_max: int) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as source:
        found = os.fstat(source.fileno())
        if (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino):
            raise FileNotFoundError(f"{path} is another file by now")
        source.seek(max(0, found.st_size - bytes_max))
        new = target.with_name(target.name + ".new")
        # What is printed faster than it is copied is not waited for.
        left = bytes_max
        try:
            with open(new, "wb") as out:
                while left > 0 and (chunk := source.read(min(left, _CHUNK_BYTES))):
                    out.write(chunk)
                    left -= len(chunk)
            os.replace(new, target)
        except OSError:
            new.unlink(missing_ok=True)
            raise
