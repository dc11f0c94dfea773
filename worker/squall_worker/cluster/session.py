"""A worker's session with ZooKeeper. It begins when ZooKeeper answers, however long that takes, and
shows the digest that the supervisor has given to this worker last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.state import ClusterState
from squall_common.config.options.typed import WorkerOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_common.worker_files.zookeeper_file import ZooKeeperFile

log = get_logger(__name__)

T = TypeVar("T")

# How often a wait is logged while it lasts.
_LOG_SECS = 5.0
# How often a worker looks for another digest to show to ZooKeeper.
_DIGEST_SECS = 1.0


class Session:
    """Call `connect`; `connected` is set, and `on_connected` called, when ZooKeeper has answered
    for the first time.

    `state` has not been started; by default it is the ZooKeeper that the options name.
    """

    def __init__(
        self,
        spec: LaunchSpec,
        options: WorkerOptions,
        state: ClusterState | None,
        *,
        tasks: BackgroundTasks,
        clock: Clock,
        on_connected: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._options = options
        self._state = state
        self._tasks = tasks
        self._clock = clock
        self._on_connected = on_connected
        self.connected = asyncio.Event()
        self.digest = ZooKeeperFile(spec.zookeeper_file, spec.topology_id)

    @property
    def state(self) -> ClusterState:
        """The cluster state, which `connect` makes in its first step."""
        assert self._state is not None, "before `connect`"
        return self._state

    async def connect(self) -> None:
        """The first connection to ZooKeeper, however long it takes."""
        if self._state is None:
            self._state = ClusterState.of(self._options, self._read_digest())
        if self._spec.ca is not None:
            # Imported only where a cluster is secured: it takes some 40 ms.
            from squall_worker.cluster.signed import signed_state

            self._state = signed_state(self._state, self._spec, self._clock)
        await _log_while(
            self._state.store.start(),
            "waiting_for_zookeeper",
            servers=self._options.storm_zookeeper_servers,
            port=self._options.storm_zookeeper_port,
        )
        self.connected.set()
        self._on_connected()
        self._tasks.every("digest", _DIGEST_SECS, self._follow_digest)

    def _read_digest(self) -> StoreAccess | None:
        """What is shown to ZooKeeper; None if there is nothing, or if it cannot be read."""
        try:
            return self.digest.read()
        except (OSError, ValueError) as error:
            log.error("zookeeper_digest_unreadable", error=error)
            return None

    async def _follow_digest(self) -> None:
        """Show ZooKeeper what the supervisor has given to this worker since."""
        try:
            self.digest.follow(self.state.store.authenticate)
        except (OSError, ValueError) as error:
            log.error("zookeeper_digest_unreadable", error=error)


async def _log_while(work: Coroutine[Any, Any, T], event: str, **keys: object) -> T:
    """Await `work`, and log every few seconds that it is still awaited."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOG_SECS)
            if not task.done():
                log.warning(event, **keys)
        return task.result()
    finally:
        task.cancel()
