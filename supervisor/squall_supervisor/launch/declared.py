"""What a topology on this disk declares for the worker of an assignment."""

from __future__ import annotations

from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.topology.model import Topology
from squall_supervisor.blobs.localizer import LocalTopology
from squall_supervisor.confine.limits import WorkerLimits, worker_limits
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.settings import SupervisorSettings

log = get_logger(__name__)


def declared_limits(
    topology: LocalTopology, assignment: PortAssignment, settings: SupervisorSettings
) -> WorkerLimits:
    """The limits of the worker that is to be launched. Reads the topology's code."""
    return worker_limits(
        _structure(topology),
        topology.conf,
        assignment.executors,
        node_memory_mb=settings.worker_memory_mb,
        cpu_percent_min=settings.worker_cpu_percent_min,
    )


def _structure(topology: LocalTopology) -> Topology | None:
    from squall_common.topology.system import system_topology
    from squall_common.topology.thrift import from_thrift
    from squall_thrift import storm
    from squall_thrift.codec import from_bytes

    try:
        code = from_bytes(storm.StormTopology, (topology.path / "stormcode.ser").read_bytes())
        return system_topology(from_thrift(code), topology.conf)
    except (OSError, ValueError, KeyError, TypeError, SquallError) as error:
        # The worker will say what is wrong with it; here it only means that nothing is declared.
        log.warning("declared_limits_unknown", topology_id=topology.topology_id, error=error)
        return None
