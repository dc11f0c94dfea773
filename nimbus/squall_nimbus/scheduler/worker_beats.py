"""Reads the newest heartbeat of each worker of a topology, wherever it is.

Workers report to the leader; those that do not reach it, and those of older versions, write to
ZooKeeper. Another Nimbus asks the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from squall_common.cluster.state import ClusterState, UndecodedBeat
from squall_common.cluster.store import StoreError
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.topology.model import WorkerSlot
from squall_nimbus.blobs.replication import PeerError, Peers
from squall_nimbus.leader import LeaderElector
from squall_nimbus.scheduler.heartbeats import Heartbeats, ReportedEnd

log = get_logger(__name__)

_FINISHED_SECS = 3.0  # a list does not wait longer for a leader that hangs


class WorkerBeats:
    """`of` for one topology. Every call reads again."""

    def __init__(
        self,
        state: ClusterState,
        reported: Heartbeats,
        leader_elector: LeaderElector,
        peers: Peers,
        *,
        clock: Clock,
    ) -> None:
        self._state = state
        self._reported = reported
        self._leader_elector = leader_elector
        self._peers = peers
        self._clock = clock

    async def of(self, topology_id: str) -> dict[WorkerSlot, UndecodedBeat]:
        """Heartbeats by slot. Without the leader's if it cannot be reached."""
        nodes = await self._state.undecoded_worker_beats(topology_id)
        if self._leader_elector.leading:
            return self._reported.merged(topology_id, nodes, self._clock.monotonic())
        # The leader still has the last report of a worker that has come to write to ZooKeeper, and
        # removes the nodes of those that report again.
        return {**await self._of_leader(topology_id), **nodes}

    async def ends(self, topology_ids: Collection[str]) -> dict[str, dict[WorkerSlot, ReportedEnd]]:
        """What workers reported last about the end of their sources, by topology. Nothing unless
        this Nimbus leads; those that write to ZooKeeper are left out, as the age of what they wrote
        is not known."""
        if not self._leader_elector.leading:
            return {}
        return await self._reported.ends(topology_ids, self._clock)

    async def finished_by_leader(self) -> dict[str, bool]:
        """Which topologies have finished, as the Nimbus that leads says: workers report to it alone
        how long they have been at rest. Empty if it cannot be reached, or is this one."""
        try:
            async with asyncio.timeout(_FINISHED_SECS):
                leader = await self._other_leader()
                return {} if leader is None else await self._peers.finished(*leader)
        except (StoreError, PeerError, TimeoutError) as error:
            log.info("finished_topologies_not_known", error=error)
            return {}

    async def _of_leader(self, topology_id: str) -> dict[WorkerSlot, UndecodedBeat]:
        try:
            leader = await self._other_leader()
            return {} if leader is None else await self._peers.heartbeats(*leader, topology_id)
        except (StoreError, PeerError) as error:
            log.info("heartbeats_of_leader_not_known", topology_id=topology_id, error=error)
            return {}

    async def _other_leader(self) -> tuple[str, int] | None:
        leader = await self._leader_elector.leader()
        if leader is None or f"{leader[0]}:{leader[1]}" == self._leader_elector.participant:
            return None
        return leader
