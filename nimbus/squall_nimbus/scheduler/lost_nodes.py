"""Which supervisors are lost: those that have work and are not connected. For Nimbus' log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from squall_common.cluster.values import Assignment


@dataclass(frozen=True, slots=True)
class Lost:
    """A supervisor with tasks whose ephemeral node is gone."""

    supervisor_id: str
    hostname: str
    topologies: tuple[str, ...]  # that have tasks there


class LostNodes:
    """Remembers which supervisors are lost, so that each is logged once when it goes and once when
    it comes back or no longer has work."""

    def __init__(self) -> None:
        self._lost: Set[str] = frozenset()

    def look(
        self, connected: Iterable[str], assignments: Mapping[str, Assignment]
    ) -> tuple[list[Lost], list[str]]:
        """Return those that are newly lost, and the ids of those that are connected again."""
        there = frozenset(connected)
        hosts: dict[str, str] = {}
        topologies: dict[str, list[str]] = {}
        for topology_id, assignment in sorted(assignments.items()):
            for node in {slot.node for slot in assignment.executor_slot.values()} - there:
                hosts[node] = assignment.node_host.get(node, "")
                topologies.setdefault(node, []).append(topology_id)
        new = [Lost(i, hosts[i], tuple(topologies[i])) for i in sorted(hosts.keys() - self._lost)]
        back = sorted(self._lost & there)
        self._lost = frozenset(hosts)
        return new, back
