"""`MqttSpout`: messages of an MQTT broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from typing import Any

from paho.mqtt.client import MQTTMessage, topic_matches_sub

from squall import Stream, TopologyContext
from squall.metrics import CountMetric
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import require_at_least
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.mqtt.connection import BrokerOptions, Connection
from squall_connectors.mqtt.deliveries import Deliveries

_RECEIVE_MAX = 65_535  # MQTT's own bound
_SESSION_SECS_MAX = 0xFFFF_FFFF


class MqttSpout(AsyncSource):
    """Subscribes to a topic filter with QoS 1 and a persistent session, and sends the PUBACK of a
    message when its tuple tree is done. Emits `topic`, `payload` (bytes) and `retained` (whether
    the broker sent it because it is the topic's retained message).

        MqttSpout("mqtts://meters@broker", "site/+/meter", client_id="meters",
                  password_env="MQTT_PASSWORD")

    Each task has a session of its own, `CLIENT_ID-INDEX`; the broker keeps its messages while the
    topology is away, for `session_secs`. With several tasks the subscription is shared: the broker
    gives each message to one of them.

    PUBACKs go out in the order of the messages, as MQTT demands: a message in flight holds back
    the PUBACKs of those behind it, and brokers send only so many without one (mosquitto
    `max_inflight_messages`, 20 by default; raise it).

    Messages that were published with QoS 0 come with QoS 0: they are dropped, and counted by the
    metric `dropped`, while `in_flight_max` records are in flight.

    The message id is `(client id, packet id)`, which the broker uses again after the PUBACK. If it
    uses one again before that, because it lost the session, a number follows.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        client_id: str,
        session_secs: int = 86_400,
        version: str = "5",
        password_env: str | None = None,
        ca_file: str | None = None,
        keepalive_secs: int = 10,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`url` is `mqtt://[USER@]HOST[:PORT]`, or `mqtts://` for TLS, which trusts `ca_file` or
        the system's authorities. `password_env` names an environment variable of the worker.
        `topic` is a filter that may have `+` and `#`. `version` is "5" or "3.1.1"; a session of
        3.1.1 has no end. A broker that is silent for half more than `keepalive_secs` counts as
        lost. The others are those of `Source`. Raises InvalidTopologyError for a value that cannot
        be."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self._options = BrokerOptions.checked(
            "MqttSpout", url, version, password_env, ca_file, keepalive_secs
        )
        self.server_shown = str(self._options.address)
        check_filter("MqttSpout", topic)
        if not client_id or len(client_id.encode()) > 200:
            raise InvalidTopologyError(
                f"MqttSpout: client_id {client_id[:20]!r}; expected 1 to 200 bytes"
            )
        require_at_least("MqttSpout", 1, session_secs=session_secs)
        if session_secs > _SESSION_SECS_MAX:
            raise InvalidTopologyError(
                f"MqttSpout: session_secs is {session_secs}; at most {_SESSION_SECS_MAX}"
            )
        self.outputs = {"default": Stream(["topic", "payload", "retained"])}
        self._topic, self._client_id, self._session_secs = topic, client_id, session_secs

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: Connection | None = None
        self._session = f"{self._client_id}-{context.this_task_index}"
        tasks = len(context.component_tasks(context.this_component_id))
        shared = f"$share/{self._client_id.replace('/', '-')}/{self._topic}"
        # A session of a topology that had another number of tasks has the other subscription.
        self._subscription, self._other = self._topic, shared
        if tasks > 1:
            self._subscription, self._other = shared, self._topic
        self._deliveries = Deliveries(self._session)
        self._unacknowledged_numbers = count(1)
        self._received: deque[Record] = deque()
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._dropped = context.register_metric("dropped", CountMetric())
        await super().open(conf, context)

    async def connect(self) -> None:
        self._received.clear()  # the broker has them still, and delivers them again
        self._connection = connection = Connection(
            self._options,
            client_id=self._session,
            session_secs=self._session_secs,
            receive_max=min(_RECEIVE_MAX, self._in_flight_max),
            on_message=lambda message: self._pass_on(connection, message),
        )
        self._is_known = False
        self._early: list[MQTTMessage] = []
        try:
            session_present = await connection.open()
            self._deliveries.connected(session_present=session_present)
            # What the broker resends may be here before the loop knows of the connection.
            self._is_known = True
            for message in self._early:
                self._take_message(connection, message)
            self._early.clear()
            await connection.subscribe(self._subscription, leaving=self._other)
        except BaseException:
            await connection.end()
            raise

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._ending and not connection.lost.done():
            with contextlib.suppress(TimeoutError):
                await connection.flush(self._other)
        await connection.end()

    def _pass_on(self, connection: Connection, message: MQTTMessage) -> None:
        """On the client's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take_message, connection, message)

    def _take_message(self, connection: Connection, message: MQTTMessage) -> None:
        if connection is not self._connection:
            return
        if not self._is_known:
            self._early.append(message)
            return
        topic, payload = message.topic, bytes(message.payload)
        values = [topic, payload, bool(message.retain)]
        if message.qos == 0:
            if self.room - len(self._received) <= 0:
                self._dropped.incr()
                return
            message_id: Hashable = (self._session, 0, next(self._unacknowledged_numbers))
        else:
            message_id = self._deliveries.delivered(message.mid, topic, payload, dup=message.dup)
            if self._deliveries.is_done(message_id):  # only its PUBACK is missing
                self._acknowledge(connection)
                return
        self._received.append((message_id, values))
        self._arrived.set()

    async def fetch(self, limit: int) -> Sequence[Record]:
        connection = self._connection
        assert connection is not None
        connection.check()
        if not self._received:
            self._arrived.clear()
            arrived = asyncio.ensure_future(self._arrived.wait())
            try:
                await asyncio.wait(
                    (arrived, connection.lost), timeout=1.0, return_when="FIRST_COMPLETED"
                )
            finally:
                arrived.cancel()
            connection.check()
        received = self._received
        return [received.popleft() for _ in range(min(limit, len(received)))]

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        connection = self._connection
        assert connection is not None
        for message_id in message_ids:
            self._deliveries.done(message_id)
        self._acknowledge(connection)

    def _acknowledge(self, connection: Connection) -> None:
        # Should the connection be lost now, the broker delivers them again, and they are emitted
        # again: at least once.
        for packet_id in self._deliveries.acknowledgeable():
            connection.client.ack(packet_id, 1)

    async def measure_lag(self) -> int | None:
        return None  # MQTT does not say what a session holds


def check_filter(connector: str, topic: str) -> None:
    """Raise InvalidTopologyError unless a text is a topic filter, not shared."""
    try:
        if not topic or "\0" in topic or len(topic.encode()) > 65_000:
            raise ValueError
        topic_matches_sub(topic, topic.replace("+", "a").replace("#", "a"))
        levels = topic.split("/")
        if any(len(level) > 1 and ("+" in level or "#" in level) for level in levels):
            raise ValueError
        if "#" in levels[:-1] or levels[0] == "$share":
            raise ValueError
    except ValueError:
        raise InvalidTopologyError(
            f"{connector}: topic {topic[:100]!r} is not a topic filter",
            hint="+ and # stand alone in a level, # in the last; tasks share it without $share",
        ) from None
