"""Nimbus' page for Prometheus: its own metrics and, if it leads, the cluster's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from prometheus_client import Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from squall_common.cluster.store import StoreError
from squall_common.cluster.values import Assignment, TopologyStatus
from squall_common.daemon.logs import get_logger
from squall_common.daemon.web import WebServer
from squall_common.errors import SquallError
from squall_common.security.web_origin import known_hosts
from squall_common.telemetry.page import DaemonMetrics, FunctionCollector
from squall_common.telemetry.samples import LATENCY_BOUNDS
from squall_nimbus.all_topologies import read_topologies
from squall_nimbus.nimbus import Nimbus
from squall_nimbus.views import health, rest

log = get_logger(__name__)

# With more, only the sums are shown: each is a series of every family below.
_TOPOLOGIES_MAX = 1_000


def show_nimbus(metrics: DaemonMetrics, nimbus: Nimbus) -> None:
    """Add what Nimbus knows."""
    scheduling = Histogram(
        "squall_scheduling_seconds",
        "Time of a whole round of scheduling.",
        buckets=LATENCY_BOUNDS,
        registry=metrics.registry,
    )
    nimbus.assigner.observe_round = scheduling.observe
    cluster = _Cluster(nimbus)
    metrics.add(FunctionCollector(lambda: cluster.found), cluster.read)


def metrics_server(metrics: DaemonMetrics, nimbus: Nimbus, port: int) -> WebServer:
    """A listener with the page, not started."""
    options = nimbus.options
    proofs: dict[str, Any] = {}
    if nimbus.authenticator is not None:
        # Imported only where a cluster is secured.
        from squall_common.authentication.programs import ProgramPeers

        peers = ProgramPeers(nimbus.authenticator, nimbus.authenticator.ended)
        proofs = {"authorizer": nimbus.access, "authenticator": peers}
    return metrics.server(
        name="nimbus metrics",
        host=options.storm_bind_host,
        port=port,
        insecure=options.storm_security_insecure,
        hosts=known_hosts(options.storm_http_hosts, [options.storm_bind_host, nimbus.host]),
        **proofs,
    )


class _Cluster:
    """Reads the cluster when the page is asked for."""

    def __init__(self, nimbus: Nimbus) -> None:
        self._nimbus = nimbus
        self.found: list[Metric] = []

    async def read(self) -> None:
        leads = self._nimbus.leader_elector.leading
        found: list[Metric] = [
            _gauge("squall_nimbus_leader", "Whether this Nimbus leads.", int(leads)),
            _gauge(
                "squall_blob_bytes",
                "Bytes of blobs on this disk.",
                await asyncio.to_thread(self._blob_bytes),
            ),
        ]
        if leads:
            try:
                found += await self._read_cluster()
            except (StoreError, SquallError) as error:
                log.warning("metrics_not_read", error=error)
        self.found = found

    def _blob_bytes(self) -> int:
        blobs = self._nimbus.blobs
        return sum(meta.size for key in blobs.all_keys() if (meta := blobs.find(key)) is not None)

    async def _read_cluster(self) -> Iterable[Metric]:
        nimbus = self._nimbus
        topologies = (await read_topologies(nimbus.state)).bases
        assignments, supervisors = await asyncio.gather(
            nimbus.reader.assignments(), nimbus.state.supervisors()
        )
        slots = health.Slots.of(supervisors, assignments.values(), nimbus.clock.time())
        by_status = Counter(base.status for base in topologies.values())
        statuses = _labelled("squall_topologies", "Topologies, by status.", "status")
        for status in TopologyStatus:
            statuses.add_metric([status.name.lower()], by_status[status])
        all_slots = _labelled("squall_cluster_slots", "Slots of the cluster, by state.", "state")
        all_slots.add_metric(["used"], len(slots.used))
        all_slots.add_metric(["free"], len(slots.offered - slots.used))
        found = [
            statuses,
            all_slots,
            _gauge("squall_supervisors", "Supervisors that are connected.", len(supervisors)),
        ]
        if len(topologies) > _TOPOLOGIES_MAX:
            return found
        executors = _labelled("squall_topology_executors", "Executors of a topology.", "topology")
        placed = _labelled(
            "squall_topology_placed_executors", "Executors that have a slot.", "topology"
        )
        age = _labelled(
            "squall_topology_assignment_age_seconds",
            "Since an executor of a topology was placed last.",
            "topology",
        )
        restarts = _labelled(
            "squall_topology_restarts_day",
            "Workers of a topology that ended without being asked to, within the last day.",
            "topology",
        )
        healthy = _labelled(
            "squall_topology_health", "1 for the health of a topology.", "topology", "health"
        )
        finished = _labelled(
            "squall_topology_finished",
            "1 once all input of a topology is read and nothing is in flight; absent if a spout "
            "does not say whether its source ends.",
            "topology",
        )
        ends = await nimbus.reader.ends(topologies)
        now = nimbus.clock.time()
        for topology_id, base in topologies.items():
            name = [base.name]
            assignment = assignments.get(topology_id)
            used = assignment.slots() if assignment else {}
            executors.add_metric(name, sum(base.component_executors.values()))
            placed.add_metric(name, len(assignment.executor_slot) if assignment else 0)
            if assignment and assignment.executor_start_time_secs:
                last = max(assignment.executor_start_time_secs.values())
                age.add_metric(name, max(0.0, now - last))
            restarts.add_metric(name, slots.restarts.get(topology_id, 0))
            healthy.add_metric([*name, health.health(topology_id, base, used, slots)], 1)
            ended = rest.has_finished_as_reported(
                base, assignment or Assignment(""), ends.get(topology_id, {})
            )
            if ended is not None:
                finished.add_metric(name, int(ended))
        return [*found, executors, placed, age, restarts, healthy, finished]


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, *labels: str) -> Any:
    return GaugeMetricFamily(name, text, labels=labels)
