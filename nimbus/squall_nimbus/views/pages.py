"""The two large pages of Storm's UI: for a topology, and for one of its components."""

from __future__ import annotations

from collections.abc import Collection

from squall_common.cluster import convert
from squall_common.names import is_system_id
from squall_common.topology.model import ComponentKind, WorkerSlot
from squall_nimbus.store.topology_store import StoredTopology
from squall_nimbus.views import rest, stats, views
from squall_nimbus.views.stats import WINDOWS, StreamTotals, Totals
from squall_nimbus.views.views import Report, TopologyView
from squall_thrift import codec, storm


class _Tally:
    """Sums by component and window, taken in one pass over the executors."""

    def __init__(self, include_system: bool) -> None:
        self._include_system = include_system
        self._totals: dict[tuple[str, str], Totals] = {}

    def add(self, report: Report, window: str) -> None:
        """Add an executor."""
        self.of(report.component, window).add(
            report.executor, report.stats, report.uptime_secs, window, self._include_system
        )

    def of(self, component: str, window: str) -> Totals:
        """Return the totals; all zeros if there was no executor."""
        return self._totals.setdefault((component, window), Totals())


def topology_page(
    view: TopologyView, stored: StoredTopology, window: str, include_system: bool
) -> storm.TopologyPageInfo:
    """Sums of a topology and of each of its components, in `window`."""
    tally = _Tally(include_system)
    components: set[str] = set()
    failures: dict[WorkerSlot, str] = {}
    for report in view.reports():
        components.add(report.component)
        if report.slot is not None and report.store_failure:
            failures[report.slot] = report.store_failure
        for each in WINDOWS:
            tally.add(report, each)
    spouts: dict[str, storm.ComponentAggregateStats] = {}
    bolts: dict[str, storm.ComponentAggregateStats] = {}
    for component_id in sorted(components):
        if is_system_id(component_id) and not include_system:
            continue
        kind = stored.compiled.components[component_id].kind
        errors = view.errors.get(component_id, ())
        found = views.aggregate(
            kind,
            tally.of(component_id, window),
            convert.to_error(errors[0]) if errors else None,
        )
        (spouts if kind is ComponentKind.SPOUT else bolts)[component_id] = found
    placed, checkpoints = view.placed, view.checkpoints_with(failures)
    debug = views.debug_options(view.base)
    return storm.TopologyPageInfo(
        id=view.id,
        name=view.base.name,
        uptime_secs=view.uptime_secs,
        status=view.base.status.name,
        num_tasks=len(stored.task_to_component),
        num_workers=len(placed.slots()),
        num_executors=len(placed.executor_slot),
        topology_conf=views.shown_conf(stored.conf),
        id_to_spout_agg_stats=spouts,
        id_to_bolt_agg_stats=bolts,
        sched_status=view.schedule_status,
        topology_stats=_topology_stats(tally, stored, components),
        owner=view.base.owner or "",
        debug_options=debug.get(view.id) or storm.DebugOptions(enable=False, samplingpct=10.0),
        replication_count=view.replication_count,
        workers=views.worker_summaries(view, include_system),
        storm_version=stored.submitted.storm_version,
        topology_version=view.base.topology_version,
        checkpoints=None if checkpoints is None else convert.to_checkpoints(checkpoints),
        finished=rest.has_finished(
            view,
            stored,
            {name: tally.of(name, window) for name in components},
        ),
    )


def _topology_stats(
    tally: _Tally, stored: StoredTopology, components: Collection[str]
) -> storm.TopologyStats:
    """For each window: how much all components emitted and transferred, and how the spouts' tuples
    ended."""
    emitted, transferred, acked, failed = (dict.fromkeys(WINDOWS, 0) for _ in range(4))
    complete = {window: stats.Mean() for window in WINDOWS}
    times = {window: stats.Distribution() for window in WINDOWS}
    for window in WINDOWS:
        for component_id in components:
            totals = tally.of(component_id, window)
            emitted[window] += totals.emitted
            transferred[window] += totals.transferred
            if stored.compiled.components[component_id].kind is ComponentKind.SPOUT:
                acked[window] += totals.acked
                failed[window] += totals.failed
                complete[window].add(totals.complete.value, totals.complete.weight)
                times[window].extend(totals.complete_times)
    distributions = {w: views.distribution(one) for w, one in times.items()}
    return storm.TopologyStats(
        window_to_emitted=emitted,
        window_to_transferred=transferred,
        window_to_complete_latencies_ms={w: mean.value for w, mean in complete.items()},
        window_to_acked=acked,
        window_to_failed=failed,
        window_to_complete_latency={w: one for w, one in distributions.items() if one},
    )


def component_page(
    view: TopologyView,
    stored: StoredTopology,
    component_id: str,
    window: str,
    include_system: bool,
) -> storm.ComponentPageInfo:
    """Everything about one component. The caller has checked that the component exists."""
    kind = stored.compiled.components[component_id].kind
    tally = _Tally(include_system)
    executors = 0
    outputs: dict[str, StreamTotals] = {}
    inputs: dict[tuple[str, str], StreamTotals] = {}
    shown: list[storm.ExecutorAggregateStats] = []
    for report in view.reports():
        if report.component != component_id:
            continue
        executors += 1
        for each in WINDOWS:
            tally.add(report, each)
        if report.stats is not None:
            stats.merge(outputs, stats.outputs(report.stats, window, include_system))
            stats.merge(inputs, stats.inputs(report.stats, window, include_system))
        if report.slot is not None:
            shown.append(
                codec.encoded_element(
                    _executor(view, report, report.slot, kind, window, include_system)
                )
            )
    debug = views.debug_options(view.base)
    return storm.ComponentPageInfo(
        component_id=component_id,
        component_type=views.component_type(kind),
        topology_id=view.id,
        topology_name=view.base.name,
        num_executors=executors,
        num_tasks=stored.tasks_of(component_id),
        window_to_stats={
            each: views.aggregate(kind, tally.of(component_id, each), buckets=True)
            for each in WINDOWS
        },
        gsid_to_input_stats={
            storm.GlobalStreamId(componentId=source, streamId=stream): views.aggregate(
                ComponentKind.BOLT, one
            )
            for (source, stream), one in sorted(inputs.items())
        },
        sid_to_output_stats={
            stream: views.aggregate(kind, one) for stream, one in sorted(outputs.items())
        },
        exec_stats=shown,
        errors=[convert.to_error(error) for error in view.errors.get(component_id, ())],
        debug_options=debug.get(component_id)
        or debug.get(view.id)
        or storm.DebugOptions(enable=False, samplingpct=10.0),
        topology_status=view.base.status.name,
    )


def _executor(
    view: TopologyView,
    report: Report,
    slot: WorkerSlot,
    kind: ComponentKind,
    window: str,
    include_system: bool,
) -> storm.ExecutorAggregateStats:
    totals = Totals()
    totals.add(report.executor, report.stats, report.uptime_secs, window, include_system)
    return storm.ExecutorAggregateStats(
        exec_summary=views.executor_summary(view, report, slot),
        stats=views.aggregate(kind, totals),
    )
