"""SQLAlchemy's sink against a real PostgreSQL server, and SQLite."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.postgresql_server import PostgresqlServer

from squall import Bolt, InvalidTopologyError
from squall.testing.connectors import SinkContract, wait_until
from squall_connectors.sql import SqlSink

INSERT = "INSERT INTO t VALUES (:value) ON CONFLICT DO NOTHING"
CREATE = "CREATE TABLE IF NOT EXISTS t (value text PRIMARY KEY CHECK (length(value) < 100))"


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with PostgresqlServer.start(Path(name)) as server:
            yield server


class TestSqlSink(SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    server: PostgresqlServer

    @pytest.fixture(autouse=True)
    def _new_table(self, postgresql: PostgresqlServer) -> None:
        self.server = postgresql
        self.query("DROP TABLE IF EXISTS t")

    def query(self, query: str) -> list[Any]:
        with psycopg.connect(self.server.dsn) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

    def make_sink(self, **options: Any) -> Bolt:
        url = self.server.dsn.replace("postgresql:", "postgresql+psycopg:")
        return SqlSink(url, INSERT, ["value"], create=CREATE, **options)

    def stored(self) -> list[str]:
        return [row[0] for row in self.query("SELECT value FROM t")]

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
        shown = f"postgresql+psycopg://127.0.0.1:{self.server.port}: TimeoutError"
        assert str(run.errors[0]).startswith(shown)

    def test_parameters_and_fields_must_be_the_same(self) -> None:
        with pytest.raises(InvalidTopologyError, match=r"parameters \['value'\].*\['other'\]"):
            SqlSink("sqlite://", INSERT, ["other"])
