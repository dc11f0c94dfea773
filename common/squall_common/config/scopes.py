"""The options that count for a topology, and where the others are set.

An option that is given where it has no effect is refused: `storm.zookeeper.root` on the command
line of `storm jar` moves nothing, and a person who set `storm.bind.host` there would believe that
it holds. Keys that are not options are the topology's own and always pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from squall_common.config.for_workers import CLIENT_KEYS
from squall_common.config.schema import SCHEMA
from squall_common.errors import ConfigError

# What Nimbus takes from a topology and its workers read, beside `topology.*`.
TOPOLOGY_KEYS = frozenset(
    {
        "storm.messaging.curve",
        "drpc.servers",
        "drpc.port",
        "drpc.invocations.port",
        "drpc.http.port",
        "drpc.request.timeout.secs",
        "drpc.max_buffer_size",
    }
)
# Read by the command itself, beside how it finds Nimbus (CLIENT_KEYS).
_COMMAND_KEYS = frozenset(
    {
        "storm.log.level",
        # How it proves who it is.
        "storm.security.ca",
        "storm.security.certificate",
        "storm.security.key",
        "storm.security.token.file",
        "storm.doAsUser",
    }
)

# The option that a topology sets instead.
_INSTEAD = {
    "supervisor.worker.timeout.secs": "topology.worker.timeout.secs, or for shell components "
    "topology.subprocess.timeout.secs",
    "worker.heap.memory.mb": "topology.worker.max.heap.size.mb",
    "supervisor.run.worker.as.user": "topology.run.as.user",
    "supervisor.run.worker.as.user.default": "topology.run.as.user",
}
_NIMBUS = ("Nimbus reads", "Nimbus' storm.yaml")
_SUPERVISORS = ("the supervisors read", "their storm.yaml")
_DAEMONS = ("every daemon reads", "the storm.yaml of each node")
# Who reads an option and where it is set, by how its name begins; the first that fits.
_READERS = (
    ("dev.", "storm dev-zookeeper reads", "its own -c"),
    ("storm.history.retention.", *_NIMBUS),
    ("storm.blobstore.", *_NIMBUS),
    ("blobstore.", *_NIMBUS),
    ("storm.id", *_SUPERVISORS),
    ("storm.supervisor.", *_SUPERVISORS),
    ("storm.worker", *_SUPERVISORS),
    ("storm.cgroup.", *_SUPERVISORS),
    ("storm.resource.", *_SUPERVISORS),
    ("storm.", *_DAEMONS),
    ("nimbus.", *_NIMBUS),
    ("drpc.", "the DRPC servers read", "their storm.yaml"),
    ("ui.", "the UI reads", "its storm.yaml"),
    ("logviewer.port", "the UI and the logviewers read", "their storm.yaml"),
    ("logviewer.log.", "the logviewers read", "their storm.yaml"),
    ("", *_SUPERVISORS),
)


def counts_for_topology(key: str) -> bool:
    """Whether a topology may have a value of its own."""
    return key.startswith("topology.") or key in TOPOLOGY_KEYS or key not in SCHEMA


def topology_part(
    overrides: Mapping[str, Any], *, mode: Literal["cluster", "local", "spark", "graph"]
) -> dict[str, Any]:
    """What `-c` gives a topology. Raises ConfigError for options that count for neither it nor the
    command."""
    own = _COMMAND_KEYS | CLIENT_KEYS if mode == "cluster" else _COMMAND_KEYS
    lost = [key for key in overrides if not counts_for_topology(key) and key not in own]
    _refuse(lost, "-c", topology_runs_on_cluster=mode == "cluster")
    return {key: value for key, value in overrides.items() if counts_for_topology(key)}


def check_program_conf(conf: Mapping[str, Any], *, where: str) -> None:
    """Raises ConfigError for options in the conf of a program that do not count there."""
    lost = [key for key in conf if isinstance(key, str) and not counts_for_topology(key)]
    _refuse(lost, where, topology_runs_on_cluster=True)


def _refuse(keys: Iterable[str], where: str, *, topology_runs_on_cluster: bool) -> None:
    problems = [
        f"{where}: {_why(key, topology_runs_on_cluster=topology_runs_on_cluster)}" for key in keys
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def _why(key: str, *, topology_runs_on_cluster: bool) -> str:
    if key in _INSTEAD:
        return f"{key} has no effect on a topology; set {_INSTEAD[key]}"
    if key in CLIENT_KEYS | _COMMAND_KEYS and topology_runs_on_cluster:
        return (
            f"{key} has no effect here, since the command reads it before the program runs; "
            f"set it by `storm jar -c {key}=...` or in the command's storm.yaml"
        )
    if not topology_runs_on_cluster:
        return f"{key} has no effect without a cluster; leave it out"
    reader, place = next((who, where) for begin, who, where in _READERS if key.startswith(begin))
    return f"{key} has no effect on a topology: {reader} it; set it in {place}"
