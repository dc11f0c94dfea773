"""The cluster state: what the daemons know in common, kept in ZooKeeper.

`store` is the interface of the tree below it, with two implementations that pass one test suite:
`zookeeper` (an ensemble) and `memory` (one process). `state` is typed access to Storm's paths over
either, `leader` the election of a Nimbus and the fence around its writes, `codec` the bytes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall_common.cluster.state import ClusterState


async def connect(conf: Mapping[str, Any]) -> "ClusterState":
    """The cluster state that a configuration names, connected. Waits for ZooKeeper; cancel to give
    up. The caller owes `close`."""
    from squall_common.cluster.state import ClusterState
    from squall_common.config.options.typed import NimbusOptions

    state = ClusterState.of(NimbusOptions.read(conf))
    try:
        await state.start()
    except BaseException:
        await state.close()
        raise
    return state
