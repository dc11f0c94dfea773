"""`RedisStreamSpout`: the entries of Redis streams."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from redis import exceptions

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.outages import shown_server
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.redis import client as clients

_WAIT_MILLIS = 1_000


class RedisStreamSpout(AsyncSource):
    """Reads streams as a consumer of a group, and acknowledges an entry when its tuple tree is
    done:

        RedisStreamSpout("redis://cache:6379", "orders", group="shop", fields=["sku", "count"])

    Each task is a consumer. What a task had in flight when it was lost is read again by the one
    that takes its place, at once; what a consumer that does not come back had is claimed by others
    after `claim_secs`. Values are bytes, or None for a field that an entry lacks; without `fields`,
    tuples have `id` and `entry`, a dict.

    The message id is `(stream, entry id)`.
    """

    def __init__(
        self,
        url: str,
        streams: str | Sequence[str],
        *,
        group: str,
        fields: Sequence[str] | None = None,
        start: str = "earliest",
        delete: bool = False,
        claim_secs: float = 60.0,
        password_env: str | None = None,
        ca_file: str | None = None,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """A group that does not exist is created at `start`, "earliest" or "latest". With `delete`,
        entries are deleted once they are done; use it only if no other group reads them. `url` is
        `redis://[USER@]HOST[:PORT][/DB]`, or `rediss://` for TLS, which trusts `ca_file` or the
        system's authorities. `password_env` names an environment variable of the worker. The others
        are those of `Source`. Raises InvalidTopologyError for another `start`, or no stream."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        names = [streams] if isinstance(streams, str) else list(streams)
        if not names:
            raise InvalidTopologyError("RedisStreamSpout: give at least one stream")
        if start not in ("earliest", "latest"):
            raise InvalidTopologyError(
                f"RedisStreamSpout: start {start!r}; expected 'earliest' or 'latest'"
            )
        self.outputs = {"default": Stream(["id", "entry"] if fields is None else list(fields))}
        self._streams, self._group = names, group
        self._fields = None if fields is None else list(fields)
        self._start, self._delete, self._claim_secs = start, delete, claim_secs
        self._server = clients.ServerOptions.checked("RedisStreamSpout", url, password_env, ca_file)
        self.server_shown = shown_server(url)

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._client: Any = None
        self._consumer = (
            f"{context.topology_name}-{context.this_component_id}-{context.this_task_index}"
        )
        await super().open(conf, context)

    async def connect(self) -> None:
        self._client = clients.client(self._server, timeout_secs=10)
        for stream in self._streams:
            with contextlib.suppress(exceptions.ResponseError):  # there is one already
                await self._client.xgroup_create(
                    stream, self._group, "0" if self._start == "earliest" else "$", mkstream=True
                )
        # First what this consumer has been given already, from the beginning.
        self._after = dict.fromkeys(self._streams, "0")

    async def disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def fetch(self, limit: int) -> Sequence[Record]:
        try:
            answer = await self._client.xreadgroup(
                self._group, self._consumer, self._after, count=limit, block=_WAIT_MILLIS
            )
        except exceptions.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            # The stream was deleted, or the server has lost its data.
            raise ConnectionError(str(error)) from error
        records: list[Record] = []
        seen = set()
        for name, entries in answer or ():
            stream = clients.text(name)
            seen.add(stream)
            if self._after[stream] != ">":
                # Old ones come in pages, and none is the end of them.
                self._after[stream] = clients.text(entries[-1][0]) if entries else ">"
            records += [self._record(stream, of, entry) for of, entry in entries]
        return records

    def _record(self, stream: str, of: bytes, entry: Mapping[bytes, bytes] | None) -> Record:
        # None: deleted meanwhile, by another; nothing is left but to acknowledge it.
        found = {clients.text(name): value for name, value in (entry or {}).items()}
        name = clients.text(of)
        values = (
            [name, found] if self._fields is None else [found.get(field) for field in self._fields]
        )
        return (stream, name), values

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        by_stream: dict[str, list[str]] = {}
        ids: Any = message_ids
        for stream, name in ids:
            by_stream.setdefault(stream, []).append(name)
        async with self._client.pipeline(transaction=False) as pipeline:
            for stream, names in by_stream.items():
                pipeline.xack(stream, self._group, *names)
                if self._delete:
                    pipeline.xdel(stream, *names)
            await pipeline.execute()

    async def keep(self) -> None:
        """Keep what is in flight from being claimed by others, and claim what others have left."""
        mine: dict[str, list[str]] = {}
        waiting: Any = self._waiting
        for stream, name in waiting:
            mine.setdefault(stream, []).append(name)
        for stream, names in mine.items():
            await self._client.xclaim(stream, self._group, self._consumer, 0, names, justid=True)

    @property
    def keep_secs(self) -> float:
        return self._claim_secs / 3

    async def measure_lag(self) -> int | None:
        """Also a good moment to claim what a lost consumer has left."""
        lag = 0
        for stream in self._streams:
            for group in await self._client.xinfo_groups(stream):
                if clients.text(group["name"]) == self._group:
                    lag += group["pending"] + (group.get("lag") or 0)
            _, claimed, *_ = await self._client.xautoclaim(
                stream,
                self._group,
                self._consumer,
                int(self._claim_secs * 1_000),
                count=max(1, self.room),
            )
            self.take([self._record(stream, of, entry) for of, entry in claimed if entry])
        return lag
