"""Kafka, Redis and PostgreSQL in one topology on a real cluster, which is rebalanced and
deactivated while its workers are killed, and so are the servers: each record gets from the first to
the last."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.devcluster import ROOT, DevCluster, wait_for
from tests.support.effort import KILLS, SOAK
from tests.support.kafka_server import KafkaServer
from tests.support.ledger import TuplesLost
from tests.support.postgresql_server import PostgresqlServer
from tests.support.redis_server import RedisServer

RECORDS = 100_000 if SOAK else 6_000
AWAY_SECS = 30.0 if SOAK else 2.0
TOPIC = "records"
PARTITIONS = 4
CODE = ROOT / "tests" / "topologies" / "connected"


def test_nothing_is_lost_by_rebalances_and_kills_of_workers_and_servers(tmp_path: Path) -> None:
    chance = random.Random(30)
    with (
        tempfile.TemporaryDirectory() as open_to_all,
        KafkaServer.start(tmp_path / "kafka-folder") as kafka,
        RedisServer.start(_made(tmp_path / "redis-folder")) as cache,
        PostgresqlServer.start(_entered(Path(open_to_all))) as database,
        DevCluster.start(tmp_path / "cluster", slots=2) as cluster,
    ):
        kafka.create_topic(TOPIC, PARTITIONS)
        _query(database, "CREATE TABLE records (value text PRIMARY KEY)")
        cluster.storm(
            *("jar", CODE, "connected.py", "connected"),
            *(kafka.address, TOPIC, cache.url, database.dsn, "records", "2"),
        )

        def arrived() -> int:
            return int(_query(database, "SELECT count(*) FROM records")[0][0])

        def kill_a_worker() -> None:
            before = cluster.worker_pids(2, 60)
            os.kill(chance.choice(sorted(before)), signal.SIGKILL)

        def away(server: Any) -> Callable[[], None]:
            def leave() -> None:
                server.kill()
                time.sleep(AWAY_SECS)
                server.restart()

            return leave

        def rebalance(executors: int) -> Callable[[], None]:
            return lambda: cluster.storm(
                *("rebalance", "connected", "-w", "1"),
                *("-e", f"kafka={executors}", "-e", f"redis={executors}"),
            )

        def pause() -> None:
            cluster.storm("deactivate", "connected")
            cluster.storm("activate", "connected")

        # Two tasks of a source in one executor, and apart again.
        faults: list[Callable[[], None]] = [rebalance(1), pause, rebalance(2)]
        faults += [kill_a_worker] * KILLS
        faults += [away(server) for server in (kafka, cache, database)] * (KILLS // 2)
        steps = [range(i, RECORDS, len(faults) + 1) for i in range(len(faults) + 1)]
        put = 0
        for step in steps:
            _put(kafka, step)
            put += len(step)
            if faults:
                # In the middle of the step.
                goal = put - len(step) + chance.randrange(1, len(step))
                wait_for(f"{goal} records", lambda goal=goal: arrived() >= goal, 120)
                faults.pop(0)()
        try:
            wait_for("all records", lambda: arrived() == RECORDS, 180, 0.2)
        except AssertionError as error:
            if _committed(kafka) == RECORDS and (lost := RECORDS - arrived()):
                raise TuplesLost(f"{lost} of {RECORDS} acked records are lost") from error
            raise
        wait_for("Kafka's offsets", lambda: _committed(kafka) == RECORDS, 60, 0.5)
        wait_for("Redis' acknowledgements", lambda: _pending(cache) == 0, 60, 0.5)
        errors = cluster.storm("get-errors", "connected").stdout
        assert "Error" in errors or "Exception" in errors
        cluster.storm("kill", "connected", "-w", "5")
        cluster.wait_gone("connected", 60)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _entered(folder: Path) -> Path:
    folder.chmod(0o711)
    return folder


def _put(kafka: KafkaServer, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 5})
    for number in numbers:
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def _query(database: PostgresqlServer, query: str) -> list[Any]:
    with psycopg.connect(database.dsn) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def _committed(kafka: KafkaServer) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "connected-kafka"})
    ends = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found = consumer.committed(ends, timeout=20)
    consumer.close()
    return sum(max(0, end.offset) for end in found)


def _pending(cache: RedisServer) -> int:
    client: Any = redis.Redis.from_url(cache.url)
    try:
        count: int = client.xpending(TOPIC, "connected")["pending"]
        return count
    finally:
        client.close()
