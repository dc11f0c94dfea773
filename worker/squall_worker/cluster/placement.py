"""What an assignment means for one worker. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.topology.model import Executor, WorkerSlot


@dataclass(frozen=True, slots=True)
class Placement:
    """One reading of /assignments/ID, seen from a slot."""

    executors: tuple[Executor, ...]  # those of the slot, sorted; empty when it has none
    routes: Mapping[int, WorkerSlot]  # every task of the topology and where it runs
    hosts: Mapping[WorkerSlot, str]  # the other workers and their hosts
    # The transaction that wrote the assignment: no worker of it has a greater one in its session.
    # None when it was not read in ZooKeeper.
    zxid: int | None = None

    def tasks_by_slot(self) -> dict[WorkerSlot, frozenset[int]]:
        """The tasks of each other worker."""
        return {
            peer: frozenset(task for task, slot in self.routes.items() if slot == peer)
            for peer in self.hosts
        }


def place(assignment: Assignment, own: WorkerSlot, zxid: int | None = None) -> Placement:
    """The placement of `own`. A slot whose node has no host in the assignment is reached by the
    node's id, which is a host name in small clusters and leads to an error in the log in others."""
    routes = {
        task: slot for executor, slot in assignment.executor_slot.items() for task in executor.tasks
    }
    hosts = {
        slot: assignment.node_host.get(slot.node, slot.node)
        for slot in dict.fromkeys(assignment.executor_slot.values())
        if slot != own
    }
    executors = tuple(sorted(e for e, slot in assignment.executor_slot.items() if slot == own))
    return Placement(executors, routes, hosts, zxid)


def spouts_run(base: StormBase | None) -> bool:
    """Whether the topology's status lets spouts emit: only ACTIVE does; a killed, rebalancing or
    vanished topology drains."""
    return base is not None and base.status is TopologyStatus.ACTIVE


def drains(base: StormBase | None) -> bool:
    """Whether Nimbus waits for the topology to drain, in order to remove or redistribute it."""
    return base is not None and base.status in (TopologyStatus.KILLED, TopologyStatus.REBALANCING)


class Ownership:
    """Whether this worker's slot is still its own, and when to stop if it is not.

    The supervisor kills a worker whose work has moved; this is for a worker whose supervisor cannot
    (it is dead, or its node is cut off). Only a successful reading counts: a state that cannot be
    read says nothing.
    """

    def __init__(self, executors: tuple[Executor, ...], grace_secs: float) -> None:
        self._executors = executors
        self._grace_secs = grace_secs
        self._lost_at: float | None = None

    def read(self, executors: tuple[Executor, ...], now: float, *, at_once: bool = False) -> bool:
        """Take the slot's executors as just read (empty: no assignment); returns whether the slot
        is ours. `at_once`: if not, stop without a grace."""
        if executors == self._executors:
            self._lost_at = None
            return True
        if self._lost_at is None:
            self._lost_at = now
        if at_once:
            self._grace_secs = 0.0
        return False

    @property
    def deadline(self) -> float:
        """When to stop if the slot is not ours again by then; infinite while it is."""
        return float("inf") if self._lost_at is None else self._lost_at + self._grace_secs
