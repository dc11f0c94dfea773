"""The URL of a Redis server from the configuration of Storm's provider, or ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from squall_common.errors import ConfigError

_POOL = {"host": str, "port": int, "timeout": int, "database": int, "password": str}
_KEY = "topology.state.provider.config"


def redis_url(config: Mapping[str, Any]) -> str:
    """`{"url": ...}`, or Storm's `{"jedisPoolConfig": {"host": ..., "port": ...}}`. Raises
    ConfigError for what Storm's provider has and this one has not, by name."""
    unknown = config.keys() - {"url", "jedisPoolConfig"}
    if unknown:
        raise ConfigError(
            f"{_KEY} has {', '.join(sorted(unknown))}, which Squall's Redis provider does not have",
            hint="it takes url, or Storm's jedisPoolConfig; types are those that tuples have, and "
            "there is no Redis Cluster",
        )
    if "url" in config:
        url = config["url"]
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(f"{_KEY}: url is {url!r:.100}; expected redis://HOST:PORT/DATABASE")
        return url
    pool = config.get("jedisPoolConfig", {})
    if not isinstance(pool, Mapping):
        raise ConfigError(f"{_KEY}: jedisPoolConfig is {pool!r:.100}; expected a map")
    for name, value in pool.items():
        if name not in _POOL:
            raise ConfigError(f"{_KEY}: jedisPoolConfig has {name!r}, which is not known")
        if type(value) is not _POOL[name]:
            shown = type(value).__name__ if name == "password" else f"{value!r:.100}"
            expected = _POOL[name].__name__
            raise ConfigError(f"{_KEY}: jedisPoolConfig.{name} is {shown}; expected {expected}")
    password = pool.get("password")
    user = f":{quote(password, safe='')}@" if password else ""
    secs = pool.get("timeout", 2000) / 1000
    place = f"{pool.get('host', '127.0.0.1')}:{pool.get('port', 6379)}/{pool.get('database', 0)}"
    return f"redis://{user}{place}?socket_timeout={secs:g}"
