"""What this process uses, for its heartbeat."""

from __future__ import annotations

import time

from squall_common.cluster.values import WorkerUsage
from squall_common.daemon.loop.loop_lag import LoopLag
from squall_common.daemon.own_memory import memory_bytes

# Of a shorter time, shares of a core and the worst delay say little.
_SECS_MIN = 2.0


class UsageMeter:
    """Measures from one reading to the next, over two seconds at least. Reads on any thread, but
    only on one."""

    def __init__(self, lag: LoopLag) -> None:
        self._lag = lag
        self._cpu_secs = time.process_time()
        self._read_at = time.monotonic()
        self._last: WorkerUsage | None = None

    def read(self) -> WorkerUsage:
        """The usage since the last reading, or since the beginning."""
        cpu_secs, now = time.process_time(), time.monotonic()
        secs = max(1e-3, now - self._read_at)
        if self._last is not None and secs < _SECS_MIN:
            return self._last
        used, self._cpu_secs = cpu_secs - self._cpu_secs, cpu_secs
        self._read_at = now
        self._last = WorkerUsage(
            cpu_cores=used / secs,
            memory_bytes=memory_bytes()[1],
            loop_lag_ms=1000 * self._lag.worst(),
        )
        return self._last
