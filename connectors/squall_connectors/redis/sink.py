"""`RedisSink`: tuples as entries of streams, hashes, strings, lists, sets or messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from redis import exceptions

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.outages import shown_server
from squall_connectors.base.sink import RecordsRejectedError, Sink
from squall_connectors.redis import client as clients

# What a command needs beside its key.
_COMMANDS = {
    "stream": "an entry of the stream `key`, with all `fields`",
    "hash": "`fields` of the hash `key`; a replayed tuple changes nothing",
    "set": "the value of the key; a replayed tuple changes nothing",
    "list": "an element at the end of the list",
    "add": "a member of the set `key`; a replayed tuple changes nothing",
    "publish": "a message on the channel `key`",
}


class RedisSink(Sink):
    """Writes each batch in one pipeline, and acks the tuples that Redis has confirmed.

        RedisSink(URL, "hash", ["price", "stock"], key_field="sku", key_prefix="item:")
        RedisSink(URL, "stream", ["sku", "price"], key="prices", stream_max=1_000_000)

    `command` is one of: stream (XADD), hash (HSET), set (SET), list (RPUSH), add (SADD), publish
    (PUBLISH). Streams and hashes take any number of fields, the others one. Values that are not
    bytes, strings or numbers are written as JSON. A confirmed write is as durable as the server's
    configuration makes it (`appendfsync always`, or replicas with `WAIT`: `replicas`).
    """

    def __init__(
        self,
        url: str,
        command: str,
        fields: Sequence[str],
        *,
        key: str | None = None,
        key_field: str | None = None,
        key_prefix: str = "",
        expire_secs: int | None = None,
        stream_max: int | None = None,
        replicas: int = 0,
        password_env: str | None = None,
        ca_file: str | None = None,
        batch_records: int = 500,
        batch_secs: float = 0.02,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """The key is `key`, or `key_prefix` and the value of `key_field`. `expire_secs` is for hash
        and set, `stream_max` the length to which a stream is trimmed, about. A batch is confirmed
        once `replicas` replicas have it. `url`, `password_env` and `ca_file` are those of
        RedisStreamSpout, the others those of `Sink`. Raises InvalidTopologyError for arguments that
        contradict each other."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        if command not in _COMMANDS:
            raise InvalidTopologyError(
                f"RedisSink: command {command!r}; expected one of {', '.join(_COMMANDS)}"
            )
        if (key is None) == (key_field is None):
            raise InvalidTopologyError("RedisSink: give either key or key_field")
        if not fields or (command not in ("stream", "hash") and len(fields) != 1):
            raise InvalidTopologyError(f"RedisSink: {command} does not take {len(fields)} fields")
        if expire_secs is not None and command not in ("hash", "set"):
            raise InvalidTopologyError("RedisSink: expire_secs is for hash and set")
        if stream_max is not None and command != "stream":
            raise InvalidTopologyError("RedisSink: stream_max is for streams")
        self._command, self._fields = command, list(fields)
        self._key, self._key_field, self._key_prefix = key, key_field, key_prefix
        self._expire_secs, self._stream_max, self._replicas = expire_secs, stream_max, replicas
        self._server = clients.ServerOptions.checked("RedisSink", url, password_env, ca_file)
        self.server_shown = shown_server(url)

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._client: Any = None
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        return clients.is_outage(error) or super().is_outage(error)

    async def connect(self) -> None:
        self._client = clients.client(self._server, timeout_secs=self._write_timeout_secs)
        await self._client.ping()

    async def disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def write(self, tuples: Sequence[Tuple]) -> None:
        rejected: dict[int, str] = {}
        indices = []
        async with self._client.pipeline(transaction=False) as pipeline:
            for index, tup in enumerate(tuples):
                try:
                    commands = self._queue(pipeline, tup)
                except (KeyError, TypeError, exceptions.DataError) as error:
                    rejected[index] = describe(error)
                else:
                    indices += [index] * commands
            if self._replicas:
                pipeline.execute_command("WAIT", self._replicas, 0)
            answers = await pipeline.execute(raise_on_error=False)
        for index, answer in zip(indices, answers, strict=False):
            if not isinstance(answer, exceptions.RedisError):
                continue
            if clients.is_outage(answer):
                raise answer
            rejected[index] = describe(answer)
        if rejected:
            raise RecordsRejectedError(rejected)

    def _queue(self, pipeline: Any, tup: Tuple) -> int:
        """Queue the commands for a tuple; return their number."""
        key = self._key if self._key_field is None else f"{self._key_prefix}{tup[self._key_field]}"
        values = {field: _encoded(tup[field]) for field in self._fields}
        (first, *_) = values.values()
        match self._command:
            case "stream":
                pipeline.xadd(key, values, maxlen=self._stream_max)
            case "hash":
                pipeline.hset(key, mapping=values)
                if self._expire_secs is not None:
                    pipeline.expire(key, self._expire_secs)
                    return 2
            case "set":
                pipeline.set(key, first, ex=self._expire_secs)
            case "list":
                pipeline.rpush(key, first)
            case "add":
                pipeline.sadd(key, first)
            case "publish":
                pipeline.publish(key, first)
        return 1


def _encoded(value: Any) -> bytes | str | int | float:
    if isinstance(value, bytes | str | int | float) and not isinstance(value, bool):
        return value
    return orjson.dumps(value)
