"""Folders, addresses, the client of Nimbus."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    CLIENT,
    COMMAND,
    DAEMON,
    DAEMONS,
    DRPC,
    LOGVIEWER,
    NIMBUS,
    NO_READER,
    OURS,
    SUPERVISOR,
    TOPOLOGY,
    UI,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import (
    ANY_MAP,
    COUNT,
    HOSTS,
    MILLIS,
    TEXT,
    YES_NO,
    Kind,
    either,
    list_of,
    number,
    whole,
)

OPTIONS = (
    Option(
        "storm.local.dir",
        TEXT,
        "storm-local",
        "Folder for everything a daemon keeps on disk; relative to the folder that the "
        "command runs in.",
        scope=DAEMON,
        readers=DAEMONS | WORKER | COMMAND,
    ),
    Option(
        "storm.log.dir",
        TEXT,
        None,
        'Folder for the logs of daemons and workers; null: "logs" in storm.local.dir.',
        scope=DAEMON,
        readers=DAEMONS | COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.log.level",
        either("DEBUG", "INFO", "WARNING", "ERROR"),
        "INFO",
        "Lowest level that daemons and workers log: DEBUG, INFO, WARNING or ERROR.",
        scope=DAEMON | CLIENT,
        readers=DAEMONS | WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.log.format",
        either("text", "json"),
        "text",
        "How daemons and workers write their logs: lines of text, or a JSON object a line.",
        scope=DAEMON,
        readers=DAEMONS | WORKER,
        storm=OURS,
    ),
    Option(
        "storm.daemon.metrics.reporters",
        list_of(ANY_MAP),
        [],
        "Reporters of daemons' metrics: a list of {class, report.period, report.period.units, "
        "filter, daemons} and the reporter's own options, as topology.metrics.reporters has it. "
        "`daemons` names those that run it, of nimbus, supervisor and drpc; without it, all.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | DRPC,
        storm=OURS,
    ),
    Option(
        "storm.daemon.metrics.reporter.plugins",
        list_of(TEXT),
        [],
        "Classes of reporters of daemons' metrics without options of their own. Storm's for the "
        "console and for CSV are known.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | DRPC,
        storm=["org.apache.storm.daemon.metrics.reporters.JmxPreparableReporter"],
    ),
    Option(
        "storm.daemon.metrics.reporter.interval.secs",
        number(1.0, 86_400.0),
        10,
        "How often reporters of daemons report that have no report.period.",
        unit="s",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | DRPC,
        storm=10,
    ),
    Option(
        "storm.daemon.metrics.reporter.csv.log.dir",
        TEXT,
        None,
        "Folder of the CSV reporter in storm.daemon.metrics.reporter.plugins; null: csvmetrics in "
        "storm.log.dir.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | DRPC,
        storm=None,
    ),
    Option(
        "storm.workers.artifacts.dir",
        TEXT,
        "workers-artifacts",
        "Folder for the logs of workers; relative to storm.log.dir.",
        scope=DAEMON,
        readers=SUPERVISOR | LOGVIEWER,
    ),
    Option(
        "storm.history.dir",
        TEXT,
        None,
        "Folder for the history of topologies (topology.history.enable): a path that all "
        'nodes share, or a URL that fsspec knows (s3://bucket/history); null: "history" in '
        "storm.local.dir, which is enough on one machine.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | WORKER | UI | COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.history.retention.hours",
        number(),
        168,
        "Age at which files of the history are deleted, in hours; 0: never.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR,
        unit="hours",
        storm=OURS,
    ),
    Option(
        "storm.local.hostname",
        TEXT,
        None,
        "Name under which this node is known to others; null: the machine's host name.",
        scope=DAEMON,
        readers=DAEMONS,
    ),
    Option(
        "storm.cluster.mode",
        either("distributed", "local"),
        "distributed",
        '"distributed": daemons and worker processes; "local": everything in one process.',
        scope=DAEMON,
        readers=NO_READER,
        ignored="`storm local` needs no cluster; other commands ask it",
    ),
    Option(
        "storm.bind.host",
        TEXT,
        "127.0.0.1",
        "Address that listeners bind to. Outside loopback they need authentication, or "
        "storm.security.insecure.",
        scope=DAEMON,
        readers=DAEMONS | WORKER,
        storm=OURS,
    ),
    Option(
        "storm.security.insecure",
        YES_NO,
        False,
        "Allow listeners without authentication outside loopback (for private networks only).",
        scope=DAEMON,
        readers=DAEMONS | WORKER,
        storm=OURS,
    ),
    Option(
        "storm.http.hosts",
        HOSTS,
        None,
        "Names by which clients may address HTTP listeners (the Host of a request), besides "
        "addresses of this machine and localhost; null: the node's own names, "
        'storm.bind.host and drpc.servers. ["*"] for listeners behind a proxy that checks '
        "it.",
        scope=DAEMON,
        readers=DRPC | UI | LOGVIEWER | NIMBUS | SUPERVISOR,
        storm=OURS,
    ),
    Option(
        "storm.messaging.curve",
        Kind(
            "true, false or auto",
            lambda v: isinstance(v, bool) or v == "auto",
            annotation='bool | Literal["auto"]',
        ),
        "auto",
        "Encrypt connections between workers with a separate key for each topology, and refuse "
        'peers that do not have it: true, false, or "auto". "auto" encrypts sockets, also on '
        "loopback, but lets workers of one host share memory (storm.messaging.ring.bytes); with "
        "true they do not. "
        "Nimbus' value when a topology is submitted applies to that topology, unless the topology "
        "sets its own.",
        scope=DAEMON | TOPOLOGY,
        readers=NIMBUS | SUPERVISOR | WORKER,
        storm=OURS,
    ),
    Option(
        "storm.messaging.ring.bytes",
        whole(0, 67_108_864),
        1048576,
        "Shared memory for what one worker sends to another worker of its topology on the same "
        "host, in bytes (at least 524288); 0: none, they use sockets as between hosts. Also none "
        "while storm.messaging.curve is true (not auto).",
        scope=DAEMON | TOPOLOGY,
        readers=WORKER,
        unit="bytes",
        storm=OURS,
    ),
    Option(
        "storm.thrift.socket.timeout.ms",
        MILLIS,
        600000,
        "How long a Thrift call may take, in milliseconds.",
        scope=DAEMON | CLIENT,
        readers=COMMAND,
        unit="milliseconds",
    ),
    Option(
        "storm.nimbus.retry.times",
        COUNT,
        3,
        "How often a client tries again to reach Nimbus (Storm: 5).",
        scope=DAEMON | CLIENT,
        readers=COMMAND,
        storm=5,
    ),
    Option(
        "storm.nimbus.retry.interval.millis",
        COUNT,
        500,
        "First pause between two tries, in milliseconds; it doubles each time (Storm: "
        "2000). With a wrong address, a command fails after 3.5 s.",
        scope=DAEMON | CLIENT,
        readers=COMMAND,
        unit="milliseconds",
        storm=2000,
    ),
    Option(
        "storm.nimbus.retry.intervalceiling.millis",
        COUNT,
        60000,
        "Longest pause between two tries, in milliseconds.",
        scope=DAEMON | CLIENT,
        readers=COMMAND,
        unit="milliseconds",
    ),
)
