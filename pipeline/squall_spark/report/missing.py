"""Spans whose history died with its worker. Pure.

A worker writes a file now and then, so one that is killed takes its last records along. Its tasks
did run until then: the throughput of that span is not known, and a plot must not show a dip. (While
no worker runs, throughput does fall.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall_spark.report.sums import Event, WorkerSpan

_LEAST_MS = 1_000


@dataclass(frozen=True, slots=True)
class Missing:
    place: str  # host:port of the worker
    from_ms: int
    to_ms: int
    components: tuple[str, ...]  # of its tasks; () if it has written nothing at all

    def covers(self, t: int, step_ms: int, component: str) -> bool:
        """Whether it takes half of a step of a component, or more."""
        if self.components and component not in self.components:
            return False
        shared = min(self.to_ms, t + step_ms) - max(self.from_ms, t)
        return 2 * shared >= step_ms


def missing_spans(
    exits: Sequence[Mapping[str, Any]],
    events: Sequence[Event],
    spans: Sequence[WorkerSpan],
    interval_ms: int,
) -> list[Missing]:
    """`exits` are the unexpected ones, as `analyse.recoveries` gives them; `interval_ms` is how
    often workers record."""
    found = []
    for one in exits:
        place, at = one["place"], one["at_ms"]
        began = max(
            (e.at_ms for e in events if e.name == "worker running" and e.place == place
             and e.at_ms <= at), default=None,
        )  # fmt: skip
        own = [s for s in spans if s.worker == place and s.from_ms < at]
        if began is not None:
            own = [s for s in own if s.to_ms > began]
        last = max(own, key=lambda s: s.to_ms, default=None)
        first = began if last is None else last.to_ms
        if first is not None and at - first > max(_LEAST_MS, interval_ms * 3 // 2):
            found.append(Missing(place, first, at, last.components if last is not None else ()))
    return found
