"""Clients of Redis, and which of its errors are outages."""

from __future__ import annotations

from typing import Any

from redis import asyncio as redis
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


def is_outage(error: BaseException) -> bool:
    """Whether the server is away, starting, busy, or has no memory or replica to accept a write."""
    return isinstance(
        error,
        exceptions.ConnectionError
        | exceptions.TimeoutError
        | exceptions.BusyLoadingError
        | exceptions.ReadOnlyError
        | exceptions.OutOfMemoryError
        | exceptions.TryAgainError
        | exceptions.ClusterDownError,
    )


def client(url: str, *, timeout_secs: float) -> Any:
    """A client that repeats nothing by itself: its user knows what may be repeated."""
    # Any: redis-py's annotations allow each answer to be a future or not.
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_secs,
        socket_connect_timeout=5,
        retry=Retry(NoBackoff(), 0),
        client_name="squall",
    )


def text(data: bytes) -> str:
    """A name that Redis returned as bytes."""
    return data.decode("utf-8", "surrogateescape")
