"""Whether this node's disks have room for the files of new workers.

Without it a worker cannot be started for as long as the disk is full, while other nodes may have
room. So when `_FAILURES` attempts in a row have failed on a port because a file could not be
written, this node withdraws that port and its idle ones: Nimbus then runs their executors
elsewhere, if need be in fewer workers. Workers that run go on. Once a test file can be written to
each folder, all ports are offered again, and Nimbus spreads the topologies anew. That restarts
workers, so a node that withdraws its ports again (a package may need more room than the test file)
does so for longer each time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks

log = get_logger(__name__)

# Of an OSError that another node's disk would not raise.
_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
# The first failure may come before the folder of the worker before is gone.
_FAILURES = 3
_HOLD_SECS, _HOLD_SECS_MAX = 5.0, 600.0
# More than a worker's files at its start.
_ROOM_BYTES = 1024 * 1024


class DiskRoom:
    """`folders` are those that a launch writes to. `changed` is called when other ports than before
    are to be offered. Call everything on the loop."""

    def __init__(
        self, folders: Sequence[Path], tasks: BackgroundTasks, *, changed: Callable[[], None]
    ) -> None:
        self._folders = folders
        self._tasks = tasks
        self._changed = changed
        self._failures: Counter[int] = Counter()  # in a row, by port
        self._looking: asyncio.Task[None] | None = None  # while something is withdrawn
        self._hold_secs = _HOLD_SECS  # when something is withdrawn next

    def launched(self, port: int) -> None:
        """A worker was started on a port."""
        del self._failures[port]
        if not self._failures:
            self._hold_secs = _HOLD_SECS

    def failed(self, port: int, error: BaseException) -> None:
        """No worker could be started on a port, because of `error`."""
        if not _is_of_disk(error):
            del self._failures[port]
            return
        self._failures[port] += 1
        if self._failures[port] != _FAILURES:
            return
        log.error(
            "port_withdrawn",
            port=port,
            error=error,
            what_now="offering Nimbus neither this port nor idle ones until files can be written",
        )
        if self._looking is None:
            self._looking = self._tasks.start("disk room", self._wait_for_room())
        self._changed()

    def offered(self, ports: Sequence[int], idle: Collection[int]) -> tuple[int, ...]:
        """Those of `ports` that Nimbus may use; on `idle` ones nothing is to run now."""
        if self._looking is None:
            return tuple(ports)
        return tuple(p for p in ports if p not in idle and self._failures[p] < _FAILURES)

    async def _wait_for_room(self) -> None:
        wait_secs = self._hold_secs
        self._hold_secs = min(2 * wait_secs, _HOLD_SECS_MAX)
        while True:
            await asyncio.sleep(wait_secs)
            if await asyncio.to_thread(has_room, self._folders):
                break
            wait_secs = _HOLD_SECS
        log.info("ports_offered_again")
        self._looking = None
        self._failures.clear()
        self._changed()


def has_room(folders: Sequence[Path], room_bytes: int = _ROOM_BYTES) -> bool:
    """Whether there is room for a file of this size in each folder, or where it would be made.
    Blocks."""
    try:
        for folder in folders:
            while not folder.exists():
                folder = folder.parent
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, room_bytes)
    except OSError:
        return False
    return True


def _is_of_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is about a disk that cannot be written to."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRNOS:
            return True
        error = error.__cause__
    return False
