"""`PostgresqlChangesSpout`: what happens to the rows of tables (change data capture)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import psycopg
import psycopg.errors

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import require_at_least
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.postgresql import connection as connections
from squall_connectors.postgresql.pgoutput import Decoder

_QUERY_SECS = 60
# One reading looks through so much of the log at the most, and ends well within _QUERY_SECS.
_LOG_BYTES = 64 << 20
# Log that has only changes of other tables is passed over in steps of this size at least.
_ADVANCE_BYTES = 1 << 20
# What the server writes as text must not depend on settings of the database or the user.
_SETTINGS = (
    "SELECT set_config('client_encoding', 'UTF8', false), set_config('bytea_output', 'hex', false)"
)
_LOG = (
    "SELECT confirmed_flush_lsn::text, pg_current_wal_flush_lsn()::text "
    "FROM pg_replication_slots WHERE slot_name = %s"
)
_PEEK = (
    "SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes("
    "%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"
)
_LAG = (
    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) "
    "FROM pg_replication_slots WHERE slot_name = %s"
)
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class PostgresqlChangesSpout(AsyncSource):
    """Reads the changes of a publication through a logical replication slot, and emits `operation`
    ("insert", "update", "delete" or "truncate"), `table` (SCHEMA.TABLE), `row` (a dict: what the
    row is now, or None), `old` (a dict: what it was, as far as REPLICA IDENTITY says, or None) and
    `lsn`:

        CREATE PUBLICATION shop FOR TABLE orders, customers;

        PostgresqlChangesSpout("postgresql://db/shop", publication="shop", slot="squall_shop")

    The server needs `wal_level=logical`. The slot is created if it does not exist, and has what
    happens from then on. The server keeps its log until the changes are done: **drop the slot when
    the topology is gone for good**, or its disk fills up.

    Changes come in the order of the commits, whole transactions of about `batch_changes` at a time;
    the slot advances when all of them are done. A large transaction is held in memory. The slot is
    read with SQL, every `poll_secs` when there is nothing, so an ordinary connection is enough; its
    user needs the REPLICATION attribute.

    Values of boolean, integer, float, JSON and bytea columns have Python's types; others, and JSON
    that Python cannot read, are the text that PostgreSQL has for them. Large values (TOAST) that an
    update has not changed are not in `row`.

    Of several tasks the first alone reads. `lag` is in bytes of the server's log. The message id is
    `(slot, lsn, number)`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        publication: str,
        slot: str,
        batch_changes: int = 1_000,
        poll_secs: float = 0.5,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`slot` has small letters, digits and underscores. The others are those of `Source`.
        Raises InvalidTopologyError for a value that cannot be."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        if not _SLOT.fullmatch(slot):
            raise InvalidTopologyError(
                f"PostgresqlChangesSpout: slot {slot[:70]!r}; expected 1 to 63 small letters, "
                "digits and underscores"
            )
        if not publication:
            raise InvalidTopologyError("PostgresqlChangesSpout: publication is empty")
        require_at_least("PostgresqlChangesSpout", 1, batch_changes=batch_changes)
        if poll_secs <= 0:
            raise InvalidTopologyError("PostgresqlChangesSpout: poll_secs must be positive")
        self.outputs = {"default": Stream(["operation", "table", "row", "old", "lsn"])}
        self._dsn, self._slot = dsn, slot
        self.server_shown = connections.shown_server(dsn)
        # It is a list of identifiers to the server.
        self._publication = '"' + publication.replace('"', '""') + '"'
        self._batch_changes, self._poll_secs = batch_changes, poll_secs

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._reads = context.this_task_index == 0
        self._lock = asyncio.Lock()  # a connection runs one query at a time
        self._batch: list[Record] = []
        self._next = 0  # of the batch: the change to emit next
        self._left: set[Hashable] = set()  # of the batch: those that are not done
        self._end = ""  # the position behind the batch
        self._finished = asyncio.Event()
        await super().open(conf, context)

    async def connect(self) -> None:
        if not self._reads:
            return
        self._connection = await connections.connect(self._dsn, autocommit=True)
        await self._query(_SETTINGS, [])
        found = await self._query(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [self._slot]
        )
        if not found:
            await self._query(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot]
            )

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        await connections.end(connection)

    async def fetch(self, limit: int) -> Sequence[Record]:
        if not self._reads:
            await asyncio.sleep(1.0)
            return []
        if not self._left and not await self._peek():
            await asyncio.sleep(self._poll_secs)
            return []
        if self._next >= len(self._batch):  # all are in flight
            self._finished.clear()
            if self._left:
                try:
                    async with asyncio.timeout(1.0):
                        await self._finished.wait()
                except TimeoutError:
                    pass
            return []
        found = self._batch[self._next : self._next + limit]
        self._next += len(found)
        return found

    async def _peek(self) -> bool:
        """Read the next transactions. Returns whether there are changes in them, or more log."""
        found = await self._query(_LOG, [self._slot])
        if not found:
            raise ConnectionError(f"the replication slot {self._slot!r} was dropped")
        start, end_of_log = (_number_of(lsn) for lsn in found[0])
        until = min(end_of_log, start + _LOG_BYTES)
        messages = await self._query(
            _PEEK, [self._slot, _lsn_of(until), self._batch_changes, self._publication]
        )
        if not messages:
            # Until there, the log has changes of other tables only. The server keeps it until the
            # slot is advanced, and reads it again each time.
            if until - start >= _ADVANCE_BYTES:
                await self._advance(_lsn_of(until))
            return until < end_of_log
        decoder = Decoder()  # each reading describes its tables again
        batch: list[Record] = []
        numbers: dict[str, int] = {}
        end = ""
        for lsn, message in messages:
            if message[:1] == b"C":
                end = _behind(message)
            for change in decoder.changes(message):
                number = numbers[lsn] = numbers.get(lsn, -1) + 1
                values = [change.operation, change.table, change.row, change.old, lsn]
                batch.append(((self._slot, lsn, number), values))
        if not batch:  # transactions without changes of these tables
            await self._advance(end)
            return False
        self._batch, self._next, self._end = batch, 0, end
        self._left = {message_id for message_id, _ in batch}
        return True

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        if not self._left:
            return
        left = self._left.difference(message_ids)
        if not left:
            await self._advance(self._end)
        self._left = left
        if not left:
            self._finished.set()

    async def _advance(self, end: str) -> None:
        await self._query("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot, end])

    async def measure_lag(self) -> int | None:
        if not self._reads:
            return None
        rows = await self._query(_LAG, [self._slot])
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    async def _query(self, query: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        async with self._lock, asyncio.timeout(_QUERY_SECS):
            connection = self._connection
            if connection is None:
                raise ConnectionError("the connection is closed")
            cursor = await connection.execute(query.encode(), parameters)
            return await cursor.fetchall()


def _behind(commit: bytes) -> str:
    """The position behind a transaction, of its commit message."""
    # Kind, flags, the commit's own position, and the one behind it.
    return _lsn_of(int.from_bytes(commit[10:18], "big"))


def _lsn_of(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def _number_of(lsn: str) -> int:
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)
