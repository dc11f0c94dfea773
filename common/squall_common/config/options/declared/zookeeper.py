"""How daemons and workers reach ZooKeeper."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    CLIENT,
    COMMAND,
    DAEMON,
    NIMBUS,
    NO_READER,
    OURS,
    SUPERVISOR,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import COUNT, FIXED_PORT, HOSTS, POSITIVE, TEXT, ZNODE

OPTIONS = (
    Option(
        "storm.zookeeper.servers",
        HOSTS,
        ["localhost"],
        'Hosts of the ensemble; "host:port" overrides storm.zookeeper.port for one.',
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER | COMMAND,
    ),
    Option(
        "storm.zookeeper.port",
        FIXED_PORT,
        2181,
        "Client port of the ensemble.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER | COMMAND,
    ),
    Option(
        "storm.zookeeper.root",
        ZNODE,
        "/storm",
        "Path under which all znodes of this cluster lie.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER | COMMAND,
    ),
    Option(
        "storm.zookeeper.session.timeout",
        POSITIVE,
        20000,
        "Session timeout in milliseconds: a daemon that ZooKeeper has not heard from for this long "
        "loses its session.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER | COMMAND,
        unit="milliseconds",
    ),
    Option(
        "storm.zookeeper.connection.timeout",
        POSITIVE,
        15000,
        "How long one attempt to connect may take, in milliseconds.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER | COMMAND,
        unit="milliseconds",
    ),
    Option(
        "storm.zookeeper.operation.timeout.ms",
        POSITIVE,
        10000,
        "How long one request may take, in milliseconds.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER,
        unit="milliseconds",
        storm=OURS,
    ),
    Option(
        "storm.zookeeper.retry.times",
        COUNT,
        5,
        "How often a request that lost its connection is tried again.",
        scope=DAEMON,
        readers=NO_READER,
        ignored="a request is tried again until storm.zookeeper.operation.timeout.ms has passed",
    ),
    Option(
        "storm.zookeeper.retry.interval",
        COUNT,
        1000,
        "First pause between two tries, in milliseconds.",
        scope=DAEMON,
        readers=NO_READER,
        unit="milliseconds",
        ignored="a request is tried again until storm.zookeeper.operation.timeout.ms has passed",
    ),
    Option(
        "storm.zookeeper.retry.intervalceiling.millis",
        COUNT,
        30000,
        "Longest pause between two tries, in milliseconds.",
        scope=DAEMON,
        readers=NO_READER,
        unit="milliseconds",
        ignored="a request is tried again until storm.zookeeper.operation.timeout.ms has passed",
    ),
    Option(
        "dev.zookeeper.path",
        TEXT,
        "/tmp/dev-storm-zookeeper",
        "Data folder of `storm dev-zookeeper`.",
        scope=CLIENT,
        readers=COMMAND,
    ),
)
