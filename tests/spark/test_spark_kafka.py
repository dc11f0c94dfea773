"""Kafka in, Kafka out, on a real broker: each record counts once, whatever is killed."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.leftovers import processes_of
from tests.support.kafka_server import KafkaServer
from tests.support.spark_jars import KAFKA, spark_jars

from squall import SquallError
from squall_spark.data.kafka_sink import KafkaPlace, KafkaSink

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer.start(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def produce(kafka: KafkaServer, topic: str, lines: list[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.address, "log_level": 0})
    for line in lines:
        producer.produce(topic, line)
    assert producer.flush(60) == 0


def committed(kafka: KafkaServer, topic: str) -> list[Any]:
    """The committed records of a topic, from JSON."""
    from confluent_kafka import Consumer, TopicPartition

    conf = {"bootstrap.servers": kafka.address, "group.id": "test", "log_level": 0}
    consumer = Consumer({**conf, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(json.loads(message.value()))
        return found
    finally:
        consumer.close()


def wait_until(condition: Callable[[], bool], timeout_secs: float = 400.0) -> None:
    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, "not so in time"
        time.sleep(0.1)


def start(folder: Path, kafka: KafkaServer, *options: str) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "squall_cli.main", "spark", "run", "--streaming"),
        *("--checkpoint", "cp", "--master", "local[2]", "--trigger-secs", "0", "--max-rows", "40"),
        *("--spark-conf", "spark.driver.memory=512m"),
        *("--spark-conf", f"spark.local.dir={folder}/local"),
        *("--spark-conf", f"spark.jars={spark_jars(KAFKA)}"),
        *("--input", f"records=kafka:{kafka.address}/lines"),
        *("--output", f"count=kafka:{kafka.address}/counts", *options),
        *(str(ROOT / "examples" / "history"), "words"),
    ]
    with (folder / "messages").open("ab") as messages:
        return subprocess.Popen(command, cwd=folder, stderr=messages, stdout=messages)


def end_all(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.poll() is None:
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.wait(timeout=60)
    for pid in processes_of(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


# Two Sparks start, one after the other, and a broker twice.
@pytest.mark.timeout(1200)
def test_kills_of_driver_and_broker_lose_and_repeat_nothing(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    kafka.create_topic("lines", partitions=2)
    kafka.create_topic("counts")
    lines = [f"w{n % 7} x" for n in range(200)]

    def messages() -> str:
        return (tmp_path / "messages").read_text()

    produce(kafka, "lines", lines[:80])
    first = start(tmp_path, kafka)
    try:
        wait_until(lambda: "batch 0:" in messages() or first.poll() is not None)
        assert first.poll() is None, messages()
        produce(kafka, "lines", lines[80:120])
        kafka.kill()  # in the middle of some batch
        kafka.restart()
        produce(kafka, "lines", lines[120:160])
        wait_until(lambda: "batch 3:" in messages() or first.poll() is not None)
    finally:
        end_all(first, tmp_path)  # kill -9
    produce(kafka, "lines", lines[160:])
    again = start(tmp_path, kafka, "--available-now")
    try:
        assert again.wait(timeout=300) == 0, messages()
    finally:
        end_all(again, tmp_path)
    expected = Counter(" ".join(lines).split())
    rows = [(row["word"], row["count"]) for row in committed(kafka, "counts")]
    assert Counter(rows) == Counter(
        (word, n) for word, most in expected.items() for n in range(1, most + 1)
    )


def test_a_batch_that_runs_again_is_written_once(kafka: KafkaServer) -> None:
    from confluent_kafka import Producer

    kafka.create_topic("sink")
    sink = KafkaSink(KafkaPlace(kafka.address, "sink"), "a stream")
    assert sink.write(["n"], lambda: [[1], [2]], 0) == 2
    assert sink.write(["n"], lambda: [[1], [2]], 0) is None
    # A driver that died in the middle of batch 1.
    dead = Producer(
        {"bootstrap.servers": kafka.address, "transactional.id": sink.group, "log_level": 0}
    )
    dead.init_transactions(60)
    dead.begin_transaction()
    dead.produce("sink", '{"n": "of a dead driver"}')
    dead.flush(60)
    assert sink.write(["n"], lambda: [[3]], 1) == 1
    assert (
        KafkaSink(KafkaPlace(kafka.address, "sink"), "another").write(["n"], lambda: [[4]], 0) == 1
    )
    assert committed(kafka, "sink") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


def test_a_batch_that_fails_in_the_middle_does_not_hold_up_readers(kafka: KafkaServer) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka.create_topic("failed")
    conf = {"bootstrap.servers": kafka.address, "group.id": "failed", "log_level": 0}
    consumer = Consumer({**conf, "isolation.level": "read_uncommitted"})

    def has_arrived() -> bool:
        return bool(consumer.get_watermark_offsets(TopicPartition("failed", 0), 30)[1])

    def rows() -> Iterator[list[int]]:
        yield [1]
        wait_until(has_arrived)
        raise ValueError("a bolt")

    sink = KafkaSink(KafkaPlace(kafka.address, "failed"), "a batch job")
    try:
        with pytest.raises(ValueError, match="a bolt"):
            sink.write(["n"], rows, 0)
    finally:
        consumer.close()
    produce(kafka, "failed", ['{"n": 2}'])
    assert committed(kafka, "failed") == [{"n": 2}]


def test_a_topic_that_cannot_be_written_is_named(kafka: KafkaServer) -> None:
    sink = KafkaSink(KafkaPlace(kafka.address, "nowhere"), "a stream")
    with pytest.raises(SquallError, match="batch 0 was not written to Kafka topic 'nowhere'"):
        sink.write(["n"], lambda: [[1]], 0)


ORDERS = """
import json, sys
from squall import Bolt, TopologyBuilder, submit_topology
from squall_connectors.kafka import KafkaSpout
from squall_connectors.sqlite import SqliteSink

class Parse(Bolt):
    outputs = ["partition", "offset", "order"]
    def execute(self, tup):
        order = json.loads(tup["value"])["order"]
        self.emit([tup["partition"], tup["offset"], order])

def build(address, database):
    builder = TopologyBuilder()
    builder.spout("orders", KafkaSpout(address, "orders", group_id="shop"))
    builder.bolt("parse", Parse(), parallelism=2).shuffle("orders")
    create = "CREATE TABLE IF NOT EXISTS orders (partition INT, position INT, number INT)"
    fields, columns = ["partition", "offset", "order"], ["partition", "position", "number"]
    # (Without a key: a record that is read twice would show.)
    sink = SqliteSink(database, "orders", fields, columns=columns, create=create)
    builder.bolt("table", sink).shuffle("parse")
    return builder.build()

if __name__ == "__main__":
    submit_topology("shop", {}, build(*sys.argv[1:]))
"""


@pytest.mark.timeout(500)
def test_history_by_spark_and_live_by_the_cluster_meet_without_a_seam(
    kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from squall import LocalCluster

    kafka.create_topic("orders", partitions=3)
    package, database = tmp_path / "package", str(tmp_path / "orders.db")
    package.mkdir()
    (package / "shop.py").write_text(ORDERS)
    produce(kafka, "orders", [json.dumps({"order": n}) for n in range(500)])

    def rows() -> list[int]:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            return [row[0] for row in connection.execute("SELECT number FROM orders")]

    def replay() -> subprocess.CompletedProcess[str]:
        command = [
            *(sys.executable, "-m", "squall_cli.main", "spark", "run", "--master", "local[2]"),
            *("--spark-conf", "spark.driver.memory=512m"),
            *("--spark-conf", f"spark.jars={spark_jars(KAFKA)}"),
            *("--input", f"orders=kafka:{kafka.address}/orders", "--commit-group", "shop"),
            *("package", "shop", kafka.address, database),
        ]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    # Orders go on coming while the history is replayed.
    produced, end = 500, threading.Event()

    def go_on() -> None:
        nonlocal produced
        while not end.wait(0.05):
            produce(kafka, "orders", [json.dumps({"order": produced})])
            produced += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        done = replay()
        assert done.returncode == 0, done.stderr
        history = len(rows())
        assert 500 <= history < produced
        again = replay()
        assert "the group has read a part of topic 'orders' already" in again.stderr
        assert len(rows()) == history
        monkeypatch.syspath_prepend(str(package))
        shop = importlib.import_module("shop")
        with LocalCluster() as cluster:
            cluster.submit_topology("shop", {}, shop.build(kafka.address, database))
            cluster.wait_until(lambda: len(rows()) > history + 20, 60)
            end.set()
            thread.join()
            cluster.wait_until(lambda: len(rows()) >= produced, 60)
    finally:
        end.set()
        thread.join()
        sys.modules.pop("shop", None)
    assert sorted(rows()) == list(range(produced))
