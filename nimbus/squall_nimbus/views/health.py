"""A topology's health in a word: decided from what Nimbus has read.

A topology's status says what its user wants (ACTIVE: it should run). Its assignment and the
supervisors' reports about their slots show whether it does run. ZooKeeper returns both quickly, as
they are small, so that every line of `storm list` can show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from squall_common.cluster import worker_exits
from squall_common.cluster.slot_reports import META_KEY, Condition, SlotReport, digest, parse
from squall_common.cluster.values import Assignment, StormBase, SupervisorInfo, TopologyStatus
from squall_common.cluster.worker_exits import WorkerExit
from squall_common.topology.model import Executor, WorkerSlot

OK = "ok"
NO_SUPERVISOR = "no supervisor"
NO_FREE_SLOT = "no free slot"
SUPERVISOR_AWAY = "supervisor away"
STARTING = Condition.STARTING.value

# A topology whose workers keep ending unexpectedly is in a crash loop until none has for this long,
# also while Nimbus moves it to other slots, which know nothing of its past.
_CRASHES_MIN = 2
_CALM_SECS = 120.0

# If several slots are in trouble, the first of these is shown: those that need a person come first.
_WORST_FIRST = (
    Condition.PACKAGE_REFUSED.value,
    Condition.LAUNCH_FAILED.value,
    Condition.CRASH_LOOP.value,
    NO_SUPERVISOR,
    NO_FREE_SLOT,
    SUPERVISOR_AWAY,
    Condition.WAITING_FOR_BLOBS.value,
    STARTING,
    OK,
)


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of the whole cluster. `reports` has None for a supervisor that publishes no
    reports; `exits` is the last unexpected exit of a worker, and `restarts` how many there were, by
    topology id."""

    offered: Set[WorkerSlot]
    used: Set[WorkerSlot]
    reports: Mapping[str, Mapping[int, SlotReport] | None]
    exits: Mapping[str, WorkerExit] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    now_secs: float = 0.0  # since 1970

    @classmethod
    def of(
        cls,
        supervisors: Mapping[str, SupervisorInfo],
        assignments: Iterable[Assignment],
        now_secs: float,
    ) -> Slots:
        return cls(
            {WorkerSlot(i, port) for i, info in supervisors.items() for port in info.meta},
            {slot for one in assignments for slot in set(one.executor_slot.values())},
            {i: parse(info.scheduler_meta.get(META_KEY)) for i, info in supervisors.items()},
            worker_exits.latest(supervisors.values()),
            worker_exits.total_counts(supervisors.values()),
            now_secs,
        )

    def crashes(self, topology_id: str) -> bool:
        """Whether workers of a topology have kept ending unexpectedly until just now."""
        last = self.exits.get(topology_id)
        often = self.restarts.get(topology_id, 0) >= _CRASHES_MIN
        return last is not None and often and self.now_secs - last.time_secs < _CALM_SECS


def health(
    topology_id: str, base: StormBase, slots: Mapping[WorkerSlot, list[Executor]], cluster: Slots
) -> str:
    """Return the word for a topology whose executors are on `slots`: `ok` if all of its tasks run,
    empty if it is being killed."""
    if base.status is TopologyStatus.KILLED:
        return ""
    found = {_of_slot(topology_id, slot, executors, cluster) for slot, executors in slots.items()}
    if sum(map(len, slots.values())) < sum(base.component_executors.values()):
        found.add(_unplaced(cluster))
    if STARTING in found and cluster.crashes(topology_id):
        found.add(Condition.CRASH_LOOP.value)
    return next((word for word in _WORST_FIRST if word in found), OK)


def _unplaced(cluster: Slots) -> str:
    """Return why executors have no slot. If one is free, the next scheduling round places them."""
    if not cluster.reports:
        return NO_SUPERVISOR
    return STARTING if cluster.offered - cluster.used else NO_FREE_SLOT


def _of_slot(topology_id: str, slot: WorkerSlot, executors: list[Executor], cluster: Slots) -> str:
    if slot.node not in cluster.reports:
        return SUPERVISOR_AWAY
    reports = cluster.reports[slot.node]
    if reports is None:
        return OK  # an older supervisor: nothing is known
    report = reports.get(slot.port)
    if report is None or (report.topology_id, report.executors) != (topology_id, digest(executors)):
        return STARTING  # it has not seen this assignment yet
    return OK if report.condition is Condition.RUNNING else report.condition.value
