"""The part of a daemon's configuration that a topology's code gets to see.

A worker runs a tenant's code, and a node's configuration may hold what no tenant should see: the
password of a plugin, of ZooKeeper, of a key store. So keys go through by name. A key that is not
listed here stays with the daemon, whoever adds it and whatever it is called.

Two daemons hand configuration on. A supervisor writes `worker_conf` into launch.json, from which
its workers take how they run; Nimbus stores `stored_conf` below each topology's own configuration
(`squall_common.config.load.normalize_topology_conf`). Components see both in `open` and `prepare`,
with the topology's configuration on top.

`tests/unit/common/config/test_for_workers.py` reads the source of all that a worker imports: code
that reads an option of the node which is not listed here fails there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.config.options.declared.storm import OF_DAEMONS

# A site's own keys that its workers get as well.
EXTRA_KEYS = "supervisor.worker.conf.keys"

_ZOOKEEPER = frozenset(
    {
        "storm.zookeeper.servers",
        "storm.zookeeper.port",
        "storm.zookeeper.root",
        "storm.zookeeper.session.timeout",
        "storm.zookeeper.connection.timeout",
        "storm.zookeeper.operation.timeout.ms",
        "storm.zookeeper.retry.times",
        "storm.zookeeper.retry.interval",
        "storm.zookeeper.retry.intervalceiling.millis",
    }
)
_DRPC = frozenset(
    {
        "drpc.servers",
        "drpc.port",
        "drpc.invocations.port",
        "drpc.http.port",
        "drpc.max_buffer_size",
        "drpc.request.timeout.secs",
        "drpc.requests.max",
        "drpc.function.requests.max",
        "drpc.worker.timeout.secs",
    }
)
_WORKER = frozenset(
    {
        "worker.heap.memory.mb",
        "worker.heartbeat.frequency.secs",
        "worker.max.timeout.secs",
        "worker.profiler.enabled",
        "worker.profiler.command",
        "task.heartbeat.frequency.secs",
        "task.refresh.poll.secs",
        "executor.metrics.frequency.secs",
    }
)
# How a client finds Nimbus: commands, and components that submit or ask on their own (Storm's
# NimbusClient.getConfiguredClient).
CLIENT_KEYS = frozenset(
    {
        "nimbus.seeds",
        "nimbus.thrift.port",
        "nimbus.thrift.max_buffer_size",
        "storm.thrift.socket.timeout.ms",
        "storm.nimbus.retry.times",
        "storm.nimbus.retry.interval.millis",
        "storm.nimbus.retry.intervalceiling.millis",
    }
)

# Nimbus' own values, stored below a topology's configuration, beside its `topology.*`.
STORED_KEYS = (
    _ZOOKEEPER
    | _DRPC
    | _WORKER
    | {
        "nimbus.seeds",
        "nimbus.thrift.port",
        "storm.thrift.socket.timeout.ms",
        "storm.messaging.curve",
        "storm.messaging.ring.bytes",
    }
)

# A supervisor's, for its workers.
WORKER_KEYS = (
    STORED_KEYS
    | CLIENT_KEYS
    | {
        # What the worker process itself goes by.
        "storm.bind.host",
        "storm.security.insecure",
        "storm.log.level",
        "storm.log.format",
        "storm.history.dir",
        "supervisor.metrics.port",  # whether to write samples
        "storm.local.dir",  # where the history lies by default
        "supervisor.worker.shutdown.sleep.secs",
        "supervisor.worker.timeout.secs",
        # What Storm's components look up.
        "storm.cluster.mode",
        "storm.local.hostname",
        "storm.log.dir",
        "storm.workers.artifacts.dir",
        "num.stat.buckets",
    }
)


def worker_conf(node_conf: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a node's configuration that its workers get."""
    wanted = WORKER_KEYS.union(node_conf.get(EXTRA_KEYS) or ()) - OF_DAEMONS
    return {
        key: value
        for key, value in node_conf.items()
        if key in wanted or key.startswith("topology.")
    }


def stored_conf(nimbus_conf: Mapping[str, Any]) -> dict[str, Any]:
    """The part of Nimbus' configuration that a topology gets, below its own."""
    return {
        key: value
        for key, value in nimbus_conf.items()
        if key in STORED_KEYS or key.startswith("topology.")
    }
