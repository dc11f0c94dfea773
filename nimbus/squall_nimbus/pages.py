"""The two large pages of Storm's UI: one topology, and one component of it."""

from __future__ import annotations

from squall.cluster import convert
from squall.model import ComponentKind, Executor
from squall.names import is_system_id
from squall_nimbus import stats, views
from squall_nimbus.catalog import StoredTopology
from squall_nimbus.stats import WINDOWS
from squall_nimbus.views import TopologyView
from squall_thrift import storm


def topology_page(
    view: TopologyView, stored: StoredTopology, window: str, include_system: bool
) -> storm.TopologyPageInfo:
    """Sums of a topology and of each of its components, in `window`."""
    by_component = _executors_by_component(view)
    spouts: dict[str, storm.ComponentAggregateStats] = {}
    bolts: dict[str, storm.ComponentAggregateStats] = {}
    for component_id, executors in sorted(by_component.items()):
        if is_system_id(component_id) and not include_system:
            continue
        kind = stored.compiled.components[component_id].kind
        errors = view.errors.get(component_id, ())
        found = views.aggregate(
            kind,
            view.totals(executors, window, include_system),
            convert.to_error(errors[0]) if errors else None,
        )
        (spouts if kind is ComponentKind.SPOUT else bolts)[component_id] = found
    placed = view.placed
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
        topology_stats=_topology_stats(view, stored, by_component, include_system),
        owner=view.base.owner or "",
        debug_options=debug.get(view.id) or storm.DebugOptions(enable=False, samplingpct=10.0),
        replication_count=view.replication_count,
        workers=views.worker_summaries(view, include_system),
        storm_version=stored.submitted.storm_version,
        topology_version=view.base.topology_version,
    )


def _executors_by_component(view: TopologyView) -> dict[str, list[Executor]]:
    found: dict[str, list[Executor]] = {}
    for executor, component in sorted(view.component_of.items()):
        found.setdefault(component, []).append(executor)
    return found


def _topology_stats(
    view: TopologyView,
    stored: StoredTopology,
    by_component: dict[str, list[Executor]],
    include_system: bool,
) -> storm.TopologyStats:
    """By window: what all components emitted and transferred, and how the spouts' tuples ended."""
    emitted, transferred, acked, failed = (dict.fromkeys(WINDOWS, 0) for _ in range(4))
    complete = {window: stats.Mean() for window in WINDOWS}
    for window in WINDOWS:
        for component_id, executors in by_component.items():
            totals = view.totals(executors, window, include_system)
            emitted[window] += totals.emitted
            transferred[window] += totals.transferred
            if stored.compiled.components[component_id].kind is ComponentKind.SPOUT:
                acked[window] += totals.acked
                failed[window] += totals.failed
                complete[window].add(totals.complete.value, totals.complete.weight)
    return storm.TopologyStats(
        window_to_emitted=emitted,
        window_to_transferred=transferred,
        window_to_complete_latencies_ms={w: mean.value for w, mean in complete.items()},
        window_to_acked=acked,
        window_to_failed=failed,
    )


def component_page(
    view: TopologyView,
    stored: StoredTopology,
    component_id: str,
    window: str,
    include_system: bool,
) -> storm.ComponentPageInfo:
    """Everything about one component. The caller has checked that there is such a component."""
    kind = stored.compiled.components[component_id].kind
    executors = _executors_by_component(view).get(component_id, [])
    reported = {executor: found for executor in executors if (found := view.reported(executor)[0])}
    outputs = stats.merged(stats.outputs(one, window, include_system) for one in reported.values())
    inputs = stats.merged_inputs(
        stats.inputs(one, window, include_system) for one in reported.values()
    )
    debug = views.debug_options(view.base)
    return storm.ComponentPageInfo(
        component_id=component_id,
        component_type=views.component_type(kind),
        topology_id=view.id,
        topology_name=view.base.name,
        num_executors=len(executors),
        num_tasks=stored.tasks_of(component_id),
        window_to_stats={
            each: views.aggregate(kind, view.totals(executors, each, include_system))
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
        exec_stats=[
            storm.ExecutorAggregateStats(
                exec_summary=views.executor_summary(view, executor, component_id),
                stats=views.aggregate(kind, view.totals([executor], window, include_system)),
            )
            for executor in executors
            if executor in view.placed.executor_slot
        ],
        errors=[convert.to_error(error) for error in view.errors.get(component_id, ())],
        debug_options=debug.get(component_id)
        or debug.get(view.id)
        or storm.DebugOptions(enable=False, samplingpct=10.0),
        topology_status=view.base.status.name,
    )
