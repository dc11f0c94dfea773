"""What clients see of topologies, as Thrift structs: summaries and the pages of the UI.

Pure: from what was read of the cluster to a struct, with every field that Storm's clients require.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.cluster import convert, values
from squall.cluster.values import Assignment, StormBase, SupervisorInfo, WorkerHeartbeat
from squall.model import ComponentKind, Executor, WorkerSlot
from squall.names import is_system_id
from squall_nimbus import health, stats
from squall_nimbus.catalog import StoredTopology
from squall_nimbus.redact import redact
from squall_nimbus.stats import StreamTotals, Totals
from squall_thrift import storm

_NO_ASSIGNMENT = Assignment("")


@dataclass(frozen=True, slots=True)
class TopologyView:
    """One topology at one moment. `stored` is None where this Nimbus does not have its code."""

    id: str
    base: StormBase
    assignment: Assignment | None
    now_epoch_secs: int
    stored: StoredTopology | None = None
    beats: Mapping[WorkerSlot, WorkerHeartbeat] = field(default_factory=dict)
    errors: Mapping[str, Sequence[values.ErrorInfo]] = field(default_factory=dict)
    replication_count: int | None = None  # how many Nimbus have its code; None: not asked

    @property
    def placed(self) -> Assignment:
        """The assignment, an empty one before the first."""
        return self.assignment or _NO_ASSIGNMENT

    @property
    def uptime_secs(self) -> int:
        """Since it was submitted."""
        return max(0, self.now_epoch_secs - self.base.launch_time_secs)

    @property
    def component_of(self) -> Mapping[Executor, str]:
        """All its executors, placed or not."""
        return self.stored.component_of(self.base) if self.stored else {}

    @property
    def schedule_status(self) -> str:
        """In a few words, whether everything runs somewhere."""
        executors = sum(self.base.component_executors.values())
        placed = len(self.placed.executor_slot)
        if placed < executors:
            return f"{placed} of {executors} executors have a slot: not enough slots"
        workers = len(self.placed.slots())
        if workers < min(self.base.num_workers, executors):
            return f"runs in {workers} of {self.base.num_workers} workers: not enough slots"
        return "Fully Scheduled"

    def host(self, slot: WorkerSlot) -> str:
        """The host name of a slot's supervisor."""
        return self.placed.node_host.get(slot.node, "")

    def reported(self, executor: Executor) -> tuple[values.ExecutorStats | None, int]:
        """What an executor reported on the slot where it is placed, and its worker's uptime."""
        slot = self.placed.executor_slot.get(executor)
        beat = self.beats.get(slot) if slot is not None else None
        if beat is None or executor not in beat.executor_stats:
            return None, 0
        return beat.executor_stats[executor], beat.uptime_secs

    def totals(self, executors: Iterable[Executor], window: str, include_system: bool) -> Totals:
        """Sums over some executors."""
        return stats.total(
            ((executor, *self.reported(executor)) for executor in executors),
            window,
            include_system,
        )


def topology_summary(view: TopologyView, cluster: health.Slots) -> storm.TopologySummary:
    """One line of a list of topologies."""
    placed = view.placed
    slots = placed.slots()
    return storm.TopologySummary(
        id=view.id,
        name=view.base.name,
        num_tasks=sum(len(executor.tasks) for executor in placed.executor_slot),
        num_executors=len(placed.executor_slot),
        num_workers=len(slots),
        uptime_secs=view.uptime_secs,
        status=view.base.status.name,
        storm_version=view.stored.submitted.storm_version if view.stored else None,
        topology_version=view.base.topology_version,
        sched_status=view.schedule_status,
        owner=view.base.owner or "",
        replication_count=view.replication_count,
        health=health.health(view.id, view.base, slots, cluster),
    )


def supervisor_summary(
    supervisor_id: str, info: SupervisorInfo, assignments: Iterable[Assignment]
) -> storm.SupervisorSummary:
    """One line of a list of supervisors."""
    used = {
        slot
        for assignment in assignments
        for slot in assignment.executor_slot.values()
        if slot.node == supervisor_id
    }
    return storm.SupervisorSummary(
        host=info.hostname,
        uptime_secs=info.uptime_secs,
        num_workers=len(info.meta),
        num_used_workers=len(used),
        supervisor_id=supervisor_id,
        version=info.version or "VERSION_NOT_PROVIDED",
        total_resources=dict(info.resources),
        blacklisted=False,
    )


def topology_info(view: TopologyView) -> storm.TopologyInfo:
    """Every executor with what it reported, and errors by component."""
    summaries = [
        executor_summary(view, executor, component)
        for executor, component in sorted(view.component_of.items())
        if executor in view.placed.executor_slot
    ]
    return storm.TopologyInfo(
        id=view.id,
        name=view.base.name,
        uptime_secs=view.uptime_secs,
        executors=summaries,
        status=view.base.status.name,
        errors={
            component: [convert.to_error(error) for error in errors]
            for component, errors in view.errors.items()
        },
        component_debug=debug_options(view.base),
        storm_version=view.stored.submitted.storm_version if view.stored else None,
        sched_status=view.schedule_status,
        owner=view.base.owner or "",
        replication_count=view.replication_count,
    )


def debug_options(base: StormBase) -> dict[str, storm.DebugOptions]:
    return {
        component: storm.DebugOptions(enable=options.enable, samplingpct=options.sampling_pct)
        for component, options in base.component_debug.items()
    }


def executor_summary(
    view: TopologyView, executor: Executor, component: str
) -> storm.ExecutorSummary:
    slot = view.placed.executor_slot[executor]
    reported, uptime_secs = view.reported(executor)
    return storm.ExecutorSummary(
        executor_info=storm.ExecutorInfo(
            task_start=executor.task_start, task_end=executor.task_end
        ),
        component_id=component,
        host=view.host(slot),
        port=slot.port,
        uptime_secs=uptime_secs,
        stats=None if reported is None else convert.to_executor_stats(reported),
    )


def worker_summaries(
    view: TopologyView, include_system: bool, node: str | None = None
) -> list[storm.WorkerSummary]:
    """The workers of a topology, on one supervisor or all."""
    component_of = view.component_of
    found = []
    for slot, executors in sorted(view.placed.slots().items()):
        if node is not None and slot.node != node:
            continue
        tasks: dict[str, int] = {}
        for executor in executors:
            component = component_of.get(executor)
            if component is not None and (include_system or not is_system_id(component)):
                tasks[component] = tasks.get(component, 0) + len(executor.tasks)
        beat = view.beats.get(slot)
        found.append(
            storm.WorkerSummary(
                supervisor_id=slot.node,
                host=view.host(slot),
                port=slot.port,
                topology_id=view.id,
                topology_name=view.base.name,
                num_executors=len(executors),
                component_to_num_tasks=tasks,
                time_secs=beat.time_secs if beat else 0,
                uptime_secs=beat.uptime_secs if beat else 0,
                owner=view.base.owner or "",
            )
        )
    return found


def aggregate(
    kind: ComponentKind, totals: Totals | StreamTotals, last_error: storm.ErrorInfo | None = None
) -> storm.ComponentAggregateStats:
    """Totals as Storm's struct for a spout or a bolt."""
    common = storm.CommonAggregateStats(
        num_executors=totals.executors if isinstance(totals, Totals) else None,
        num_tasks=totals.tasks if isinstance(totals, Totals) else None,
        emitted=totals.emitted,
        transferred=totals.transferred,
        acked=totals.acked,
        failed=totals.failed,
    )
    if kind is ComponentKind.SPOUT:
        specific = storm.SpecificAggregateStats(
            spout=storm.SpoutAggregateStats(complete_latency_ms=totals.complete.value)
        )
    else:
        specific = storm.SpecificAggregateStats(
            bolt=storm.BoltAggregateStats(
                execute_latency_ms=totals.execute.value,
                process_latency_ms=totals.process.value,
                executed=totals.executed,
                capacity=totals.capacity if isinstance(totals, Totals) else 0.0,
            )
        )
    return storm.ComponentAggregateStats(
        type=component_type(kind),
        common_stats=common,
        specific_stats=specific,
        last_error=last_error,
    )


def component_type(kind: ComponentKind) -> storm.ComponentType:
    spout = kind is ComponentKind.SPOUT
    return storm.ComponentType.SPOUT if spout else storm.ComponentType.BOLT


def shown_conf(conf: Mapping[str, Any]) -> str:
    """A configuration as JSON, without secrets."""
    return json.dumps(redact(conf), sort_keys=True)
