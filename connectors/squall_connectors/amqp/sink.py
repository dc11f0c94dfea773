"""`AmqpSink`: tuples as messages to an exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aio_pika
import aio_pika.exceptions
import orjson
from aio_pika.abc import AbstractConnection, AbstractExchange

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.amqp import connection as connections
from squall_connectors.amqp.connection import BrokerOptions
from squall_connectors.base.sink import RecordsRejectedError, Sink


class AmqpSink(Sink):
    """Publishes each tuple as a persistent message, and acks it when the broker has confirmed it:
    it is on the disk of each durable queue that it was routed to.

        AmqpSink("amqp://broker/shop", routing_key="orders")           # a queue, by its name
        AmqpSink("amqp://broker/shop", exchange="events", routing_key_field="kind", id_field="id")

    A message that no queue takes is refused, and becomes a dead letter, unless `mandatory` is
    False. One whose confirmation is lost is published again, as is a replayed tuple: with
    `id_field` both have the same `message_id`, so that readers can tell. Bodies that are not bytes
    or a string are written as JSON.
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "",
        routing_key: str | None = None,
        routing_key_field: str | None = None,
        body_field: str = "body",
        headers_field: str | None = None,
        id_field: str | None = None,
        properties: Mapping[str, Any] | None = None,
        mandatory: bool = True,
        password_env: str | None = None,
        ca_file: str | None = None,
        heartbeat_secs: int = 10,
        batch_records: int = 500,
        batch_secs: float = 0.02,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """The routing key is `routing_key`, or the value of `routing_key_field`. `exchange` must
        exist; the one without a name routes to the queue that the key names. `properties` are
        further ones of aio_pika.Message (content_type, priority, expiration ...). `url`,
        `password_env`, `ca_file` and `heartbeat_secs` are those of AmqpSpout. The others are those
        of `Sink`. Raises InvalidTopologyError for arguments that contradict each other."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        self._options = BrokerOptions.checked(
            "AmqpSink", url, password_env, ca_file, heartbeat_secs
        )
        self.server_shown = str(self._options.address)
        if (routing_key is None) == (routing_key_field is None):
            raise InvalidTopologyError("AmqpSink: give either routing_key or routing_key_field")
        self._properties = {"delivery_mode": aio_pika.DeliveryMode.PERSISTENT, **(properties or {})}
        ours = {"headers": headers_field, "message_id": id_field, "body": ""}
        for name, field in ours.items():
            if field is not None and name in self._properties:
                raise InvalidTopologyError(f"AmqpSink: properties may not set {name}")
        try:
            aio_pika.Message(b"", **self._properties)
        except (TypeError, ValueError) as error:
            raise InvalidTopologyError(f"AmqpSink: properties: {error}") from None
        self._exchange_name, self._mandatory = exchange, mandatory
        self._routing_key, self._routing_key_field = routing_key, routing_key_field
        self._body_field, self._headers_field, self._id_field = body_field, headers_field, id_field

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None
        self._name = f"{context.topology_name}-{context.this_component_id}-{context.this_task_id}"
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        if isinstance(error, aio_pika.exceptions.ChannelPreconditionFailed):
            return False  # larger than the broker takes, a property that it does not allow
        return isinstance(error, connections.OUTAGES)

    async def connect(self) -> None:
        self._connection = await self._options.connect(self._name)
        try:
            channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            if self._exchange_name:
                # Passive: it must exist, so that it is known here rather than message by message.
                exchange = await channel.get_exchange(self._exchange_name, ensure=True)
            else:
                exchange = channel.default_exchange
            self._exchange = exchange
        except BaseException:
            await self.disconnect()
            raise

    async def disconnect(self) -> None:
        connection, self._connection, self._exchange = self._connection, None, None
        await connections.end(connection)

    async def write(self, tuples: Sequence[Tuple]) -> None:
        exchange = self._exchange
        assert exchange is not None
        rejected: dict[int, str] = {}
        indices, publishing = [], []
        for index, tup in enumerate(tuples):
            try:
                message, routing_key = self._message(tup)
            except (KeyError, TypeError, ValueError) as error:
                rejected[index] = describe(error)
                continue
            indices.append(index)
            publishing.append(
                exchange.publish(
                    message,
                    routing_key,
                    mandatory=self._mandatory,
                    timeout=self._write_timeout_secs,
                )
            )
        # Sent in this order, and confirmed in any.
        outcomes = await asyncio.gather(*publishing, return_exceptions=True)
        failure: BaseException | None = None
        for index, outcome in zip(indices, outcomes, strict=True):
            if isinstance(outcome, aio_pika.exceptions.PublishError):
                rejected[index] = "no queue takes a message with this routing key"
            elif isinstance(outcome, aio_pika.exceptions.ChannelPreconditionFailed):
                raise outcome
            elif isinstance(outcome, BaseException):
                failure = failure or outcome
        if failure is not None:
            raise failure
        if rejected:
            raise RecordsRejectedError(rejected)

    def _message(self, tup: Tuple) -> tuple[aio_pika.Message, str]:
        body = tup[self._body_field]
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            body = orjson.dumps(body)
        properties = dict(self._properties)
        if self._headers_field is not None:
            properties["headers"] = dict(tup[self._headers_field] or {})
        if self._id_field is not None:
            properties["message_id"] = str(tup[self._id_field])
        key = self._routing_key
        if self._routing_key_field is not None:
            key = tup[self._routing_key_field]
        if not isinstance(key, str) or len(key.encode()) > 255:
            raise ValueError(f"{str(key)[:50]!r} is not a routing key")
        return aio_pika.Message(body, **properties), key
