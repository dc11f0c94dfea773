"""The last heartbeats of a topology's workers, as they reached Nimbus.

Nimbus passes them on as they are, which costs it next to nothing, so they can be read several times
a second; each is decoded here, once. What workers do not report is filled in from Nimbus' answer
about all executors (`TopologyInfo`), which is dear and read seldom.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_common.cluster import codec
from squall_common.cluster.codec import CorruptStateError
from squall_thrift import storm

Slot = tuple[str, int]  # supervisor, port
_Tasks = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Beat:
    data: bytes
    uptime_secs: int
    stats_ms: int | None
    executors: Mapping[_Tasks, storm.ExecutorStats]


class WorkerBeats:
    """Of one topology."""

    def __init__(self) -> None:
        self._beats: dict[Slot, _Beat] = {}

    def take(self, reports: Iterable[storm.SupervisorWorkerHeartbeat]) -> None:
        """Take in what all workers reported last. One that cannot be read is left out."""
        found: dict[Slot, _Beat] = {}
        for one in reports:
            slot = (one.supervisor_id or "", one.port or 0)
            before = self._beats.get(slot)
            if before is not None and before.data == one.report:
                found[slot] = before
            elif one.report:
                try:
                    beat = codec.decode_heartbeat_struct(f"{slot}", one.report)
                except CorruptStateError:
                    continue
                found[slot] = _Beat(
                    one.report,
                    beat.uptime_secs,
                    beat.stats_ms,
                    {
                        (tasks.task_start, tasks.task_end): stats
                        for tasks, stats in beat.executor_stats.items()
                        if stats.rate  # 0: it has nothing to report yet
                    },
                )
        self._beats = found

    def clear(self) -> None:
        """Nothing is known any more."""
        self._beats = {}

    def executors(
        self,
        known: Iterable[storm.ExecutorSummary],
        workers: Iterable[storm.WorkerSummary],
    ) -> list[storm.ExecutorSummary]:
        """The executors of Nimbus' answer, with what their workers have reported since."""
        if not self._beats:
            return list(known)
        by_place = {
            (one.host, one.port): beat
            for one in workers
            if (beat := self._beats.get((one.supervisor_id or "", one.port or 0))) is not None
        }
        result = []
        for one in known:
            beat = by_place.get((one.host, one.port))
            tasks = one.executor_info
            if beat is None:
                result.append(one)
                continue
            stats = beat.executors.get((tasks.task_start, tasks.task_end))
            if stats is not None:
                one = copy.copy(one)
                one.stats, one.uptime_secs, one.stats_ms = stats, beat.uptime_secs, beat.stats_ms
            result.append(one)
        return result
