"""Removes topologies, and finds what removals and crashes have left behind.

A removal deletes the assignment (supervisors stop the workers), code on the disk, all state of the
topology, and /storms/ID last. So a crash at any point leaves /storms/ID in status KILLED, and the
next leader removes again; every step accepts that its work may already be done.

The search looks for things that no live topology owns. State that cannot be read is never a reason
to delete: everything it concerns is left alone, and the search continues with the rest. Code
without a topology is kept for `nimbus.topology.blobstore.deletion.delay.ms`, in case ZooKeeper was
misread.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection

from squall_common.cluster.leader import Fence, NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionLostError, StoreError
from squall_common.cluster.values import StormBase
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import topology_of_blob
from squall_nimbus.blobs.replication import Replication
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.scheduler.monitor import Monitor
from squall_nimbus.store.topology_store import TopologyStore, all_blob_keys
from squall_nimbus.topologies.finished import FinishedTopologies
from squall_nimbus.topologies.lifecycle_shell import topology_name_of_or_none

log = get_logger(__name__)

# Storm's clients name the blobs of a topology's dependencies like this.
_DEPENDENCY = "dep-"


class Cleanup:
    """Removes and searches. `submitting` holds the ids of topologies that are being submitted,
    whose blobs are not leftovers."""

    def __init__(
        self,
        state: ClusterState,
        topology_store: TopologyStore,
        replication: Replication,
        monitor: Monitor,
        finished: FinishedTopologies,
        *,
        clock: Clock,
        delay_secs: float,
        submitting: Collection[str],
    ) -> None:
        self._state = state
        self._topology_store = topology_store
        self._replication = replication
        self._monitor = monitor
        self._finished = finished
        self._clock = clock
        self._delay_secs = delay_secs
        self._submitting = submitting
        self._ownerless_since: dict[str, float] = {}
        self._unused_since: dict[str, float] = {}

    async def remove(self, topology_id: str, base: StormBase, fence: Fence) -> None:
        """Delete everything of a topology."""
        self._finished.add(topology_id, base.owner, int(self._clock.time()))
        await self._state.remove_assignment(topology_id, guard=fence)
        await self._replication.delete(all_blob_keys(topology_id), fence)
        await self._topology_store.delete(topology_id)
        await self._state.remove_topology(topology_id, guard=fence)
        self._monitor.forget(topology_id)
        log.info("topology_removed", topology_id=topology_id)

    def asked_for(self, key: str) -> None:
        """Note that a client has asked whether a dependency is here: it is about to submit with it,
        so the dependency must stay."""
        self._unused_since.pop(key, None)

    async def search(self, fence: Fence) -> None:
        """Delete everything that does not belong to a topology."""
        kept = await self._state.topologies_with_state()
        blob_keys = await self._state.blob_keys()
        with_code = self._topology_store.ids() | {
            found for key in blob_keys if (found := topology_of_blob(key))
        }
        # Read after both: a submit that made something meanwhile has its /storms/ID by now, or is
        # in `submitting`.
        busy = set(self._submitting)
        live = set(await self._state.topology_ids())
        for topology_id in sorted(kept - live - busy):
            if topology_name_of_or_none(topology_id) is None:
                continue
            async with _alone(topology_id):
                if topology_id in self._submitting or await self._state.storm_base(topology_id):
                    continue
                if await self._state.remove_topology(topology_id, guard=fence):
                    log.info("leftover_state_removed", topology_id=topology_id)
        now = self._clock.monotonic()
        ownerless = with_code - live - busy
        self._ownerless_since = {i: self._ownerless_since.get(i, now) for i in ownerless}
        for topology_id, since in sorted(self._ownerless_since.items()):
            if now - since < self._delay_secs or topology_id in self._submitting:
                continue
            async with _alone(topology_id):
                if await self._state.storm_base(topology_id) is None:
                    await self._replication.delete(all_blob_keys(topology_id), fence)
                    await self._topology_store.delete(topology_id)
                    log.info("leftover_code_removed", topology_id=topology_id)
        await self._search_dependencies(blob_keys, live | busy, now, fence)

    async def _search_dependencies(
        self, blob_keys: Collection[str], topologies: Collection[str], now: float, fence: Fence
    ) -> None:
        """Delete dependencies that clients uploaded and no topology uses (or no longer uses)."""
        used: set[str] = set()
        try:
            for topology_id in topologies:
                used |= self._topology_store.get(topology_id).blob_keys
        except (BlobNotFoundError, SquallError):
            self._unused_since.clear()  # it may use any of them
            return
        unused = {key for key in blob_keys if key.startswith(_DEPENDENCY)} - used
        self._unused_since = {key: self._unused_since.get(key, now) for key in unused}
        for key, since in sorted(self._unused_since.items()):
            if now - since >= self._delay_secs and not self._submitting:
                async with _alone(key):
                    await self._replication.delete([key], fence)
                    log.info("unused_dependency_removed", key=key)


@contextlib.asynccontextmanager
async def _alone(what: str) -> AsyncIterator[None]:
    """Isolate one removal: its errors are logged, and do not stop the search for others."""
    try:
        yield
    except (ConnectionLostError, NotLeaderError):
        raise
    except (StoreError, SquallError, BlobNotFoundError, OSError) as error:
        log.warning("leftover_not_removed", what=what, error=error)
