"""`MqttSink`: tuples as messages to an MQTT broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.sink import RecordsRejectedError, Sink
from squall_connectors.mqtt.connection import BrokerOptions, Connection

_QUOTA_EXCEEDED = 0x97
_PACKET_BYTES_MORE = 16  # of the parts of a PUBLISH beside topic and payload, at most


class MqttSink(Sink):
    """Publishes each tuple with QoS 1, and acks it on the broker's PUBACK.

        MqttSink("mqtt://broker", "alarms", payload_field="text")
        MqttSink("mqtt://broker", topic_field="topic", retain=True)

    Payloads that are not bytes or a string are written as JSON. A message whose PUBACK is lost is
    published again. What a PUBACK is worth the broker's configuration says: mosquitto writes its
    state to the disk now and then, not before each PUBACK.

    With version 5, a message that the broker refuses (not authorized, too large) is a dead letter;
    a broker of 3.1.1 cannot say so.
    """

    def __init__(
        self,
        url: str,
        topic: str | None = None,
        *,
        topic_field: str | None = None,
        payload_field: str = "payload",
        retain: bool = False,
        version: str = "5",
        password_env: str | None = None,
        ca_file: str | None = None,
        keepalive_secs: int = 10,
        batch_records: int = 500,
        batch_secs: float = 0.02,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """The topic is `topic`, or the value of `topic_field`. `url`, `version`, `password_env`,
        `ca_file` and `keepalive_secs` are those of MqttSpout. The others are those of `Sink`.
        Raises InvalidTopologyError for arguments that contradict each other."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        self._options = BrokerOptions.checked(
            "MqttSink", url, version, password_env, ca_file, keepalive_secs
        )
        self.server_shown = str(self._options.address)
        if (topic is None) == (topic_field is None):
            raise InvalidTopologyError("MqttSink: give either topic or topic_field")
        if topic is not None and not _is_name(topic):
            raise InvalidTopologyError(f"MqttSink: topic {topic[:100]!r} is not a topic's name")
        self._topic, self._topic_field = topic, topic_field
        self._payload_field, self._retain = payload_field, retain

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: Connection | None = None
        self._answers: dict[int, ReasonCode] = {}
        self._expected: set[int] = set()
        self._confirmed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await super().prepare(conf, context)

    async def connect(self) -> None:
        self._answers, self._expected = {}, set()
        self._connection = connection = Connection(
            self._options,
            on_published=lambda mid, code: self._pass_on(connection, mid, code),
        )
        try:
            await connection.open()
        except BaseException:
            await connection.end()
            raise

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.end()

    def _pass_on(self, connection: Connection, mid: int, code: ReasonCode) -> None:
        """On the client's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._published, connection, mid, code)

    def _published(self, connection: Connection, mid: int, code: ReasonCode) -> None:
        if connection is not self._connection:
            return
        self._answers[mid] = code
        self._expected.discard(mid)
        if not self._expected:
            self._confirmed.set()

    async def write(self, tuples: Sequence[Tuple]) -> None:
        connection = self._connection
        assert connection is not None
        rejected: dict[int, str] = {}
        step = connection.in_flight_max
        for start in range(0, len(tuples), step):
            connection.check()
            rejected |= await self._publish(connection, tuples[start : start + step], start)
        if rejected:
            raise RecordsRejectedError(rejected)

    async def _publish(
        self, connection: Connection, tuples: Sequence[Tuple], start: int
    ) -> dict[int, str]:
        """Publish no more messages than may be unacknowledged, and wait for their PUBACKs. Returns
        why some are refused, by index, which is `start` for the first."""
        rejected: dict[int, str] = {}
        indices: dict[int, int] = {}
        self._answers.clear()
        self._confirmed.clear()
        for index, tup in enumerate(tuples, start):
            try:
                topic, payload = self._message(tup, connection.packet_bytes_max)
                info = connection.client.publish(topic, payload, qos=1, retain=self._retain)
            except (KeyError, TypeError, ValueError) as error:
                rejected[index] = describe(error)
                continue
            if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise ConnectionError(f"MQTT {self._options.address}: {info.rc.name}")
            indices[info.mid] = index
        # The loop has run nothing meanwhile: no answer was seen yet.
        self._expected = set(indices)
        if indices:
            await self._wait_for_answers(connection)
        for mid, index in indices.items():
            code = self._answers[mid]
            if code.value == _QUOTA_EXCEEDED:
                raise ConnectionError(f"MQTT {self._options.address}: {code}")
            if code.is_failure:
                rejected[index] = f"the broker refused it: {code}"
        return rejected

    async def _wait_for_answers(self, connection: Connection) -> None:
        confirmed = asyncio.ensure_future(self._confirmed.wait())
        try:
            await asyncio.wait((confirmed, connection.lost), return_when="FIRST_COMPLETED")
        finally:
            confirmed.cancel()
        if self._expected:
            connection.check()

    def _message(self, tup: Tuple, bytes_max: int | None) -> tuple[str, bytes]:
        topic = self._topic if self._topic_field is None else tup[self._topic_field]
        if not isinstance(topic, str) or not _is_name(topic):
            raise ValueError(f"{str(topic)[:100]!r} is not a topic's name")
        payload = tup[self._payload_field]
        if isinstance(payload, str):
            payload = payload.encode()
        elif not isinstance(payload, bytes):
            payload = orjson.dumps(payload)
        size = len(payload) + len(topic.encode()) + _PACKET_BYTES_MORE
        if bytes_max is not None and size > bytes_max:
            raise ValueError(f"{size} bytes are more than the broker takes ({bytes_max})")
        return topic, payload


def _is_name(topic: str) -> bool:
    wild = any(sign in topic for sign in "+#\0")
    return 0 < len(topic.encode()) <= 65_535 and not wild
