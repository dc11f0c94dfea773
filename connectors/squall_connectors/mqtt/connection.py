"""Connections to MQTT brokers: paho's client, whose thread calls back into the worker's loop.

A connection does not come back by itself when it is lost: its user connects again, and knows then
what has to be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import Address, parse_address, secret_of

VERSIONS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}
_CONNECT_SECS = 10.0


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Where a broker is, and how to log in."""

    connector: str
    address: Address
    version: str
    password_env: str | None
    ca_file: str | None
    keepalive_secs: int

    @classmethod
    def checked(
        cls,
        connector: str,
        url: str,
        version: str,
        password_env: str | None,
        ca_file: str | None,
        keepalive_secs: int,
    ) -> BrokerOptions:
        """Raises InvalidTopologyError for what cannot be."""
        if version not in VERSIONS:
            raise InvalidTopologyError(
                f"{connector}: version {version!r}; expected {' or '.join(map(repr, VERSIONS))}"
            )
        address = parse_address(connector, url, {"mqtt": 1883, "mqtts": 8883})
        if ca_file is not None and address.scheme != "mqtts":
            raise InvalidTopologyError(f"{connector}: ca_file needs a url with mqtts://")
        if not 1 <= keepalive_secs <= 65_535:
            raise InvalidTopologyError(
                f"{connector}: keepalive_secs is {keepalive_secs}; expected 1 to 65,535"
            )
        return cls(connector, address, version, password_env, ca_file, keepalive_secs)

    @property
    def is_5(self) -> bool:
        return self.version == "5"


class Connection:
    """One connection, open until `end`, or until `lost` is set."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        client_id: str = "",
        session_secs: int = 0,
        receive_max: int | None = None,
        on_message: Callable[[MQTTMessage], None] | None = None,
        on_published: Callable[[int, ReasonCode], None] | None = None,
    ) -> None:
        """With `session_secs` the broker keeps the session of `client_id` that long after the
        connection. `receive_max` bounds what it sends without acks. The callbacks run on the
        client's thread."""
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[bool] = self._loop.create_future()
        self._session_secs, self._receive_max = session_secs, receive_max
        self.lost: asyncio.Future[str] = self._loop.create_future()
        # What the broker takes: unacknowledged messages, and bytes of one.
        self.in_flight_max = 65_535
        self.packet_bytes_max: int | None = None
        arguments: dict[str, Any] = {}
        if not options.is_5:
            arguments["clean_session"] = not session_secs
        self.client = client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=VERSIONS[options.version],
            reconnect_on_failure=False,
            manual_ack=True,
            **arguments,
        )
        # MqttSink keeps to the broker's bound, which this client does not know.
        client.max_inflight_messages_set(65_535)
        address = options.address
        if address.user is not None:
            password = secret_of(options.connector, options.password_env) or address.password
            client.username_pw_set(address.user, password)
        if address.scheme == "mqtts":
            client.tls_set(ca_certs=options.ca_file)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        if on_message is not None:
            client.on_message = lambda client, userdata, message: on_message(message)
        if on_published is not None:
            client.on_publish = lambda client, userdata, mid, code, properties: on_published(
                mid, code
            )

    async def open(self) -> bool:
        """Connect. Returns whether the broker has the session of a connection before. Raises
        ConnectionError or OSError."""
        address = self._options.address
        arguments: dict[str, Any] = {}
        if self._options.is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            if self._session_secs:
                properties.SessionExpiryInterval = self._session_secs
            if self._receive_max is not None:
                properties.ReceiveMaximum = self._receive_max
            arguments = {"clean_start": not self._session_secs, "properties": properties}
        async with asyncio.timeout(_CONNECT_SECS):
            await asyncio.to_thread(
                lambda: self.client.connect(
                    address.host,
                    address.port,
                    keepalive=self._options.keepalive_secs,
                    **arguments,
                )
            )
            self.client.loop_start()
            return await self._answer

    async def subscribe(self, topic: str, *, leaving: str) -> None:
        """Subscribe with QoS 1, and end the subscription `leaving` of the same session. Raises
        ConnectionError if the broker refuses."""
        answer: asyncio.Future[list[ReasonCode]] = self._loop.create_future()

        def subscribed(
            client: Client, userdata: Any, mid: int, codes: list[ReasonCode], properties: Any
        ) -> None:
            self._call(_set, answer, codes)

        self.client.on_subscribe = subscribed
        self.client.unsubscribe(leaving)
        code, _ = self.client.subscribe(topic, qos=1)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise ConnectionError(f"MQTT {self._options.address}: the connection is lost")
        async with asyncio.timeout(_CONNECT_SECS):
            codes = await answer
        for reason in codes:
            if reason.is_failure:
                raise ConnectionError(
                    f"MQTT {self._options.address}: subscription to {topic!r} refused: {reason}"
                )

    async def flush(self, leaving: str) -> None:
        """Wait until the broker has read what was sent. (It forgets what it has not read when the
        session's next connection comes.) `leaving` is that of `subscribe`."""
        answer: asyncio.Future[None] = self._loop.create_future()
        self.client.on_unsubscribe = lambda *_: self._call(_set, answer, None)
        self.client.unsubscribe(leaving)
        async with asyncio.timeout(2):
            await answer

    def check(self) -> None:
        """Raise ConnectionError if the connection is lost."""
        if self.lost.done():
            raise ConnectionError(f"MQTT {self._options.address}: {self.lost.result()}")

    async def end(self) -> None:
        """Disconnect, and wait for the client's thread for two seconds."""
        if not self.lost.done():  # wakes whatever still waits for it
            self.lost.set_result("the connection was closed")
        self.client.on_message = None
        with contextlib.suppress(Exception):
            self.client.disconnect()
            async with asyncio.timeout(2):
                await asyncio.to_thread(self.client.loop_stop)

    # -- on the client's thread --

    def _on_connect(
        self, client: Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        if reason.is_failure:
            error = ConnectionError(f"MQTT {self._options.address}: connection refused: {reason}")
            self._call(_fail, self._answer, error)
            return
        self.in_flight_max = getattr(properties, "ReceiveMaximum", self.in_flight_max)
        self.packet_bytes_max = getattr(properties, "MaximumPacketSize", None)
        self._call(_set, self._answer, bool(flags.session_present))

    def _on_disconnect(
        self, client: Client, userdata: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        why = f"the connection is lost: {reason}"
        self._call(_fail, self._answer, ConnectionError(f"MQTT {self._options.address}: {why}"))
        self._call(_set, self.lost, why)

    def _call(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # it may have no reader: then `lost` says the same
