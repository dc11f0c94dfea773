"""Metric points that workers send: the newest of each live topology, in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_POINTS_MAX = 10_000  # per topology; the oldest are dropped first


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric; `time_ms` is epoch milliseconds by the worker's clock."""

    host: str
    port: int
    component: str
    executor: str
    stream: str
    name: str
    time_ms: int
    value: float


class WorkerMetrics:
    """Bounded for each topology, and kept for live ones only: clients cannot make it grow."""

    def __init__(self) -> None:
        self._points: dict[str, deque[MetricPoint]] = {}

    def add(self, topology_id: str, points: Iterable[MetricPoint]) -> None:
        """Add points of a live topology."""
        self._points.setdefault(topology_id, deque(maxlen=_POINTS_MAX)).extend(points)

    def points(self, topology_id: str) -> list[MetricPoint]:
        """Return the kept points, oldest first."""
        return list(self._points.get(topology_id, ()))

    def keep(self, live: Collection[str]) -> None:
        """Forget all topologies but these."""
        self._points = {i: points for i, points in self._points.items() if i in live}
