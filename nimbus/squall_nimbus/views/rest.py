"""Decides whether a topology has finished: all sources have ended, and nothing is in flight.

A worker reports how long it has been at rest. In that time it did nothing, and had nothing in
flight at both ends of it (`squall_engine.observe.drained`). One report does not suffice: a tuple of
another worker may have reached it since. But if there was a moment at which all workers were at
rest, no tuple was under way at that moment either, and as no spout emits, nothing can follow.

What is known of the moment at which a report was made is when it came: that was at most
`_UNDERWAY_SECS` later. So the times of two workers are compared with that much to spare. One that
took longer could hide a tuple between two workers, for a while; the wait of `storm kill` would find
it, as it asks each worker anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from squall_common.cluster.values import Assignment, StormBase
from squall_common.topology.model import ComponentKind, WorkerSlot
from squall_nimbus.scheduler.heartbeats import ReportedEnd
from squall_nimbus.store.topology_store import StoredTopology
from squall_nimbus.views.stats import Totals
from squall_nimbus.views.views import TopologyView

_UNDERWAY_SECS = 3.0
# A worker that has not reported for so long may have been replaced.
_SILENT_SECS = 30.0


@dataclass(frozen=True, slots=True)
class Rest:
    """The last report of a worker: how long ago it came, and how long the worker was at rest."""

    age_secs: float
    rest_secs: float


def were_at_rest(workers: Collection[Rest | None]) -> bool:
    """Whether all workers of a topology (None: one that is not at rest) were at rest at the same
    time."""
    known = [one for one in workers if one is not None and one.age_secs <= _SILENT_SECS]
    if not known or len(known) < len(workers):
        return False
    if len(known) == 1:
        return True
    # Relative to now: when the last of them came to rest, and when the first of the reports was
    # made, each as late or as early as possible.
    began = max(-one.age_secs - one.rest_secs for one in known)
    ended = min(-one.age_secs for one in known) - _UNDERWAY_SECS
    return began <= ended


def has_ended(totals: Totals) -> bool | None:
    """Whether all tasks of a spout say that their source has ended; None if it does not say whether
    it ends."""
    return None if totals.endless else 0 < totals.tasks == totals.exhausted


def has_finished(
    view: TopologyView, stored: StoredTopology, spouts: dict[str, Totals]
) -> bool | None:
    """Whether a topology has finished, from the totals of its spouts; None if a spout does not say
    whether its source ends."""
    ends = [
        has_ended(spouts.get(name) or Totals())
        for name, component in stored.compiled.components.items()
        if component.kind is ComponentKind.SPOUT
    ]
    if not ends or None in ends:
        return None
    placed = view.placed.executor_slot
    if not all(ends) or len(placed) < sum(view.base.component_executors.values()):
        return False
    return were_at_rest([_rest_in(view, slot) for slot in view.placed.slots()])


def has_finished_as_reported(
    base: StormBase, placed: Assignment, ends: Mapping[WorkerSlot, ReportedEnd]
) -> bool | None:
    """The same from less, for lists of topologies: a worker that was at rest has no spout whose
    source has not ended. `ends` is what each worker reported last; None also if none has."""
    slots = placed.slots()
    known = [ends[slot] for slot in slots if slot in ends]
    if not known or not all(one.end.says_end for one in known):
        return None
    if len(placed.executor_slot) < sum(base.component_executors.values()):
        return False
    return were_at_rest([_rest_of(ends.get(slot)) for slot in slots])


def _rest_of(reported: ReportedEnd | None) -> Rest | None:
    if reported is None or reported.end.rest_ms is None:
        return None
    return Rest(reported.age_secs, reported.end.rest_ms / 1000)


def _rest_in(view: TopologyView, slot: WorkerSlot) -> Rest | None:
    undecoded, beat = view.beats.get(slot), view.beat(slot)
    if undecoded is None or undecoded.age_secs is None or beat is None or beat.rest_ms is None:
        return None
    return Rest(undecoded.age_secs, beat.rest_ms / 1000)
