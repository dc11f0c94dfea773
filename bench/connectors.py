"""What a record costs in each connector: a topology of it and one other component, against the
real server, and for Kafka the client's bare loop in the same rounds. Needs squall[connectors] and
the servers that tests/connectors needs; a system without a server is left out and listed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.connected import VALUE
from bench.runs import ROOT, RunError
from bench.tables import Table, met, number

_RUN_SECS = 320.0
_MQTT_RECORDS = 21_000


@dataclass(frozen=True, slots=True)
class Case:
    """One connector, or a bare loop."""

    name: str
    title: str
    system: str  # a key of SYSTEMS
    kind: str  # of `bench.connected`
    run: str  # its name there
    records: int
    given: Mapping[str, Any] = field(default_factory=dict)
    text: bool = False  # records of text, not bytes
    goal: float | None = None  # records a second of one core
    limit: float | None = None
    bare: str | None = None  # the case of the client's loop


def cases() -> list[Case]:
    goal = 300_000.0
    return [
        Case("consume", "confluent-kafka's bare consumer", "kafka", "loop", "consume", 1_000_000),
        Case(
            "kafka_spout", "`KafkaSpout(max_replays=None)`", "kafka", "source", "kafka", 1_000_000,
            {"replays": None}, goal=goal, limit=150_000, bare="consume",
        ),
        Case(
            "kafka_spout_replays", "`KafkaSpout`", "kafka", "source", "kafka", 1_000_000,
            {"replays": 10}, goal=goal, limit=150_000, bare="consume",
        ),
        Case("kafka_share_spout", "`KafkaShareSpout`", "kafka", "source", "kafka_share", 100_000),
        Case("produce", "confluent-kafka's bare producer", "kafka", "loop", "produce", 500_000),
        Case(
            "kafka_bolt", "`KafkaBolt`", "kafka", "sink", "kafka", 500_000,
            goal=200_000, bare="produce",
        ),
        Case("redis_stream_spout", "`RedisStreamSpout`", "redis", "source", "redis", 100_000),
        Case("redis_sink", "`RedisSink`, stream", "redis", "sink", "redis", 100_000),
        Case(
            "redis_lookup", "`RedisLookup`, nothing in the cache", "redis", "sink",
            "redis_lookup", 100_000,
        ),
        Case("nats_spout", "`NatsSpout`", "nats", "source", "nats", 50_000),
        Case("nats_sink", "`NatsSink`", "nats", "sink", "nats", 50_000),
        Case("amqp_spout", "`AmqpSpout`", "amqp", "source", "amqp", 50_000),
        Case("amqp_sink", "`AmqpSink`", "amqp", "sink", "amqp", 50_000),
        Case("mqtt_spout", "`MqttSpout`", "mqtt", "source", "mqtt", 20_000),
        Case("mqtt_sink", "`MqttSink`", "mqtt", "sink", "mqtt", 50_000),
        Case(
            "postgresql_queue_spout", "`PostgresqlQueueSpout`", "postgresql", "source",
            "postgresql", 50_000,
        ),
        Case(
            "postgresql_sink", "`PostgresqlSink`, COPY", "postgresql", "sink", "postgresql",
            200_000, {"upsert": False}, text=True,
        ),
        Case(
            "postgresql_upsert", "`PostgresqlSink`, upsert", "postgresql", "sink", "postgresql",
            200_000, {"upsert": True}, text=True,
        ),
        Case(
            "postgresql_lookup", "`PostgresqlLookup`, nothing in the cache", "postgresql", "sink",
            "postgresql_lookup", 5_000,
        ),
        Case("sql_sink", "`SqlSink`, PostgreSQL", "sql", "sink", "sql", 100_000, text=True),
        Case("sqlite_sink", "`SqliteSink`", "folder", "sink", "sqlite", 200_000, text=True),
        Case(
            "sqlite_lookup", "`SqliteLookup`, nothing in the cache", "folder", "sink",
            "sqlite_lookup", 100_000,
        ),
        Case("tail_spout", "`TailSpout`", "folder", "source", "tail", 200_000),
        Case(
            "file_sink", "`FileSink`, JSON lines", "folder", "sink", "files", 200_000,
            {"format": "json"}, text=True,
        ),
        Case(
            "file_sink_parquet", "`FileSink`, Parquet", "folder", "sink", "files", 200_000,
            {"format": "parquet"}, text=True,
        ),
        Case("folder_spout", "`FolderSpout`, JSON lines", "inbox", "source", "folder", 200_000),
        Case("delta_sink", "`DeltaSink`", "folder", "sink", "delta", 200_000, text=True),
        Case("iceberg_sink", "`IcebergSink`", "folder", "sink", "iceberg", 200_000, text=True),
        Case(
            "opensearch_sink", "`OpenSearchSink`", "opensearch", "sink", "opensearch", 50_000,
            text=True,
        ),
        Case(
            "http_poll_spout", "`HttpPollSpout`, pages of 1,000", "http", "source", "poll", 200_000
        ),
        Case("sse_spout", "`SseSpout`", "http", "source", "sse", 100_000),
        Case("websocket_spout", "`WebSocketSpout`", "http", "source", "websocket", 100_000),
        Case(
            "http_enrich", "`HttpEnrich`, nothing in the cache", "http", "sink", "http_enrich",
            10_000,
        ),
    ]  # fmt: skip


# ---- systems, with their data ----


@contextlib.contextmanager
def _kafka(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    from confluent_kafka import Producer
    from tests.support.kafka_server import KafkaServer

    with KafkaServer.start(folder) as server:
        server.create_topic("records")
        server.create_topic("written")
        producer = Producer({"bootstrap.servers": server.address, "linger.ms": 20})
        for _ in range(0, records, 10_000):
            for _ in range(10_000):
                producer.produce("records", VALUE)
            producer.flush(60)
        yield {"server": server.address}


@contextlib.contextmanager
def _redis(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    import redis
    from tests.support.redis_server import RedisServer

    with RedisServer.start(folder) as server:
        client: Any = redis.Redis.from_url(server.url)
        for _ in range(0, records, 10_000):
            pipeline = client.pipeline(transaction=False)
            for _ in range(10_000):
                pipeline.xadd("records", {"value": VALUE})
            pipeline.execute()
        for number in range(0, records, 10_000):
            client.mset({f"number-{n}": VALUE for n in range(number, number + 10_000)})
        client.close()
        yield {"server": server.url}


@contextlib.contextmanager
def _nats(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    import nats
    from tests.support.nats_server import NatsServer

    with NatsServer.start(folder) as server:

        async def fill() -> None:
            connection = await nats.connect(server.url)
            stream = connection.jetstream()
            for name in ("records", "written"):
                await stream.add_stream(name=name, subjects=[f"{name}.*"])
            for _ in range(0, records, 500):
                await asyncio.gather(*(stream.publish("records.all", VALUE) for _ in range(500)))
            await connection.close()

        asyncio.run(fill())
        yield {"server": server.url}


@contextlib.contextmanager
def _amqp(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    import aio_pika
    from tests.support.rabbitmq_server import RabbitmqServer

    with RabbitmqServer.start(folder) as server:

        async def fill() -> None:
            async with await aio_pika.connect(server.url) as connection:
                channel = await connection.channel()
                for name in ("records", "written"):
                    await channel.declare_queue(name, durable=True)
                message = aio_pika.Message(VALUE)
                for _ in range(0, records, 500):
                    await asyncio.gather(
                        *(channel.default_exchange.publish(message, "records") for _ in range(500))
                    )

        yield {"server": server.url, "before": fill}


@contextlib.contextmanager
def _mqtt(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    import threading

    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from tests.support.mosquitto_server import MosquittoServer

    with MosquittoServer.start(folder) as server:
        given = {"server": server.url, "topic": "records", "client_id": "bench"}

        async def fill() -> None:
            """Have the session of the spout's only task hold the records."""
            for client_id in ("bench-0", "bench-publisher"):
                client = Client(
                    CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5
                )
                properties = Properties(PacketTypes.CONNECT)
                properties.SessionExpiryInterval = 3_600
                client.max_inflight_messages_set(1_000)
                done = threading.Event()
                client.on_subscribe = lambda *_, done=done: done.set()
                client.connect("127.0.0.1", server.port, clean_start=True, properties=properties)
                client.loop_start()
                if client_id == "bench-0":
                    client.subscribe("records", 1)
                    done.wait(10)
                else:
                    sent = [client.publish("records", VALUE, 1) for _ in range(_MQTT_RECORDS)]
                    sent[-1].wait_for_publish(60)
                client.disconnect()
                client.loop_stop()

        yield {**given, "before": fill}


@contextlib.contextmanager
def _postgresql(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    import psycopg
    from tests.support.postgresql_server import PostgresqlServer

    folder.chmod(0o711)
    with PostgresqlServer.start(folder) as server:

        async def fill() -> None:
            with psycopg.connect(server.dsn) as connection:
                connection.execute("DROP TABLE IF EXISTS queue, written, lookup")
                connection.execute(
                    "CREATE TABLE queue (id bigserial PRIMARY KEY, value bytea, "
                    "leased_until timestamptz)"
                )
                connection.execute(
                    "INSERT INTO queue (value) SELECT repeat('x', 100)::bytea "
                    "FROM generate_series(1, %s)",
                    (records,),
                )
                connection.execute("CREATE TABLE written (number bigint UNIQUE, value text)")
                connection.execute(
                    "CREATE TABLE lookup AS SELECT number, repeat('x', 100) AS value "
                    "FROM generate_series(0, %s) AS number",
                    (records,),
                )
                connection.execute("ALTER TABLE lookup ADD PRIMARY KEY (number)")

        yield {"server": server.dsn, "before": fill}


@contextlib.contextmanager
def _sql(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    with _postgresql(folder, records) as found:
        url = found["server"].replace("postgresql://", "postgresql+psycopg://")
        yield {**found, "server": url}


@contextlib.contextmanager
def _folder(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    import sqlite3

    import deltalake
    import pyarrow
    from pyiceberg.catalog import load_catalog

    (folder / "lines.log").write_bytes((VALUE + b"\n") * (records + 1_000))
    connection = sqlite3.connect(folder / "written.db")
    connection.execute("CREATE TABLE written (number, value)")
    connection.execute("CREATE TABLE lookup (number INTEGER PRIMARY KEY, value)")
    with connection:
        rows = ((number, VALUE) for number in range(records))
        connection.executemany("INSERT INTO lookup VALUES (?, ?)", rows)
    connection.close()
    table = str(folder / "delta")
    schema = pyarrow.schema([("number", pyarrow.int64()), ("value", pyarrow.string())])
    deltalake.write_deltalake(table, schema.empty_table())
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
    }
    catalog = load_catalog("default", **properties)
    catalog.create_namespace("bench")
    catalog.create_table("bench.written", schema)
    yield {
        "folder": str(folder),
        "path": str(folder / "written.db"),
        "table": table,
        "catalog": properties,
    }


@contextlib.contextmanager
def _inbox(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    async def fill() -> None:
        for start in range(0, records, 10_000):
            lines = (
                json.dumps({"number": n, "value": VALUE.decode()}) + "\n"
                for n in range(start, start + 10_000)
            )
            (folder / f"{start:09}.json").write_text("".join(lines))

    yield {"inbox": str(folder), "before": fill}


@contextlib.contextmanager
def _http(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "bench.http_feed"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield {"server": f"http://127.0.0.1:{int(server.stdout.readline())}"}
        finally:
            server.kill()


@contextlib.contextmanager
def _opensearch(folder: Path, records: int) -> Iterator[dict[str, Any]]:
    from tests.support.opensearch_server import OpensearchServer

    folder.chmod(0o711)
    with OpensearchServer.start(folder) as server:
        yield {"server": server.url}


# Each gives, as a context, what the cases of the system take; "before" is called before each run.
SYSTEMS: dict[str, Callable[[Path, int], contextlib.AbstractContextManager[dict[str, Any]]]] = {
    "kafka": _kafka,
    "redis": _redis,
    "nats": _nats,
    "amqp": _amqp,
    "mqtt": _mqtt,
    "postgresql": _postgresql,
    "sql": _sql,
    "folder": _folder,
    "inbox": _inbox,
    "http": _http,
    "opensearch": _opensearch,
}


# ---- runs ----


def _run(case: Case, system: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in system.items() if name != "before"}
    if "before" in system:
        asyncio.run(system["before"]())
    given |= {**case.given, "text": case.text}
    command = [sys.executable, "-m", "bench.connected", case.kind, case.run, str(case.records)]
    done = subprocess.run(
        [*command, json.dumps(given)],
        cwd=ROOT, capture_output=True, text=True, timeout=_RUN_SECS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RunError(f"{case.name}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["errors"]:
        raise RunError(f"{case.name}: {found['errors']}")
    return found


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure: the cases of a system by turns. `only` names cases; the bare loops that they are
    compared with are added."""
    named = {case.name: case for case in cases()}
    wanted = set(only or named)
    wanted |= {bare for name in wanted if (bare := named[name].bare) is not None}
    results: dict[str, list[dict[str, Any]]] = {}
    for system, start in SYSTEMS.items():
        chosen = [case for case in cases() if case.system == system and case.name in wanted]
        if not chosen:
            continue
        most = max(case.records for case in chosen)
        with tempfile.TemporaryDirectory() as name, start(Path(name), most + 1_000) as given:
            for turn in range(pairs):
                print(f"{system}: round {turn + 1} of {pairs}", file=sys.stderr, flush=True)
                for case in chosen:
                    results.setdefault(case.name, []).append(_run(case, given))
    rows = {name: _row(named[name], found) for name, found in results.items()}
    for name, row in rows.items():
        if (bare := named[name].bare) is not None:
            row["share_of_bare"] = round(row["a_core_sec"] / rows[bare]["a_core_sec"], 3)
    return {"pairs": pairs, "cases": rows}


def _row(case: Case, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": case.title,
        "records": case.records,
        "a_core_sec": round(statistics.median(f["records"] / f["cpu_secs"] for f in found)),
        "a_core_sec_all": [round(f["records"] / f["cpu_secs"]) for f in found],
        "a_sec": round(statistics.median(f["records"] / f["wall_secs"] for f in found)),
        "goal": case.goal,
        "limit": case.limit,
    }


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        share = row.get("share_of_bare")
        goal = "" if row["goal"] is None else number(row["goal"])
        verdict = met(row["a_core_sec"], row["goal"], row["limit"], at_most=False)
        of_bare = "" if share is None else f"{100 * share:.0f} %"
        rows.append(
            [
                row["title"], number(row["a_core_sec"]), of_bare, number(row["a_sec"]), goal,
                verdict,
            ]
        )  # fmt: skip
    note = (
        f"Medians of {report['pairs']} runs, a system's cases by turns: one task, one topology in "
        "one process, records of 100 bytes, all acked. CPU is that of all threads of the process, "
        "not the server's; what a second of wall time gave depends on the server beside it."
    )
    columns = ["", "records a second of CPU", "of the bare loop", "a second", "goal", "met"]
    return [Table("What a record costs in each connector", columns, rows, [note])]
