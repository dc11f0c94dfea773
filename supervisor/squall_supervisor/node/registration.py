"""This node's entry in ZooKeeper, from which Nimbus knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import SupervisorInfo
from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

_RETRY_SECS = 1.0


class Registration:
    """Keeps the entry: renewed regularly, when its used ports change (`request`), and at once after
    a new session, since the old entry went with the old session. `info()` returns its content."""

    def __init__(
        self,
        cluster: ClusterState,
        supervisor_id: str,
        info: Callable[[], SupervisorInfo],
        *,
        every_secs: float,
    ) -> None:
        self._cluster = cluster
        self._supervisor_id = supervisor_id
        self._info = info
        self._every_secs = every_secs
        self._due = asyncio.Event()
        self.done = asyncio.Event()  # set once it has been written

    def request(self) -> None:
        """Renew it now."""
        self._due.set()

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            self._due.clear()
            wait_secs = self._every_secs
            try:
                await self._cluster.register_supervisor(self._supervisor_id, self._info())
            except StoreError as error:
                log.warning("not_registered", error=error)
                wait_secs = _RETRY_SECS
            else:
                self.done.set()
            try:
                async with asyncio.timeout(wait_secs):
                    await self._due.wait()
            except TimeoutError:
                pass
