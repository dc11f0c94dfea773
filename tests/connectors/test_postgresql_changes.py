"""Logical replication from a real PostgreSQL."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.postgresql_server import PostgresqlServer

from squall import Spout, Stream
from squall.testing.connectors import SourceContract, wait_until
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.source import Record
from squall_connectors.postgresql import PostgresqlChangesSpout, changes

_names = itertools.count(1)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with PostgresqlServer.start(Path(name)) as server:
            yield server


class Inserted(PostgresqlChangesSpout):
    """The contract's records are the column `value` of new rows."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(dsn, **options)
        self.outputs = {"default": Stream(["value"])}

    async def fetch(self, limit: int) -> Sequence[Record]:
        return [(of, [values[2]["value"]]) for of, values in await super().fetch(limit)]


class TestPostgresqlChangesSpout(SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS

    @pytest.fixture(autouse=True)
    def _new_table(self, postgresql: PostgresqlServer) -> Iterator[None]:
        self.server: PostgresqlServer = postgresql
        self.table = f"table_{next(_names)}"
        self.execute(f"CREATE TABLE {self.table} (value text, number int, PRIMARY KEY (value))")
        self.execute(f'CREATE PUBLICATION "P {self.table}" FOR TABLE {self.table}')
        self.execute(f"SELECT pg_create_logical_replication_slot('{self.table}', 'pgoutput')")
        yield
        wait_until("the slot to be left", self.drop_slot)

    def drop_slot(self) -> bool:
        """Drop it; False while the session of a killed worker still reads it."""
        try:
            self.execute(f"SELECT pg_drop_replication_slot('{self.table}')")
        except psycopg.errors.ObjectInUse:
            return False
        return True

    def execute(self, query: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        with psycopg.connect(self.server.dsn) as connection, connection.cursor() as cursor:
            if rows:
                cursor.executemany(query, rows)
            else:
                cursor.execute(query)

    def options(self, **options: Any) -> dict[str, Any]:
        given = {"publication": f"P {self.table}", "slot": self.table, "poll_secs": 0.05}
        return {**given, **options}

    def make_source(self, **options: Any) -> Spout:
        return Inserted(self.server.dsn, **self.options(**options))

    def put(self, records: Sequence[str]) -> None:
        insert = f"INSERT INTO {self.table} VALUES (%s, 1)"
        self.execute(insert, [[record] for record in records])

    def partition_of(self, record: str) -> int:
        return 0

    def test_each_kind_of_change_is_emitted(self) -> None:
        source = PostgresqlChangesSpout(self.server.dsn, **self.options())
        name = self.table
        self.execute(f"ALTER TABLE {name} ADD data jsonb, ADD ok bool, ADD f float, ADD b bytea")
        self.execute(f"ALTER TABLE {name} ADD at date")
        contract = _Rows()
        with contract.running_source(source) as (bolt, _, _letters):
            self.execute(
                f"INSERT INTO {name} VALUES ('a', 7, '{{\"x\": [1]}}', true, 0.5, '\\x00ff', "
                "'2026-01-31')"
            )
            self.execute(f"UPDATE {name} SET number = NULL")
            self.execute(f"UPDATE {name} SET value = 'b'")
            self.execute(f"DELETE FROM {name}")
            self.execute(f"TRUNCATE {name}")
            wait_until("all changes", lambda: len(bolt.got) == 5)
        first = {
            "value": "a",
            "number": 7,
            "data": {"x": [1]},
            "ok": True,
            "f": 0.5,
            "b": b"\x00\xff",
            "at": "2026-01-31",
        }
        second = {**first, "number": None}
        key = dict.fromkeys(first)
        assert bolt.got == [
            str(("insert", f"public.{name}", first, None)),
            str(("update", f"public.{name}", second, None)),
            str(("update", f"public.{name}", {**second, "value": "b"}, {**key, "value": "a"})),
            str(("delete", f"public.{name}", None, {**key, "value": "b"})),
            str(("truncate", f"public.{name}", None, None)),
        ]

    def test_the_slot_is_created_and_passes_over_what_is_not_published(self) -> None:
        slot = f"new_{self.table}"
        self.execute(f"CREATE TABLE other_{self.table} (value text)")
        source = Inserted(self.server.dsn, **self.options(slot=slot))
        source.lag_secs = 0.1
        try:
            with self.running_source(source) as (bolt, _run, _):
                wait_until("the slot", lambda: source._metrics.lag.value is not None)
                self.execute(f"INSERT INTO other_{self.table} VALUES ('1')")
                self.put(["2"])
                wait_until("the record", lambda: bolt.got == ["2"])
                wait_until("no lag", lambda: source._metrics.lag.value < 1_000)
        finally:
            self.execute(f"SELECT pg_drop_replication_slot('{slot}')")

    def test_settings_of_the_database_change_nothing(self) -> None:
        latin = f"latin_{self.table}"
        admin = psycopg.connect(self.server.dsn, autocommit=True)
        admin.execute(f"CREATE DATABASE {latin} TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'")
        admin.execute(f"ALTER DATABASE {latin} SET bytea_output = escape")
        dsn = self.server.dsn.removesuffix("/postgres") + f"/{latin}"
        source = PostgresqlChangesSpout(dsn, publication="p", slot=latin, poll_secs=0.05)
        source.lag_secs = 0.1
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (value text, b bytea)")
            connection.execute("CREATE PUBLICATION p FOR TABLE t")
            contract = _Rows()
            with contract.running_source(source) as (bolt, _, _letters):
                wait_until("the slot", lambda: source._metrics.lag.value is not None)
                connection.execute("INSERT INTO t VALUES ('über', '\\x00ff')")
                wait_until("the record", lambda: bolt.got)
            connection.execute("SELECT pg_drop_replication_slot(%s)", [latin])
        assert bolt.got == [str(("insert", "public.t", {"value": "über", "b": b"\x00\xff"}, None))]
        admin.execute(f"DROP DATABASE {latin}")
        admin.close()

    def write_elsewhere(self) -> None:
        """Write 6 MB of log that has nothing to do with the publication."""
        self.execute(f"CREATE TABLE IF NOT EXISTS other_{self.table} (value text)")
        values = "SELECT repeat('x', 1000) FROM generate_series(1, 5000)"
        self.execute(f"INSERT INTO other_{self.table} {values}")

    def kept_bytes(self) -> int:
        """How much log the server keeps for the slot beyond what the spout has done."""
        query = (
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) "
            "FROM pg_replication_slots WHERE slot_name = %s"
        )
        with psycopg.connect(self.server.dsn) as connection:
            return int(connection.execute(query, [self.table]).fetchall()[0][0])

    def test_the_slot_advances_while_only_other_tables_change(self) -> None:
        with self.running() as (bolt, _run, _):
            self.write_elsewhere()
            wait_until("no lag", lambda: self.kept_bytes() < 2_000_000)
            self.put(["1"])
            wait_until("the record", lambda: bolt.got == ["1"])

    def test_a_long_log_is_read_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changes, "_LOG_BYTES", 2 << 20)
        for number in range(3):
            self.put([str(number)])
            self.write_elsewhere()
        with self.running() as (bolt, _run, _):
            wait_until("the records", lambda: bolt.got == ["0", "1", "2"])
            wait_until("no lag", lambda: self.kept_bytes() < 2_000_000)

    def test_a_publication_that_is_missing_is_reported_and_awaited(self) -> None:
        source = Inserted(self.server.dsn, **self.options(publication="nothing"))
        self.put(["1"])
        with self.running_source(source) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
            assert 'publication "nothing" does not exist' in str(run.errors[0])


class _Rows(TestPostgresqlChangesSpout):
    """Takes all values of a tuple for its record."""

    __test__ = False

    def running_source(self, source: Any, **options: Any) -> Any:
        fetch = source.fetch

        async def fetched(limit: int) -> Sequence[Record]:
            return [(of, [str(tuple(values[:4]))]) for of, values in await fetch(limit)]

        source.fetch = fetched
        source.outputs = {"default": Stream(["value"])}
        return super().running_source(source, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slot": "Shop"}, "slot 'Shop'"),
        ({"publication": ""}, "publication is empty"),
        ({"batch_changes": 0}, "batch_changes is 0"),
        ({"poll_secs": 0}, "poll_secs must be positive"),
    ],
)
def test_it_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        PostgresqlChangesSpout("", **{"publication": "p", "slot": "s", **arguments})
