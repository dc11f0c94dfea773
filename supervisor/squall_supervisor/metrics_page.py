"""A supervisor's page for Prometheus: its own metrics, and the samples of its workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from squall_common.daemon.web import WebServer
from squall_common.names import topology_name_of
from squall_common.security.web_origin import known_hosts
from squall_common.telemetry.page import DaemonMetrics, FunctionCollector
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.slots.table import State
from squall_supervisor.supervisor import Supervisor
from squall_supervisor.watch.samples import WorkerPlace, WorkerSamplesPage

if TYPE_CHECKING:
    from squall_supervisor.metrics_access import MetricsReaders


def show_supervisor(
    metrics: DaemonMetrics, supervisor: Supervisor, settings: SupervisorSettings
) -> None:
    """Add what the supervisor knows, and the samples of its workers."""
    metrics.add(FunctionCollector(lambda: _slots(supervisor)))
    metrics.add(
        FunctionCollector(WorkerSamplesPage(lambda: _workers(supervisor, settings)).collect)
    )


def metrics_server(
    metrics: DaemonMetrics,
    settings: SupervisorSettings,
    port: int,
    readers: MetricsReaders | None = None,
) -> WebServer:
    """A listener with the page, not started; `readers` says who may read it, in a secured
    cluster."""
    return metrics.server(
        name="supervisor metrics",
        host=settings.thrift_host,
        port=port,
        insecure=settings.insecure,
        hosts=known_hosts(settings.http_hosts, [settings.thrift_host, settings.hostname]),
        authorizer=None if readers is None else readers.access,
        authenticator=None if readers is None else readers.peers,
    )


def _slots(supervisor: Supervisor) -> Iterable[Metric]:
    slots = GaugeMetricFamily("squall_slots", "Slots of this node, by state.", labels=["state"])
    states = [runner.slot.state for runner in list(supervisor.slots.runners.values())]
    for state in State:
        slots.add_metric([state.name.lower()], states.count(state))
    yield slots
    exits = CounterMetricFamily(
        "squall_worker_exits",
        "Workers that ended without being asked to, by topology and reason.",
        labels=["topology", "reason"],
    )
    for (topology_id, reason), count in list(supervisor.exits.totals.items()):
        exits.add_metric([topology_name_of(topology_id) if topology_id else "", reason], count)
    yield exits


def _workers(supervisor: Supervisor, settings: SupervisorSettings) -> Iterable[WorkerPlace]:
    for port, runner in list(supervisor.slots.runners.items()):
        process, assignment = runner.process, runner.slot.assignment
        if process is not None and assignment is not None:
            folder = settings.workers_dir / process.worker_id
            yield WorkerPlace(topology_name_of(assignment.topology_id), port, folder)
