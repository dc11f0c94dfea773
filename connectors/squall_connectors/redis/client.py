"""Clients of Redis, and which of its errors are outages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from redis import asyncio as redis
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import secret_of


def is_outage(error: BaseException) -> bool:
    """Whether the server is away, starting, busy, or has no memory or replica to accept a write;
    or what answers is no Redis."""
    return isinstance(
        error,
        exceptions.ConnectionError
        | exceptions.TimeoutError
        | exceptions.InvalidResponse
        | exceptions.BusyLoadingError
        | exceptions.ReadOnlyError
        | exceptions.OutOfMemoryError
        | exceptions.TryAgainError
        | exceptions.ClusterDownError,
    )


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server is, and how to log in."""

    connector: str
    url: str = field(repr=False)  # it may hold a password
    password_env: str | None
    ca_file: str | None

    @classmethod
    def checked(
        cls, connector: str, url: str, password_env: str | None, ca_file: str | None
    ) -> ServerOptions:
        """Raises InvalidTopologyError for a `ca_file` without TLS."""
        if ca_file is not None and not url.startswith("rediss://"):
            raise InvalidTopologyError(f"{connector}: ca_file needs a url with rediss://")
        return cls(connector, url, password_env, ca_file)


def client(options: ServerOptions, *, timeout_secs: float) -> Any:
    """A client that repeats nothing by itself: its user knows what may be repeated."""
    arguments: dict[str, Any] = {}
    if options.password_env is not None:
        arguments["password"] = secret_of(options.connector, options.password_env)
    if options.ca_file is not None:
        arguments["ssl_ca_certs"] = options.ca_file
    # Any: redis-py's annotations allow each answer to be a future or not.
    return redis.Redis.from_url(
        options.url,
        socket_timeout=timeout_secs,
        socket_connect_timeout=5,
        retry=Retry(NoBackoff(), 0),
        client_name="squall",
        **arguments,
    )


def text(data: bytes) -> str:
    """A name that Redis returned as bytes."""
    return data.decode("utf-8", "surrogateescape")
