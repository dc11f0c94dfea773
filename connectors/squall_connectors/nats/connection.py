"""Connections to NATS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import nats


async def connect(servers: str, options: Mapping[str, Any]) -> Any:
    """Connect, or raise. The connection does not come back by itself when it is lost: its user
    connects again, and knows then what has to be repeated."""
    # Any: nats-py annotates little of what is used here.
    return await nats.connect(
        servers.split(","),
        allow_reconnect=False,
        connect_timeout=5,
        ping_interval=5,
        max_outstanding_pings=2,
        error_cb=_ignore,  # what matters is raised where it matters
        **options,
    )


async def end(connection: Any) -> None:
    """Close a connection, which may be broken."""
    if connection is not None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await connection.close()


async def _ignore(error: Exception) -> None:
    pass
