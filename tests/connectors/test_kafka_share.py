"""Kafka's share groups against a real broker."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from tests.support.effort import KILL_RECORDS, KILLS, SLOW_SERVER_KILLS
from tests.support.kafka_server import KafkaServer

from squall import Bolt, Spout, TopologyBuilder, TopologyContext, Tuple
from squall.local import LocalCluster
from squall.testing.connectors import SourceContract, wait_until
from squall_common.errors import InvalidTopologyError
from squall_connectors.kafka import KafkaRecord, KafkaShareSpout

_names = itertools.count(1)
PARTITIONS = 3
#: Of a member that is killed, the broker must notice soon.
GROUP = {"share.session.timeout.ms": "2000", "share.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer.start(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def put(server: KafkaServer, topic: str, records: Sequence[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 5})
    for number, record in enumerate(records):
        producer.produce(topic, record, partition=number % partitions)
    assert producer.flush(30) == 0


class TestKafkaShareSpout(SourceContract):
    kills = KILLS
    server_kills = SLOW_SERVER_KILLS
    kill_records = KILL_RECORDS

    @pytest.fixture(autouse=True)
    def _new_topic(self, kafka: KafkaServer) -> None:
        self.server: KafkaServer = kafka
        self.topic = f"topic-{next(_names)}"
        kafka.create_topic(self.topic, PARTITIONS)

    def make_source(self, **options: Any) -> Spout:
        return self.spout(**options)

    def spout(self, **options: Any) -> KafkaShareSpout:
        given = {"group_id": f"group-{self.topic}", "lock_secs": 3.0, "group_config": GROUP}
        return KafkaShareSpout(self.server.address, self.topic, **{**given, **options})

    def put(self, records: Sequence[str]) -> None:
        put(self.server, self.topic, records, PARTITIONS)

    def test_records_in_flight_are_bounded(self) -> None:
        records = [str(number) for number in range(60)]
        with self.running(in_flight_max=7, lock_secs=10.0) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(records)
            wait_until("some", lambda: bolt.got)
            time.sleep(1.0)
            # Whole batches of a producer come, and the next one when all of it is done.
            assert 0 < len(bolt.got) <= 7
            run.call(bolt.release)
            wait_until("all", lambda: set(records) <= set(bolt.got))

    def test_a_record_that_is_not_done_in_time_is_delivered_again(self) -> None:
        with self.running(lock_secs=1.0) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(["0", "1"])
            wait_until("the second delivery", lambda: bolt.got.count("0") == 2)
            assert "lock_secs" in str(run.errors[0])
            run.call(bolt.release)
            self.put(["2"])
            wait_until("another", lambda: "2" in bolt.got)

    def test_a_record_that_cannot_be_read_is_reported_and_rejected(self) -> None:
        source = self.spout(fields=["value"], value="json")
        with self.running_source(source) as (bolt, run, _):
            self.put(["1", "{", "2"])
            wait_until("the others", lambda: sorted(bolt.got) == ["1", "2"])
            wait_until("the error", lambda: run.errors)
            assert re.match(rf"record {self.topic}-1@0: .*", str(run.errors[0]))
            run.stop(drain_secs=10)
        with self.running() as (bolt, _, _):
            self.put(["3"])
            wait_until("another", lambda: bolt.got)
            assert bolt.got == ["3"]

    def test_many_records_that_cannot_be_read_are_few_errors(self) -> None:
        source = self.spout(fields=["value"], value="json")
        with self.running_source(source) as (bolt, run, _):
            self.put(["{"] * 300 + ["1"])
            wait_until("the other", lambda: bolt.got == ["1"])
            wait_until("the second error", lambda: len(run.errors) == 2, 30)
        assert re.match(rf"299 records .* the last: record {self.topic}-", str(run.errors[1]))
        assert "the stream 'unreadable'" in str(run.errors[1])

    def test_a_record_that_cannot_be_read_goes_to_the_bolt_that_takes_it(self) -> None:
        """It fails once, and is emitted again; then it is accepted, and comes no more."""
        builder = TopologyBuilder()
        source = self.spout(value="json", retry_first_secs=0.01)
        builder.spout("source", source)
        builder.bolt("collect", Collect()).shuffle("source")
        builder.bolt("doubtful", Collect(failures=1)).shuffle("source", stream="unreadable")
        Collect.got = {"collect": [], "doubtful": []}
        self.put(["1", "{", "2"])
        with LocalCluster() as cluster:
            cluster.submit_topology("doubtful", {}, builder.build())
            wait_until("both attempts", lambda: len(Collect.got["doubtful"]) == 2)
            wait_until("the others", lambda: len(Collect.got["collect"]) == 2)
            assert cluster.errors("doubtful") == []
            self.put(["3"])  # comes when all before it are answered
            wait_until("another", lambda: len(Collect.got["collect"]) == 3)
        assert sorted(values[4] for values in Collect.got["collect"]) == [1, 2, 3]
        first, second = Collect.got["doubtful"]
        assert first == second
        assert first[:5] == [self.topic, 1, 0, None, b"{"]
        assert first[5].startswith("JSONDecodeError")
        with self.running() as (bolt, _, _):
            self.put(["4"])
            wait_until("one more", lambda: bolt.got)
            assert bolt.got == ["4"]

    def test_a_translator_may_leave_records_out(self) -> None:
        source = self.spout(fields=["value"], translator=even)
        with self.running_source(source) as (bolt, _run, _):
            self.put([str(number) for number in range(10)])
            wait_until("the others", lambda: len(bolt.got) == 5)
            assert sorted(bolt.got) == ["0", "2", "4", "6", "8"]


class Collect(Bolt):
    """Keeps what it gets; the first `failures` tuples fail."""

    auto_ack = False
    got: ClassVar[dict[str, list[list[Any]]]] = {}

    def __init__(self, failures: int = 0) -> None:
        self._failures = failures

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._name = context.this_component_id

    def execute(self, tup: Tuple) -> None:
        self.got[self._name].append(list(tup.values))
        if len(self.got[self._name]) <= self._failures:
            self.fail(tup)
        else:
            self.ack(tup)


def even(record: KafkaRecord) -> list[Any] | None:
    return [record.value] if int(record.value) % 2 == 0 else None


class SlowBolt(Bolt):
    """Takes 10 ms for each record, and does one at a time, as a call of a service does."""

    done: int = 0

    async def execute(self, tup: Tuple) -> None:
        import asyncio

        await asyncio.sleep(0.01)
        type(self).done += 1


def test_tasks_beyond_the_number_of_partitions_add_speed(kafka: KafkaServer) -> None:
    """Each spout's task has a slow bolt's task of its own. One partition, one task and four."""
    rates = {tasks: _rate(kafka, tasks) for tasks in (1, 4)}
    print(f"records per second by tasks: {rates}")
    assert rates[4] > 2.5 * rates[1]


def _rate(kafka: KafkaServer, tasks: int) -> float:
    """Records per second that this many tasks, each with one record at a time, take from one
    partition."""
    topic = f"slow-{tasks}"
    kafka.create_topic(topic, 1)
    builder = TopologyBuilder()
    spout = KafkaShareSpout(kafka.address, topic, fields=["value"], in_flight_max=10)
    builder.spout("jobs", spout, parallelism=tasks)
    conf = {"topology.bolt.async.concurrency": 1}
    builder.bolt("slow", SlowBolt(), parallelism=tasks, conf=conf).shuffle("jobs")
    SlowBolt.done = 0
    with LocalCluster() as cluster:
        cluster.submit_topology(topic, {}, builder.build())
        put(kafka, topic, [str(number) for number in range(200 * tasks)], 1)
        wait_until("the first", lambda: SlowBolt.done > 20 * tasks)
        start, before = time.monotonic(), SlowBolt.done
        wait_until("most", lambda: SlowBolt.done > 180 * tasks)
        return (SlowBolt.done - before) / (time.monotonic() - start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": []}, "topics has no topic"),
        ({"start": "middle"}, "start 'middle'"),
        ({"lock_secs": 0}, "lock_secs is 0"),
        ({"config": {"max.poll.records": 1}}, "config may not set max.poll.records"),
    ],
)
def test_it_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    given = {"topics": "t", **arguments}
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        KafkaShareSpout("broker:9092", given.pop("topics"), **given)
