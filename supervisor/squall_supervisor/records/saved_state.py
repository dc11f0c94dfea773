"""The supervisor's local state while it runs: read once, written whenever it changes.

The file is written in a thread, one write at a time, always with the latest state. Nothing waits
for it: a launch needs no write for its number (numbers are reserved by the hundred), and what a
port is to run is also in ZooKeeper. So a full disk does not stop any worker; the write is tried
again. Only when the reserved numbers are used up are there no launches until it succeeds.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import replace

from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.neighbours import Neighbours
from squall_supervisor.records.state_file import LAUNCHES_RESERVED, LocalState, LocalStateFile

log = get_logger(__name__)


class SavedState:
    """Owns the local state. Call `save_now` once at the start to reserve the first numbers."""

    def __init__(self, file: LocalStateFile, state: LocalState, tasks: BackgroundTasks) -> None:
        self._file = file
        self._tasks = tasks
        self._last_launch = state.launches_reserved
        self._reserved = state.launches_reserved  # in the file
        self._error: OSError | None = None  # of the last write
        self._state = replace(
            state,
            launches_reserved=state.launches_reserved + LAUNCHES_RESERVED,
            ports=dict(state.ports),
        )
        self._dirty = True
        self._saving: asyncio.Task[None] | None = None

    @property
    def state(self) -> LocalState:
        return self._state

    def next(self) -> int:
        """A launch number that no worker of this node has had before. Raises OSError if none is
        left because the file cannot be written."""
        if self._last_launch >= self._reserved:
            self.save()
            raise self._error or OSError(errno.EAGAIN, "no launch number is reserved yet")
        self._last_launch += 1
        left = self._state.launches_reserved - self._last_launch
        if left < LAUNCHES_RESERVED // 2:
            reserved = self._state.launches_reserved + LAUNCHES_RESERVED
            self._change(replace(self._state, launches_reserved=reserved))
        return self._last_launch

    def set_ports(self, ports: Mapping[int, PortAssignment]) -> None:
        """Remember what the ports are to run."""
        if dict(ports) != dict(self._state.ports):
            self._change(replace(self._state, ports=dict(ports)))

    def set_neighbours(self, neighbours: Neighbours) -> None:
        """Remember which other daemons there are."""
        self._change(replace(self._state, neighbours=neighbours))

    def save_now(self) -> None:
        """Write the file, if it is out of date. Raises OSError."""
        if self._dirty:
            self._write(self._state)
            self._dirty = False

    def save(self) -> None:
        """Write the file in the background, if it is out of date; errors are logged."""
        if self._dirty and self._saving is None:
            self._saving = self._tasks.start("local state", self._save())

    async def close(self) -> None:
        """Wait for the write that is under way."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)

    def _change(self, state: LocalState) -> None:
        self._state = state
        self._dirty = True
        self.save()

    def _write(self, state: LocalState) -> None:
        try:
            self._file.save(state)
        except OSError as error:
            self._error = error
            raise
        self._reserved, self._error = state.launches_reserved, None

    async def _save(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                await asyncio.to_thread(self._write, self._state)
        except OSError as error:
            self._dirty = True
            log.error("local_state_not_written", path=self._file.path, error=error)
        finally:
            self._saving = None
