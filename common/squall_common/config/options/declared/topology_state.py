"""Topologies: the state of stateful bolts, where it is stored and how often."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    NIMBUS,
    OURS,
    TOPOLOGY,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import JSON_MAP, TEXT, Kind, whole

_PROVIDERS = (
    "memory",
    "store",
    "redis",
    "org.apache.storm.state.InMemoryKeyValueStateProvider",
    "org.apache.storm.redis.state.RedisKeyValueStateProvider",
)
_PROVIDER = Kind("one of " + ", ".join(_PROVIDERS), lambda v: v in _PROVIDERS, annotation="str")
_BACKEND = Kind("memory or disk", lambda v: v in ("memory", "disk"), annotation="str")

OPTIONS = (
    Option(
        "topology.state.provider",
        _PROVIDER,
        "memory",
        "Where stateful bolts keep their state: memory (it ends with the worker), store (files "
        "behind topology.state.url) or redis. Storm's class names of its providers in memory and "
        "in Redis mean the same.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
        storm=None,
    ),
    Option(
        "topology.state.provider.config",
        JSON_MAP,
        None,
        "Options of the provider: for redis url, or Storm's jedisPoolConfig with host, port, "
        "database, password and timeout (milliseconds). A map, or JSON text.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
    ),
    Option(
        "topology.state.url",
        TEXT,
        None,
        "Where state is stored: a folder that all nodes mount, or a URL that fsspec reads "
        "(s3://bucket/folder).",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.state.checkpoint.interval.ms",
        whole(10),
        1000,
        "How often the changes of state are stored, in milliseconds. Tuples are acked after that.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="milliseconds",
    ),
    Option(
        "topology.state.backend",
        _BACKEND,
        "memory",
        "Where state that is stored is while the worker lives: memory, or disk, for state that "
        "does not fit into memory (extra disk; docs/concepts/state.md).",
        scope=TOPOLOGY | COMPONENT,
        readers=NIMBUS | WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.state.backend.folder",
        TEXT,
        None,
        "Where workers have state that is on disk: a folder of each node, not in memory (tmpfs); "
        "null: the worker's temporary folder, in storm.local.dir.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.state.backend.write.entries",
        whole(1, 100_000_000),
        100_000,
        "So many changed entries of a task are in memory before they are written to disk together, "
        "with topology.state.backend disk.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.state.max.parallelism",
        whole(1, 32_768),
        None,
        "Number of key groups of a stateful bolt's state, and so the most tasks that it can ever "
        "have. The builder sets it if it is not set: a power of two that is at least 128 and 1.5 "
        "times the number of tasks. It cannot change while there is stored state.",
        scope=COMPONENT,
        readers=NIMBUS | WORKER | COMMAND,
        storm=OURS,
    ),
)
