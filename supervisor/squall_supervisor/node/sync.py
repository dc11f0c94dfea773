"""Reading the assignments: at once when they change, and every ten seconds in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import Assignment, StormBase
from squall_common.daemon.logs import get_logger
from squall_supervisor.records.assignments import UNREADABLE, Assignments, Unreadable

log = get_logger(__name__)

_RETRY_SECS = 1.0
_READS_MAX = 64  # at a time


class AssignmentSync:
    """Calls `take` with every complete reading: all assignments, and the status of the topologies
    that have work on `node`. A reading that fails is ignored and tried again; running workers go
    on."""

    def __init__(
        self,
        cluster: ClusterState,
        take: Callable[[Assignments, Mapping[str, StormBase]], Awaitable[None]],
        *,
        node: str,
        every_secs: float,
    ) -> None:
        self._cluster = cluster
        self._take = take
        self._node = node
        self._every_secs = every_secs
        self._requested = asyncio.Event()
        self._requested.set()
        self._reads = asyncio.Semaphore(_READS_MAX)

    def request(self) -> None:
        """Read again soon."""
        self._requested.set()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            wait_secs = self._every_secs
            self._requested.clear()
            try:
                assignments = await self._read()
                bases = await self._read_bases(assignments)
            except StoreError as error:
                log.warning("assignments_not_read", error=error)
                wait_secs = _RETRY_SECS
            else:
                await self._take(assignments, bases)
            try:
                async with asyncio.timeout(wait_secs):
                    await self._requested.wait()
            except TimeoutError:
                pass

    async def _read(self) -> Assignments:
        ids = await self._cluster.assignments(self._on_change)
        found = await asyncio.gather(*(self._read_one(topology_id) for topology_id in ids))
        return {i: one for i, one in zip(ids, found, strict=True) if one is not None}

    async def _read_one(self, topology_id: str) -> tuple[Assignment, int] | Unreadable | None:
        async with self._reads:
            try:
                return await self._cluster.assignment(topology_id, self._on_change)
            except CorruptStateError as error:
                log.error("assignment_unreadable", topology_id=topology_id, error=error)
                return UNREADABLE

    async def _read_bases(self, assignments: Assignments) -> dict[str, StormBase]:
        own = [
            topology_id
            for topology_id, read in assignments.items()
            if not isinstance(read, Unreadable)
            and any(slot.node == self._node for slot in read[0].executor_slot.values())
        ]
        found = await asyncio.gather(*map(self._read_base, own))
        return {i: base for i, base in zip(own, found, strict=True) if base is not None}

    async def _read_base(self, topology_id: str) -> StormBase | None:
        async with self._reads:
            try:
                return await self._cluster.storm_base(topology_id, self._on_change)
            except CorruptStateError as error:
                log.error("topology_unreadable", topology_id=topology_id, error=error)
                return None

    def _on_change(self, path: str) -> None:
        self._requested.set()
