"""`RewindableKafkaSpout` against a real broker: each record once, whatever is killed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.effort import SOAK
from tests.support.kafka_server import KafkaServer
from tests.support.ledger import nothing_lost

from squall import LocalCluster, RowBatch, SquallError, TopologyBuilder, TransactionalSink
from squall.testing.connectors import wait_until
from squall_connectors.kafka import RewindableKafkaSpout

PARTITIONS = 3
_names = itertools.count(1)
written: list[Any] = []
unreadable: list[Any] = []
applied: dict[str, int] = {}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer.start(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    for one in (written, unreadable, applied):
        one.clear()
    name = f"rewindable-{next(_names)}"
    kafka.create_topic(name, PARTITIONS)
    return name


def put(kafka: KafkaServer, topic: str, values: Sequence[Any], at: datetime | None = None) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 5})
    for number, value in enumerate(values):
        more = {} if at is None else {"timestamp": int(at.timestamp() * 1000)}
        producer.produce(topic, str(value), partition=number % PARTITIONS, **more)
    assert producer.flush(60) == 0


class Write(TransactionalSink):
    def __init__(self, unreadable: bool = False) -> None:
        self.unreadable = unreadable

    def commit(self, batches: Sequence[RowBatch]) -> None:
        into = unreadable if self.unreadable else written
        for batch in batches:
            if applied.get(batch.writer, 0) < batch.epoch:
                into.extend(tuple(row) if self.unreadable else row[0] for row in batch.rows)
                applied[batch.writer] = batch.epoch


def topology(spout: RewindableKafkaSpout, tasks: int = 2) -> Any:
    builder = TopologyBuilder()
    builder.spout("records", spout, parallelism=tasks)
    builder.bolt("write", Write()).shuffle("records")
    builder.bolt("bad", Write(unreadable=True)).shuffle("records", stream="unreadable")
    return builder.build()


def conf(folder: Path) -> dict[str, Any]:
    return {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(folder)}


def spout_of(kafka: KafkaServer, topic: str, **more: Any) -> RewindableKafkaSpout:
    options = {"fields": ["value"], "value": "json", "refresh_secs": 0.2, **more}
    return RewindableKafkaSpout(kafka.address, topic, **options)


def epochs(cluster: LocalCluster) -> int:
    counts = cluster.checkpoints("records")
    return 0 if counts is None else counts.epoch


def wait_checkpoint(cluster: LocalCluster) -> None:
    """Wait for a checkpoint that was begun from now on."""
    now = epochs(cluster)
    wait_until("a checkpoint", lambda: epochs(cluster) >= now + 2)


def test_it_goes_on_from_the_checkpoint_also_with_other_tasks(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    for tasks, values in ((1, range(300)), (3, range(300, 600)), (2, range(600, 900))):
        put(kafka, topic, values)
        with LocalCluster() as cluster:
            made = topology(spout_of(kafka, topic), tasks)
            cluster.submit_topology("records", conf(tmp_path), made)
            wait_until("the records", lambda end=values.stop: len(written) >= end)  # type: ignore[misc]
    with nothing_lost():
        assert Counter(written) == Counter(range(900))
    for partition in range(PARTITIONS):  # in order
        assert [value for value in written if value % PARTITIONS == partition] == list(
            range(partition, 900, PARTITIONS)
        )


@pytest.mark.parametrize("start", ["latest", "time"])
def test_where_it_starts_counts_at_the_first_run_only(
    kafka: KafkaServer, topic: str, tmp_path: Path, start: str
) -> None:
    put(kafka, topic, range(100), datetime(2026, 1, 1, tzinfo=UTC))
    begin: Any = start if start == "latest" else datetime(2026, 1, 2, tzinfo=UTC)
    with LocalCluster() as cluster:
        cluster.submit_topology(
            "records", conf(tmp_path), topology(spout_of(kafka, topic, start=begin))
        )
        wait_checkpoint(cluster)  # without a record
    put(kafka, topic, range(100, 200), datetime(2026, 1, 3, tzinfo=UTC))  # while nothing runs
    with LocalCluster() as cluster:
        cluster.submit_topology(
            "records", conf(tmp_path), topology(spout_of(kafka, topic, start=begin))
        )
        wait_until("the records", lambda: len(written) >= 100)
    assert Counter(written) == Counter(range(100, 200))


def test_new_partitions_are_read_from_their_first_record(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    put(kafka, topic, range(30))
    with LocalCluster() as cluster:
        cluster.submit_topology(
            "records", conf(tmp_path), topology(spout_of(kafka, topic, start="latest"))
        )
        wait_checkpoint(cluster)
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(30)
        producer = Producer({"bootstrap.servers": kafka.address})
        for value in range(100, 150):
            producer.produce(topic, str(value), partition=PARTITIONS + value % 2)
        assert producer.flush(60) == 0
        wait_until("the records", lambda: len(written) >= 50)
    assert Counter(written) == Counter(range(100, 150))


def test_records_that_cannot_be_read_go_to_their_own_stream_in_order(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    put(kafka, topic, [0, "{", 2, 3, "}", 5])
    with LocalCluster() as cluster:
        cluster.submit_topology("records", conf(tmp_path), topology(spout_of(kafka, topic)))
        wait_until("the records", lambda: len(written) >= 4 and len(unreadable) >= 2)
        assert cluster.errors("records") == []
    assert Counter(written) == Counter([0, 2, 3, 5])
    assert sorted((row[1], row[4]) for row in unreadable) == [(1, b"{"), (1, b"}")]


def test_records_that_were_deleted_are_reported_and_never_passed_over_silently(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    put(kafka, topic, range(30))
    with LocalCluster() as cluster:
        cluster.submit_topology("records", conf(tmp_path), topology(spout_of(kafka, topic)))
        wait_until("the records", lambda: len(written) >= 30)
        wait_checkpoint(cluster)
    put(kafka, topic, range(30, 60))
    admin = AdminClient({"bootstrap.servers": kafka.address})
    from confluent_kafka import TopicPartition

    asked = admin.delete_records([TopicPartition(topic, 0, 15)])
    for future in asked.values():
        future.result(30)
    with LocalCluster() as cluster:
        cluster.submit_topology("records", conf(tmp_path), topology(spout_of(kafka, topic)))
        wait_until(
            "the error",
            lambda: any("is not there" in str(one.error) for one in cluster.errors("records")),
        )
        wait_until("the others", lambda: len(written) >= 50)
        assert not any(value % PARTITIONS == 0 and value >= 30 for value in written)
    with LocalCluster() as cluster:
        skipping = topology(spout_of(kafka, topic, skip_lost=True))
        cluster.submit_topology("records", conf(tmp_path), skipping)
        wait_until("the rest", lambda: len(written) >= 55)
    left = [value for value in range(60) if value % PARTITIONS or value < 30 or value >= 45]
    assert Counter(written) == Counter(left)


def test_a_topic_that_is_not_there_is_named(kafka: KafkaServer, tmp_path: Path) -> None:
    with LocalCluster() as cluster, pytest.raises(SquallError, match="topic 'missing'"):
        cluster.submit_topology("records", conf(tmp_path), topology(spout_of(kafka, "missing")))


PROGRAM = """
import sys

from squall import LocalCluster, StatefulBolt, TopologyBuilder
from squall_connectors.kafka import RewindableKafkaSpout
from squall_connectors.sqlite import TransactionalSqliteSink


class Count(StatefulBolt):
    outputs = ["number", "count"]

    def execute(self, tup):
        key = tup["value"] % 7
        count = self.state.get(key, 0) + 1
        self.state.put(key, count)
        self.emit([tup["value"], count])


def main(address, topic, folder):
    builder = TopologyBuilder()
    spout = RewindableKafkaSpout(address, topic, fields=["value"], value="json")
    builder.spout("records", spout, parallelism=2)
    builder.bolt("count", Count(), parallelism=2).fields("records", "value")
    sink = TransactionalSqliteSink(
        f"{folder}/ledger.db", "rows", ["number", "count"],
        create="CREATE TABLE IF NOT EXISTS rows (number INT, count INT)",
    )
    builder.bolt("write", sink).shuffle("count")
    conf = {
        "topology.checkpoint.interval.secs": 0.1,
        "topology.state.url": f"{folder}/checkpoints",
        "topology.max.spout.pending": 200,
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("records", conf, builder.build())
        cluster.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def numbers(path: Path) -> list[int]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as database:
            return [row[0] for row in database.execute("SELECT number FROM rows")]
    except sqlite3.OperationalError:  # no sink has come so far
        return []


def test_each_record_counts_once_through_kills_of_the_process_and_the_broker(
    kafka: KafkaServer, topic: str, tmp_path: Path
) -> None:
    chance = random.Random(3)
    records = 60_000 if SOAK else 6_000
    kills = ["process", "broker", "both", "process"] * (5 if SOAK else 1)
    (tmp_path / "program.py").write_text(PROGRAM)
    ledger = tmp_path / "ledger.db"
    command = [sys.executable, str(tmp_path / "program.py"), kafka.address, topic, str(tmp_path)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    running = start()
    try:
        done = 0
        for number, kill in enumerate([*kills, ""]):
            upto = records * (number + 1) // (len(kills) + 1)
            put(kafka, topic, range(done, upto))
            done = upto
            if not kill:
                break
            goal = upto - (records // (len(kills) + 1)) * 2 // 3
            wait_until("rows", lambda goal=goal: len(numbers(ledger)) >= goal, 120.0)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.2))
            if kill in ("process", "both"):
                os.kill(running.pid, signal.SIGKILL)
                running.wait()
            if kill in ("broker", "both"):
                kafka.kill()
                kafka.restart()
            if kill in ("process", "both"):
                running = start()
        wait_until("all rows", lambda: len(numbers(ledger)) >= records, 120.0)
    finally:
        running.kill()
        running.wait()
    with nothing_lost():
        assert Counter(numbers(ledger)) == Counter(range(records))
