"""Where state is stored without checkpoints (`topology.state.provider`), where it is while its
worker lives (`topology.state.backend`), and which of these do not go together. Pure.

With checkpoints all state is stored in `topology.state.url`: see `checkpoints`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from squall_common.component.refusals import Refusal, refusal_of
from squall_common.component.stateful import StatefulBolt
from squall_common.errors import ConfigError
from squall_common.names import is_system_id
from squall_common.topology.model import Component, Topology

if TYPE_CHECKING:
    from squall_common.config.options.typed import TopologyOptions

DISK = "disk"
_BACKEND = "topology.state.backend"
_PROVIDER = "topology.state.provider"
_CONFIG = f"{_PROVIDER}.config"
_STORMS = {
    "org.apache.storm.state.InMemoryKeyValueStateProvider": "memory",
    "org.apache.storm.redis.state.RedisKeyValueStateProvider": "redis",
}
_POOL = {"host": str, "port": int, "timeout": int, "database": int, "password": str}


@dataclass(frozen=True, slots=True)
class Provider:
    """Where state is stored: nowhere, in files behind a URL, or in a Redis server with a URL."""

    name: Literal["memory", "store", "redis"]
    url: str = ""


def provider_of(options: TopologyOptions) -> Provider:
    """Raises ConfigError, with what to do, for options that are missing or do not fit."""
    named = options.topology_state_provider
    name = _STORMS.get(named, named)
    config = _config(options.topology_state_provider_config)
    if name == "redis":
        return Provider("redis", redis_url(config))
    if config:
        raise ConfigError(
            f"{_CONFIG} has {', '.join(sorted(config))}, which the provider {name!r} does not know",
            hint="where a store is, is set by topology.state.url",
        )
    if name == "memory":
        return Provider("memory")
    if not options.topology_state_url:
        raise ConfigError(
            f"{_PROVIDER} is 'store', but topology.state.url is not set",
            hint="set it to a folder that all nodes mount, or to a URL such as s3://bucket/folder",
        )
    return Provider("store", options.topology_state_url)


def _config(given: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given or {}
    import msgspec  # late: the definition of a topology does without it

    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{_CONFIG} is not the JSON text of a map: {error}", hint="write it as a map of YAML"
        ) from error


def redis_url(config: Mapping[str, Any]) -> str:
    """Of `{"url": ...}`, or Storm's `{"jedisPoolConfig": {"host": ..., "port": ...}}`. Raises
    ConfigError for what Storm's provider has and this one has not, by name."""
    unknown = config.keys() - {"url", "jedisPoolConfig"}
    if unknown:
        raise ConfigError(
            f"{_CONFIG} has {', '.join(sorted(unknown))}, which Squall's Redis provider does not "
            "have",
            hint="it takes url, or Storm's jedisPoolConfig; types are those that tuples have, and "
            "there is no Redis Cluster",
        )
    if "url" in config:
        url = config["url"]
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(
                f"{_CONFIG}: url is {url!r:.100}", hint="write redis://HOST:PORT/DATABASE"
            )
        return url
    pool = config.get("jedisPoolConfig", {})
    if not isinstance(pool, Mapping):
        raise ConfigError(
            f"{_CONFIG}: jedisPoolConfig is {pool!r:.100}", hint=f"a map may have {_names(_POOL)}"
        )
    for name, value in pool.items():
        if name not in _POOL:
            raise ConfigError(
                f"{_CONFIG}: jedisPoolConfig has {name!r}, which is not known",
                hint=f"it may have {_names(_POOL)}",
            )
        if type(value) is not _POOL[name]:
            shown = type(value).__name__ if name == "password" else f"{value!r:.100}"
            raise ConfigError(
                f"{_CONFIG}: jedisPoolConfig.{name} is {shown}",
                hint=f"expected {_POOL[name].__name__}",
            )
    password = pool.get("password")
    user = f":{quote(password, safe='')}@" if password else ""
    secs = pool.get("timeout", 2000) / 1000
    place = f"{pool.get('host', '127.0.0.1')}:{pool.get('port', 6379)}/{pool.get('database', 0)}"
    return f"redis://{user}{place}?socket_timeout={secs:g}"


def _names(known: Mapping[str, Any]) -> str:
    return ", ".join(known)


# ---- what does not go together


def stored_refusals(topology: Topology, options: TopologyOptions) -> Iterator[Refusal]:
    """Of a topology without checkpoints, without its classes. `options` are complete."""
    stateful = [one for one in topology.components.values() if _keeps_state(one)]
    if not stateful:
        return
    try:
        provider = provider_of(options)
    except ConfigError as error:
        yield Refusal(error.message, error.hint or "")
        return
    if provider.name == "store":
        return
    for component in stateful:
        if backend_of(component, options.topology_state_backend) == DISK:
            yield _disk_refusal(component, provider)


def _disk_refusal(component: Component, provider: Provider) -> Refusal:
    if provider.name == "redis":
        return refusal_of(
            component,
            f"has {_BACKEND} 'disk', and {_PROVIDER} is 'redis', which is sent all state at once "
            "now and then",
            f"set {_PROVIDER} to 'store'",
        )
    return refusal_of(
        component,
        f"has {_BACKEND} 'disk', and its state is not stored, so it would end with its worker",
        f"set topology.checkpoint.interval.secs, or {_PROVIDER} to 'store'",
    )


def async_refusals(component: Component, cls: type, backend: str) -> Iterator[Refusal]:
    """Of the class of a component without checkpoints. `backend`: that of the topology."""
    if not issubclass(cls, StatefulBolt) or backend_of(component, backend) != DISK:
        return
    for name in ("execute", "execute_batch"):
        if inspect.iscoroutinefunction(getattr(cls, name, None)):
            yield refusal_of(
                component,
                f"has {_BACKEND} 'disk' and an async {name}(), whose state cannot be on disk "
                "without checkpoints",
                f"set topology.checkpoint.interval.secs, or define {name} without async",
                cls,
            )


def backend_of(component: Component, backend: str) -> str:
    """Where the state of a component is, in a topology with this backend."""
    # Imported late: the definition of a topology does without msgspec.
    from squall_common.config.options.typed import TopologyOptions

    if _BACKEND not in component.conf:
        return backend
    return TopologyOptions.read(component.conf, where=component.id).topology_state_backend


def _keeps_state(component: Component) -> bool:
    if is_system_id(component.id):
        return False
    from squall_common.config.options.typed import TopologyOptions

    own = TopologyOptions.read(component.conf, where=component.id)
    return own.topology_state_max_parallelism is not None
