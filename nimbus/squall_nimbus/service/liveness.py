"""Calls of supervisors and workers."""

from __future__ import annotations

from squall.cluster import convert
from squall_nimbus.control import TopologyNotAliveError
from squall_nimbus.service.base import Calls, needed, operation
from squall_nimbus.worker_metrics import MetricPoint
from squall_thrift import storm
from squall_thrift.authorization import Call


class LivenessCalls(Calls):
    """Assignments of a node, heartbeats and metrics of its workers."""

    @operation("getSupervisorAssignments")
    async def getSupervisorAssignments(
        self, call: Call, node: str | None
    ) -> storm.SupervisorAssignments:
        """Every assignment that has a slot on the node (a supervisor's id)."""
        node = needed(node, "node")
        return storm.SupervisorAssignments(
            storm_assignment={
                topology_id: convert.to_assignment(assignment)
                for topology_id, assignment in (await self.nimbus.reader.assignments()).items()
                if any(slot.node == node for slot in assignment.executor_slot.values())
            }
        )

    def _heard(self, node: str | None, beat: storm.SupervisorWorkerHeartbeat) -> None:
        executors = {convert.from_executor(one) for one in beat.executors}
        self.nimbus.monitor.heard(
            beat.storm_id, node, executors, beat.time_secs, self.nimbus.clock.monotonic()
        )

    @operation("sendSupervisorWorkerHeartbeats")
    async def sendSupervisorWorkerHeartbeats(
        self, call: Call, heartbeats: storm.SupervisorWorkerHeartbeats | None
    ) -> None:
        await self.nimbus.desk.require()
        beats = needed(heartbeats, "heartbeats")
        for beat in beats.worker_heartbeats:
            self._heard(beats.supervisor_id, beat)

    @operation("sendSupervisorWorkerHeartbeat")
    async def sendSupervisorWorkerHeartbeat(
        self, call: Call, heatbeat: storm.SupervisorWorkerHeartbeat | None
    ) -> None:
        await self.nimbus.desk.require()
        beat = needed(heatbeat, "heatbeat")
        if beat.storm_id not in await self.nimbus.state.storms():
            raise TopologyNotAliveError(beat.storm_id)
        self._heard(None, beat)

    @operation("processWorkerMetrics")
    async def processWorkerMetrics(self, call: Call, metrics: storm.WorkerMetrics | None) -> None:
        metrics = needed(metrics, "metrics")
        if metrics.topologyId not in await self.nimbus.state.storms():
            return  # late metrics of one that has ended
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
