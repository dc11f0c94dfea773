"""Calls that supervisors and workers make."""

from __future__ import annotations

from collections.abc import Mapping

from squall_common.cluster import convert
from squall_common.cluster.values import Assignment
from squall_common.topology.model import Executor
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_nimbus.topologies.lifecycle_shell import TopologyNotAliveError
from squall_nimbus.views import views
from squall_nimbus.views.worker_metrics import MetricPoint
from squall_thrift import storm
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.off_loop import off_loop, off_loop_if

# Some 5 ms.
_EXECUTORS_ON_LOOP_MAX = 1_000


def _executors(beat: storm.SupervisorWorkerHeartbeat) -> frozenset[Executor]:
    return frozenset(map(convert.from_executor, beat.executors))


def _on_node(node: str, assignments: Mapping[str, Assignment]) -> storm.SupervisorAssignments:
    return storm.SupervisorAssignments(
        storm_assignment={
            topology_id: convert.to_assignment(assignment)
            for topology_id, assignment in assignments.items()
            if any(slot.node == node for slot in assignment.executor_slot.values())
        }
    )


class LivenessCalls(Calls):
    """The assignments of a node, and the heartbeats and metrics of its workers."""

    @operation("getSupervisorAssignments")
    async def getSupervisorAssignments(
        self, call: Call, node: str | None
    ) -> storm.SupervisorAssignments:
        """Every assignment that has a slot on the node (a supervisor's id)."""
        node = needed(node, "node")
        assignments = await self.nimbus.reader.assignments()
        return await off_loop_if(views.are_large(assignments.values()), _on_node, node, assignments)

    async def _heard(self, node: str | None, beat: storm.SupervisorWorkerHeartbeat) -> None:
        """Take in a worker's heartbeat. One with more executors than its topology has is refused
        before any of them is looked at."""
        monitor = self.nimbus.monitor
        known = monitor.executors(beat.storm_id)
        if not known:
            return  # it has ended, or has no assignment yet
        if len(beat.executors) > known:
            raise refused(
                f"the heartbeat lists {len(beat.executors)} executors; {beat.storm_id} has {known}"
            )
        if len(beat.executors) > _EXECUTORS_ON_LOOP_MAX:
            executors = await off_loop(_executors, beat)
        else:
            executors = _executors(beat)
        monitor.heard(beat.storm_id, node, executors, beat.time_secs, self.nimbus.clock.monotonic())

    @operation("sendSupervisorWorkerHeartbeats")
    async def sendSupervisorWorkerHeartbeats(
        self, call: Call, heartbeats: storm.SupervisorWorkerHeartbeats | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        beats = needed(heartbeats, "heartbeats")
        for beat in beats.worker_heartbeats:
            await self._heard(beats.supervisor_id, beat)

    @operation("sendSupervisorWorkerHeartbeat")
    async def sendSupervisorWorkerHeartbeat(
        self, call: Call, heatbeat: storm.SupervisorWorkerHeartbeat | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        beat = needed(heatbeat, "heatbeat")
        if beat.storm_id not in await self.nimbus.state.topology_ids():
            raise TopologyNotAliveError(beat.storm_id)
        await self._heard(None, beat)

    @operation("processWorkerMetrics")
    async def processWorkerMetrics(self, call: Call, metrics: storm.WorkerMetrics | None) -> None:
        metrics = needed(metrics, "metrics")
        if metrics.topologyId not in await self.nimbus.state.topology_ids():
            return  # late metrics of a topology that has ended
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
