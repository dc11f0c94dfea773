"""One supervisor per local folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall_supervisor.settings import SupervisorSettings


class NodeLock:
    """Held by the one supervisor that uses a local folder; the kernel releases it when it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def acquire(self) -> bool:
        """Returns False if another process holds it. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def supervisor_runs(conf: Mapping[str, Any]) -> bool:
    """Whether a supervisor is using this node's local folder."""
    lock = NodeLock(SupervisorSettings.from_conf(conf).lock_file)
    free = lock.acquire()
    lock.release()
    return not free
