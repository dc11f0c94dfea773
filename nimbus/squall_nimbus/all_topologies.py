"""All topologies that can be read, and those that cannot: a damaged node does not block others."""

from __future__ import annotations

from dataclasses import dataclass

from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.treewalk import read_each
from squall_common.cluster.values import StormBase
from squall_common.daemon.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AllTopologies:
    """`bases` by topology id, oldest first. `unreadable` ones exist too, but must be left alone."""

    bases: dict[str, StormBase]
    unreadable: frozenset[str]


async def read_topologies(state: ClusterState) -> AllTopologies:
    """Read /storms. Raises the store's errors."""
    ids = await state.topology_ids()
    found = await read_each(ids, state.storm_base)
    bases: dict[str, StormBase] = {}
    unreadable = set()
    for topology_id, one in found.items():
        if isinstance(one, CorruptStateError):
            log.error("topology_unreadable", topology_id=topology_id, error=one.message)
            unreadable.add(topology_id)
        elif isinstance(one, BaseException):
            raise one
        elif one is not None:
            bases[topology_id] = one
    ordered = sorted(bases, key=lambda i: (bases[i].launch_time_secs, i))
    return AllTopologies({i: bases[i] for i in ordered}, frozenset(unreadable))
