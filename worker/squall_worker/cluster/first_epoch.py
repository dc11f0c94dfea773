"""Where the tasks of a topology with checkpoints begin: its workers agree on an epoch, which takes
until all of them are there. Until then a worker has no engine, and passes on itself what its peers
say about epochs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from squall_common.cluster.store import StoreError
from squall_common.daemon.logs import get_logger
from squall_worker.cluster.peers import Peers
from squall_worker.cluster.session import Session
from squall_worker.cluster.view import ClusterView
from squall_worker.transport.zmq import ZmqTransport

if TYPE_CHECKING:
    from squall_engine.epochs.cluster import ClusterEpochs
    from squall_engine.epochs.parts import EpochSettings

log = get_logger(__name__)

# How often a worker that waits for others reads where tasks are to run.
_LOOK_SECS = 1.0
_RECEIVE_BYTES = 1024 * 1024


class FirstEpoch:
    """Call `wait` once. `changed` is set when ZooKeeper is worth another reading."""

    def __init__(
        self,
        epochs: ClusterEpochs,
        view: ClusterView,
        *,
        session: Session,
        peers: Peers,
        changed: asyncio.Event,
    ) -> None:
        self._epochs = epochs
        self._view = view
        self._session = session
        self._peers = peers
        self._changed = changed

    async def wait(self, transport: ZmqTransport) -> EpochSettings:
        """Wait for the other workers. The tasks begin there and nowhere else: with another
        placement, so does this process."""

        def take() -> None:
            for arrival in transport.drain(_RECEIVE_BYTES):
                for section in arrival.sections:
                    self._epochs.receive(arrival.peer, section)

        transport.set_wakeup(take)
        restoring = asyncio.ensure_future(self._epochs.restore())
        try:
            while not restoring.done():
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                waiting = asyncio.wait(
                    {restoring, changed}, timeout=_LOOK_SECS, return_when=asyncio.FIRST_COMPLETED
                )
                await waiting
                changed.cancel()
                if not restoring.done() and self._session.connected.is_set():
                    await self._look_for_placement()
            return restoring.result()
        finally:
            restoring.cancel()

    async def _look_for_placement(self) -> None:
        """Notice, before the tasks exist, that they are to be elsewhere."""
        try:
            placement = await self._view.placement()
        except StoreError as error:
            log.warning("cluster_state_unreadable", error=error)
            return
        if placement is not None and placement.executors:
            if self._epochs.is_placed(placement.routes):
                await self._peers.follow(placement)
            else:
                self._epochs.placement_changed()
