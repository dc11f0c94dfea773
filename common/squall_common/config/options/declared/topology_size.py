"""Topologies: size, owner, resources."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    COMPONENTS,
    NIMBUS,
    NO_READER,
    OURS,
    SUPERVISOR,
    TOPOLOGY,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import (
    BYTES_MAX,
    COUNT,
    MEGABYTES,
    PERCENT_OF_CORES,
    TASKS,
    TASKS_MAX,
    TEXT,
    list_of,
    map_of,
    number,
    whole,
)

OPTIONS = (
    Option(
        "topology.name",
        TEXT,
        None,
        "Name of the topology; set by submit_topology.",
        scope=TOPOLOGY,
        readers=COMPONENTS,
    ),
    Option(
        "topology.workers",
        TASKS,
        1,
        "Number of worker processes.",
        scope=TOPOLOGY,
        readers=NIMBUS | COMMAND,
    ),
    Option(
        "topology.tasks",
        TASKS,
        None,
        "Number of tasks of each component that does not set it; null: as many as executors.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
    ),
    Option(
        "topology.component.tasks",
        map_of(TASKS),
        None,
        "Numbers of tasks by component, in place of those that the topology was built with, one "
        "executor each. `storm rebalance -e` sets it for topologies with checkpoints.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.max.task.parallelism",
        TASKS,
        None,
        "Largest number of tasks of a component; null: no limit.",
        scope=TOPOLOGY | COMPONENT,
        readers=NIMBUS | COMMAND,
    ),
    Option(
        "topology.acker.executors",
        whole(0, TASKS_MAX),
        None,
        "Number of acker executors; null: one per worker; 0: nothing is tracked, and every message "
        "counts as acked.",
        scope=TOPOLOGY,
        readers=NIMBUS | COMMAND,
    ),
    Option(
        "topology.eventlogger.executors",
        whole(0, TASKS_MAX),
        0,
        "Number of event logger executors, as Storm has them; null: one per worker. Workers sample "
        "tuples without any (Nimbus' `debug`).",
        scope=TOPOLOGY,
        readers=NIMBUS | COMMAND,
        null_is_a_value=True,
    ),
    Option(
        "topology.priority",
        COUNT,
        29,
        "Priority among topologies: the lower, the more important.",
        scope=TOPOLOGY,
        readers=NO_READER,
        ignored="the scheduler treats all topologies alike",
    ),
    Option(
        "topology.version",
        TEXT,
        None,
        "Free text that distinguishes versions of a topology.",
        scope=TOPOLOGY,
        readers=NIMBUS,
    ),
    Option(
        "topology.submitter.user",
        TEXT,
        None,
        "User that submitted the topology; Nimbus sets it from the connection and ignores a "
        "client's value.",
        scope=TOPOLOGY,
        readers=COMPONENTS,
    ),
    Option(
        "topology.submitter.principal",
        TEXT,
        None,
        "Principal that submitted the topology; null if users are not authenticated. Set by Nimbus "
        "in the same way.",
        scope=TOPOLOGY,
        readers=COMPONENTS,
    ),
    Option(
        "topology.users",
        list_of(TEXT),
        [],
        "Users that may act on the topology.",
        scope=TOPOLOGY,
        readers=NIMBUS,
        storm=None,
        secured=True,
    ),
    Option(
        "topology.groups",
        list_of(TEXT),
        [],
        "Groups that may act on the topology.",
        scope=TOPOLOGY,
        readers=NIMBUS,
        storm=None,
        secured=True,
    ),
    Option(
        "topology.readonly.users",
        list_of(TEXT),
        [],
        "Users that may look at the topology.",
        scope=TOPOLOGY,
        readers=NIMBUS,
        storm=None,
        secured=True,
    ),
    Option(
        "topology.readonly.groups",
        list_of(TEXT),
        [],
        "Groups that may look at the topology.",
        scope=TOPOLOGY,
        readers=NIMBUS,
        storm=None,
        secured=True,
    ),
    Option(
        "topology.component.resources.onheap.memory.mb",
        MEGABYTES,
        128.0,
        "Memory of one task, in MiB. If a component declares its own (`memory_load`), the "
        "sum over a worker's tasks is the worker's limit: see "
        "topology.worker.max.heap.size.mb.",
        scope=TOPOLOGY | COMPONENT,
        readers=SUPERVISOR,
        unit="MiB",
    ),
    Option(
        "topology.component.resources.offheap.memory.mb",
        MEGABYTES,
        0.0,
        "Memory of one task outside Python's heap (used by libraries and the children of shell "
        "components), in MiB. It is added to "
        "topology.component.resources.onheap.memory.mb.",
        scope=TOPOLOGY | COMPONENT,
        readers=SUPERVISOR,
        unit="MiB",
    ),
    Option(
        "topology.component.cpu.pcore.percent",
        PERCENT_OF_CORES,
        10.0,
        "CPU of one executor, in percent of one core. If a component declares its own "
        "(`cpu_load`), the sum over a worker's executors is the worker's limit, if "
        "storm.resource.isolation.plugin.enable is set.",
        scope=TOPOLOGY | COMPONENT,
        readers=SUPERVISOR,
        unit="percent of a core",
    ),
    Option(
        "topology.run.as.user",
        TEXT,
        None,
        "User to run the workers as, if supervisor.run.worker.as.user is on and users are not "
        "authenticated: one of supervisor.run.worker.as.user.choices.",
        scope=TOPOLOGY,
        readers=SUPERVISOR,
        storm=OURS,
    ),
    Option(
        "topology.worker.max.heap.size.mb",
        number(0.0, BYTES_MAX >> 20, above=True),
        None,
        "Largest memory that a worker and the processes that it starts may use together, in "
        "MiB: a worker that uses more is restarted. null (Storm: 768, a heap's size): the sum that "
        "its tasks declare, if any component declares one; otherwise worker.heap.memory.mb.",
        scope=TOPOLOGY,
        readers=SUPERVISOR,
        unit="MiB",
        storm=768.0,
    ),
)
