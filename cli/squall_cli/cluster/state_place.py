"""Where the state of a running topology is: asked of Nimbus."""

from __future__ import annotations

import json

from squall_cli.cluster.nimbus import call_nimbus
from squall_common.config.options.typed import ClientOptions, TopologyOptions
from squall_common.errors import SquallError


def state_options(client: ClientOptions, name: str) -> TopologyOptions:
    """The options of a running topology."""
    topology_id = call_nimbus(client, "getTopologySummaryByName", name).id
    return TopologyOptions.read(json.loads(call_nimbus(client, "getTopologyConf", topology_id)))


def checkpoints_url(client: ClientOptions, name: str) -> str:
    """The URL of a running topology with checkpoints."""
    options = state_options(client, name)
    if options.topology_checkpoint_interval_secs is None or options.topology_state_url is None:
        raise SquallError(
            f"topology {name!r} takes no checkpoints, and so no savepoints",
            hint="set topology.checkpoint.interval.secs and topology.state.url",
        )
    return options.topology_state_url
