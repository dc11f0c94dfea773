"""The sinks of Delta Lake and Iceberg, with tables on this machine's disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.support.effort import KILL_RECORDS, KILLS, SOAK

from squall import Bolt
from squall.testing.connectors import SinkContract, wait_until
from squall_common.errors import InvalidTopologyError
from squall_connectors.lakes.delta import DeltaSink
from squall_connectors.lakes.iceberg import IcebergSink

SCHEMA = pyarrow.schema([("value", pyarrow.string()), ("price", pyarrow.int64())])


class _Lake(SinkContract):
    # A commit for each few records: each makes a version of the whole table's metadata.
    records = 300
    kill_records = KILL_RECORDS if SOAK else 200
    kills = KILLS
    sink_class: Any

    def rows(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def stored(self) -> list[str]:
        return [row["value"] for row in self.rows()]

    def rejected(self) -> list[Any]:
        return [b"\xff"]

    def test_a_batch_whose_answer_was_lost_is_there_once(self) -> None:
        sink: Any = self.make_sink()
        with self.running_sink(sink) as (feeder, run):
            self._feed(feeder, ["0"])
            wait_until("the first", lambda: feeder.acked == ["0"])
            append, failures = sink.append, iter([OSError("the answer was lost")])

            def appended(*arguments: Any) -> None:
                append(*arguments)
                for error in failures:
                    raise error

            sink.append = appended
            self._feed(feeder, ["1"])
            wait_until("the second", lambda: feeder.acked == ["0", "1"])
            assert "the answer was lost" in str(run.errors[0])
        assert sorted(self.stored()) == ["0", "1"]

    def test_values_get_the_types_of_the_table(self) -> None:
        sink = self.make_sink(fields=["price", "value"])
        with self.running_sink(sink, fields=("price", "value")) as (feeder, _):
            feeder.feed([7, "a"], 1)
            feeder.feed(["seven", "b"], 2)
            feeder.feed([None, "c"], 3)
            wait_until("all", lambda: sorted(feeder.acked) == [1, 3] and feeder.failed == [2])
        assert sorted(self.rows(), key=lambda row: row["value"]) == [
            {"value": "a", "price": 7},
            {"value": "c", "price": None},
        ]

    def test_two_writers_lose_nothing_of_each_other(self) -> None:
        with self.running() as (one, _, _), self.running() as (other, _, _):
            for number in range(0, 20, 2):
                self._feed(one, [str(number)])
                self._feed(other, [str(number + 1)])
                goal = number // 2 + 1
                wait_until("one", lambda goal=goal: len(one.acked) == goal)
                wait_until("the other", lambda goal=goal: len(other.acked) == goal)
        assert sorted(map(int, self.stored())) == list(range(20))

    def test_a_table_or_column_that_is_missing_is_awaited(self) -> None:
        sink = self.make_sink(fields=["colour"])
        with self.running_sink(sink, fields=("colour",)) as (feeder, run):
            feeder.feed(["red"], 1)
            wait_until("an error", lambda: run.errors)
            assert "the table has no column colour" in str(run.errors[0])
            assert not feeder.failed


class TestDeltaSink(_Lake):
    @pytest.fixture(autouse=True)
    def _new_table(self, tmp_path: Path) -> None:
        self.url = str(tmp_path / "table")
        DeltaTable.create(self.url, SCHEMA)

    def make_sink(self, **options: Any) -> Bolt:
        return DeltaSink(self.url, options.pop("fields", ["value"]), batch_secs=0.05, **options)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pyarrow.table(
            DeltaTable(self.url).to_pyarrow_table()
        ).to_pylist()
        return found


class TestIcebergSink(_Lake):
    @pytest.fixture(autouse=True)
    def _new_table(self, tmp_path: Path) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}",
        }
        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", SCHEMA)

    def make_sink(self, **options: Any) -> Bolt:
        fields = options.pop("fields", ["value"])
        return IcebergSink("shop.orders", fields, catalog=self.catalog, batch_secs=0.05, **options)

    def rows(self) -> list[dict[str, Any]]:
        table = load_catalog("default", **self.catalog).load_table("shop.orders")
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeltaSink("", ["a"]), "DeltaSink: url is empty"),
        (lambda: DeltaSink("/x", []), "DeltaSink: fields []"),
        (lambda: DeltaSink("/x", ["a", "a"]), "one is there twice"),
        (lambda: IcebergSink("orders", ["a"], catalog={"type": "sql"}), "table 'orders'"),
        (lambda: IcebergSink("shop.orders", ["a"], catalog={}), "catalog has no properties"),
    ],
)
def test_they_refuse_what_cannot_be(make: Callable[[], Bolt], message: str) -> None:
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        make()
