"""Everything that a scheduler sees: the existing slots, and what each topology needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from squall_common.topology.model import Executor, WorkerSlot

# The slots on which the executors of one topology run. A missing executor has no slot.
Placement = dict[Executor, WorkerSlot]


@dataclass(frozen=True, slots=True)
class Supervisor:
    """A connected supervisor: its id, its host's name, and the ports it offers."""

    id: str
    hostname: str
    ports: tuple[int, ...]

    @property
    def slots(self) -> list[WorkerSlot]:
        return [WorkerSlot(self.id, port) for port in sorted(set(self.ports))]


@dataclass(frozen=True, slots=True)
class TopologyNeed:
    """What one topology needs, and where it runs now."""

    id: str
    num_workers: int  # wanted; at least 1
    component_of: Mapping[Executor, str]  # every executor it must have
    placement: Mapping[Executor, WorkerSlot] = field(default_factory=dict)  # as assigned now
    dead: frozenset[Executor] = frozenset()  # of `placement`: no longer alive there
    # Spread running executors evenly over slots and supervisors (a rebalance was asked for).
    spread: bool = False

    def live_placement(self) -> Placement:
        """The part of the placement that can stay as it is."""
        return {
            executor: slot
            for executor, slot in sorted(self.placement.items())
            if executor in self.component_of and executor not in self.dead
        }


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One moment of the cluster. `topologies` in the order of their submission."""

    supervisors: tuple[Supervisor, ...]
    topologies: tuple[TopologyNeed, ...]
    # Slots of topologies whose assignment cannot be read: workers may run there.
    held: frozenset[WorkerSlot] = frozenset()
