"""Connections to PostgreSQL, and which of its errors are outages or refuse a row."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg

# Of the classes of SQLSTATE: connection, resources, operator intervention, system; and from class
# 40, transactions that would succeed if repeated.
_OUTAGES = ("08", "53", "57", "58", "40")
# A value of the wrong type or out of range, a constraint, the check option of a view, a limit such
# as that of an index row; a type that the column cannot take; RAISE in a trigger.
_REFUSALS = ("22", "23", "44", "54", "42804", "P0001")


_SHOWN_CHARS = 200


def is_outage(error: BaseException) -> bool:
    """Whether the server is away, starting, or asks for a repetition."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_OUTAGES)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def is_refusal(error: BaseException) -> bool:
    """Whether the server, or its client, refuses a row for what it is: not for a table that is
    missing, a right, a lock or the disk."""
    if isinstance(error, UnicodeError):  # a surrogate
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_REFUSALS)
    # Of the client: NUL in a text, a type that it has no form for.
    return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)


def shown_server(dsn: str) -> str | None:
    """The server as errors may show it. None: the environment names it, or `dsn` cannot be read,
    of which the client complains when it connects."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        return None
    hosts = str(given.get("host") or given.get("hostaddr") or "").split(",")
    ports = [port or "5432" for port in str(given.get("port") or "").split(",")]
    if not hosts[0]:
        return None
    if len(ports) == 1:
        ports *= len(hosts)
    shown = (f"postgresql://{host}:{port}" for host, port in zip(hosts, ports, strict=False))
    return ",".join(shown)[:_SHOWN_CHARS]


async def connect(dsn: str, *, autocommit: bool = False) -> psycopg.AsyncConnection[Any]:
    """Connect, with limits on how long a dead server can go unnoticed."""
    options: dict[str, Any] = {
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "squall",
    }
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    missing: dict[str, Any] = {name: value for name, value in options.items() if name not in given}
    return await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit, **missing)


async def end(connection: psycopg.AsyncConnection[Any] | None) -> None:
    """Close a connection, which may be broken."""
    if connection is not None:
        with contextlib.suppress(psycopg.Error, OSError):
            await connection.close()
