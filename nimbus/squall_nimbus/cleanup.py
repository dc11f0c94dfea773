"""Removing a topology, and finding what removals and crashes have left.

A removal goes: assignment (supervisors stop the workers), code on the disk, all state of the
topology, and /storms/ID last. So a crash at any point leaves /storms/ID in status KILLED, and the
next leader removes again; every step is fine with what is gone already.

The search is for what no live topology owns. State that cannot be read is never a reason to delete:
an error ends the search. Code without a topology is kept for
`nimbus.topology.blobstore.deletion.delay.ms`, so that a wrong look at ZooKeeper can be put right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from squall.clock import Clock
from squall.cluster.state import ClusterState
from squall.cluster.values import StormBase
from squall.logs import get_logger
from squall_nimbus.assigner import Fence
from squall_nimbus.catalog import Catalog
from squall_nimbus.control import topology_name_of_or_none
from squall_nimbus.history import History
from squall_nimbus.monitor import Monitor
from squall_nimbus.uploads import Inbox

log = get_logger(__name__)


class Cleanup:
    """`submitting()` gives ids that are being submitted: nothing of theirs is left over."""

    def __init__(
        self,
        state: ClusterState,
        catalog: Catalog,
        monitor: Monitor,
        history: History,
        inbox: Inbox,
        *,
        clock: Clock,
        delay_secs: float,
        submitting: Callable[[], Collection[str]],
    ) -> None:
        self._state = state
        self._catalog = catalog
        self._monitor = monitor
        self._history = history
        self._inbox = inbox
        self._clock = clock
        self._delay_secs = delay_secs
        self._submitting = submitting
        self._ownerless_since: dict[str, float] = {}

    async def remove(self, topology_id: str, base: StormBase, fence: Fence) -> None:
        """Delete all that there is of a topology."""
        self._history.add(topology_id, base.owner, int(self._clock.time()))
        await self._state.remove_assignment(topology_id, guard=fence)
        await fence.transaction([])  # deleting files asks once more
        await self._catalog.delete(topology_id)
        await self._state.remove_topology(topology_id, guard=fence)
        self._monitor.forget(topology_id)
        self._inbox.removed(topology_id)
        log.info("topology_removed", topology_id=topology_id)

    async def search(self, fence: Fence) -> None:
        """Delete what belongs to no topology."""
        kept = await self._state.topologies_with_state()
        with_code = self._catalog.ids()
        # Read after both: what a submit has made meanwhile has its /storms/ID by now, or is in
        # `submitting`.
        busy = set(self._submitting())
        live = set(await self._state.storms())
        for topology_id in sorted(kept - live - busy):
            if topology_name_of_or_none(topology_id) is None:
                continue
            if topology_id in self._submitting() or await self._state.storm(topology_id):
                continue
            await self._state.remove_topology(topology_id, guard=fence)
            log.info("leftover_state_removed", topology_id=topology_id)
        now = self._clock.monotonic()
        ownerless = with_code - live - busy
        self._ownerless_since = {i: self._ownerless_since.get(i, now) for i in ownerless}
        for topology_id, since in sorted(self._ownerless_since.items()):
            if now - since >= self._delay_secs:
                await fence.transaction([])
                await self._catalog.delete(topology_id)
                log.info("leftover_code_removed", topology_id=topology_id)
