"""What a worker begins with: ZooKeeper's word, or its supervisor's where ZooKeeper does not answer.

A supervisor launches what it has read, and lays that beside the launch file. So a worker that dies
while ZooKeeper is away is missed only until it is launched again: its successor runs the same
executors, finds its peers where they were, and says by its launch number that it is the newer one.
That may be out of date, on a node that alone has lost ZooKeeper, exactly as what the worker before
knew, which would have run on; peers that know better drop its frames, and as soon as ZooKeeper
answers it reads and follows (see `placement.Ownership`).

Any answer of ZooKeeper counts for more: a worker that read there that its slot has nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from squall_common.cluster.last_known import LastKnown
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import StormBase
from squall_common.daemon.logs import get_logger
from squall_common.topology.model import WorkerSlot
from squall_worker.cluster.placement import Placement, place
from squall_worker.cluster.view import ClusterView

log = get_logger(__name__)

# ZooKeeper has the time until the topology is loaded, and this long: its answer comes in a tenth of
# a second.
_WITHOUT_ZOOKEEPER_SECS = 1.0
_POLL_SECS = 1.0
# How often a wait says that it still waits, and the first time.
_SAY_SECS = 5.0
_SAY_FIRST_SECS = 1.0


@dataclass(frozen=True, slots=True)
class FirstReading:
    """Where tasks run. `base` is not None when the supervisor said so, and ZooKeeper did not."""

    placement: Placement
    base: StormBase | None = None


class FirstReader:
    """`read` once. `changed` is set when ZooKeeper is worth another reading."""

    def __init__(
        self,
        view: ClusterView,
        slot: WorkerSlot,
        *,
        changed: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        self._view = view
        self._slot = slot
        self._changed = changed
        self._now = now
        self._answered = False  # by ZooKeeper, whatever it said

    async def read(self, connected: Awaitable[None], last_known: Path) -> FirstReading:
        """The first reading that gives the slot work. `connected` returns when ZooKeeper has
        answered for the first time; `last_known` is the supervisor's file, if there is one."""
        reading = asyncio.ensure_future(self._from_zookeeper(connected))
        try:
            known = _from_supervisor(last_known, self._slot)
            if known is not None:
                await asyncio.wait({reading}, timeout=_WITHOUT_ZOOKEEPER_SECS)
                if not reading.done() and not self._answered:
                    log.warning("begins_without_zookeeper", slot=self._slot)
                    return known
            return await reading
        finally:
            reading.cancel()

    async def _from_zookeeper(self, connected: Awaitable[None]) -> FirstReading:
        await connected
        said_at = self._now() + _SAY_FIRST_SECS
        while True:
            self._changed.clear()
            reason: object = "the slot has no executors"
            try:
                placement = await self._view.placement()
                self._answered = True
                if placement is not None and placement.executors:
                    return FirstReading(placement)
            except StoreError as error:
                reason = error
            if self._now() >= said_at:
                said_at = self._now() + _SAY_SECS
                log.warning("waiting_for_assignment", slot=self._slot, reason=reason)
            try:
                await asyncio.wait_for(self._changed.wait(), _POLL_SECS)
            except TimeoutError:
                pass


def _from_supervisor(path: Path, slot: WorkerSlot) -> FirstReading | None:
    """None when the supervisor does not know enough to begin with."""
    try:
        known = LastKnown.parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("last_known_unreadable", path=path, error=error)
        return None
    placement = place(known.assignment, slot)
    return FirstReading(placement, known.base) if known.base and placement.executors else None
