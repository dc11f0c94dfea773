"""SQLite's connectors, with real databases."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support.effort import KILL_RECORDS, KILLS, SOAK

from squall import Bolt
from squall.testing.connectors import SinkContract, TransactionalSinkContract, wait_until
from squall_connectors.sqlite import SqliteLookup, SqliteSink, TransactionalSqliteSink

CREATE = "CREATE TABLE IF NOT EXISTS t (value TEXT PRIMARY KEY CHECK (length(value) < 100))"


class _Database:
    path: Path

    @pytest.fixture(autouse=True)
    def _new_database(self, tmp_path: Path) -> None:
        self.path = tmp_path / "test.db"

    def execute(self, query: str) -> list[Any]:
        connection = sqlite3.connect(self.path)
        try:
            with connection:
                return connection.execute(query).fetchall()
        finally:
            connection.close()


class TestSqliteSink(_Database, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS

    def make_sink(self, **options: Any) -> Bolt:
        return SqliteSink(self.path, "t", ["value"], key=["value"], create=CREATE, **options)

    def stored(self) -> list[str]:
        return [row[0] for row in self.execute("SELECT value FROM t")]

    def rejected(self) -> list[Any]:
        return ["x" * 100]

    def test_a_locked_database_is_waited_for(self) -> None:
        self.execute(CREATE)
        other = sqlite3.connect(self.path, isolation_level=None)
        with self.running(write_timeout_secs=0.6) as (feeder, acked, run):
            other.execute("BEGIN IMMEDIATE")
            self._feed(feeder, ["1", "2"])
            wait_until("the report", lambda: "locked" in str(run.errors))
            assert not acked.acked
            other.execute("ROLLBACK")
            wait_until("the acks", lambda: len(acked.acked) == 2)
        other.close()
        assert sorted(self.stored()) == ["1", "2"]

    def test_two_tasks_write_to_one_database(self) -> None:
        with self.running() as (one, _, _), self.running() as (other, _, _):
            self._feed(one, [str(number) for number in range(500)])
            self._feed(other, [str(number) for number in range(500, 1_000)])
            wait_until("the acks", lambda: len(one.acked) + len(other.acked) == 1_000)
        assert len(set(self.stored())) == 1_000


class TestSqliteLookup(_Database):
    def test_tuples_get_the_rows_that_are_found_and_others_are_dropped(self) -> None:
        self.execute("CREATE TABLE items (sku TEXT, name TEXT)")
        self.execute("INSERT INTO items VALUES ('a', 'nut'), ('b', 'bolt'), ('b', 'screw')")
        query = "SELECT name FROM items WHERE sku = ?"
        bolt = SqliteLookup(self.path, query, ["sku"], outputs=["order", "name"], keep=["order"])
        with SinkContract().running_sink(bolt, fields=("order", "sku")) as (feeder, run):
            for order, sku in ((1, "a"), (2, "b"), (3, "c")):
                feeder.feed([order, sku], order)
            wait_until("the acks", lambda: len(feeder.acked) == 3)
        assert sorted(run.emitted) == [[1, "nut"], [2, "bolt"], [2, "screw"]]


class TestTransactionalSqliteSink(_Database, TransactionalSinkContract):
    # tests/component/engine/epochs kills it, too.
    kills = KILLS if SOAK else 0
    kill_records = KILL_RECORDS

    def make_sink(self, **options: Any) -> TransactionalSqliteSink:
        create = "CREATE TABLE IF NOT EXISTS t (value TEXT CHECK (length(value) < 100))"
        return TransactionalSqliteSink(self.path, "t", ["value"], create=create, **options)

    def make_sink_that_puts_aside(self) -> TransactionalSqliteSink:
        return self.make_sink(refused_table="refused")

    def put_aside(self) -> list[list[Any]]:
        found = self.execute("SELECT fields FROM refused ORDER BY writer, epoch, position")
        return [list(json.loads(row[0]).values()) for row in found]

    def stored(self) -> list[str]:
        if not self.execute("SELECT * FROM sqlite_master WHERE name = 't'"):
            return []
        return [row[0] for row in self.execute("SELECT value FROM t")]

    def rejected(self) -> list[Any]:
        return ["x" * 100]
