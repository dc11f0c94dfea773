"""Connections to NATS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import nats

from squall_connectors.base.address import tls_context, with_secrets


async def connect(
    connector: str,
    servers: str,
    options: Mapping[str, Any],
    secrets: Mapping[str, str],
    ca_file: str | None,
) -> Any:
    """Connect, or raise. `secrets` are options whose values are in environment variables. The
    connection does not come back by itself when it is lost: its user connects again, and knows then
    what has to be repeated."""
    # Any: nats-py annotates little of what is used here.
    return await nats.connect(
        servers.split(","),
        allow_reconnect=False,
        connect_timeout=5,
        ping_interval=5,
        max_outstanding_pings=2,
        error_cb=_ignore,  # what matters is raised where it matters
        **({} if ca_file is None else {"tls": tls_context(ca_file)}),
        **with_secrets(connector, options, secrets),
    )


async def end(connection: Any) -> None:
    """Close a connection, which may be broken."""
    if connection is not None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await connection.close()


async def _ignore(error: Exception) -> None:
    pass
