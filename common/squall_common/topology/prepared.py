"""Prepares a topology to run: one function for all code that runs or schedules one.

Nimbus schedules a topology, supervisors read what it declares for its workers, and workers, local
mode, the test kit and Spark run it. They start from different forms of it (the Thrift struct of a
submission, the stored bytes, a model that was just built) and must all arrive at the same tasks,
since a task's number is part of what workers send each other. `prepare` is the way there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon import fast_json
from squall_common.errors import ConfigError, InvalidTopologyError
from squall_common.topology.model import Executor, Topology
from squall_common.topology.system import (
    component_parallelism,
    component_tasks,
    compute_executors,
    system_topology,
)

if TYPE_CHECKING:
    from squall_thrift.storm import StormTopology


@dataclass(frozen=True, slots=True)
class PreparedTopology:
    """A topology with everything that follows from it and its configuration."""

    topology: Topology  # with the components and streams that the system adds
    conf: Mapping[str, Any]  # the topology's own, normalized, without the daemons' beneath it
    task_to_component: Mapping[int, str]  # of every task, numbered from 1

    @property
    def executors(self) -> list[Executor]:
        """Its executors as it was submitted, sorted; computed at each access. A rebalance may have
        changed them since: on a cluster the assignment says which there are."""
        wanted = component_parallelism(self.topology, TopologyOptions.read(self.conf))
        return compute_executors(self.task_to_component, wanted)


def prepare(
    topology: Topology | StormTopology | bytes, conf: Mapping[str, Any] | bytes
) -> PreparedTopology:
    """Compile a topology: add the system's components and number the tasks. The result depends on
    the arguments alone.

    `topology` is a model, a Thrift struct, or the bytes of one (stormcode.ser). `conf` is its
    normalized configuration, as a mapping or as the bytes of a JSON object (stormconf.ser).

        prepared = prepare(builder.build(), normalize_topology_conf(conf, base, name="words"))
        prepared.task_to_component  # {1: '__acker', 2: 'count', 3: 'words'}

    Raises InvalidTopologyError for a topology that nothing could run, and ValueError, KeyError or
    TypeError for bytes that are damaged. It does not check what a user submits: see
    `system_topology.validate_topology`."""
    if isinstance(conf, bytes):
        conf = _conf_of(conf)
    model = _model_of(topology)
    try:
        options = TopologyOptions.read(conf, where="topology conf")
        compiled = system_topology(model, options)
        return PreparedTopology(compiled, conf, component_tasks(compiled, options))
    except ConfigError as error:
        raise InvalidTopologyError(error.message, hint=error.hint) from error


def _model_of(topology: Topology | StormTopology | bytes) -> Topology:
    if isinstance(topology, Topology):
        return topology
    # Local mode and the test kit come with a model, and without Thrift.
    from squall_common.topology.thrift import from_thrift
    from squall_thrift import storm
    from squall_thrift.codec import from_bytes

    if isinstance(topology, bytes):
        topology = from_bytes(storm.StormTopology, topology)
    return from_thrift(topology)


def _conf_of(data: bytes) -> dict[str, Any]:
    conf = fast_json.loads(data)
    if not isinstance(conf, dict):
        raise ValueError("the configuration is not a JSON object")
    return conf
