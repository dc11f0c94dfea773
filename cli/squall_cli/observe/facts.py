"""What Nimbus knows of topologies, as plain values: read once, shown and judged by others.

Counts and rates are those of the last ten minutes, or since the oldest worker began. Between two
looks, `rates_between` gives those of that time alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from squall_cli.cluster.activity import WINDOW_SECS, Activity, activity_of
from squall_cli.cluster.nimbus import ask_nimbus
from squall_common.config.options.typed import ClientOptions, TopologyOptions
from squall_common.telemetry.findings import NEARLY_FULL
from squall_common.topology.error_text import headline
from squall_common.topology.plan import Plan
from squall_common.topology.thrift import plan_of

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_thrift import storm

_WINDOW = str(WINDOW_SECS)
ALL_TIME = ":all-time"
_AT_ONCE = 8  # topologies that are read at the same time


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest error of a component: the line that names it."""

    line: str
    time_secs: int


@dataclass(frozen=True, slots=True)
class Load:
    """How the executors of a bolt share its work: the mean of their capacities, which of them is
    the busiest, and the tuples that they execute a second, each since its own start."""

    mean: float
    busiest: str
    executed_per_sec: float


@dataclass(frozen=True, slots=True)
class Component:
    """One spout or bolt. A spout's `latency_ms` is the mean time from emit to ack; a bolt's the
    mean time in `execute`. `capacity` is the share of its time (0 to 1) that the busiest executor
    of a bolt spent there, or of the calls that it may have under way; None for a spout. `load` is
    read of the busiest bolt alone, if it is nearly full."""

    name: str
    is_spout: bool
    executors: int
    tasks: int
    emitted: int
    acked: int
    failed: int
    executed: int  # 0 for a spout
    latency_ms: float | None
    process_ms: float | None  # a bolt's mean time from receiving a tuple to its ack
    capacity: float | None
    error: LastError | None
    p50_ms: float | None = None  # of `latency_ms`, as the next two; None: nothing was measured
    p95_ms: float | None = None
    p99_ms: float | None = None
    queue_tuples: int | None = None  # waiting in its inboxes; of a spout: pending messages
    state_keys: int | None = None  # of windows, those with an open one; None: it has no state
    state_bytes: int | None = None  # in the store; None: it is not stored
    blocked: Mapping[str, float] = field(default_factory=dict)  # share of its time, by whom
    load: Load | None = None
    # Tasks of a spout that say that their source has ended; None: it does not say.
    exhausted_tasks: int | None = None
    # Of an async bolt, or one on threads: its calls under way on average, and how many there are at
    # most. None: it makes one after the other on its worker's thread, or its worker does not say.
    calls: float | None = None
    calls_max: int | None = None
    on_threads: bool = False

    @property
    def handled(self) -> int:
        """The progress of it: messages that a spout has seen acked, tuples that a bolt executed."""
        return self.acked if self.is_spout else self.executed


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process."""

    host: str
    port: int
    supervisor_id: str
    executors: int
    uptime_secs: int  # 0: it has not reported yet
    components: Mapping[str, int]  # the number of tasks of each
    cpu_cores: float | None = None  # this and the next two: None until it has reported
    memory_bytes: int | None = None
    loop_lag_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since a topology was submitted, of each component: emitted, handled, failed."""

    time: float  # time.monotonic() of the look
    counts: Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Topology:
    """All that is known about one topology. `summary` is Nimbus' own, whose fields are final."""

    summary: storm.TopologySummary
    activity: Activity
    components: Sequence[Component]
    workers: Sequence[Worker]
    timeout_secs: float  # topology.message.timeout.secs
    max_pending: int | None  # topology.max.spout.pending
    checkpoints: storm.CheckpointReport | None = None  # None: it takes none, or has not reported
    plans: Mapping[str, Plan] = field(default_factory=dict)  # by component; read by `read_topology`
    # Whether all input is read, and nothing is in flight; None: a spout does not say.
    finished: bool | None = None
    busy_poll_ms: float = 0.0  # topology.worker.busy.poll.ms


def topology_of(summary: storm.TopologySummary, page: storm.TopologyPageInfo) -> Topology:
    """The values of a topology's page of the last ten minutes."""
    spouts = [
        _component(name, one, True) for name, one in (page.id_to_spout_agg_stats or {}).items()
    ]
    bolts = [
        _component(name, one, False) for name, one in (page.id_to_bolt_agg_stats or {}).items()
    ]
    options = TopologyOptions.read_valid(json.loads(page.topology_conf or "{}"))
    return Topology(
        summary,
        activity_of(page),
        sorted(spouts, key=lambda one: one.name) + sorted(bolts, key=lambda one: one.name),
        sorted((_worker(one) for one in page.workers or ()), key=lambda one: (one.host, one.port)),
        options.topology_message_timeout_secs,
        options.topology_max_spout_pending,
        page.checkpoints,
        finished=page.finished,
        busy_poll_ms=options.topology_worker_busy_poll_ms,
    )


def _component(name: str, stats: storm.ComponentAggregateStats, is_spout: bool) -> Component:
    from squall_thrift import storm

    common = stats.common_stats or storm.CommonAggregateStats()
    specific = stats.specific_stats or storm.SpecificAggregateStats()
    bolt = specific.bolt or storm.BoltAggregateStats()
    spout = specific.spout or storm.SpoutAggregateStats()
    acked, executed = common.acked or 0, bolt.executed or 0
    measured = acked if is_spout else executed
    latency = spout.complete_latency_ms if is_spout else bolt.execute_latency_ms
    spread = spout.complete_latency if is_spout else bolt.execute_latency
    return Component(
        name=name,
        is_spout=is_spout,
        executors=common.num_executors or 0,
        tasks=common.num_tasks or 0,
        emitted=common.emitted or 0,
        acked=acked,
        failed=common.failed or 0,
        executed=executed,
        latency_ms=latency if measured else None,
        process_ms=None if is_spout or not acked else bolt.process_latency_ms,
        capacity=None if is_spout else bolt.capacity or 0.0,
        error=None if stats.last_error is None else _error(stats.last_error),
        p50_ms=None if spread is None else spread.p50_ms,
        p95_ms=None if spread is None else spread.p95_ms,
        p99_ms=None if spread is None else spread.p99_ms,
        queue_tuples=common.queue_tuples,
        state_keys=common.state_keys,
        state_bytes=common.state_bytes,
        blocked=common.blocked_share or {},
        exhausted_tasks=spout.exhausted_tasks if is_spout else None,
        calls=bolt.calls,
        calls_max=bolt.calls_max,
        on_threads=bool(bolt.on_threads),
    )


def _error(error: storm.ErrorInfo) -> LastError:
    return LastError(headline(error.error), error.error_time_secs)


def _worker(worker: storm.WorkerSummary) -> Worker:
    usage = worker.usage
    return Worker(
        worker.host or "",
        worker.port or 0,
        worker.supervisor_id or "",
        worker.num_executors or 0,
        worker.uptime_secs or 0,
        worker.component_to_num_tasks or {},
        None if usage is None else usage.cpu_cores,
        None if usage is None else usage.memory_bytes,
        None if usage is None else usage.loop_lag_ms,
    )


def load_of(page: storm.ComponentPageInfo) -> Load | None:
    """How the executors of a bolt share its work; None while none of them runs."""
    found = [
        (one.exec_summary, one.stats.specific_stats.bolt)
        for one in page.exec_stats or ()
        if one.exec_summary and one.stats and one.stats.specific_stats
        if one.stats.specific_stats.bolt
    ]
    if not found:
        return None
    busiest = max(found, key=lambda one: one[1].capacity or 0.0)[0]
    first, last = busiest.executor_info.task_start, busiest.executor_info.task_end
    tasks = f"task {first}" if first == last else f"tasks {first} to {last}"
    return Load(
        sum(bolt.capacity or 0.0 for _, bolt in found) / len(found),
        f"{tasks} on {busiest.host}:{busiest.port}",
        sum(
            (bolt.executed or 0) / max(1, min(WINDOW_SECS, one.uptime_secs)) for one, bolt in found
        ),
    )


async def _with_load(client: NimbusClient, topology: Topology) -> Topology:
    """The topology with the load of its busiest bolt, if that is nearly full: it tells a skewed key
    and ticks from a bolt with too few executors. Nimbus is not asked about the others."""
    busiest = max(topology.components, key=lambda one: one.capacity or 0.0, default=None)
    if busiest is None or (busiest.capacity or 0.0) < NEARLY_FULL:
        return topology
    page = await client.call(
        "getComponentPageInfo", topology.summary.id, busiest.name, _WINDOW, False
    )
    loaded = replace(busiest, load=load_of(page))
    components = [loaded if one is busiest else one for one in topology.components]
    return replace(topology, components=components)


def plans_of(code: storm.StormTopology) -> dict[str, Plan]:
    """What components do, of those that say so."""
    commons = {name: one.common for name, one in (code.spouts or {}).items()}
    commons |= {name: one.common for name, one in (code.bolts or {}).items()}
    return {name: plan for name, one in commons.items() if (plan := plan_of(one))}


def totals_of(page: storm.TopologyPageInfo, time: float) -> Totals:
    """The counts of a topology's page since it was submitted."""
    counts = {}
    for is_spout, found in (
        (True, page.id_to_spout_agg_stats or {}),
        (False, page.id_to_bolt_agg_stats or {}),
    ):
        for name, stats in found.items():
            one = _component(name, stats, is_spout)
            counts[name] = (one.emitted, one.handled, one.failed)
    return Totals(time, counts)


def rates_between(before: Totals, after: Totals) -> dict[str, tuple[float, float, float]]:
    """The rates a second of each component: emitted, handled, failed. A count that fell, as when a
    worker started again, gives 0."""
    secs = max(after.time - before.time, 0.001)
    rates = {}
    for name, counts in after.counts.items():
        old = before.counts.get(name, (0, 0, 0))
        emitted, handled, failed = (
            max(0, new - was) / secs for new, was in zip(counts, old, strict=True)
        )
        rates[name] = (emitted, handled, failed)
    return rates


def read_topology(options: ClientOptions, name: str) -> Topology:
    """One topology. Raises NotAliveError if it does not exist, and NimbusError."""

    async def ask(client: NimbusClient) -> Topology:
        summary = await client.call("getTopologySummaryByName", name)
        page = await client.call("getTopologyPageInfo", summary.id, _WINDOW, False)
        code = await client.call("getTopology", summary.id)
        topology = replace(topology_of(summary, page), plans=plans_of(code))
        return await _with_load(client, topology)

    return ask_nimbus(options, ask, "getTopologyPageInfo")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster at one look. A topology whose page Nimbus cannot give, as while it is removed, is
    in `summaries` alone."""

    leader: str
    nimbuses: int
    supervisors: int
    slots: int
    used_slots: int
    summaries: Sequence[storm.TopologySummary]  # by name
    topologies: Mapping[str, Topology]  # by id
    totals: Mapping[str, Totals]  # by id; empty unless asked for


def read_cluster(options: ClientOptions, *, name: str | None, totals: bool) -> Cluster:
    """The cluster with all its topologies, or with the one called `name`. `totals` asks for those
    as well. Raises NotAliveError if the topology does not exist, and NimbusError."""
    import time

    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    async def ask(client: NimbusClient) -> Cluster:
        found = await client.call("getClusterInfo")
        summaries = sorted(found.topologies, key=lambda one: str(one.name))
        if name is not None:
            summaries = [one for one in summaries if one.name == name]
            if not summaries:
                summaries = [await client.call("getTopologySummaryByName", name)]
        turns = asyncio.Semaphore(_AT_ONCE)
        topologies: dict[str, Topology] = {}
        counts: dict[str, Totals] = {}

        async def read(summary: storm.TopologySummary) -> None:
            async with turns:
                try:
                    page = await client.call("getTopologyPageInfo", summary.id, _WINDOW, False)
                    if totals:
                        whole = await client.call(
                            "getTopologyPageInfo", summary.id, ALL_TIME, False
                        )
                        counts[summary.id] = totals_of(whole, time.monotonic())
                    topologies[summary.id] = await _with_load(client, topology_of(summary, page))
                except (
                    ThriftApplicationError,
                    storm.NotAliveException,
                    storm.AuthorizationException,
                ):
                    return

        await asyncio.gather(*map(read, summaries))
        return Cluster(
            leader=next((f"{one.host}:{one.port}" for one in found.nimbuses if one.isLeader), ""),
            nimbuses=len(found.nimbuses),
            supervisors=len(found.supervisors),
            slots=sum(one.num_workers for one in found.supervisors),
            used_slots=sum(one.num_used_workers for one in found.supervisors),
            summaries=summaries,
            topologies=topologies,
            totals=counts,
        )

    return ask_nimbus(options, ask, "getClusterInfo")
