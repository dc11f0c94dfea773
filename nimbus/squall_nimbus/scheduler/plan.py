"""From the stored assignments to the new ones: what a scheduling round changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from squall_common.cluster.values import Assignment
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.even import schedule
from squall_nimbus.scheduler.snapshot import ClusterSnapshot, Supervisor, TopologyNeed


@dataclass(frozen=True, slots=True)
class Wanted:
    """One topology as a scheduling round sees it."""

    id: str
    num_workers: int
    component_of: Mapping[Executor, str]
    current: Assignment | None
    dead: frozenset[Executor] = frozenset()
    spread: bool = False
    fixed: bool = False  # keeps its slots whatever its state: killed, or waiting to rebalance
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentPlan:
    """The decisions of a round. `assignments` holds every topology that is not fixed."""

    assignments: Mapping[str, Assignment]
    changed: frozenset[str]
    # Executors that were put on a slot in this round: their launch timeout begins.
    placed: Mapping[str, frozenset[Executor]] = field(default_factory=dict)


def plan(
    supervisors: Iterable[Supervisor],
    topologies: Iterable[Wanted],
    *,
    master_code_dir: str,
    now_epoch_secs: int,
    held: frozenset[WorkerSlot] = frozenset(),
) -> AssignmentPlan:
    """Schedule, and make Assignment values from the placements. `held`: slots that must stay
    reserved although no topology here claims them."""
    supervisors, topologies = tuple(supervisors), tuple(topologies)
    # Topologies that must not be touched still hold their slots.
    needs = tuple(
        _fixed(wanted)
        if wanted.fixed
        else TopologyNeed(
            wanted.id,
            wanted.num_workers,
            wanted.component_of,
            wanted.current.executor_slot if wanted.current else {},
            wanted.dead,
            wanted.spread,
        )
        for wanted in topologies
    )
    placements = schedule(ClusterSnapshot(supervisors, needs, held))
    host_of = {supervisor.id: supervisor.hostname for supervisor in supervisors}
    assignments: dict[str, Assignment] = {}
    changed: set[str] = set()
    placed: dict[str, frozenset[Executor]] = {}
    for wanted in topologies:
        if wanted.fixed:
            continue
        old = wanted.current or Assignment(master_code_dir)
        placement = placements[wanted.id]
        new_here = frozenset(
            executor
            for executor, slot in placement.items()
            if old.executor_slot.get(executor) != slot or executor in wanted.dead
        )
        nodes = sorted({slot.node for slot in placement.values()})
        assignment = Assignment(
            master_code_dir=old.master_code_dir,
            node_host={node: host_of.get(node) or old.node_host.get(node, "") for node in nodes},
            executor_slot=placement,
            executor_start_time_secs={
                executor: now_epoch_secs
                if executor in new_here
                else old.executor_start_time_secs.get(executor, now_epoch_secs)
                for executor in placement
            },
            owner=wanted.owner if wanted.current is None else old.owner,
        )
        assignments[wanted.id] = assignment
        placed[wanted.id] = new_here
        if wanted.current is None or assignment != wanted.current:
            changed.add(wanted.id)
    return AssignmentPlan(assignments, frozenset(changed), placed)


def _fixed(wanted: Wanted) -> TopologyNeed:
    placement: Mapping[Executor, WorkerSlot] = (
        wanted.current.executor_slot if wanted.current else {}
    )
    slots = len(set(placement.values()))
    return TopologyNeed(wanted.id, max(slots, 1), dict.fromkeys(placement, ""), placement)
