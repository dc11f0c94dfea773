"""Which topologies are looked at right now, and how often their workers report meanwhile.

The web UI calls `watchTopology` for each topology of an open page. Supervisors learn it from the
answer to their workers' heartbeats, and let those workers report several times a second, so that a
page shows a change within a second. Without a page, no worker is asked to.

What it costs Nimbus is bounded: the more executors are watched, the less often their workers
report, down to the usual pace. In between, those of a large topology report sums by component
(`squall_common.worker_files.watch_file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from squall_common.worker_files.watch_file import EXECUTORS_A_SECOND

# A page says again every two seconds that it is there.
_KEPT_SECS = 6.0
_PERIOD_SECS_MIN = 0.25
_TOPOLOGIES_MAX = 100


class WatchedTopologies:
    """`executors` returns how many executors of a topology have a slot; `now` is monotonic
    seconds."""

    def __init__(self, executors: Callable[[str], int]) -> None:
        self._executors = executors
        self._until: dict[str, float] = {}

    def watch(self, topology_id: str, now: float) -> None:
        """A topology is looked at. Beyond 100 of them, this changes nothing."""
        self._forget(now)
        if topology_id in self._until or len(self._until) < _TOPOLOGIES_MAX:
            self._until[topology_id] = now + _KEPT_SECS

    def periods(self, topology_ids: Iterable[str], now: float) -> dict[str, float]:
        """Of these topologies the watched ones, with the seconds between two reports."""
        if not self._until:
            return {}
        self._forget(now)
        executors = sum(map(self._executors, self._until))
        period = max(_PERIOD_SECS_MIN, executors / EXECUTORS_A_SECOND)
        return {one: period for one in topology_ids if one in self._until}

    def _forget(self, now: float) -> None:
        for topology_id in [one for one, until in self._until.items() if until <= now]:
            del self._until[topology_id]
