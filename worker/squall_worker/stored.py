"""What a supervisor has laid ready for a worker, and what the worker makes of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.daemon import fast_json
from squall_common.errors import SquallError, describe
from squall_common.topology.model import Topology


class StoredTopologyError(SquallError):
    """The topology's code or configuration in stormdist cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """A topology as its workers run it."""

    topology: Topology  # with what the system adds
    conf: Mapping[str, Any]  # the topology's own, normalized
    task_to_component: Mapping[int, str]
    code_dir: Path
    environment: Path | None  # what it depends on


def load(stormdist: Path) -> StoredTopology:
    """Read stormcode.ser and stormconf.ser. Raises StoredTopologyError."""
    from squall_common.topology.system import component_tasks, system_topology
    from squall_common.topology.thrift import from_thrift
    from squall_thrift import storm
    from squall_thrift.codec import from_bytes

    try:
        conf = fast_json.loads((stormdist / "stormconf.ser").read_bytes())
        if not isinstance(conf, dict):
            raise ValueError("stormconf.ser holds no JSON object")
        code = (stormdist / "stormcode.ser").read_bytes()
        submitted = from_thrift(from_bytes(storm.StormTopology, code))
        topology = system_topology(submitted, conf)
        tasks = component_tasks(topology, conf)
    except (OSError, ValueError, KeyError, TypeError, SquallError) as error:
        raise StoredTopologyError(
            f"the topology in {stormdist} cannot be read: {describe(error)}",
            hint="The supervisor downloads it again when the folder is removed.",
        ) from error
    environment = stormdist / "environment"
    return StoredTopology(
        topology, conf, tasks, stormdist / "code", environment if environment.is_dir() else None
    )


def put_on_path(stored: StoredTopology) -> None:
    """Make the modules of the unpacked package, what it bundles, and what it depends on, importable
    before all others: what a script's folder is to a script. Shell components find the last too."""
    from squall_common.packaging.package import import_paths, offer_to_children

    first = import_paths(stored.code_dir, stored.environment)
    sys.path[:] = [*first, *(path for path in sys.path if path not in first)]
    if stored.environment is not None:
        offer_to_children(stored.environment)
