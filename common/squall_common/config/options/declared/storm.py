"""Every key of Apache Storm 2.x (and of its main branch) that is not an option of Squall's.

From Storm's conf/defaults.yaml, Config.java and DaemonConfig.java at 2.8.8 and at commit 73da988d
of main: names and defaults. With the options of Squall that Storm has as well, these are all.
"""

from __future__ import annotations

from typing import Any

from squall_common.config.options.declared import storm_ignored, storm_refused
from squall_common.config.options.verdicts import StormKey, Verdict


def _same(value: Any) -> Any:
    return value


def _on(value: Any) -> Any:
    # false is Storm's default, and does not mean to turn off what is on without it.
    return True if value is True else None


_MAPPED = (
    StormKey(
        "storm.messaging.netty.authentication",
        False,
        Verdict.MAPPED,
        "true: CURVE authenticates workers to each other; false leaves it as it is",
        ours="storm.messaging.curve",
        convert=_on,
    ),
    StormKey(
        "storm.messaging.netty.tls.enable",
        None,
        Verdict.MAPPED,
        "true: CURVE encrypts connections between workers; false leaves it as it is",
        ours="storm.messaging.curve",
        convert=_on,
    ),
    StormKey(
        "storm.cgroup.memory.limit.tolerance.margin.mb",
        0.0,
        Verdict.MAPPED,
        "Storm's older name",
        ours="storm.supervisor.memory.limit.tolerance.margin.mb",
        convert=_same,
    ),
    StormKey(
        "topology.spout.wait.progressive.level3.sleep.millis",
        1,
        Verdict.MAPPED,
        "the pause of a spout that had nothing to emit",
        ours="topology.sleep.spout.wait.strategy.time.ms",
        convert=_same,
    ),
)

STORM_KEYS: dict[str, StormKey] = {
    key.key: key for key in (*_MAPPED, *storm_ignored.KEYS, *storm_refused.KEYS)
}

# What a client may have in a topology's configuration by mistake: how the cluster's daemons prove
# themselves. It must not be stored.
OF_DAEMONS = frozenset(
    {
        "storm.zookeeper.auth.scheme",
        "storm.zookeeper.auth.payload",
        "storm.zookeeper.auth.payload.file",
        "storm.zookeeper.superACL",
    }
)

# What Storm's Java client puts into every topology's configuration: a secret that it has just made
# up for ZooKeeper. It must not be stored.
MADE_UP_BY_CLIENTS = frozenset(
    {"storm.zookeeper.topology.auth.scheme", "storm.zookeeper.topology.auth.payload"}
)
