"""The limits that a topology on this disk declares for the worker of an assignment."""

from __future__ import annotations

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.topology.prepared import PreparedTopology, prepare
from squall_supervisor.blobs.localizer import LocalTopology
from squall_supervisor.confine.limits import WorkerLimits, worker_limits
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.settings import SupervisorSettings

log = get_logger(__name__)


def declared_limits(
    topology: LocalTopology,
    options: TopologyOptions,
    assignment: PortAssignment,
    settings: SupervisorSettings,
) -> WorkerLimits:
    """The limits of the worker that is to be launched; `options` are the topology's. Reads its
    code."""
    return worker_limits(
        _structure(topology),
        options,
        assignment.executors,
        node_memory_mb=settings.worker_memory_mb,
        cpu_percent_min=settings.worker_cpu_percent_min,
        memory_mb_max=settings.worker_memory_mb_max,
        cpu_percent_max=settings.worker_cpu_percent_max,
    )


def _structure(topology: LocalTopology) -> PreparedTopology | None:
    try:
        return prepare((topology.path / "stormcode.ser").read_bytes(), topology.conf)
    except (OSError, ValueError, KeyError, TypeError, SquallError) as error:
        # The worker will report what is wrong with it; here it counts as declaring nothing.
        log.warning("declared_limits_unknown", topology_id=topology.topology_id, error=error)
        return None
