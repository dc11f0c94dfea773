"""`RedisLookup`: tuples with what Redis holds for a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from squall import Bolt, TopologyContext, Tuple
from squall.metrics import CountMetric
from squall_connectors.base.cache import Cache
from squall_connectors.redis import client as clients


class RedisLookup(Bolt):
    """Emits the tuple's `keep` fields followed by what Redis holds for its key: the value of a
    string, or, with `hash_fields`, those of a hash; bytes, or None where there is none.

        RedisLookup(URL, "sku", key_prefix="item:", hash_fields=["price"], keep=["order"],
                    outputs=["order", "price"])

    A batch of tuples is one round trip. Values are kept for `cache_secs`. While the server is away,
    tuples fail and are replayed. Metrics: `cache-hits`, `cache-misses`.
    """

    def __init__(
        self,
        url: str,
        key_field: str,
        *,
        outputs: Sequence[str],
        key_prefix: str = "",
        hash_fields: Sequence[str] = (),
        keep: Sequence[str] = (),
        password_env: str | None = None,
        ca_file: str | None = None,
        cache_secs: float = 10.0,
        cache_size: int = 10_000,
        timeout_secs: float = 10.0,
    ) -> None:
        """`url`, `password_env` and `ca_file` are those of RedisStreamSpout. Raises ValueError if
        `outputs` has another number of fields than are emitted."""
        if len(outputs) != len(keep) + max(1, len(hash_fields)):
            raise ValueError(
                f"RedisLookup: {len(outputs)} outputs for {len(keep)} kept fields and "
                f"{max(1, len(hash_fields))} looked up"
            )
        self.outputs = list(outputs)
        self._key_field, self._key_prefix = key_field, key_prefix
        self._hash_fields, self._keep = list(hash_fields), list(keep)
        self._cache_secs, self._cache_size = cache_secs, cache_size
        self._timeout_secs = timeout_secs
        self._server = clients.ServerOptions.checked("RedisLookup", url, password_env, ca_file)

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._client = clients.client(self._server, timeout_secs=self._timeout_secs)
        self._cache: Cache[list[bytes | None]] = Cache(self._cache_secs, self._cache_size)
        self._hits = context.register_metric("cache-hits", CountMetric())
        self._misses = context.register_metric("cache-misses", CountMetric())

    async def execute_batch(self, tuples: list[Tuple]) -> None:
        keys = [f"{self._key_prefix}{tup[self._key_field]}" for tup in tuples]
        found: dict[str, list[bytes | None]] = {}
        for key in keys:
            if (values := self._cache.get(key)) is not None:
                found[key] = values
        missing = sorted(set(keys) - found.keys())
        self._hits.incr(len(keys) - len(missing))
        self._misses.incr(len(missing))
        if missing:
            async with self._client.pipeline(transaction=False) as pipeline:
                for key in missing:
                    if self._hash_fields:
                        pipeline.hmget(key, self._hash_fields)
                    else:
                        pipeline.get(key)
                answers = await pipeline.execute()
            for key, answer in zip(missing, answers, strict=True):
                found[key] = list(answer) if self._hash_fields else [answer]
                self._cache.put(key, found[key])
        for tup, key in zip(tuples, keys, strict=True):
            self.emit([*(tup[field] for field in self._keep), *found[key]], anchors=tup)

    async def cleanup(self) -> None:
        await self._client.aclose()
