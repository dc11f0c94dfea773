"""Calls that supervisors and workers make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from squall_common.cluster import codec, convert, paths
from squall_common.cluster.codec import CorruptStateError, plain_size
from squall_common.cluster.values import Assignment, WorkerReport
from squall_common.daemon.logs import get_logger
from squall_common.security.access import caller_of
from squall_common.security.acl import Node, Topology
from squall_common.security.identity import Role
from squall_common.telemetry.live_state import QUESTIONS
from squall_common.topology.model import Executor
from squall_nimbus.scheduler.heartbeats import plain_bytes_max
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_nimbus.views import views
from squall_nimbus.views.worker_metrics import MetricPoint
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.off_loop import off_loop, off_loop_if
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

_throttle = Throttle()

# Some 5 ms.
_EXECUTORS_ON_LOOP_MAX = 1_000


def _executors(beat: storm.SupervisorWorkerHeartbeat) -> frozenset[Executor]:
    return frozenset(map(convert.from_executor, beat.executors))


def _with_executors(report: WorkerReport, known: int) -> WorkerReport:
    """A report of a worker that is so large that only its heartbeat lists its executors. Raises a
    refusal for one that does not, or that lists more than are known."""
    try:
        if plain_size(report.heartbeat) > plain_bytes_max(known):
            raise refused(f"the heartbeat from {report.slot} is too large")
        path = paths.workerbeat(report.topology_id, report.slot)
        listed = codec.decode_signs(path, report.heartbeat).executor_stats
    except CorruptStateError as error:
        raise refused(str(error)) from error
    if len(listed) > known:
        raise refused(f"the heartbeat from {report.slot} lists {len(listed)} executors")
    return replace(report, executors=tuple(sorted(listed)))


def _worker_heartbeats(reports: Sequence[WorkerReport]) -> list[storm.SupervisorWorkerHeartbeat]:
    return [convert.to_worker_report(one, alone=True) for one in reports]


def _on_node(node: str, assignments: Mapping[str, Assignment]) -> storm.SupervisorAssignments:
    return storm.SupervisorAssignments(
        storm_assignment={
            topology_id: convert.to_assignment(assignment)
            for topology_id, assignment in assignments.items()
            if any(slot.node == node for slot in assignment.executor_slot.values())
        }
    )


async def _node_asked(_: Calls, arguments: tuple[Any, ...]) -> Node:
    return Node(needed(arguments[0], "node"))


async def _node_of_beats(_: Calls, arguments: tuple[Any, ...]) -> Node:
    return Node(needed(arguments[0], "heartbeats").supervisor_id or "")


async def _topology_of_beat(service: Calls, arguments: tuple[Any, ...]) -> Topology:
    return await _with_nodes(service, needed(arguments[0], "heatbeat").storm_id)


async def _topology_of_metrics(service: Calls, arguments: tuple[Any, ...]) -> Topology:
    return await _with_nodes(service, needed(arguments[0], "metrics").topologyId)


async def _with_nodes(service: Calls, topology_id: str) -> Topology:
    nimbus = service.nimbus
    return await nimbus.objects.with_nodes(topology_id, await nimbus.reader.base(topology_id))


class LivenessCalls(Calls):
    """The assignments of a node, and the heartbeats and metrics of its workers."""

    @operation("getSupervisorAssignments", of=_node_asked)
    async def getSupervisorAssignments(
        self, call: Call, node: str | None
    ) -> storm.SupervisorAssignments:
        """Every assignment that has a slot on the node (a supervisor's id)."""
        node = needed(node, "node")
        assignments = await self.nimbus.reader.assignments()
        return await off_loop_if(views.are_large(assignments.values()), _on_node, node, assignments)

    def _require_leading(self) -> None:
        """Unlike other calls, these do not wait for an election: who sends them soon looks for the
        leader again."""
        if not self.nimbus.leader_elector.leading:
            raise refused(
                f"this Nimbus ({self.nimbus.leader_elector.participant}) is not the leader"
            )

    async def _heard(self, node: str | None, beat: storm.SupervisorWorkerHeartbeat) -> None:
        """Take in a worker's heartbeat. One with more executors than its topology has is refused
        before any of them is looked at."""
        monitor, now = self.nimbus.monitor, self.nimbus.clock.monotonic
        if (sums := convert.from_sums_report(beat, node)) is not None:
            self.nimbus.heartbeats.take_sums(sums, now())
            return
        known = monitor.executors(beat.storm_id)
        if not known:
            return  # it has ended, or has no assignment yet
        if len(beat.executors) > known:
            raise refused(
                f"the heartbeat lists {len(beat.executors)} executors; {beat.storm_id} has {known}"
            )
        large = len(beat.executors) > _EXECUTORS_ON_LOOP_MAX
        report = await off_loop_if(large, convert.from_worker_report, beat, node)
        if report is None:  # as Storm's are
            executors = await off_loop_if(large, _executors, beat)
            monitor.heard(beat.storm_id, node, executors, beat.time_secs, now())
            return
        if not report.executors:
            report = await off_loop(_with_executors, report, known)
        self.nimbus.heartbeats.take(report, now())

    @operation("sendSupervisorWorkerHeartbeats", of=_node_of_beats)
    async def sendSupervisorWorkerHeartbeats(
        self, call: Call, heartbeats: storm.SupervisorWorkerHeartbeats | None
    ) -> dict[str, float]:
        """The heartbeats of a node. One that is refused does not keep the others from being heard,
        nor their supervisor from sending the next: it is only logged. Returns how often workers are
        to report whose topology somebody watches, and `QUESTIONS` if there are any to fetch."""
        self._require_leading()
        beats = needed(heartbeats, "heartbeats")
        for beat in beats.worker_heartbeats:
            try:
                await self._heard(beats.supervisor_id, beat)
            except ThriftApplicationError as error:
                if beat.port is None:  # of Storm's kind, which are few and have no worker to blame
                    raise
                left_out = _throttle.left_out((call.address, beat.storm_id))
                if left_out is not None:
                    log.warning(
                        "heartbeat_refused",
                        topology_id=beat.storm_id,
                        slot=f"{beats.supervisor_id}:{beat.port}",
                        error=error,
                        left_out=left_out,
                    )
        now = self.nimbus.clock.monotonic()
        said = self.nimbus.watched.periods({one.storm_id for one in beats.worker_heartbeats}, now)
        if self.nimbus.state_questions.has_for(beats.supervisor_id):
            said[QUESTIONS] = 1.0
        return said

    @operation("getTopologyInfo", by_id="topologyId")
    async def watchTopology(self, call: Call, topologyId: str | None) -> None:
        self._require_leading()
        topology_id = needed(topologyId, "topologyId")
        await self.nimbus.reader.base(topology_id)
        self.nimbus.watched.watch(topology_id, self.nimbus.clock.monotonic())

    @operation("sendSupervisorWorkerHeartbeat", of=_topology_of_beat)
    async def sendSupervisorWorkerHeartbeat(
        self, call: Call, heatbeat: storm.SupervisorWorkerHeartbeat | None
    ) -> None:
        self._require_leading()
        beat = needed(heatbeat, "heatbeat")
        if not self.nimbus.monitor.executors(beat.storm_id):
            # It may be known, and not have been scheduled yet.
            await self.nimbus.reader.base(beat.storm_id)
        caller = caller_of(call)
        # A supervisor reports for its own node, and a worker for its own slot, whatever the
        # heartbeat says.
        node = None
        if caller is not None and caller.role is Role.SUPERVISOR:
            node = caller.name
        elif caller is not None and caller.role is Role.WORKER:
            node = caller.node
            if beat.port != caller.port:
                raise storm.AuthorizationException(msg="the heartbeat is not of the caller's slot")
        await self._heard(node, beat)

    @operation("getWorkerHeartbeats", by_id="topologyId")
    async def getWorkerHeartbeats(
        self, call: Call, topologyId: str | None
    ) -> list[storm.SupervisorWorkerHeartbeat]:
        self._require_leading()
        topology_id = needed(topologyId, "topologyId")
        await self.nimbus.reader.base(topology_id)
        reports = self.nimbus.heartbeats.reports(topology_id)
        large = sum(len(one.executors) for one in reports) > _EXECUTORS_ON_LOOP_MAX
        return await off_loop_if(large, _worker_heartbeats, reports)

    @operation("getTopologyInfo", by_id="topologyId")
    async def getWorkerSums(
        self, call: Call, topologyId: str | None
    ) -> list[storm.SupervisorWorkerHeartbeat]:
        self._require_leading()
        topology_id = needed(topologyId, "topologyId")
        await self.nimbus.reader.base(topology_id)
        found = self.nimbus.heartbeats.sums(topology_id, self.nimbus.clock.monotonic())
        return [convert.to_sums_report(one, alone=True) for one in found]

    @operation("processWorkerMetrics", of=_topology_of_metrics)
    async def processWorkerMetrics(self, call: Call, metrics: storm.WorkerMetrics | None) -> None:
        metrics = needed(metrics, "metrics")
        if metrics.topologyId not in await self.nimbus.state.topology_ids():
            return  # late metrics of a topology that has ended
        caller = caller_of(call)
        if caller is not None and caller.role is Role.WORKER and metrics.port != caller.port:
            raise refused("the metrics are not of the caller's slot")
        self.nimbus.metrics.add(
            metrics.topologyId,
            [
                MetricPoint(
                    host=metrics.hostname,
                    port=metrics.port,
                    component=point.componentId,
                    executor=point.executorId,
                    stream=point.streamId,
                    name=point.metricName,
                    time_ms=point.timestamp,
                    value=point.metricValue,
                )
                for point in metrics.metricList.metrics or ()
            ],
        )
