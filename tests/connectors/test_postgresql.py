"""PostgreSQL's connectors against a real server."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.postgresql_server import PostgresqlServer
from tests.support.secure import check_reads, check_refusal, check_writes

from squall import Bolt, RowBatch, Spout
from squall.testing.connectors import (
    SinkContract,
    SourceContract,
    TransactionalSinkContract,
    wait_until,
)
from squall_connectors.postgresql import (
    PostgresqlLookup,
    PostgresqlQueueSpout,
    PostgresqlSink,
    TransactionalPostgresqlSink,
)

_names = itertools.count(1)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with PostgresqlServer.start(Path(name)) as server:
            yield server


class _Table:
    """A table of its own for each test, as `table`, and the server as `server`."""

    server: PostgresqlServer
    table: str
    columns = "value text"

    @pytest.fixture(autouse=True)
    def _new_table(self, postgresql: PostgresqlServer) -> None:
        self.server = postgresql
        self.table = f"table_{next(_names)}"
        self.execute(f"CREATE TABLE {self.table} ({self.columns})")

    def execute(self, query: str, rows: Sequence[Sequence[Any]] = ()) -> list[Any]:
        with psycopg.connect(self.server.dsn) as connection, connection.cursor() as cursor:
            if rows:
                cursor.executemany(query, rows)
            else:
                cursor.execute(query)
            return cursor.fetchall() if cursor.description and not rows else []


class TestPostgresqlQueueSpout(_Table, SourceContract):
    reports_lag = True
    kills = KILLS
    kill_records = KILL_RECORDS
    columns = "id bigserial PRIMARY KEY, value text, leased_until timestamptz"

    def make_source(self, **options: Any) -> Spout:
        return PostgresqlQueueSpout(
            self.server.dsn, self.table, ["value"], channel=self.table, lease_secs=3, **options
        )

    def put(self, records: Sequence[str]) -> None:
        insert = f"INSERT INTO {self.table} (value) VALUES (%s)"
        self.execute(insert, [[record] for record in records])
        self.execute(f"NOTIFY {self.table}")

    def partition_of(self, record: str) -> int:
        return 0

    def test_processed_rows_are_deleted(self) -> None:
        with self.running() as (bolt, _run, _):
            self.put(["1", "2", "3"])
            wait_until("the rows", lambda: len(bolt.got) == 3)
            wait_until("an empty table", lambda: not self.execute(f"SELECT * FROM {self.table}"))

    def test_two_tasks_share_a_table_and_no_row_is_in_both(self) -> None:
        records = [str(number) for number in range(500)]
        with (
            self.running(in_flight_max=20) as (one, _run, _),
            self.running(in_flight_max=20) as (other, _other_run, _),
        ):
            self.put(records)
            wait_until("all", lambda: len(one.got) + len(other.got) >= 500)
            assert sorted(one.got + other.got) == sorted(records)

    def test_a_row_in_flight_stays_leased(self) -> None:
        with self.running() as (one, run, _):
            one.decide = lambda record: "hold"
            self.put(["1"])
            wait_until("the row", lambda: one.got)
            with self.running() as (other, _other_run, _):
                time.sleep(5)  # more than a lease
                assert not other.got
            run.call(one.release)


class TestPostgresqlSinkCopy(_Table, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    columns = "value text CHECK (length(value) < 100)"

    def make_sink(self, **options: Any) -> Bolt:
        return PostgresqlSink(self.server.dsn, self.table, ["value"], **options)

    def stored(self) -> list[str]:
        return [row[0] for row in self.execute(f"SELECT value FROM {self.table}")]

    def rejected(self) -> list[Any]:
        return ["x" * 100]

    def test_a_server_that_stands_still_is_named_and_awaited(self) -> None:
        with self.running(write_timeout_secs=1.0) as (feeder, acked, run):
            self._feed(feeder, ["0"])
            wait_until("the first", lambda: acked.acked == ["0"])
            self.server.stop()
            try:
                self._feed(feeder, ["1"])
                wait_until("it to be noticed", lambda: run.errors)
            finally:
                self.server.resume()
            wait_until("the second", lambda: acked.acked == ["0", "1"])
        shown = f"postgresql://127.0.0.1:{self.server.port}: TimeoutError"
        assert str(run.errors[0]).startswith(shown)
        assert set(self.stored()) == {"0", "1"}


class TestPostgresqlSinkUpsert(TestPostgresqlSinkCopy):
    columns = "value text PRIMARY KEY CHECK (length(value) < 100)"

    def make_sink(self, **options: Any) -> Bolt:
        return PostgresqlSink(self.server.dsn, self.table, ["value"], key=["value"], **options)

    def test_a_row_replaces_the_one_of_its_key_and_nothing_doubles(self) -> None:
        self.execute(f"DROP TABLE {self.table}")
        self.execute(f"CREATE TABLE {self.table} (key text PRIMARY KEY, value int)")
        sink = PostgresqlSink(self.server.dsn, self.table, ["key", "value"], key=["key"])
        with self.running_sink(sink, fields=("key", "value")) as (feeder, _run):
            for number in range(100):
                feeder.feed([f"key-{number % 10}", number], number)
            wait_until("the acks", lambda: len(feeder.acked) == 100)
        rows = self.execute(f"SELECT key, value FROM {self.table} ORDER BY value")
        assert rows == [(f"key-{number}", 90 + number) for number in range(10)]


class TestTransactionalPostgresqlSink(_Table, TransactionalSinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    columns = "value text CHECK (length(value) < 100)"

    @pytest.fixture(autouse=True)
    def _nothing_applied(self, _new_table: None) -> None:
        self.execute("DROP TABLE IF EXISTS squall_applied")

    def make_sink(self, **options: Any) -> TransactionalPostgresqlSink:
        return TransactionalPostgresqlSink(self.server.dsn, self.table, ["value"], **options)

    def make_sink_that_puts_aside(self) -> TransactionalPostgresqlSink:
        return self.make_sink(refused_table=f"{self.table}_refused")

    def put_aside(self) -> list[list[Any]]:
        query = f"SELECT fields FROM {self.table}_refused ORDER BY writer, epoch, position"
        return [list(json.loads(row[0]).values()) for row in self.execute(query)]

    def stored(self) -> list[str]:
        return [row[0] for row in self.execute(f"SELECT value FROM {self.table}")]

    def rejected(self) -> list[Any]:
        return ["x" * 100]

    @pytest.mark.parametrize("key", [[], ["id"]], ids=["copy", "upsert"])
    @pytest.mark.parametrize(
        ("column", "good", "bad"),
        [
            ("int", 1, "one"),
            ("int", 1, 2**40),
            ("text", "a", "a\0b"),
            ("text", "a", "\ud800"),
            ("text", "a", object()),
            ("int NOT NULL", 1, None),
            ("boolean", True, "perhaps"),
        ],
    )
    def test_only_the_refused_row_is_put_aside(
        self, column: str, good: Any, bad: Any, key: list[str]
    ) -> None:
        self.execute(f"DROP TABLE {self.table}")
        self.execute(f"CREATE TABLE {self.table} (id int PRIMARY KEY, value {column})")
        sink = TransactionalPostgresqlSink(
            self.server.dsn,
            self.table,
            ["id", "value"],
            key=key,
            refused_table=f"{self.table}_refused",
        )
        reports = self._prepare(sink)
        sink.commit([RowBatch("w@1/s/0", 1, [[1, good], [2, bad], [3, good]])])
        assert self.execute(f"SELECT id FROM {self.table} ORDER BY id") == [(1,), (3,)]
        refused = f"SELECT position, reason FROM {self.table}_refused"
        assert [row[0] for row in self.execute(refused)] == [1]
        assert len(reports) == 1

    def test_a_missing_column_refuses_no_row(self) -> None:
        sink = TransactionalPostgresqlSink(
            self.server.dsn, self.table, ["no"], refused_table=f"{self.table}_refused"
        )
        with pytest.raises(psycopg.errors.UndefinedColumn):
            sink.commit([RowBatch("w@1/s/0", 1, [[1]])])
        assert self.execute(f"SELECT * FROM {self.table}_refused") == []

    def test_a_row_replaces_that_of_its_key_also_within_a_batch(self) -> None:
        create = f"CREATE TABLE IF NOT EXISTS {self.table}_keyed (word text PRIMARY KEY, count int)"
        sink = TransactionalPostgresqlSink(
            self.server.dsn, f"{self.table}_keyed", ["word", "count"], key=["word"], create=create
        )
        sink.commit([RowBatch("w@1/s/0", 1, [["a", 1], ["b", 1], ["a", 2]])])
        sink.commit([RowBatch("w@1/s/0", 2, [["a", 3]])])
        rows = self.execute(f"SELECT word, count FROM {self.table}_keyed ORDER BY word")
        assert rows == [("a", 3), ("b", 1)]

    def test_a_server_that_does_not_answer_is_left_after_the_timeout(self) -> None:
        sink = self.make_sink(write_timeout_secs=1.0)
        batch = RowBatch("w@1/s/0", 1, [["a"]])
        self.server.stop()
        try:
            with pytest.raises(TimeoutError, match="write_timeout_secs"):
                sink.commit([batch])
        finally:
            self.server.resume()
        self.make_sink().commit([batch])
        assert self.stored() == ["a"]


class TestPostgresqlLookup(_Table):
    columns = "id int PRIMARY KEY, name text"

    def lookup(self, **options: Any) -> PostgresqlLookup:
        query = f"SELECT name FROM {self.table} WHERE id = %s"
        outputs, keep = ["order", "name"], ["order"]
        return PostgresqlLookup(
            self.server.dsn, query, ["id"], outputs=outputs, keep=keep, **options
        )

    def run(self, bolt: PostgresqlLookup) -> Any:
        self.execute(f"INSERT INTO {self.table} VALUES (%s, %s)", [[1, "ann"], [2, "bo"]])
        return SinkContract().running_sink(bolt, fields=("order", "id"))

    def test_tuples_get_the_rows_that_are_found_and_others_are_dropped(self) -> None:
        with self.run(self.lookup()) as (feeder, run):
            for order, of in (("a", 1), ("b", 2), ("c", 3), ("d", 1)):
                feeder.feed([order, of], order)
            wait_until("the acks", lambda: len(feeder.acked) == 4)
            assert sorted(run.emitted) == [["a", "ann"], ["b", "bo"], ["d", "ann"]]

    def test_an_outer_lookup_keeps_tuples_without_a_row(self) -> None:
        with self.run(self.lookup(outer=True)) as (feeder, run):
            feeder.feed(["c", 3], "c")
            wait_until("the ack", lambda: feeder.acked)
            assert run.emitted == [["c", None]]

    def test_answers_are_cached(self) -> None:
        bolt = self.lookup()
        with self.run(bolt) as (feeder, run):
            feeder.feed(["a", 1], "a")
            wait_until("the ack", lambda: feeder.acked)
            self.execute(f"UPDATE {self.table} SET name = 'changed'")
            feeder.feed(["b", 1], "b")
            wait_until("the other", lambda: len(feeder.acked) == 2)
            assert run.emitted == [["a", "ann"], ["b", "ann"]]

    def test_tuples_fail_while_the_server_is_away_and_work_afterwards(self) -> None:
        with self.run(self.lookup(cache_secs=0)) as (feeder, run):
            feeder.feed(["a", 1], "a")
            wait_until("the ack", lambda: feeder.acked)
            self.server.kill()
            feeder.feed(["b", 1], "b")
            wait_until("the failure", lambda: feeder.failed)
            self.server.restart()
            feeder.feed(["b", 1], "again")
            wait_until("the ack", lambda: "again" in feeder.acked)
            assert run.errors


class TestPostgresqlOverTls(_Table):
    """libpq's own settings: a password from PGPASSWORD, an authority from the connection string."""

    columns = "id bigserial PRIMARY KEY, value text, leased_until timestamptz"

    @pytest.fixture(autouse=True)
    def _user(self, _new_table: None) -> Iterator[None]:
        self.execute(f"CREATE ROLE app LOGIN SUPERUSER PASSWORD '{self.server.password}'")
        yield
        self.execute("DROP ROLE app")

    def test_tls_and_a_password_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGPASSWORD", self.server.password)
        dsn = self.server.secure_dsn
        check_writes(PostgresqlSink(dsn, self.table, ["value"]), "", monkeypatch)
        spout = PostgresqlQueueSpout(dsn, self.table, ["value"])
        check_reads(spout, "", monkeypatch)

    def test_a_wrong_password_or_an_unknown_authority_is_reported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PGPASSWORD", "p4ssw0rd")
        dsn = self.server.secure_dsn
        sink = PostgresqlSink(dsn, self.table, ["value"])
        check_refusal(sink, monkeypatch, says="password authentication failed")
        monkeypatch.setenv("PGPASSWORD", self.server.password)
        unknown = dsn.replace("sslrootcert=", "sslrootcert=/nowhere")
        spout = PostgresqlQueueSpout(unknown, self.table, ["value"])
        check_refusal(spout, monkeypatch, says="root certificate")
