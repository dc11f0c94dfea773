"""Where the state of a task is while its worker lives: what `topology.state.backend` says."""

from __future__ import annotations

from squall_common.component.stored_state import DISK
from squall_common.config.options.typed import TopologyOptions
from squall_common.state.disk.rows import TableCodec
from squall_common.state.keyed import KeyedState
from squall_common.topology.serialization import Registry


def make_state(
    options: TopologyOptions,
    groups: int,
    codec: TableCodec,
    *,
    ttl_secs: float | None = None,
    registry: Registry | None = None,
) -> KeyedState:
    """An empty state of a component with these options. Raises StateStoreError."""
    if options.topology_state_backend != DISK:
        return KeyedState(groups, codec, ttl_secs=ttl_secs, registry=registry)
    from squall_common.state.disk.state import DiskState
    from squall_common.state.disk.table import DiskTable

    table = DiskTable(options.topology_state_backend_folder)
    return DiskState(
        groups,
        codec,
        table=table,
        write_entries=options.topology_state_backend_write_entries,
        ttl_secs=ttl_secs,
        registry=registry,
    )
