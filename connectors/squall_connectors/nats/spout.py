"""`NatsSpout`: the messages of a JetStream stream."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.outages import shown_servers
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.nats import connection as connections


class NatsSpout(AsyncSource):
    """Pulls messages of a stream as a durable consumer, which all tasks share, and acks each when
    its tuple tree is done. Emits `subject`, `data` (bytes) and `headers` (a dict).

    The stream must exist. The server delivers a message again that is not acked `ack_wait_secs`
    after its delivery; for messages in flight the spout extends that. A graceful stop returns them
    at once. One task gets messages in the order of the stream.

    The message id is `(stream, sequence)`.

        NatsSpout("nats://nats.example:4222", "orders.>", durable="billing")
    """

    def __init__(
        self,
        servers: str,
        subject: str,
        *,
        durable: str,
        stream: str | None = None,
        start: str = "earliest",
        ack_wait_secs: float = 30.0,
        options: Mapping[str, Any] | None = None,
        options_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`servers` are URLs, separated by commas. A consumer `durable` that does not exist is
        created at `start`, "earliest" or "latest"; one that exists keeps its position and settings.
        `options` go to `nats.connect` (user, name, user_credentials ...); `options_env` maps more
        of them (password, token) to environment variables of the worker that hold their values.
        With `ca_file`, or a server given as tls://, the connection is encrypted, and the server
        must prove itself to `ca_file`, or to the system's authorities. The others are those of
        `Source`. Raises InvalidTopologyError for another `start`."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        if start not in ("earliest", "latest"):
            raise InvalidTopologyError(
                f"NatsSpout: start {start!r}; expected 'earliest' or 'latest'"
            )
        self.outputs = {"default": Stream(["subject", "data", "headers"])}
        self._servers, self._subject = servers, subject
        self.server_shown = shown_servers(servers)
        self._durable, self._stream_name, self._start = durable, stream, start
        self._ack_wait_secs, self._options = ack_wait_secs, dict(options or {})
        self._options_env, self._ca_file = dict(options_env or {}), ca_file

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: Any = None
        self._subscription: Any = None
        self._messages: dict[Hashable, Any] = {}  # read, not acked yet
        await super().open(conf, context)

    async def connect(self) -> None:
        self._connection = await connections.connect(
            "NatsSpout", self._servers, self._options, self._options_env, self._ca_file
        )
        jetstream = self._connection.jetstream(timeout=10)
        earliest = self._start == "earliest"
        config = ConsumerConfig(
            durable_name=self._durable,
            deliver_policy=DeliverPolicy.ALL if earliest else DeliverPolicy.NEW,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait_secs,
            max_ack_pending=100_000,  # each task has its own bound
        )
        self._subscription = await jetstream.pull_subscribe(
            self._subject, durable=self._durable, stream=self._stream_name, config=config
        )

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._subscription = None
        await connections.end(connection)

    async def close(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_connected:
            # Settled by `super().close()` over the same connection; the others go back.
            done = set(self._done)
            with contextlib.suppress(Exception):
                for message_id, message in list(self._messages.items()):
                    if message_id not in done:
                        await connection.publish(message.reply, b"-NAK")
                await connection.flush(2)
        await super().close()

    async def fetch(self, limit: int) -> Sequence[Record]:
        try:
            found = await self._subscription.fetch(min(limit, 500), timeout=1.0)
        except (TimeoutError, nats.errors.TimeoutError):
            if not self._connection.is_connected:
                raise ConnectionError(
                    f"NATS: the connection to {self.server_shown} is lost"
                ) from None
            return []
        records: list[Record] = []
        for message in found:
            metadata = message.metadata
            message_id = (metadata.stream, metadata.sequence.stream)
            self._messages[message_id] = message
            headers = dict(message.headers or {})
            records.append((message_id, [message.subject, message.data, headers]))
        return records

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        for message_id in message_ids:
            message = self._messages.get(message_id)
            if message is not None:
                # The reply's subject names the message: it is valid on any connection.
                await self._connection.publish(message.reply, b"+ACK")
        await self._connection.flush(10)  # the server has all of them
        for message_id in message_ids:
            self._messages.pop(message_id, None)

    async def keep(self) -> None:
        for message in list(self._messages.values()):
            await self._connection.publish(message.reply, b"+WPI")

    @property
    def keep_secs(self) -> float:
        return self._ack_wait_secs / 3

    async def measure_lag(self) -> int | None:
        info = await self._subscription.consumer_info()
        return int(info.num_pending + info.num_ack_pending)
