"""The connectors of files with S3's protocol, spoken by moto."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import fsspec
import orjson
import pytest
from pyarrow import dataset
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.moto_server import MotoServer

from squall import Bolt, Spout
from squall.testing.connectors import SinkContract, SourceContract, wait_until
from squall_connectors.files import FileSink, FolderSpout
from squall_connectors.files.formats import written

_names = itertools.count(1)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer.start(tmp_path_factory.mktemp("moto")) as server:
        yield server


class _Bucket:
    server: MotoServer
    bucket: str

    @pytest.fixture(autouse=True)
    def _new_bucket(self, moto: MotoServer) -> None:
        self.server = moto
        self.bucket = f"bucket-{next(_names)}"
        self.files = fsspec.filesystem(
            "s3", **moto.storage_options, use_listings_cache=False, skip_instance_cache=True
        )
        self.files.mkdir(self.bucket)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/records"


class TestFolderSpoutOnS3(_Bucket, SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    format = "json"

    def make_source(self, **options: Any) -> Spout:
        return FolderSpout(
            self.url,
            ["value"],
            format=self.format,
            poll_secs=0.1,
            storage_options=self.server.storage_options,
            **options,
        )

    def put(self, records: Sequence[str]) -> None:
        data = written([{"value": record} for record in records], self.format, ["value"])
        self.files.pipe_file(f"{self.bucket}/records/{time.time_ns()}.{self.format}", data)

    def partition_of(self, record: str) -> int:
        return 0

    def test_an_object_is_moved_if_that_is_asked_for(self) -> None:
        source = FolderSpout(
            self.url,
            ["value"],
            poll_secs=0.1,
            done=f"s3://{self.bucket}/done",
            storage_options=self.server.storage_options,
        )
        with self.running_source(source) as (bolt, _run, _):
            self.put(["1", "2"])
            wait_until("both", lambda: len(bolt.got) == 2)
            wait_until("the move", lambda: self.files.find(f"{self.bucket}/done"))
        assert self.files.find(f"{self.bucket}/records") == []


class TestFolderSpoutOnS3Parquet(_Bucket):
    def test_parquet_objects_are_read(self) -> None:
        contract = TestFolderSpoutOnS3()
        contract.server, contract.bucket, contract.files = self.server, self.bucket, self.files
        contract.format = "parquet"
        with contract.running() as (bolt, _run, _):
            contract.put([str(number) for number in range(100)])
            wait_until("all", lambda: len(bolt.got) == 100)
            wait_until("its end", lambda: not self.files.find(f"{self.bucket}/records"))


class TestFileSinkOnS3(_Bucket, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS

    def make_sink(self, **options: Any) -> Bolt:
        given = {"batch_secs": 0.05, "storage_options": self.server.storage_options, **options}
        return FileSink(self.url, ["value"], **given)

    def stored(self) -> list[str]:
        found = []
        for path in self.files.find(f"{self.bucket}/records"):
            lines = self.files.cat_file(path).splitlines()
            found += [orjson.loads(line)["value"] for line in lines]
        return found

    def test_a_batch_whose_answer_was_lost_replaces_its_own_object(self) -> None:
        sink: Any = self.make_sink()
        with self.running_sink(sink) as (feeder, run):
            self._feed(feeder, ["0"])
            wait_until("the first", lambda: feeder.acked == ["0"])
            whole = sink._files.pipe_file
            failures = iter([OSError("the answer was lost")])

            def pipe_file(path: str, data: bytes) -> None:
                whole(path, data)
                for error in failures:
                    raise error

            sink._files.pipe_file = pipe_file
            try:
                self._feed(feeder, ["1"])
                wait_until("the second", lambda: feeder.acked == ["0", "1"])
            finally:
                del sink._files.pipe_file
            assert "the answer was lost" in str(run.errors[0])
        assert sorted(self.stored()) == ["0", "1"]

    def test_partitioned_parquet_is_read_by_others(self) -> None:
        sink = FileSink(
            self.url,
            ["day", "value"],
            format="parquet",
            partition_by=["day"],
            batch_secs=0.05,
            storage_options=self.server.storage_options,
        )
        with self.running_sink(sink, fields=("day", "value")) as (feeder, _):
            for number in range(20):
                feeder.feed([f"2026-01-0{number % 2 + 1}", number], number)
            wait_until("the acks", lambda: len(feeder.acked) == 20)
        table = dataset.dataset(
            f"{self.bucket}/records", filesystem=self.files, partitioning="hive"
        ).to_table()
        assert sorted(table["value"].to_pylist()) == list(range(20))
        assert set(map(str, table["day"].to_pylist())) == {"2026-01-01", "2026-01-02"}

    def test_a_bucket_that_is_missing_is_reported_without_the_secret(self) -> None:
        options = self.server.storage_options
        sink = FileSink(
            "s3://missing-bucket/x", ["value"], storage_options=options, batch_secs=0.05
        )
        with self.running_sink(sink) as (feeder, run):
            self._feed(feeder, ["0"])
            wait_until("an error", lambda: run.errors)
            assert "s3://missing-bucket/x" in str(run.errors[0])
            assert "p4ssw0rd" not in repr(run.errors[0])
            self.files.mkdir("missing-bucket")
            wait_until("the ack", lambda: feeder.acked == ["0"])

    def test_a_value_that_has_no_form_is_refused_and_the_others_are_written(self) -> None:
        with self.running() as (feeder, acked, _):
            self._feed(feeder, ["1"])
            feeder.feed([object], "refused")
            self._feed(feeder, ["2"])
            wait_until("all", lambda: len(acked.acked) == 2 and acked.failed == ["refused"])
        assert sorted(self.stored()) == ["1", "2"]
