"""`RedisPubSubSpout`: messages of Redis' channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from squall import Stream, TopologyContext
from squall_connectors.base.outages import shown_server
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.redis import client as clients

_ANSWER_SECS = 10.0


class RedisPubSubSpout(AsyncSource):
    """Emits what is published on channels, as `channel` and `message` (bytes).

    Redis keeps nothing of what it publishes: messages that come while the spout is away, inactive
    or full are lost, and so is what is in flight when a worker is lost. Use one task: each gets
    every message. For anything that matters there is `RedisStreamSpout`.

        RedisPubSubSpout("redis://redis.example", ["prices"], patterns=["news.*"])
    """

    def __init__(
        self,
        url: str,
        channels: Sequence[str] = (),
        *,
        patterns: Sequence[str] = (),
        password_env: str | None = None,
        ca_file: str | None = None,
        in_flight_max: int = 10_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`patterns` are Redis' globs. `url`, `password_env` and `ca_file` are those of
        RedisStreamSpout, the others those of `Source`."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self.outputs = {"default": Stream(["channel", "message"])}
        self._channels, self._patterns = list(channels), list(patterns)
        self._server = clients.ServerOptions.checked("RedisPubSubSpout", url, password_env, ca_file)
        self.server_shown = shown_server(url)

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._client: Any = None
        self._subscription: Any = None
        self._ids = count(1)
        await super().open(conf, context)

    async def connect(self) -> None:
        self._asked_at: float | None = None  # when the ping was sent that is not answered yet
        self._client = clients.client(self._server, timeout_secs=10)
        self._subscription = self._client.pubsub(ignore_subscribe_messages=True)
        if self._channels:
            await self._subscription.subscribe(*self._channels)
        if self._patterns:
            await self._subscription.psubscribe(*self._patterns)

    async def disconnect(self) -> None:
        subscription, self._subscription = self._subscription, None
        client, self._client = self._client, None
        if subscription is not None:
            await subscription.aclose()
        if client is not None:
            await client.aclose()

    async def fetch(self, limit: int) -> Sequence[Record]:
        records: list[Record] = []
        timeout = 1.0
        while len(records) < limit:
            found = await self._subscription.get_message(timeout=timeout)
            if found is None:
                if not records:
                    self._require_answer()
                break
            timeout = 0.0
            if found["type"] == "pong":
                self._asked_at = None
                continue
            values = [clients.text(found["channel"]), found["data"]]
            records.append((next(self._ids), values))
        return records

    def _require_answer(self) -> None:
        """All that the server has sent is read: its answer to a ping is not late here."""
        if self._asked_at is not None and self._now() - self._asked_at > _ANSWER_SECS:
            raise TimeoutError(f"the server has not answered a ping for {_ANSWER_SECS:g} s")

    async def measure_lag(self) -> int | None:
        """A good moment for a ping: a server that is gone without a word is not noticed by reading,
        and messages that it would have sent are lost."""
        if self._asked_at is None:
            self._asked_at = self._now()
            await self._subscription.ping()
        return None

    async def settle(self, message_ids: Sequence[Any]) -> None:
        """Redis has forgotten them already."""
