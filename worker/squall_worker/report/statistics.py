"""The worker's heartbeat for Nimbus: that it is alive, and what its executors did."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

from squall_common.cluster.values import (
    CheckpointReport,
    ExecutorStats,
    WorkerDrained,
    WorkerHeartbeat,
    WorkerUsage,
)
from squall_common.daemon.clock import Clock
from squall_common.topology.model import Executor

# How long a snapshot of the statistics may take; a stuck loop reports its last one.
_SNAPSHOT_SECS = 0.1
# Reading the statistics of thousands of executors takes the loop a while: at most this share of its
# time, however often they are wanted.
_READ_SHARE = 50
# With more executors, a worker reports sums by component: a heartbeat has to fit into one znode of
# 1 MB, where it goes while Nimbus is away.
EXECUTORS_MAX = 500


class StatsReport:
    """Makes heartbeats on the heartbeat thread out of statistics that belong to the
    loop's thread."""

    def __init__(
        self,
        topology_id: str,
        executors: Sequence[Executor],
        stats: Callable[[], Mapping[Executor, ExecutorStats]],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        began: float,
        drained: Callable[[], WorkerDrained | None] = lambda: None,
        rest_secs: Callable[[], float | None] = lambda: None,
        says_end: Callable[[], bool] = lambda: False,
        usage: Callable[[], WorkerUsage | None] = lambda: None,
        checkpoints: Callable[[], CheckpointReport | None] = lambda: None,
        store_failure: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`usage` is called on the heartbeat thread, the others on `loop`; the result of `stats`
        fits a heartbeat (EXECUTORS_MAX). `began` is when the worker began, on the clock's monotonic
        time."""
        self._topology_id = topology_id
        self._executors = tuple(executors)
        self._read_stats = stats
        self._read_drained = drained
        self._read_rest_secs = rest_secs
        self._read_says_end = says_end
        self._says_end = False
        self._read_usage = usage
        self._read_checkpoints = checkpoints
        self._checkpoints: CheckpointReport | None = None
        self._read_store_failure = store_failure
        self._store_failure: str | None = None
        self._loop = loop
        self._clock = clock
        self._began = began
        self._next_read = 0.0  # of the statistics, on the clock's monotonic time
        self._stats: Mapping[Executor, ExecutorStats] = {}
        self._read_at = began  # when they were read

    def heartbeat(self) -> WorkerHeartbeat:
        """The current heartbeat, from any thread but the loop's; its statistics are the previous
        ones if the loop is stuck or has ended."""
        taken = threading.Event()
        drained: list[WorkerDrained | None] = []
        rest: list[float | None] = []

        def snapshot() -> None:
            drained.append(self._read_drained())
            rest.append(self._read_rest_secs())
            self._says_end = self._read_says_end()
            self._checkpoints = self._read_checkpoints()
            self._store_failure = self._read_store_failure()
            now = self._clock.monotonic()
            if now >= self._next_read:
                self._stats, self._read_at = self._read_stats(), now
                after = self._clock.monotonic()
                self._next_read = after + _READ_SHARE * (after - now)
            taken.set()

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(snapshot)
            taken.wait(_SNAPSHOT_SECS)
        stats = self._stats
        rest_secs = rest[0] if rest else None
        # While the loop is stuck its tasks do nothing, so the last statistics are those of now.
        read_at = self._read_at if taken.is_set() else self._clock.monotonic()
        return WorkerHeartbeat(
            self._topology_id,
            {executor: stats.get(executor) for executor in self._executors},
            int(self._clock.time()),
            int(self._clock.monotonic() - self._began),
            drained[0] if drained else None,  # only what was found now: a stuck loop may be busy
            self._read_usage(),
            int(1000 * (read_at - self._began)),
            self._checkpoints,
            self._store_failure,
            None if rest_secs is None else int(1000 * rest_secs),
            self._says_end,
        )
