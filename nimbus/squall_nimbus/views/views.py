"""Topologies as clients see them, in Thrift structs: summaries and the pages of the UI.

Pure: turns data read from the cluster into structs with every field that Storm's clients require.

Work for each executor takes long when there are 10,000 of them, so these functions run off the
loop. Their results would also take much memory (some 12 KB per executor, decoded), so heartbeats
are decoded one worker at a time, and an answer's part for each executor is encoded at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from squall_common.cluster import convert, values
from squall_common.cluster.codec import CorruptStateError, plain_size
from squall_common.cluster.state import UndecodedBeat
from squall_common.cluster.values import (
    UNHEALTHY_KEY,
    Assignment,
    StormBase,
    SupervisorInfo,
    WorkerHeartbeat,
)
from squall_common.cluster.worker_exits import WorkerExit
from squall_common.daemon import fast_json
from squall_common.history.histogram import percentile, upper_secs
from squall_common.names import is_system_id
from squall_common.topology.model import ComponentKind, Executor, WorkerSlot
from squall_nimbus.store.topology_store import StoredTopology
from squall_nimbus.views import health
from squall_nimbus.views.redact import redact
from squall_nimbus.views.stats import Distribution, StreamTotals, Totals
from squall_thrift import codec, storm

_NO_ASSIGNMENT = Assignment("")


# Answers for up to this many executors are made on the loop: some 10 ms at worst. So a small call
# does not wait for a large one.
_EXECUTORS_ON_LOOP_MAX = 100
# Heartbeats of this size, unfolded, take as long to decode.
_BEAT_BYTES_ON_LOOP_MAX = 100_000
_FAILURES_MAX = 3  # of the store, and workers of each, that are shown


def are_large(assignments: Iterable[Assignment]) -> bool:
    """Return whether making an answer from them would block the loop."""
    return sum(len(one.executor_slot) for one in assignments) > _EXECUTORS_ON_LOOP_MAX


@dataclass(frozen=True, slots=True)
class Report:
    """An executor: its slot, what it reported there, and its worker's uptime."""

    executor: Executor
    component: str
    slot: WorkerSlot | None = None
    stats: values.ExecutorStats | None = None
    uptime_secs: int = 0
    stats_ms: int | None = None  # when the statistics were read, since the worker began
    store_failure: str | None = None  # of its worker


@dataclass(frozen=True, slots=True)
class TopologyView:
    """One topology at one moment. `stored` is None if this Nimbus does not have its code."""

    id: str
    base: StormBase
    assignment: Assignment | None
    now_epoch_secs: int
    stored: StoredTopology | None = None
    beats: Mapping[WorkerSlot, UndecodedBeat] = field(default_factory=dict)
    errors: Mapping[str, Sequence[values.ErrorInfo]] = field(default_factory=dict)
    replication_count: int | None = None  # how many Nimbus nodes have its code; None: not asked

    @property
    def placed(self) -> Assignment:
        """The assignment; an empty one before the first."""
        return self.assignment or _NO_ASSIGNMENT

    @property
    def is_large(self) -> bool:
        """Whether making an answer from it would block the loop."""
        return (
            are_large([self.placed])
            or sum(plain_size(beat.data) for beat in self.beats.values()) > _BEAT_BYTES_ON_LOOP_MAX
        )

    @property
    def uptime_secs(self) -> int:
        """Seconds since it was submitted."""
        return max(0, self.now_epoch_secs - self.base.launch_time_secs)

    @property
    def component_of(self) -> Mapping[Executor, str]:
        """All its executors, placed or not."""
        return self.stored.component_of(self.base) if self.stored else {}

    @property
    def schedule_status(self) -> str:
        """Whether everything has a slot, in a few words."""
        executors = sum(self.base.component_executors.values())
        placed = len(self.placed.executor_slot)
        if placed < executors:
            return f"{placed} of {executors} executors have a slot: not enough slots"
        workers = len(self.placed.slots())
        if workers < min(self.base.num_workers, executors):
            return f"runs in {workers} of {self.base.num_workers} workers: not enough slots"
        return "Fully Scheduled"

    def host(self, slot: WorkerSlot) -> str:
        """Return the host name of a slot's supervisor."""
        return self.placed.node_host.get(slot.node, "")

    def beat(self, slot: WorkerSlot) -> WorkerHeartbeat | None:
        """Return a worker's heartbeat, decoded each time. A damaged one also gives None: its worker
        writes another within seconds, or is dead."""
        undecoded = self.beats.get(slot)
        try:
            return None if undecoded is None else undecoded.decode()
        except CorruptStateError:
            return None

    @property
    def checkpoints(self) -> values.CheckpointReport | None:
        """What the worker that coordinates the topology's checkpoints reported last; None if none
        does, or has not yet. It is the one with the first task."""
        placed = self.placed.executor_slot
        beat = self.beat(placed[min(placed)]) if placed else None
        return None if beat is None else beat.checkpoints

    def checkpoints_with(
        self, failures: Mapping[WorkerSlot, str]
    ) -> values.CheckpointReport | None:
        """The same, with what the store has failed with in other workers: one that cannot write
        holds up all, and the one that coordinates does not know why. They are named."""
        report, placed = self.checkpoints, self.placed.executor_slot
        if report is None:
            return None
        found = dict(failures)
        if report.failure:
            found[placed[min(placed)]] = report.failure
        named = {f"{self.host(slot)}:{slot.port}": found[slot] for slot in sorted(found)}
        return replace(report, failure=joined_failures(named))

    def reports(self) -> Iterator[Report]:
        """Yield a report for each executor: worker by worker, then those without a slot."""
        component_of = self.component_of
        for slot, executors in sorted(self.placed.slots().items()):
            beat = self.beat(slot)
            for executor in executors:
                component = component_of.get(executor)
                if component is None:
                    continue
                if beat is None or executor not in beat.executor_stats:
                    yield Report(executor, component, slot)
                    continue
                found = beat.executor_stats[executor]
                yield Report(
                    executor,
                    component,
                    slot,
                    found,
                    beat.uptime_secs,
                    beat.stats_ms,
                    beat.store_failure,
                )
        for executor in sorted(component_of.keys() - self.placed.executor_slot.keys()):
            yield Report(executor, component_of[executor])


def joined_failures(failures: Mapping[str, str]) -> str | None:
    """What the store has failed with, by worker (HOST:PORT), in a line; None: it has not failed.

    joined_failures({"a:6700": "the disk is full", "b:6700": "the disk is full"})
    # 'the disk is full (a:6700, b:6700)'
    """
    workers: dict[str, list[str]] = {}
    for worker, failure in failures.items():
        workers.setdefault(failure, []).append(worker)
    shown = [
        f"{failure} ({', '.join(some[:_FAILURES_MAX])}{_more(len(some) - _FAILURES_MAX)})"
        for failure, some in list(workers.items())[:_FAILURES_MAX]
    ]
    rest = sum(len(some) for some in list(workers.values())[_FAILURES_MAX:])
    if rest:
        shown.append(f"{rest} more workers")
    return "; ".join(shown) or None


def _more(workers: int) -> str:
    return f" and {workers} more" if workers > 0 else ""


def topology_summary(
    view: TopologyView, cluster: health.Slots, finished: bool | None
) -> storm.TopologySummary:
    """One entry in a list of topologies."""
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
        last_exit=_worker_exit(cluster.exits.get(view.id)),
        restarts=cluster.restarts.get(view.id, 0),
        finished=finished,
    )


def _worker_exit(found: WorkerExit | None) -> storm.WorkerExit | None:
    if found is None:
        return None
    return storm.WorkerExit(
        time_secs=found.time_secs,
        host=found.host,
        port=found.port,
        reason=found.reason,
        last_line=found.last_line,
    )


def supervisor_summaries(
    supervisors: Mapping[str, SupervisorInfo], assignments: Iterable[Assignment]
) -> dict[str, storm.SupervisorSummary]:
    """The summaries of supervisors, by id."""
    used: dict[str, set[WorkerSlot]] = {}
    for assignment in assignments:
        for slot in set(assignment.executor_slot.values()):
            used.setdefault(slot.node, set()).add(slot)
    return {
        supervisor_id: _supervisor_summary(supervisor_id, info, used.get(supervisor_id, ()))
        for supervisor_id, info in sorted(supervisors.items())
    }


def _supervisor_summary(
    supervisor_id: str, info: SupervisorInfo, used: Collection[WorkerSlot]
) -> storm.SupervisorSummary:
    return storm.SupervisorSummary(
        host=info.hostname,
        uptime_secs=info.uptime_secs,
        num_workers=len(info.meta),
        num_used_workers=len(used),
        supervisor_id=supervisor_id,
        version=info.version or "VERSION_NOT_PROVIDED",
        total_resources=dict(info.resources),
        blacklisted=False,
        unhealthy=info.scheduler_meta.get(UNHEALTHY_KEY),
    )


def topology_info(view: TopologyView) -> storm.TopologyInfo:
    """Every executor with its reported statistics, and errors by component."""
    summaries = [
        codec.encoded_element(executor_summary(view, report, report.slot))
        for report in view.reports()
        if report.slot is not None
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


def executor_summary(view: TopologyView, report: Report, slot: WorkerSlot) -> storm.ExecutorSummary:
    """One executor on its slot."""
    return storm.ExecutorSummary(
        executor_info=convert.to_executor(report.executor),
        component_id=report.component,
        host=view.host(slot),
        port=slot.port,
        uptime_secs=report.uptime_secs,
        stats=None if report.stats is None else convert.to_executor_stats(report.stats),
        stats_ms=report.stats_ms,
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
        beat = view.beat(slot)
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
                usage=convert.to_usage(beat.usage) if beat and beat.usage else None,
            )
        )
    return found


def distribution(times: Distribution, *, buckets: bool = False) -> storm.LatencyDistribution | None:
    """Latencies as a struct; None when nothing was measured."""
    histogram = times.histogram()
    if not histogram:
        return None

    def percentile_ms(share: float) -> float:
        return 1000 * (percentile(histogram, share) or 0.0)

    listed = None
    if buckets:
        listed = [
            storm.LatencyBucket(upper_ms=1000 * upper_secs(bucket), count=count)
            for bucket, count in sorted(histogram.items())
        ]
    return storm.LatencyDistribution(
        count=sum(histogram.values()),
        p50_ms=percentile_ms(0.5),
        p95_ms=percentile_ms(0.95),
        p99_ms=percentile_ms(0.99),
        buckets=listed,
    )


def aggregate(
    kind: ComponentKind,
    totals: Totals | StreamTotals,
    last_error: storm.ErrorInfo | None = None,
    *,
    buckets: bool = False,
) -> storm.ComponentAggregateStats:
    """Totals as Storm's struct for a spout or a bolt; `buckets`: with whole distributions."""
    common = storm.CommonAggregateStats(
        num_executors=totals.executors if isinstance(totals, Totals) else None,
        num_tasks=totals.tasks if isinstance(totals, Totals) else None,
        emitted=totals.emitted,
        transferred=totals.transferred,
        acked=totals.acked,
        failed=totals.failed,
    )
    if isinstance(totals, Totals):
        common.queue_tuples = totals.queue_tuples
        common.queue_bytes = totals.queue_bytes
        common.state_keys = totals.state_keys
        common.state_bytes = totals.state_bytes
        common.blocked_share = totals.blocked_share or None
        common.credit_bytes = totals.credit or None
    if kind is ComponentKind.SPOUT:
        specific = storm.SpecificAggregateStats(
            spout=storm.SpoutAggregateStats(
                complete_latency_ms=totals.complete.value,
                complete_latency=distribution(totals.complete_times, buckets=buckets),
                exhausted_tasks=_exhausted(totals),
            )
        )
    else:
        specific = storm.SpecificAggregateStats(
            bolt=storm.BoltAggregateStats(
                execute_latency_ms=totals.execute.value,
                process_latency_ms=totals.process.value,
                executed=totals.executed,
                capacity=totals.capacity if isinstance(totals, Totals) else 0.0,
                execute_latency=distribution(totals.execute_times, buckets=buckets),
                process_latency=distribution(totals.process_times, buckets=buckets),
            )
        )
        if isinstance(totals, Totals) and totals.calls_max is not None:
            bolt = specific.bolt
            assert bolt is not None
            bolt.calls, bolt.calls_max = totals.calls, totals.calls_max
            bolt.on_threads = totals.on_threads
    return storm.ComponentAggregateStats(
        type=component_type(kind),
        common_stats=common,
        specific_stats=specific,
        last_error=last_error,
    )


def _exhausted(totals: Totals | StreamTotals) -> int | None:
    if not isinstance(totals, Totals) or totals.endless:
        return None
    return totals.exhausted


def component_type(kind: ComponentKind) -> storm.ComponentType:
    spout = kind is ComponentKind.SPOUT
    return storm.ComponentType.SPOUT if spout else storm.ComponentType.BOLT


def shown_conf(conf: Mapping[str, Any]) -> str:
    """Return a configuration as JSON, without secrets."""
    return fast_json.dumps(redact(conf), sort_keys=True).decode()
