"""The supervisor's Thrift service, called by Nimbus and workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from squall_common.cluster.convert import to_assignment
from squall_common.cluster.values import Assignment
from squall_common.daemon.logs import get_logger
from squall_common.security.actions import action
from squall_thrift import storm
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)


class SupervisorService:
    """Storm's service Supervisor. `assignments` returns the assignments as last read from
    ZooKeeper; `sync` requests a new reading.

    Storm's Nimbus pushes assignments with `sendSupervisorAssignments`. Here ZooKeeper stays the
    only place that says what runs where: a push is a hint that it is worth reading again.
    """

    def __init__(
        self, assignments: Callable[[], Mapping[str, Assignment]], sync: Callable[[], None]
    ) -> None:
        self._assignments = assignments
        self._sync = sync
        self._throttle = Throttle()

    @action("sendSupervisorAssignments")
    async def sendSupervisorAssignments(
        self, call: Call, assignments: storm.SupervisorAssignments | None
    ) -> None:
        left_out = self._throttle.left_out(call.address)
        if left_out is not None:
            log.info("assignments_announced", peer=call.peer, left_out=left_out)
        self._sync()

    @action("getLocalAssignmentForStorm")
    async def getLocalAssignmentForStorm(self, call: Call, id: str | None) -> storm.Assignment:
        assignment = self._assignments().get(id or "")
        if assignment is None:
            raise storm.NotAliveException(msg=f"no topology {id!r} is assigned")
        return to_assignment(assignment)

    @action("sendSupervisorWorkerHeartbeat")
    async def sendSupervisorWorkerHeartbeat(
        self, call: Call, heartbeat: storm.SupervisorWorkerHeartbeat | None
    ) -> None:
        """Workers of this release leave their heartbeats in files. In Storm a worker whose Nimbus
        is away calls this to reach its supervisor; here the call is accepted and has no effect."""
        if heartbeat is not None:
            log.debug("worker_heartbeat", topology_id=heartbeat.storm_id, peer=call.peer)
