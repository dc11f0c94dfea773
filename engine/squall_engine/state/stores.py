"""Where the state of a topology's bolts is stored: what `topology.state.provider` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError
from squall_common.state.task_store import SegmentStore, TaskPlace, TaskStore
from squall_engine.state.backends import DISK

_STORMS = {
    "org.apache.storm.state.InMemoryKeyValueStateProvider": "memory",
    "org.apache.storm.redis.state.RedisKeyValueStateProvider": "redis",
}
MakeStore = Callable[[TaskPlace], TaskStore]


def store_maker(options: TopologyOptions) -> MakeStore | None:
    """What makes the store of a task; None if state is only in memory. Raises ConfigError."""
    named = options.topology_state_provider
    provider = _STORMS.get(named, named)
    config = _config(options.topology_state_provider_config)
    if provider == "redis":
        if options.topology_state_backend == DISK:
            raise ConfigError(
                "topology.state.backend is 'disk' with topology.state.provider 'redis', which is "
                "sent all state at once now and then",
                hint="set topology.state.provider to 'store'",
            )
        from squall_engine.state.redis_url import redis_url

        redis = redis_url(config)

        def of_redis(place: TaskPlace) -> TaskStore:
            from squall_common.state.redis_store import RedisStore

            return RedisStore(redis, place)

        return of_redis
    if config:
        raise ConfigError(
            f"topology.state.provider.config has {', '.join(sorted(config))}, which the provider "
            f"{provider!r} does not know",
            hint="where a store is, is set by topology.state.url",
        )
    if provider == "memory":
        return None
    url = options.topology_state_url
    if url is None:
        raise ConfigError(
            "topology.state.provider is 'store', but topology.state.url is not set",
            hint="set it to a folder that all nodes mount, or to a URL such as s3://bucket/folder",
        )
    from squall_common.state.checkpoint_store import CheckpointStore

    store = CheckpointStore(url)
    return lambda place: SegmentStore(store, place)


def _config(given: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given or {}
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"topology.state.provider.config is not the JSON text of a map: {error}"
        ) from error
