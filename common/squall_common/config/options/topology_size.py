"""Topologies: size, owner, resources."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    COMPONENTS,
    NIMBUS,
    NO_READER,
    NO_USERS,
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
        "Worker processes.",
        scope=TOPOLOGY,
        readers=NIMBUS | COMMAND,
    ),
    Option(
        "topology.tasks",
        TASKS,
        None,
        "Tasks of each component that sets none itself; null: as many as executors.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
    ),
    Option(
        "topology.max.task.parallelism",
        TASKS,
        None,
        "Most tasks that a component may have; null: no limit.",
        scope=TOPOLOGY | COMPONENT,
        readers=NIMBUS | COMMAND,
    ),
    Option(
        "topology.acker.executors",
        whole(0, TASKS_MAX),
        None,
        "Executors of ackers; null: one a worker; 0: nothing is tracked, every message "
        "counts as acked.",
        scope=TOPOLOGY,
        readers=NIMBUS | COMMAND,
    ),
    Option(
        "topology.eventlogger.executors",
        whole(0, TASKS_MAX),
        0,
        "Above 0 (null: one a worker) workers can log a sample of their tuples to "
        "events.log, as Nimbus' `debug` asks; 0: they cannot, and emits take their fast "
        "path.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
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
        "Free text that tells versions of a topology apart.",
        scope=TOPOLOGY,
        readers=NIMBUS,
    ),
    Option(
        "topology.submitter.user",
        TEXT,
        None,
        "User that submitted the topology; Nimbus sets it from the connection, whatever a "
        "client says.",
        scope=TOPOLOGY,
        readers=COMPONENTS,
    ),
    Option(
        "topology.submitter.principal",
        TEXT,
        None,
        "Principal that submitted the topology, null where users are not authenticated; "
        "set by Nimbus likewise.",
        scope=TOPOLOGY,
        readers=COMPONENTS,
    ),
    Option(
        "topology.users",
        list_of(TEXT),
        [],
        "Users that may act on the topology.",
        scope=TOPOLOGY,
        readers=NO_READER,
        storm=None,
        refused=NO_USERS,
    ),
    Option(
        "topology.groups",
        list_of(TEXT),
        [],
        "Groups that may act on the topology.",
        scope=TOPOLOGY,
        readers=NO_READER,
        storm=None,
        refused=NO_USERS,
    ),
    Option(
        "topology.readonly.users",
        list_of(TEXT),
        [],
        "Users that may look at the topology.",
        scope=TOPOLOGY,
        readers=NO_READER,
        storm=None,
        refused=NO_USERS,
    ),
    Option(
        "topology.readonly.groups",
        list_of(TEXT),
        [],
        "Groups that may look at the topology.",
        scope=TOPOLOGY,
        readers=NO_READER,
        storm=None,
        refused=NO_USERS,
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
        "Memory of one task outside Python's heap (what libraries and shell components' "
        "children hold), in MiB. It is added to "
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
        "(`cpu_load`), the sum over a worker's executors limits the worker, where "
        "storm.resource.isolation.plugin.enable is set.",
        scope=TOPOLOGY | COMPONENT,
        readers=SUPERVISOR,
        unit="percent of a core",
    ),
    Option(
        "topology.run.as.user",
        TEXT,
        None,
        "User to run the workers as, where supervisor.run.worker.as.user is on and nobody "
        "is authenticated: one of supervisor.run.worker.as.user.choices.",
        scope=TOPOLOGY,
        readers=SUPERVISOR,
        storm=OURS,
    ),
    Option(
        "topology.worker.max.heap.size.mb",
        number(0.0, BYTES_MAX >> 20, above=True),
        None,
        "Most memory that a worker and the processes that it starts may hold together, in "
        "MiB: one that holds more is restarted. null (Storm: 768, a heap's size): what its "
        "tasks declare, if any component declares anything; else worker.heap.memory.mb.",
        scope=TOPOLOGY,
        readers=SUPERVISOR,
        unit="MiB",
        storm=768.0,
    ),
)
