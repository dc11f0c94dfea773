"""Sums by component, several times a second while somebody watches a large topology.

They are read on the loop and laid into the worker's folder by the heartbeat thread, for the
supervisor to pass on (`squall_common.worker_files.sums_file`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.telemetry.sums import (
    SUMS_BYTES_MAX,
    ComponentSums,
    WorkerSums,
    encode_sums,
)
from squall_common.worker_files.sums_file import write_sums

log = get_logger(__name__)

# How long the loop is waited for; while it is stuck, its tasks do nothing.
_READ_SECS = 0.1
# Reading takes at most this share of the loop's time, however often it is wanted.
_READ_SHARE = 30


class SumsReport:
    """Used by the heartbeat thread only."""

    def __init__(
        self,
        folder: Path,
        read: Callable[[], Mapping[str, ComponentSums]],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        began: float,
    ) -> None:
        """`read` is called on `loop`. `began` is when the worker began, on the clock's monotonic
        time."""
        self._folder = folder
        self._read = read
        self._loop = loop
        self._clock = clock
        self._began = began
        self._components: Mapping[str, ComponentSums] = {}
        self._read_at = self._next_read = 0.0  # on the clock's monotonic time
        # Set once the last reading has been made: a loop that was stuck has but one to make up for.
        self._taken = threading.Event()
        self._taken.set()
        self._failed = False

    def report(self, period_secs: float) -> float:
        """Lay the sums into the folder, if they are due; the seconds until they are again."""
        now = self._clock.monotonic()
        if now < self._next_read:
            return self._next_read - now
        self._next_read = now + period_secs
        if self._taken.is_set():
            self._taken.clear()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._take)
        at = self._read_at if self._taken.wait(_READ_SECS) else self._clock.monotonic()
        if self._components:
            self._write(WorkerSums(int(1000 * (at - self._began)), dict(self._components)))
        return max(0.0, self._next_read - self._clock.monotonic())

    def _take(self) -> None:
        # (Of the processor: what preempts this thread costs others no time of the loop.)
        began = time.thread_time()
        try:
            self._components = self._read()
        finally:
            self._read_at = self._clock.monotonic()
            rest = _READ_SHARE * (time.thread_time() - began)
            self._next_read = max(self._next_read, self._read_at + rest)
            self._taken.set()

    def _write(self, sums: WorkerSums) -> None:
        data = encode_sums(sums)
        try:
            if len(data) > SUMS_BYTES_MAX:
                raise ValueError(f"{len(data)} bytes are more than {SUMS_BYTES_MAX}")
            write_sums(self._folder, data)
        except (OSError, ValueError) as error:
            if not self._failed:
                log.warning("sums_not_written", folder=self._folder, error=error)
            self._failed = True
        else:
            self._failed = False
