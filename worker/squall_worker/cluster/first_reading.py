"""What a worker starts from: ZooKeeper's state, or its supervisor's copy if that does not answer.

A supervisor launches what it has read, and puts a copy of that beside the launch file. So a worker
that dies while ZooKeeper is away is missing only until it is launched again: its successor runs the
same executors, finds its peers where they were, and shows by its launch number that it is the newer
one. On a node that alone has lost ZooKeeper the copy may be out of date, but so was the knowledge
of the previous worker, which would have run on; peers that know better drop its frames, and as soon
as ZooKeeper answers, the worker reads it and follows (see `placement.Ownership`).

Any answer of ZooKeeper takes precedence: a worker that reads there that its slot has no work waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from squall_common.cluster.store import StoreError
from squall_common.cluster.values import StormBase
from squall_common.daemon.logs import get_logger
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.last_known import LastKnown
from squall_worker.cluster.placement import Placement, place
from squall_worker.cluster.view import ClusterView

log = get_logger(__name__)

# ZooKeeper has until the topology is loaded, plus this long, to answer; it usually takes a tenth of
# a second.
_WITHOUT_ZOOKEEPER_SECS = 1.0
_POLL_SECS = 1.0
# How often a wait is logged while it lasts, and when for the first time.
_LOG_SECS = 5.0
_LOG_FIRST_SECS = 1.0


@dataclass(frozen=True, slots=True)
class FirstReading:
    """Where tasks run. `base` is not None if it comes from the supervisor, not from ZooKeeper."""

    placement: Placement
    base: StormBase | None = None


class FirstReader:
    """Call `read` once. `changed` is set when ZooKeeper is worth another reading."""

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
        self._answered = False  # by ZooKeeper, whatever the answer

    async def read(self, connected: Awaitable[None], last_known: Path | None) -> FirstReading:
        """The first reading that gives the slot work. `connected` returns once ZooKeeper has
        answered for the first time; `last_known` is the path of the supervisor's file, which may
        not exist; None: only ZooKeeper counts."""
        reading = asyncio.ensure_future(self._from_zookeeper(connected))
        try:
            known = None if last_known is None else _from_supervisor(last_known, self._slot)
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
        logged_at = self._now() + _LOG_FIRST_SECS
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
            if self._now() >= logged_at:
                logged_at = self._now() + _LOG_SECS
                log.warning("waiting_for_assignment", slot=self._slot, reason=reason)
            try:
                await asyncio.wait_for(self._changed.wait(), _POLL_SECS)
            except TimeoutError:
                pass


def _from_supervisor(path: Path, slot: WorkerSlot) -> FirstReading | None:
    """None if the supervisor does not know enough to start from."""
    try:
        known = LastKnown.parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("last_known_unreadable", path=path, error=error)
        return None
    placement = place(known.assignment, slot)
    return FirstReading(placement, known.base) if known.base and placement.executors else None
