"""From Kafka to a Redis stream, and from there to PostgreSQL: each source and sink in one topology.

storm jar tests/topologies/connected connected.py NAME KAFKA TOPIC REDIS_URL DSN TABLE WORKERS
"""

from __future__ import annotations

import sys

from squall import TopologyBuilder, submit_topology
from squall_connectors.kafka import KafkaSpout
from squall_connectors.postgresql import PostgresqlSink
from squall_connectors.redis import RedisSink, RedisStreamSpout


def main() -> None:
    name, kafka, topic, redis, dsn, table, workers = sys.argv[1:]
    builder = TopologyBuilder()
    builder.spout("kafka", KafkaSpout(kafka, topic, fields=["value"], value="text"), parallelism=2)
    builder.bolt("to-redis", RedisSink(redis, "stream", ["value"], key=topic)).shuffle("kafka")
    entries = RedisStreamSpout(redis, topic, group="connected", fields=["value"], claim_secs=5)
    builder.spout("redis", entries, parallelism=2)
    rows = PostgresqlSink(dsn, table, ["value"], key=["value"])
    builder.bolt("to-postgresql", rows, parallelism=2).shuffle("redis")
    conf = {"topology.workers": int(workers), "topology.max.spout.pending": 200}
    submit_topology(name, conf, builder.build())


if __name__ == "__main__":
    main()
