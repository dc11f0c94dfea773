"""One run of a connector, in a process of its own: a topology of it and one other component, in
the engine of a worker.

    python -m bench.connected KIND NAME RECORDS JSON

KIND is source, sink, or loop (a client's bare loop); NAME is a key of SOURCES, SINKS or LOOPS, and
JSON what its function takes. Prints what it measured, from the first record that is acked, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop

from bench.ids import new_topology_id
from squall import Bolt, Columns, Spout, TopologyBuilder, TopologyContext

VALUE = b"x" * 100
_BATCH = 500
_LIFE_SECS = 300.0
# Looking at the counts costs about as much as a hundred records: often, it would show.
_LOOK_SECS = 0.05


class Taking(Bolt):
    """Takes what a source emits."""

    def execute_columns(self, columns: Columns) -> None:
        pass


class Feeding(Spout):
    """Feeds a sink with `total` records of 100 bytes and a number."""

    def __init__(self, total: int, text: bool) -> None:
        self.outputs = ["number", "value"]
        self._total = total
        self._value = VALUE.decode() if text else VALUE

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.sent = 0

    def next_tuple(self) -> None:
        count = min(_BATCH, self._total - self.sent)
        if count:
            numbers = list(range(self.sent, self.sent + count))
            self.sent += count
            self.emit_columns([numbers, [self._value] * count], message_ids=numbers)


async def measured(spout: Spout, bolt: Bolt, total: int) -> dict[str, Any]:
    """What `total` records cost from the first that is acked on."""
    from squall_common.config.load import default_conf, normalize_topology_conf
    from squall_common.topology.model import WorkerSlot
    from squall_common.topology.prepared import prepare
    from squall_engine.embed import (
        EmbeddedEngine,
        EngineCallbacks,
        EngineSettings,
        tune_garbage_collector,
    )
    from squall_worker.heap import tune_heap

    builder = TopologyBuilder()
    builder.spout("spout", spout)
    builder.bolt("bolt", bolt).shuffle("spout")
    topology = builder.build()
    conf = {"topology.max.spout.pending": 20_000, "topology.workers": 1}
    confs = {"spout": dict(spout.component_conf), "bolt": dict(bolt.component_conf)}
    stored = normalize_topology_conf(conf, default_conf(), name="bench", components=confs)
    prepared = prepare(topology, stored)
    objects = {"spout": spout, "bolt": bolt}
    errors: list[str] = []
    callbacks = EngineCallbacks(
        on_reported=lambda component, task, error: errors.append(f"{component}: {error!r}"),
        make_object=lambda component, task: objects[component.id],
    )
    settings = EngineSettings(
        prepared=prepared,
        topology_id=new_topology_id(),
        slot=WorkerSlot("bench", 1),
        executors=prepared.executors,
        seed=1,
    )
    engine = EmbeddedEngine(settings, callbacks)
    await engine.start()
    (executor,) = [
        e for e in prepared.executors if prepared.task_to_component[e.task_start] == "spout"
    ]

    def done() -> int:
        acked = engine.stats()[executor].specific.acked
        return sum(acked.get(":all-time", {}).values())

    tune_heap()
    tune_garbage_collector()
    engine.set_active(True)
    # Connecting is no part of it.
    while done() == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    first, cpu, wall = done(), time.process_time(), time.monotonic()
    while done() < total:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECS)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    records = done() - first
    await engine.stop(1)
    return {"records": records, "cpu_secs": cpu, "wall_secs": wall, "errors": errors[:3]}


# ---- sources ----


def _kafka_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.kafka import KafkaSpout

    group = f"bench-{time.time_ns()}"
    replays = given["replays"]
    return KafkaSpout(
        given["server"], "records", group_id=group, fields=["value"], max_replays=replays
    )


def _kafka_share_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.kafka import KafkaShareSpout

    return KafkaShareSpout(given["server"], "records", group_id="bench", fields=["value"])


def _redis_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.redis import RedisStreamSpout

    return RedisStreamSpout(given["server"], "records", group=f"bench-{time.time_ns()}")


def _nats_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.nats import NatsSpout

    return NatsSpout(given["server"], "records.all", durable=f"bench-{time.time_ns()}")


def _amqp_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.amqp import AmqpSpout

    return AmqpSpout(given["server"], "records")


def _postgresql_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.postgresql import PostgresqlQueueSpout

    return PostgresqlQueueSpout(given["server"], "queue", ["value"])


def _tail_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.files import TailSpout

    state = Path(given["folder"]) / f"state-{time.time_ns()}"
    return TailSpout(str(Path(given["folder"]) / "lines.log"), state=str(state))


def _mqtt_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.mqtt import MqttSpout

    return MqttSpout(given["server"], given["topic"], client_id=given["client_id"])


def _folder_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.files import FolderSpout

    return FolderSpout(given["inbox"], ["number", "value"], poll_secs=0.01)


def _poll_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.http import HttpPollSpout

    return HttpPollSpout(
        f"{given['server']}/pages",
        ["value"],
        format="json",
        cursor_field="id",
        cursor_parameter="after",
    )


def _sse_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.http import SseSpout

    return SseSpout(f"{given['server']}/events")


def _websocket_spout(given: Mapping[str, Any]) -> Spout:
    from squall_connectors.http import WebSocketSpout

    return WebSocketSpout(f"{given['server'].replace('http', 'ws')}/socket")


SOURCES: dict[str, Callable[[Mapping[str, Any]], Spout]] = {
    "kafka": _kafka_spout,
    "kafka_share": _kafka_share_spout,
    "redis": _redis_spout,
    "nats": _nats_spout,
    "amqp": _amqp_spout,
    "postgresql": _postgresql_spout,
    "tail": _tail_spout,
    "mqtt": _mqtt_spout,
    "folder": _folder_spout,
    "poll": _poll_spout,
    "sse": _sse_spout,
    "websocket": _websocket_spout,
}


# ---- sinks, and bolts that look something up, for another key each time ----


def _kafka_bolt(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.kafka import KafkaBolt

    return KafkaBolt(given["server"], "written")


def _redis_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.redis import RedisSink

    return RedisSink(given["server"], "stream", ["value"], key="written")


def _nats_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.nats import NatsSink

    return NatsSink(given["server"], subject="written.all", data_field="value")


def _amqp_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.amqp import AmqpSink

    return AmqpSink(given["server"], routing_key="written", body_field="value")


def _mqtt_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.mqtt import MqttSink

    return MqttSink(given["server"], "written", payload_field="value")


def _postgresql_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.postgresql import PostgresqlSink

    key = ["number"] if given["upsert"] else []
    return PostgresqlSink(given["server"], "written", ["number", "value"], key=key)


def _sqlite_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.sqlite import SqliteSink

    return SqliteSink(given["path"], "written", ["number", "value"])


def _sql_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.sql import SqlSink

    statement = "INSERT INTO written (number, value) VALUES (:number, :value)"
    return SqlSink(given["server"], statement, ["number", "value"])


def _file_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.files import FileSink

    folder = str(Path(given["folder"]) / f"written-{time.time_ns()}")
    return FileSink(folder, ["number", "value"], format=given["format"], batch_secs=0.5)


def _delta_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.lakes.delta import DeltaSink

    return DeltaSink(given["table"], ["number", "value"], batch_secs=0.5)


def _opensearch_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.opensearch import OpenSearchSink

    return OpenSearchSink(given["server"], ["number", "value"], index="written")


def _iceberg_sink(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.lakes.iceberg import IcebergSink

    fields = ["number", "value"]
    return IcebergSink("bench.written", fields, catalog=given["catalog"], batch_secs=0.5)


def _redis_lookup(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.redis import RedisLookup

    return RedisLookup(given["server"], "number", key_prefix="number-", outputs=["found"])


def _postgresql_lookup(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.postgresql import PostgresqlLookup

    query = "SELECT value FROM lookup WHERE number = %s"
    return PostgresqlLookup(given["server"], query, ["number"], outputs=["found"])


def _sqlite_lookup(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.sqlite import SqliteLookup

    query = "SELECT value FROM lookup WHERE number = ?"
    return SqliteLookup(given["path"], query, ["number"], outputs=["found"])


def _http_enrich(given: Mapping[str, Any]) -> Bolt:
    from squall_connectors.http import HttpEnrich

    return HttpEnrich(f"{given['server']}/answer?number={{number}}", outputs=["found"])


SINKS: dict[str, Callable[[Mapping[str, Any]], Bolt]] = {
    "kafka": _kafka_bolt,
    "redis": _redis_sink,
    "nats": _nats_sink,
    "amqp": _amqp_sink,
    "mqtt": _mqtt_sink,
    "postgresql": _postgresql_sink,
    "sqlite": _sqlite_sink,
    "sql": _sql_sink,
    "files": _file_sink,
    "delta": _delta_sink,
    "opensearch": _opensearch_sink,
    "iceberg": _iceberg_sink,
    "redis_lookup": _redis_lookup,
    "postgresql_lookup": _postgresql_lookup,
    "sqlite_lookup": _sqlite_lookup,
    "http_enrich": _http_enrich,
}


# ---- bare loops ----


def _consume(given: Mapping[str, Any], total: int) -> dict[str, Any]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": given["server"],
            "group.id": f"bare-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["records"])
    records = len(consumer.consume(1, 60))
    cpu, wall = time.process_time(), time.monotonic()
    while records < total:
        for message in consumer.consume(1_000, 1):
            message.value()
            records += 1
    return _loop(records, cpu, wall)


def _produce(given: Mapping[str, Any], total: int) -> dict[str, Any]:
    from confluent_kafka import Producer

    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": given["server"],
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.report.only.error": True,
        }
    )
    producer.produce("written", VALUE)
    producer.flush(60)
    cpu, wall = time.process_time(), time.monotonic()
    for _ in range(0, total, 1_000):
        for _ in range(1_000):
            producer.produce("written", VALUE, on_delivery=delivered)
        producer.flush(60)
    if failed:
        raise RuntimeError(str(failed[0]))
    return _loop(total, cpu, wall)


def _loop(records: int, cpu: float, wall: float) -> dict[str, Any]:
    return {
        "records": records,
        "cpu_secs": time.process_time() - cpu,
        "wall_secs": time.monotonic() - wall,
        "errors": [],
    }


LOOPS = {"consume": _consume, "produce": _produce}


async def _run(kind: str, name: str, total: int, given: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "source":
        return await measured(SOURCES[name](given), Taking(), total)
    return await measured(Feeding(total, given["text"]), SINKS[name](given), total)


def main() -> None:
    kind, name, total, given = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    if kind == "loop":
        print(json.dumps(LOOPS[name](given, total)))
        return
    try:
        found = uvloop.run(asyncio.wait_for(_run(kind, name, total, given), _LIFE_SECS))
    except TimeoutError:
        sys.exit(f"error: {kind} {name} took more than {_LIFE_SECS:.0f} s")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
