"""The quotas of owners, against what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import RebalanceOptions, StormBase
from squall_common.security.quotas import Ledger, Limits, Quotas, Size
from squall_nimbus.all_topologies import read_topologies


class TopologyQuotas:
    """Grants owners their topologies. What a topology takes is read from ZooKeeper each time, so a
    new leader knows it, too."""

    def __init__(self, quotas: Quotas, state: ClusterState) -> None:
        self.quotas = quotas
        self._ledger = Ledger(quotas)
        self._state = state

    @asynccontextmanager
    async def granted(self, owner: str, topology_id: str, size: Size) -> AsyncIterator[None]:
        """Grant a topology a size; store it in this context. Raises QuotaError and the store's
        errors."""
        stored: Mapping[str, Size] = {}
        if self.quotas.limits(owner) != Limits():
            stored = await self._stored(owner)
        with self._ledger.granted(owner, topology_id, size, stored):
            yield

    async def _stored(self, owner: str) -> Mapping[str, Size]:
        while True:
            ended = self._ledger.ended
            bases = (await read_topologies(self._state)).bases
            if self._ledger.ended == ended:
                return {i: size_of(base) for i, base in bases.items() if base.owner == owner}


def size_of(base: StormBase) -> Size:
    """What a topology takes, or will when a rebalance that was granted is carried out."""
    workers, executors = base.num_workers, dict(base.component_executors)
    if isinstance(base.action_options, RebalanceOptions):
        workers = max(workers, base.action_options.num_workers or 0)
        for component, asked in base.action_options.num_executors.items():
            executors[component] = max(asked, executors.get(component, 0))
    return Size(workers, sum(executors.values()))
