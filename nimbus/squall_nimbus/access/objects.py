"""Finds the object of a call: the topology, the node or the blob that it names, with its lists."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import StormBase
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError
from squall_common.names import ANONYMOUS, topology_name_of
from squall_common.security.acl import Members, Topology, TopologyAcl
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.store.topology_store import TopologyStore


class Objects:
    """Topologies as objects of actions."""

    def __init__(self, state: ClusterState, store: TopologyStore) -> None:
        self._state = state
        self._store = store

    def topology(
        self, topology_id: str, owner: str | None, nodes: frozenset[str] = frozenset()
    ) -> Topology:
        """A live topology by its id and its owner. If its configuration is not here (yet), its
        lists are empty: only its owner and administrators may act on it."""
        options = None
        try:
            options = self._store.get(topology_id).options
        except (BlobNotFoundError, SquallError):
            pass
        return Topology(topology_id, _name(topology_id), _acl(owner or ANONYMOUS, options), nodes)

    async def with_nodes(self, topology_id: str, base: StormBase) -> Topology:
        """A topology with the nodes that it is assigned to. Raises StoreError."""
        found = await self._state.assignment(topology_id)
        slots = () if found is None else found[0].executor_slot.values()
        return self.topology(topology_id, base.owner, frozenset(slot.node for slot in slots))


def _name(topology_id: str) -> str:
    try:
        return topology_name_of(topology_id)
    except ValueError:
        return topology_id


@lru_cache(maxsize=4_096)
def _lists(
    users: tuple[str, ...],
    groups: tuple[str, ...],
    readers: tuple[str, ...],
    reader_groups: tuple[str, ...],
    log_users: tuple[str, ...],
    log_groups: tuple[str, ...],
) -> TopologyAcl:
    acl = TopologyAcl.of("", users, groups, readers, reader_groups)
    return replace(acl, logs=Members.of(log_users, log_groups))


def _acl(owner: str, options: TopologyOptions | None) -> TopologyAcl:
    if options is None:
        return TopologyAcl(owner)
    lists = _lists(
        options.topology_users,
        options.topology_groups,
        options.topology_readonly_users,
        options.topology_readonly_groups,
        options.logs_users,
        options.logs_groups,
    )
    return replace(lists, owner=owner)
