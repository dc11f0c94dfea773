"""Problems of a topology on this node, shown with its components' errors, under `__system`."""

from __future__ import annotations

from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import ErrorInfo
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.daemon.output.redaction import redact_text
from squall_common.names import SYSTEM_COMPONENT

log = get_logger(__name__)


class TopologyErrors:
    """Reports from one host. While ZooKeeper is away, an error is only logged."""

    def __init__(
        self, cluster: ClusterState, hostname: str, clock: Clock, tasks: BackgroundTasks
    ) -> None:
        self._cluster = cluster
        self._hostname = hostname
        self._clock = clock
        self._tasks = tasks

    def begin(self, topology_id: str, port: int | None, message: str) -> None:
        """Report in the background; `port` None: it does not concern a single worker."""
        self._tasks.start(f"error of {topology_id}", self.report(topology_id, port, message))

    async def report(self, topology_id: str, port: int | None, message: str) -> None:
        """Report, and return when the error is stored or cannot be."""
        # It may quote what a worker has printed last.
        text = redact_text(message)
        error = ErrorInfo(
            error=text, time_secs=int(self._clock.time()), host=self._hostname, port=port
        )
        try:
            await self._cluster.report_error(topology_id, SYSTEM_COMPONENT, error)
        except StoreError as failure:
            log.warning("error_not_reported", topology_id=topology_id, error=failure)
