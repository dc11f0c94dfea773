"""`AmqpSpout`: messages of a queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.amqp import connection as connections
from squall_connectors.amqp.connection import BrokerOptions
from squall_connectors.amqp.deliveries import Deliveries
from squall_connectors.base.source import AsyncSource, Record

_PREFETCH_MAX = 65_535


class AmqpSpout(AsyncSource):
    """Consumes a queue, and acknowledges each message when its tuple tree is done. Emits `body`
    (bytes), `routing_key` and `headers` (a dict).

        AmqpSpout("amqp://shop@broker/shop", "orders", password_env="AMQP_PASSWORD")
        AmqpSpout("amqp://broker", "audit", declare=True, bindings=[("events", "order.#")],
                  arguments={"x-queue-type": "quorum"})

    The tasks share the queue; one task gets messages in the order of the queue. The prefetch count
    is `in_flight_max`. A message that is in flight when the connection is lost is delivered again:
    it is emitted once only if its publisher has set a unique `message_id`.

    The message id is `(queue, message_id)`, or without one `(queue, number of the channel, delivery
    tag)`.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        declare: bool = False,
        arguments: Mapping[str, Any] | None = None,
        bindings: Sequence[tuple[str, str]] = (),
        password_env: str | None = None,
        ca_file: str | None = None,
        heartbeat_secs: int = 10,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`url` is `amqp://[USER@]HOST[:PORT][/VHOST]`, or `amqps://` for TLS, which trusts
        `ca_file` or the system's authorities. `password_env` names an environment variable of the
        worker. With `declare` the spout creates the queue if it does not exist, durable and with
        these `arguments`; otherwise it waits until it exists. `bindings` are pairs of exchange and
        routing key that it binds the queue to. A broker that is silent for twice `heartbeat_secs`
        counts as lost. The others are those of `Source`. Raises InvalidTopologyError for a value
        that cannot be."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self._options = BrokerOptions.checked(
            "AmqpSpout", url, password_env, ca_file, heartbeat_secs
        )
        self.server_shown = str(self._options.address)
        if not queue or len(queue.encode()) > 255:
            raise InvalidTopologyError(f"AmqpSpout: queue {queue[:50]!r}; expected 1 to 255 bytes")
        if arguments and not declare:
            raise InvalidTopologyError("AmqpSpout: arguments need declare=True")
        if any(len(binding) != 2 for binding in bindings):
            raise InvalidTopologyError("AmqpSpout: bindings are pairs of exchange and routing key")
        self.outputs = {"default": Stream(["body", "routing_key", "headers"])}
        self._queue_name, self._declare = queue, declare
        self._arguments, self._bindings = dict(arguments or {}), list(bindings)

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._name = f"{context.topology_name}-{context.this_component_id}-{context.this_task_id}"
        self._deliveries = Deliveries(self._queue_name)
        self._received: deque[Record] = deque()
        self._arrived = asyncio.Event()
        await super().open(conf, context)

    async def connect(self) -> None:
        self._received.clear()  # back in the queue
        self._deliveries.connected()
        self._connection = await self._options.connect(self._name)
        try:
            await self._consume(self._connection)
        except BaseException:
            await self.disconnect()
            raise

    async def _consume(self, connection: AbstractConnection) -> None:
        self._channel = channel = await connection.channel(publisher_confirms=False)
        self._is_cancelled = False
        await channel.set_qos(prefetch_count=min(_PREFETCH_MAX, self._in_flight_max))
        queue = await channel.declare_queue(
            self._queue_name,
            durable=True,
            passive=not self._declare,
            arguments=self._arguments or None,
        )
        for exchange, routing_key in self._bindings:
            await queue.bind(exchange, routing_key)
        channel.close_callbacks.add(lambda *_: self._arrived.set())

        def cancelled(_: object) -> None:
            if channel is self._channel:
                self._is_cancelled = True
                self._arrived.set()

        # When the queue is deleted, or moves to another node. It may be there again at once, but
        # without this consumer.
        underlay = await channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(cancelled)

        async def take(message: AbstractIncomingMessage) -> None:
            if channel is self._channel:
                self._take_message(message)

        await queue.consume(take)

    async def disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        await connections.end(connection)

    def _take_message(self, message: AbstractIncomingMessage) -> None:
        tag = message.delivery_tag
        assert tag is not None
        of = self._deliveries.delivered(
            tag, message.message_id, redelivered=bool(message.redelivered)
        )
        headers = dict(message.headers or {})
        self._received.append((of, [message.body, message.routing_key or "", headers]))
        self._arrived.set()

    def _check(self) -> AbstractChannel:
        channel = self._channel
        if channel is None or channel.is_closed:
            raise ConnectionError(f"AMQP {self._options.address}: the channel is closed")
        return channel

    async def fetch(self, limit: int) -> Sequence[Record]:
        self._check()
        if not self._received:
            self._arrived.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            self._check()
        if self._is_cancelled:
            await self.measure_lag()  # raises if there is no queue now
            raise ConnectionError(
                f"AMQP {self._options.address}: the broker ended the consumer of queue "
                f"{self._queue_name!r}, which was deleted or moved"
            )
        received = self._received
        return [received.popleft() for _ in range(min(limit, len(received)))]

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        underlay = await self._check().get_underlay_channel()
        for tag, includes_earlier in self._deliveries.done(message_ids):
            await underlay.basic_ack(tag, multiple=includes_earlier)

    async def measure_lag(self) -> int | None:
        # Also finds out that the queue was deleted.
        queue = await self._check().declare_queue(self._queue_name, passive=True)
        return (queue.declaration_result.message_count or 0) + len(self._kept)
