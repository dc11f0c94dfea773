"""The graph of a topology as it flows: layers, rates of edges, the slowest path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def without_cycles(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Targets by source, without the edges that close a cycle in a walk from the first name on.
    Edges of names that are not listed are left out."""
    targets: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        if source in targets and target in targets and target not in targets[source]:
            targets[source].append(target)
    kept: dict[str, list[str]] = {name: [] for name in names}
    state: dict[str, int] = {}  # 1: being walked, 2: done
    for name in names:
        if state.get(name):
            continue
        state[name] = 1
        stack = [(name, iter(targets[name]))]
        while stack:
            node, rest = stack[-1]
            for target in rest:
                if state.get(target) == 1:
                    continue
                kept[node].append(target)
                if not state.get(target):
                    state[target] = 1
                    stack.append((target, iter(targets[target])))
                    break
            else:
                state[node] = 2
                stack.pop()
    return kept


def layers(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How far each component is from the sources, by its longest way."""
    targets = without_cycles(names, edges)
    depth = dict.fromkeys(names, 0)
    for node in _sources_first(names, targets):
        for target in targets[node]:
            depth[target] = max(depth[target], depth[node] + 1)
    return depth


def slowest_path(
    names: Sequence[str],
    spouts: Iterable[str],
    edges: Iterable[tuple[str, str]],
    cost: Mapping[str, float],
) -> list[str]:
    """The way from a spout along which the costs (latencies) add up to most; empty if none costs
    anything."""
    targets = without_cycles(names, edges)
    best: dict[str, tuple[float, str | None]] = {
        name: (cost.get(name, 0.0), None) for name in spouts if name in targets
    }
    for node in _sources_first(names, targets):
        if node not in best:
            continue
        for target in targets[node]:
            total = best[node][0] + cost.get(target, 0.0)
            if target not in best or total > best[target][0]:
                best[target] = (total, node)
    if not best or max(total for total, _ in best.values()) <= 0:
        return []
    end: str | None = max(best, key=lambda name: best[name][0])
    path: list[str] = []
    while end is not None:
        path.append(end)
        end = best[end][1]
    return path[::-1]


def _sources_first(names: Sequence[str], targets: Mapping[str, Sequence[str]]) -> list[str]:
    waiting = dict.fromkeys(names, 0)
    for some in targets.values():
        for target in some:
            waiting[target] += 1
    ready = [name for name in names if not waiting[name]]
    order = []
    while ready:
        node = ready.pop(0)
        order.append(node)
        for target in targets[node]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return order
