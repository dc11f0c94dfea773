"""What this node is to run: from Nimbus' assignments to one piece of work per port.

An assignment that cannot be read is unknown, and unknown never means "nothing": its topology keeps
the ports that it has. Only an assignment that can be read takes work away.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_common.cluster.values import Assignment
from squall_common.topology.model import Executor


@dataclass(frozen=True, slots=True)
class PortAssignment:
    """The work of one port. `zxid` is the mzxid of the topology's assignment when the port got
    this work: the first part of its workers' incarnation."""

    topology_id: str
    executors: tuple[Executor, ...]  # sorted
    zxid: int
    owner: str | None = None

    def same_work(self, other: PortAssignment) -> bool:
        """Whether a worker of one may go on as the worker of the other. Where peers run, and when
        the assignment was written, does not matter."""
        return self.topology_id == other.topology_id and self.executors == other.executors


class Unreadable(enum.Enum):
    """Stands for an assignment that may exist but could not be read."""

    UNREADABLE = "unreadable"


UNREADABLE = Unreadable.UNREADABLE

# Topology id -> its assignment and mzxid. An absent topology has none.
Assignments = Mapping[str, tuple[Assignment, int] | Unreadable]


@dataclass(frozen=True, slots=True)
class Desired:
    """What the ports are to run, and problems with the assignments, for the log."""

    ports: Mapping[int, PortAssignment]
    problems: tuple[str, ...] = ()


def desired_ports(
    assignments: Assignments,
    node: str,
    slots: Iterable[int],
    previous: Mapping[int, PortAssignment],
) -> Desired:
    """The work of each port of supervisor `node`.

    `previous` is what its ports are to run now: unchanged work keeps its zxid, and a topology whose
    assignment is unreadable keeps its ports unless a readable one claims them. If two topologies
    claim one port, the one that has it keeps it; otherwise the newer assignment gets it.
    """
    own = frozenset(slots)
    problems: list[str] = []
    ports: dict[int, PortAssignment] = {}
    for topology_id in sorted(assignments):
        read = assignments[topology_id]
        if isinstance(read, Unreadable):
            continue
        assignment, zxid = read
        here: dict[int, list[Executor]] = {}
        for executor, slot in assignment.executor_slot.items():
            if slot.node == node:
                here.setdefault(slot.port, []).append(executor)
        for port in sorted(here):
            if port not in own:
                problems.append(
                    f"{topology_id} is assigned to port {port}, which is not a slot here"
                )
                continue
            work = PortAssignment(topology_id, tuple(sorted(here[port])), zxid, assignment.owner)
            rival = ports.get(port)
            if rival is not None:
                work = _settle(rival, work, previous.get(port))
                problems.append(
                    f"port {port} is assigned to {rival.topology_id} and to {topology_id}; "
                    f"{work.topology_id} gets it"
                )
            ports[port] = work
    for port, held in previous.items():
        now = ports.get(port)
        if now is not None:
            if now.same_work(held):
                ports[port] = held
        elif port in own and isinstance(assignments.get(held.topology_id), Unreadable):
            ports[port] = held
            problems.append(
                f"the assignment of {held.topology_id} cannot be read; port {port} keeps it"
            )
    return Desired(ports, tuple(problems))


def _settle(
    rival: PortAssignment, work: PortAssignment, held: PortAssignment | None
) -> PortAssignment:
    for one in (rival, work):
        if held is not None and held.topology_id == one.topology_id:
            return one
    return max(rival, work, key=lambda one: (one.zxid, one.topology_id))
