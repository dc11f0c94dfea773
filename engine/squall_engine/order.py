"""The order in which a turn runs bolts: sources before consumers, so that a tuple passes the whole
chain in one turn. The components of a cycle count as one node of that order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from squall_common.names import is_system_id
from squall_common.topology.model import Topology


def consumers(topology: Topology) -> dict[str, set[str]]:
    """Map each component to the user's components that consume it."""
    edges: dict[str, set[str]] = {component: set() for component in topology.components}
    for component in topology.components.values():
        if is_system_id(component.id):
            continue
        for source in component.inputs:
            if source.component in edges and not is_system_id(source.component):
                edges[source.component].add(component.id)
    return edges


def run_order(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of the graph, sources first; ids sorted within one and,
    as far as the graph allows, between them, so that the order is the same in every run."""
    groups = _strongly_connected(edges)
    group_of = {node: i for i, group in enumerate(groups) for node in group}
    indegree = [0] * len(groups)
    successors: list[set[int]] = [set() for _ in groups]
    for node, targets in edges.items():
        for target in targets:
            a, b = group_of[node], group_of[target]
            if a != b and b not in successors[a]:
                successors[a].add(b)
                indegree[b] += 1
    ready = sorted((i for i, n in enumerate(indegree) if n == 0), key=lambda i: groups[i])
    order = []
    while ready:
        i = ready.pop(0)
        order.append(groups[i])
        for j in successors[i]:
            indegree[j] -= 1
            if indegree[j] == 0:
                ready.append(j)
        ready.sort(key=lambda i: groups[i])
    return order


def downstream(edges: Mapping[str, Iterable[str]], component: str) -> set[str]:
    """The components that a component feeds, directly or indirectly (including itself when it is on
    a cycle)."""
    found: set[str] = set()
    todo = list(edges.get(component, ()))
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(edges.get(node, ()))
    return found


def _strongly_connected(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Two nodes are in one component when each is downstream of the other. Quadratic, which is fast
    enough for the tens of components that a topology has, and not recursive."""
    reach = {node: downstream(edges, node) for node in edges}
    groups: list[list[str]] = []
    seen: set[str] = set()
    for node in sorted(edges):
        if node in seen:
            continue
        group = [node, *(o for o in sorted(reach[node]) if o != node and node in reach[o])]
        group = sorted(set(group))
        seen.update(group)
        groups.append(group)
    return groups
