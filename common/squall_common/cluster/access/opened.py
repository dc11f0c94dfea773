"""Whose nodes may be closed: what supervisors publish about the workers that they run. Pure.

A cluster is closed once every supervisor shows a digest, and the nodes of a topology once all its
workers do. Until then nothing that runs is locked out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from squall_common.cluster.values import SupervisorInfo

# In a supervisor's scheduler meta, if it shows ZooKeeper a digest: a JSON list of the topologies of
# which it runs workers that do not, or not yet.
META_KEY = "squall.zookeeper.without"


def without_digest(info: SupervisorInfo) -> frozenset[str] | None:
    """The topologies that a supervisor lists; None if it shows no digest itself, or lists them in
    a way that cannot be read."""
    try:
        listed = json.loads(info.scheduler_meta[META_KEY])
        return frozenset(listed) if all(isinstance(one, str) for one in listed) else None
    except (KeyError, ValueError, TypeError):
        return None


def awaited(supervisors: Mapping[str, SupervisorInfo]) -> list[str]:
    """The supervisors that show no digest, sorted."""
    return sorted(node for node, info in supervisors.items() if without_digest(info) is None)


def may_close(
    topology_id: str, nodes: Iterable[str], supervisors: Mapping[str, SupervisorInfo]
) -> bool:
    """Whether all workers of a topology, which run on `nodes`, show a digest. Of a node that is not
    connected that is not known."""
    for node in nodes:
        info = supervisors.get(node)
        listed = None if info is None else without_digest(info)
        if listed is None or topology_id in listed:
            return False
    return True
