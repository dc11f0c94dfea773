"""The cluster state for whoever has a daemon's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.cluster.access.configured import daemon_access
from squall_common.cluster.state import ClusterState
from squall_common.config.options.typed import NimbusOptions


async def connect(conf: Mapping[str, Any]) -> ClusterState:
    """The cluster state that a configuration names, connected. Waits for ZooKeeper; cancel to give
    up. The caller owes `close`."""
    options = NimbusOptions.read(conf)
    state = ClusterState.of(options, daemon_access(options))
    try:
        await state.start()
    except BaseException:
        await state.close()
        raise
    return state
