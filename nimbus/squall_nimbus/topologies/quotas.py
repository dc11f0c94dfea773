"""The quotas of owners, against what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import RebalanceOptions, StormBase
from squall_common.security.quotas import Ledger, Limits, Quotas, Size
from squall_nimbus.all_topologies import read_topologies

_READINGS = 3


class TopologyQuotas:
    """Grants owners their topologies. What a topology takes is read from ZooKeeper each time, so a
    new leader knows it, too."""

    def __init__(self, quotas: Quotas, state: ClusterState, bytes_of: Callable[[str], int]) -> None:
        """`bytes_of` gives the bytes of an owner's blobs."""
        self.quotas = quotas
        self._bytes_of = bytes_of
        self._coming = Counter[str]()  # bytes of packages that are being stored, by owner
        self._ledger = Ledger(quotas)
        self._state = state

    @asynccontextmanager
    async def granted(
        self, owner: str, topology_id: str, size: Size, package_bytes: int = 0
    ) -> AsyncIterator[None]:
        """Grant a topology a size, and room for its package; store it in this context. Raises
        QuotaError and the store's errors."""
        stored: Mapping[str, Size] = {}
        if self.quotas.limits(owner) != Limits():
            stored = await self._stored(owner)
        has = self._bytes_of(owner) + self._coming[owner]
        self.quotas.check_blob_bytes(owner, has, package_bytes)
        with self._ledger.granted(owner, topology_id, size, stored):
            self._coming[owner] += package_bytes
            try:
                yield
            finally:
                self._coming[owner] -= package_bytes
                if not self._coming[owner]:
                    del self._coming[owner]

    async def _stored(self, owner: str) -> Mapping[str, Size]:
        """What the owner's topologies take. Where grants end during each reading, those count that
        ended during the last one, whether they were carried out or not."""
        for _ in range(_READINGS):
            with self._ledger.reading() as ended:
                bases = (await read_topologies(self._state)).bases
            mine = [(name, size) for whose, name, size in ended if whose == owner]
            if not mine:
                break
        found = {i: size_of(base) for i, base in bases.items() if base.owner == owner}
        for name, size in mine:
            found[name] = found.get(name, Size()).or_more(size)
        return found


def size_of(base: StormBase) -> Size:
    """What a topology takes, or will when a rebalance that was granted is carried out."""
    workers, executors = base.num_workers, dict(base.component_executors)
    if isinstance(base.action_options, RebalanceOptions):
        workers = max(workers, base.action_options.num_workers or 0)
        for component, asked in base.action_options.num_executors.items():
            executors[component] = max(asked, executors.get(component, 0))
    return Size(workers, sum(executors.values()))
