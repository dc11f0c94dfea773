"""A worker's view of the cluster state: its topology's assignment and status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import LogConfig, StormBase
from squall_common.topology.model import WorkerSlot
from squall_worker.cluster.placement import Placement, place


class ClusterView:
    """Reads on demand, and calls `on_change` when a reading is worthwhile. Methods raise
    StoreError; a worker that cannot read goes on with the last reading."""

    def __init__(
        self,
        state: ClusterState,
        topology_id: str,
        slot: WorkerSlot,
        on_change: Callable[[], None],
    ) -> None:
        self._state = state
        self._topology_id = topology_id
        self._slot = slot
        self._on_change = on_change
        self._watching: set[str] = set()

    async def placement(self) -> Placement | None:
        """Where tasks run, or None if the topology has no assignment."""
        with self._watching_again("assignment"):
            found = await self._state.assignment(self._topology_id, self._watch("assignment"))
        return None if found is None else place(found[0], self._slot, found[1])

    async def status(self) -> tuple[StormBase, int] | None:
        """The topology's status and the zxid that wrote it, or None if it is gone."""
        with self._watching_again("status"):
            return await self._state.storm_and_zxid(self._topology_id, self._watch("status"))

    async def log_config(self) -> LogConfig | None:
        """The levels of loggers that were set, or None."""
        with self._watching_again("log config"):
            found = await self._state.log_config(self._topology_id, self._watch("log config"))
        if found is None:
            self._watching.discard("log config")  # what does not exist cannot be watched
        return found

    @contextmanager
    def _watching_again(self, what: str) -> Iterator[None]:
        """A reading that failed may not have set a watch: the next one does."""
        try:
            yield
        except BaseException:
            self._watching.discard(what)
            raise

    def _watch(self, what: str) -> Callable[[str], None] | None:
        """One watch at a time for each node: a poll that finds nothing new adds none."""
        if what in self._watching:
            return None
        self._watching.add(what)

        def fired(path: str) -> None:
            self._watching.discard(what)
            self._on_change()

        return fired
