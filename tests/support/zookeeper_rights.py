"""What decision 0130 lets workers do with the nodes of ZooKeeper, as a list to compare with."""

from __future__ import annotations

import re

# What workers of the topology {id} may do, and with which nodes; everything else is refused.
ALLOWED = (
    ("get|list|lists", "/(storms|assignments|logconfigs|security/topologies)/{id}"),
    ("get|list|lists|create", "/workerbeats/{id}"),
    ("get|list|lists|create|set", "/workerbeats/{id}/.+"),
    ("get|list|lists|create", "/errors/{id}"),
    ("get|list|lists|create|set", "/errors/{id}/.+"),
    ("delete", "/errors/{id}/.+/.+"),
)


def not_listed(done: set[tuple[str, str]], topology_id: str) -> set[tuple[str, str]]:
    """Of what was done by workers of a topology, (attempt, path below the root), that which they
    may not do."""
    rules = [(kinds, pattern.format(id=re.escape(topology_id))) for kinds, pattern in ALLOWED]
    return {
        (name, path)
        for name, path in done
        if not any(re.fullmatch(k, name) and re.fullmatch(p, path) for k, p in rules)
    }
