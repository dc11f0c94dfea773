"""What a topology on this disk declares for the worker of an assignment."""

from __future__ import annotations

from squall.errors import SquallError
from squall.logs import get_logger
from squall.model import Topology
from squall_supervisor.assignments import PortAssignment
from squall_supervisor.localizer import LocalTopology
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.worker_limits import WorkerLimits, worker_limits

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
    from squall.model_thrift import from_thrift
    from squall.system_topology import system_topology
    from squall_thrift import storm
    from squall_thrift.codec import from_bytes

    try:
        code = from_bytes(storm.StormTopology, (topology.path / "stormcode.ser").read_bytes())
        return system_topology(from_thrift(code), topology.conf)
    except (OSError, ValueError, KeyError, TypeError, SquallError) as error:
        # The worker will say what is wrong with it; here it only means that nothing is declared.
        log.warning("declared_limits_unknown", topology_id=topology.topology_id, error=error)
        return None
