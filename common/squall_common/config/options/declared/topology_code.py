"""Topologies: environment, debugging, serialization."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMPONENT,
    NIMBUS,
    NO_READER,
    OURS,
    SUPERVISOR,
    TOPOLOGY,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import (
    ANY_MAP,
    CLASS_PATH,
    REGISTRATION,
    SCALAR,
    SECS,
    YES_NO,
    list_of,
    map_of,
    number,
    whole,
)

OPTIONS = (
    Option(
        "topology.debug",
        YES_NO,
        False,
        "Log every tuple that is emitted.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
    ),
    Option(
        "topology.environment",
        map_of(SCALAR),
        None,
        "Environment variables of the workers: a map of strings.",
        scope=TOPOLOGY,
        readers=SUPERVISOR | WORKER,
    ),
    Option(
        "topology.blobstore.map",
        map_of(ANY_MAP),
        None,
        "Blobs that the workers find in their folder: {key: {localname, uncompress, "
        "workerRestart}}.",
        scope=TOPOLOGY,
        readers=NIMBUS | SUPERVISOR,
    ),
    Option(
        "topology.auto.task.hooks",
        list_of(CLASS_PATH),
        [],
        "Hooks of every task (squall.TaskHook): a list of class paths (module:Class).",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=None,
    ),
    Option(
        "topology.metrics.consumer.register",
        list_of(ANY_MAP),
        [],
        "Consumers of metrics (squall.metrics): a list of {class, argument, whitelist, "
        "blacklist, expandMapType, metricNameSeparator, parallelism.hint}. With the hint, so many "
        "tasks share the data points of all workers; without it, each worker runs one of each.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER,
        storm=None,
    ),
    Option(
        "topology.metrics.reporters",
        list_of(ANY_MAP),
        [],
        "Reporters of metrics (squall.metrics): a list of {class, report.period, "
        "report.period.units, filter} and the reporter's own options; each worker runs one of "
        "each.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=None,
    ),
    Option(
        "topology.builtin.metrics.bucket.size.secs",
        SECS,
        60,
        "How often the built-in metrics, and those registered without an interval, go to "
        "the consumers.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="seconds",
    ),
    Option(
        "topology.history.enable",
        YES_NO,
        False,
        "Record metrics, latencies, errors, events and a sample of the keys of fields "
        "groupings, for `storm report`. Needs squall[history] on the nodes.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER,
        storm=OURS,
    ),
    Option(
        "topology.history.interval.secs",
        SECS,
        10,
        "How often counts and latencies are recorded.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="seconds",
        storm=OURS,
    ),
    Option(
        "topology.history.rotation.secs",
        SECS,
        60,
        "How often a worker writes a file of its history; a worker that is killed loses what it "
        "recorded since the last file.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="seconds",
        storm=OURS,
    ),
    Option(
        "topology.history.rotation.bytes",
        whole(65536, 2**40),
        4194304,
        "A worker also writes a file of its history when about this many bytes wait.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="bytes",
        storm=OURS,
    ),
    Option(
        "topology.history.key.sampling.rate",
        number(0.0, 1.0),
        0.002,
        "Share of the tuples of fields groupings whose key is recorded; 0: none. Keys may be "
        "personal data.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.kryo.register",
        list_of(REGISTRATION),
        [],
        "Types that travel between workers by name: a list of class paths (module:Class), "
        "or of {class path: codec path}. Types that components register in their own "
        "configuration are added.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=None,
    ),
    Option(
        "topology.testing.always.try.serialize",
        YES_NO,
        False,
        "Send every tuple through the codec, even within a worker, and report values that change.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.worker.shared.thread.pool.size",
        whole(1, 10000),
        4,
        "Threads that the tasks of a worker share (context.shared_executor).",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.stats.sample.rate",
        number(0.0, 1.0, above=True),
        1.0,
        "Share of the tuples that statistics count.",
        scope=TOPOLOGY,
        readers=NO_READER,
        storm=0.05,
        ignored="statistics count every tuple",
    ),
    Option(
        "topology.skip.missing.kryo.registrations",
        YES_NO,
        False,
        "Skip entries of topology.kryo.register that cannot be imported, instead of "
        "ending the worker.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
)
