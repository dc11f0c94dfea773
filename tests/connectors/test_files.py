"""The connectors of files, with real files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
from pyarrow import dataset, parquet
from tests.support.effort import KILL_RECORDS, KILLS, SOAK

from squall import Bolt, LocalCluster, Spout, TopologyBuilder, Tuple
from squall.testing.connectors import (
    SinkContract,
    SourceContract,
    TransactionalSinkContract,
    wait_until,
)
from squall_connectors.files import FileSink, FolderSpout, TailSpout, TransactionalFileSink
from squall_connectors.files.formats import written


class _Folder:
    folder: Path

    @pytest.fixture(autouse=True)
    def _new_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "files"
        self.folder.mkdir()
        self.state = tmp_path / "state"


class Doubtful(Bolt):
    """Keeps what it gets; the first tuple that a source could not read fails once."""

    got: ClassVar[dict[str, list[Any]]] = {}

    def prepare(self, conf: Any, context: Any) -> None:
        self.own = self.got[context.this_component_id]
        self.fails = context.this_component_id == "doubtful"

    def execute(self, tup: Tuple) -> None:
        self.own.append(tuple(tup.values))
        if self.fails:
            self.fails = False
            raise ValueError("once")


@contextmanager
def running_with_doubtful(source: Spout) -> Iterator[None]:
    """A topology that consumes both streams of a source. Nothing may be reported for what cannot be
    read."""
    Doubtful.got = {"collect": [], "doubtful": []}
    builder = TopologyBuilder()
    builder.spout("source", source)
    builder.bolt("collect", Doubtful()).shuffle("source")
    builder.bolt("doubtful", Doubtful()).shuffle("source", stream="unreadable")
    with LocalCluster() as cluster:
        cluster.submit_topology("doubtful", {}, builder.build())
        yield
        assert [str(one.error) for one in cluster.errors("doubtful")] == ["once"]


class TestTailSpout(_Folder, SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS

    @property
    def path(self) -> Path:
        return self.folder / "a.log"

    def make_source(self, **options: Any) -> Spout:
        pattern = str(self.folder / "*.log")
        return TailSpout(pattern, ["value"], format="csv", state=self.state, **options)

    def put(self, records: Sequence[str]) -> None:
        with self.path.open("a") as file:
            for record in records:
                file.write(f"{record}\n")

    def partition_of(self, record: str) -> int:
        return 0

    def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_beginning(self) -> None:
        with self.running() as (bolt, _run, _):
            self.put(["1", "2"])
            wait_until("the first", lambda: len(bolt.got) == 2)
            with self.path.open("a") as old:
                os.rename(self.path, self.folder / "a.log.1")  # no longer in the pattern
                self.put(["4"])
                old.write("3\n")
                old.flush()
                wait_until("all", lambda: sorted(bolt.got) == ["1", "2", "3", "4"])

    def test_a_file_that_was_rotated_while_no_worker_ran_goes_on(self) -> None:
        with self.running() as (bolt, run, _):
            self.put(["1", "2"])
            wait_until("the first", lambda: len(bolt.got) == 2)
            run.stop(drain_secs=5)
        self.put(["3"])
        os.rename(self.path, self.folder / "old.log")
        self.put(["4"])
        with self.running() as (bolt, run, _):
            wait_until("the rest", lambda: sorted(bolt.got) == ["3", "4"])
            time.sleep(0.5)
        assert sorted(bolt.got) == ["3", "4"]

    def test_a_truncated_file_starts_again(self) -> None:
        with self.running() as (bolt, _run, _):
            self.put(["1000", "2000"])
            wait_until("the first", lambda: len(bolt.got) == 2)
            self.path.write_text("3\n")
            wait_until("the new one", lambda: "3" in bolt.got)

    def test_a_line_is_emitted_when_its_end_is_there(self) -> None:
        with self.running() as (bolt, _run, _), self.path.open("a") as file:
            file.write("12")
            file.flush()
            time.sleep(0.6)
            assert not bolt.got
            file.write("34\n5")
            file.flush()
            wait_until("the line", lambda: bolt.got == ["1234"])

    def test_a_line_that_is_too_long_is_reported_and_passed_over(self) -> None:
        with self.running() as (bolt, run, _):
            self.put(["1", "x" * (9 << 20), "2"])
            wait_until("the others", lambda: bolt.got == ["1", "2"])
            assert any("a line of 9437184 bytes" in str(error) for error in run.errors)
            self.put(["3"])
            wait_until("what follows", lambda: bolt.got == ["1", "2", "3"])
            run.stop(drain_secs=5)
        with self.running() as (bolt, run, _):
            self.put(["4"])
            wait_until("the next", lambda: bolt.got == ["4"])

    def test_latest_leaves_out_what_is_there_at_the_first_start_only(self) -> None:
        def spout() -> TailSpout:
            return TailSpout(
                str(self.path), ["value"], format="csv", state=self.state, start="latest"
            )

        self.put(["1"])
        with self.running_source(spout()) as (bolt, run, _):
            wait_until("the positions", lambda: list(self.state.glob("*.json")))
            self.put(["2"])
            wait_until("the new one", lambda: bolt.got == ["2"])
            run.stop(drain_secs=5)
        self.put(["3"])
        with self.running_source(spout()) as (bolt, run, _):
            wait_until("the next", lambda: bolt.got == ["3"])

    def test_json_that_cannot_be_read_is_reported_and_passed_over(self) -> None:
        spout = TailSpout(str(self.path), ["value"], format="json", state=self.state)
        with self.running_source(spout) as (bolt, run, _):
            self.put(['{"value": 1}', "{", "[1]", '{"other": 2, "value": 3}'])
            wait_until("the others", lambda: bolt.got == ["1", "3"])
        [error] = run.errors  # the second is left for the next report
        assert "a.log, byte 13: JSONDecodeError" in str(error)

    def test_what_cannot_be_read_goes_to_the_bolt_that_consumes_it(self) -> None:
        """It is a record like any other: the position waits for its ack."""
        spout = TailSpout(str(self.path), ["value"], format="json", state=self.state)
        self.put(['{"value": 1}', "{", "x" * (9 << 20), '{"value": 3}'])
        with running_with_doubtful(spout):
            wait_until("the others", lambda: Doubtful.got["collect"] == [(1,), (3,)])
            wait_until("the lines", lambda: len(Doubtful.got["doubtful"]) == 3)

            def positions() -> list[int]:
                [path] = self.state.glob("*.json")
                return list(orjson.loads(path.read_bytes()).values())

            wait_until("the position", lambda: positions() == [self.path.stat().st_size])
        first, again, too_long = sorted(Doubtful.got["doubtful"])
        assert first == again
        assert first[:3] == (str(self.path), 13, b"{")
        assert first[3].startswith("JSONDecodeError")
        assert too_long == (str(self.path), 15, b"x" * 1_000, "a line of 9437184 bytes")


class TestFolderSpout(_Folder, SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    format = "json"

    def make_source(self, **options: Any) -> Spout:
        return FolderSpout(
            str(self.folder), ["value"], format=self.format, poll_secs=0.1, **options
        )

    def put(self, records: Sequence[str]) -> None:
        rows = [{"value": record} for record in records]
        name = f"{time.time_ns()}"
        hidden = self.folder / f".{name}"
        hidden.write_bytes(written(rows, self.format, ["value"]))
        hidden.rename(self.folder / name)

    def partition_of(self, record: str) -> int:
        return 0

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.rglob("*") if path.is_file())

    def test_a_file_is_deleted_when_all_its_records_are_done(self) -> None:
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold" if record == "5" else "ack"
            self.put([str(number) for number in range(10)])
            wait_until("the records", lambda: len(bolt.got) == 10)
            time.sleep(0.3)
            assert len(self.files()) == 1
            run.call(bolt.release)
            wait_until("an empty folder", lambda: not self.files())

    def test_a_file_is_moved_if_that_is_asked_for(self) -> None:
        spout = FolderSpout(
            str(self.folder),
            ["value"],
            pattern="**",
            done=str(self.folder / "done"),
            poll_secs=0.1,
        )
        (self.folder / "in").mkdir()
        with self.running_source(spout) as (bolt, _, _):
            (self.folder / "in" / "a.jsonl").write_text('{"value": "1"}\n')
            wait_until("the move", (self.folder / "done" / "in" / "a.jsonl").exists)
            time.sleep(0.3)
        assert bolt.got == ["1"]


class TestFolderSpoutParquet(TestFolderSpout):
    format = "parquet"
    importable = False  # as for JSON

    def test_a_file_of_another_format_is_reported_and_stays(self) -> None:
        with self.running() as (bolt, run, _):
            (self.folder / "a").write_text("not Parquet")
            self.put(["1"])
            wait_until("the other", lambda: bolt.got == ["1"])
            wait_until("the deletion", lambda: self.files() == ["a"])
        assert any("Parquet magic bytes" in str(error) for error in run.errors)


class TestLinesOfFolderSpout(_Folder):
    def test_what_cannot_be_read_goes_to_the_bolt_that_consumes_it(self) -> None:
        """It is a record like any other: the file waits for its ack."""
        path = self.folder / "a.jsonl"
        path.write_text('{"value": 1}\r\n{\r\n{"value": 3}\n[4]\n')
        with running_with_doubtful(FolderSpout(str(self.folder), ["value"], poll_secs=0.1)):
            wait_until("the deletion", lambda: not path.exists())
        assert Doubtful.got["collect"] == [(1,), (3,)]
        rows = sorted(row[:3] for row in Doubtful.got["doubtful"])
        assert rows == [(str(path), 14, b"{"), (str(path), 14, b"{"), (str(path), 30, b"[4]")]

    def test_what_cannot_be_read_is_one_error_and_passed_over(self) -> None:
        path = self.folder / "a.jsonl"
        path.write_text("{\n" * 1_000)
        builder = TopologyBuilder()
        builder.spout("source", FolderSpout(str(self.folder), ["value"], poll_secs=0.1))
        with LocalCluster() as cluster:
            cluster.submit_topology("lines", {}, builder.build())
            wait_until("the deletion", lambda: not path.exists())
            [one] = cluster.errors("lines")
        assert "a.jsonl, record 1: JSONDecodeError" in str(one.error)


class TestFileSink(_Folder, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    format = "json"

    def make_sink(self, **options: Any) -> Bolt:
        return FileSink(str(self.folder), ["value"], format=self.format, batch_secs=0.1, **options)

    def stored(self) -> list[str]:
        return [
            orjson.loads(line)["value"]
            for path in self.folder.iterdir()
            if path.suffix == ".jsonl"
            for line in path.read_bytes().splitlines()
        ]

    def test_a_value_that_has_no_form_is_refused_and_the_others_are_written(self) -> None:
        sink = self.make_sink(batch_records=4)
        with self.running_sink(sink, fields=["value"]) as (feeder, run):
            for number, value in enumerate(("a", b"\xff", "b", "c")):
                feeder.feed([value], number)
            wait_until("the acks", lambda: sorted(feeder.acked) == [0, 2, 3])
            wait_until("the failure", lambda: feeder.failed == [1])
        assert sorted(self.stored()) == ["a", "b", "c"]
        assert run.errors

    def test_records_are_partitioned_as_others_read_it(self) -> None:
        fields = ["day", "sku", "price"]
        sink = FileSink(
            str(self.folder), fields, format="parquet", partition_by=["day"], batch_secs=0.2
        )
        with self.running_sink(sink, fields=fields) as (feeder, _):
            for number in range(10):
                feeder.feed([f"2026-01-0{number % 2 + 1}", f"sku {number}", number], number)
            wait_until("the acks", lambda: len(feeder.acked) == 10)
        table = dataset.dataset(self.folder, partitioning="hive").to_table()
        assert sorted(table.column("price").to_pylist()) == list(range(10))
        assert set(map(str, table.column("day").to_pylist())) == {"2026-01-01", "2026-01-02"}


class TestFileSinkParquet(TestFileSink):
    format = "parquet"
    importable = False  # as for JSON

    def stored(self) -> list[str]:
        return [
            value
            for path in self.folder.iterdir()
            for value in parquet.read_table(path).column("value").to_pylist()
        ]

    def test_a_value_that_has_no_form_is_refused_and_the_others_are_written(self) -> None:
        """Parquet has a form for bytes."""


class TestTransactionalFileSink(_Folder, TransactionalSinkContract):
    kills = KILLS if SOAK else 0
    kill_records = KILL_RECORDS

    def make_sink(self) -> TransactionalFileSink:
        return TransactionalFileSink(self.folder, ["value"], format="text")

    def stored(self) -> list[str]:
        files = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
        return [line for path in files for line in path.read_text().splitlines()]
