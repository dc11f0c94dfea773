"""Reading this node's manifest in a secured cluster: at once when it changes, and every ten seconds
in any case. What ZooKeeper shows beside it starts and stops nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from squall_common.cluster import paths
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionLostError, NoNodeError, StoreError
from squall_common.cluster.values import Assignment, StormBase
from squall_common.daemon.logs import get_logger
from squall_supervisor.records.assignments import UNREADABLE, Assignments, Unreadable
from squall_supervisor.records.signed_work import SignedWork

log = get_logger(__name__)

_RETRY_SECS = 1.0


class ManifestSync:
    """Calls `take` after every reading with what is known of the topologies that the newest
    manifest lists, for their workers; None instead of the assignments if this node has never seen
    a manifest."""

    def __init__(
        self,
        cluster: ClusterState,
        work: SignedWork,
        take: Callable[[Assignments | None, Mapping[str, StormBase]], Awaitable[None]],
        *,
        node: str,
        every_secs: float,
    ) -> None:
        self._cluster = cluster
        self._work = work
        self._take = take
        self._path = paths.manifest(node)
        self._every_secs = every_secs
        self._requested = asyncio.Event()
        self._requested.set()

    def request(self) -> None:
        """Read again soon."""
        self._requested.set()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            wait_secs = self._every_secs
            self._requested.clear()
            try:
                data = await self._read()
                if not await self._work.take(data):
                    if data:
                        wait_secs = _RETRY_SECS
                    else:
                        await self._take(None, {})
                else:
                    await self._take(*await self._read_topologies())
            except StoreError as error:
                log.warning("manifest_not_read", error=error)
                wait_secs = _RETRY_SECS
            try:
                async with asyncio.timeout(wait_secs):
                    await self._requested.wait()
            except TimeoutError:
                pass

    async def _read(self) -> bytes:
        try:
            return (await self._cluster.store.get(self._path, self._on_change))[0]
        except NoNodeError:
            if await self._cluster.store.exists(self._path, self._on_change) is not None:
                self.request()
            return b""

    async def _read_topologies(self) -> tuple[Assignments, dict[str, StormBase]]:
        ids = sorted(self._work.topologies)
        found = await asyncio.gather(*map(self._read_one, ids))
        bases = {i: one[1] for i, one in zip(ids, found, strict=True) if one[1] is not None}
        return {i: one[0] for i, one in zip(ids, found, strict=True)}, bases

    async def _read_one(
        self, topology_id: str
    ) -> tuple[tuple[Assignment, int] | Unreadable, StormBase | None]:
        """Where a topology runs, and its status; what is not signed, or missing, is unreadable."""
        try:
            assignment = await self._cluster.assignment(topology_id, self._on_change)
            base = await self._cluster.storm_base(topology_id)
        except ConnectionLostError:
            raise
        except (StoreError, CorruptStateError) as error:
            log.warning("topology_not_read", topology_id=topology_id, error=error)
            return UNREADABLE, None
        return UNREADABLE if assignment is None else assignment, base

    def _on_change(self, path: str) -> None:
        self._requested.set()
