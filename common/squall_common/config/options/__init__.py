"""Every option of Squall, declared once, and every key of Apache Storm's with its verdict.

`OPTIONS` are the keys that Squall knows, in the order of `defaults.yaml`; one module of `declared`
declares those of one subject. Its module `storm` has the keys of Storm's that Squall does not have,
with a verdict each. Nothing in here reads a file or a configuration.

    >>> OPTIONS["topology.workers"].default
    1
"""

from __future__ import annotations

from squall_common.config.options.declaration import Option
from squall_common.config.options.declared import (
    cluster,
    nimbus,
    node,
    oidc,
    security,
    servers,
    topology_code,
    topology_flow,
    topology_own,
    topology_size,
    topology_state,
    topology_windows,
    zookeeper,
)

SECTIONS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("Cluster", cluster.OPTIONS),
    ("Security", security.OPTIONS),
    ("Identity provider", oidc.OPTIONS),
    ("ZooKeeper", zookeeper.OPTIONS),
    ("Nimbus", nimbus.OPTIONS),
    ("Supervisor and worker", node.OPTIONS),
    ("UI, logviewer, DRPC", servers.OPTIONS),
    ("Topology: size and placement", topology_size.OPTIONS),
    ("Topology: reliability and flow", topology_flow.OPTIONS),
    ("Topology: environment, debugging, serialization", topology_code.OPTIONS),
    ("Topology: state", topology_state.OPTIONS),
    ("Topology: windows", topology_windows.OPTIONS),
    ("Topology: Squall's own", topology_own.OPTIONS),
)

OPTIONS: dict[str, Option] = {option.key: option for _, part in SECTIONS for option in part}
