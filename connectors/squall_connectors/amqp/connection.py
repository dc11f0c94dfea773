"""Connections to AMQP brokers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import aio_pika
import aio_pika.exceptions
from aio_pika.abc import AbstractConnection

from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import (
    Address,
    parse_address,
    require_at_least,
    secret_of,
    tls_context,
)

_CONNECT_SECS = 10.0

#: What means that the broker, or what is declared there, cannot be reached just now.
OUTAGES = (
    OSError,
    TimeoutError,
    EOFError,
    # Its errors of a record are looked at before.
    aio_pika.exceptions.AMQPError,
    RuntimeError,  # of a channel or connection that is closed
)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Where a broker is, and how to log in."""

    connector: str
    address: Address
    password_env: str | None
    ca_file: str | None
    heartbeat_secs: int

    @classmethod
    def checked(
        cls,
        connector: str,
        url: str,
        password_env: str | None,
        ca_file: str | None,
        heartbeat_secs: int,
    ) -> BrokerOptions:
        """Raises InvalidTopologyError for what cannot be."""
        address = parse_address(connector, url, {"amqp": 5672, "amqps": 5671})
        if ca_file is not None and address.scheme != "amqps":
            raise InvalidTopologyError(f"{connector}: ca_file needs a url with amqps://")
        require_at_least(connector, 1, heartbeat_secs=heartbeat_secs)
        return cls(connector, address, password_env, ca_file, heartbeat_secs)

    async def connect(self, name: str) -> AbstractConnection:
        """Connect, or raise. The connection does not come back by itself when it is lost: its user
        connects again, and knows then what has to be repeated. `name` shows in the broker's list
        of connections."""
        address = self.address
        tls = address.scheme == "amqps"
        return await aio_pika.connect(
            host=address.host,
            port=address.port,
            login=address.user or "guest",
            password=secret_of(self.connector, self.password_env) or address.password or "guest",
            virtualhost=address.path or "/",
            ssl=tls,
            ssl_context=tls_context(self.ca_file) if tls else None,
            timeout=_CONNECT_SECS,
            client_properties={"connection_name": name},
            heartbeat=self.heartbeat_secs,
        )


async def end(connection: AbstractConnection | None) -> None:
    """Close a connection, which may be broken."""
    if connection is not None:
        with contextlib.suppress(Exception):
            await connection.close()
