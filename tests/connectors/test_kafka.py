"""Kafka's spout and bolt against a real broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.support.effort import KILL_RECORDS, KILLS, SOAK
from tests.support.kafka_server import KafkaServer
from tests.support.secure import VARIABLE, check_reads, check_refusal, check_writes

from squall import Bolt, Spout, TopologyBuilder, Tuple
from squall.local import LocalCluster
from squall.testing.connectors import SinkContract, SourceContract, wait_until
from squall_connectors.kafka import KafkaBolt, KafkaRecord, KafkaSpout

_names = itertools.count(1)
PARTITIONS = 3


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer.start(tmp_path_factory.mktemp("kafka")) as server:
        yield server


class _Topic:
    """A topic of its own for each test, as `topic`, and the broker as `server`."""

    server: KafkaServer
    topic: str

    @pytest.fixture(autouse=True)
    def _new_topic(self, kafka: KafkaServer) -> None:
        self.server = kafka
        self.topic = f"topic-{next(_names)}"
        kafka.create_topic(self.topic, PARTITIONS)

    def put(self, records: Sequence[str]) -> None:
        producer = Producer({"bootstrap.servers": self.server.address, "linger.ms": 5})
        for record in records:
            producer.produce(self.topic, record, partition=int(record) % PARTITIONS)
        assert producer.flush(30) == 0

    def read(self, isolation: str = "read_committed") -> list[Any]:
        """The topic's messages, all there are."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.server.address,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        ends = [TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)]
        consumer.assign(ends)
        found, left = [], PARTITIONS
        while left:
            message = consumer.poll(10)
            assert message is not None, "the broker does not answer"
            if message.error() is None:
                found.append(message)
            elif message.error().name() == "_PARTITION_EOF":
                left -= 1
            else:
                raise KafkaException(message.error())
        consumer.close()
        return found

    def committed(self, group: str) -> int:
        """The sum of a group's committed offsets."""
        consumer = Consumer({"bootstrap.servers": self.server.address, "group.id": group})
        ends = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        found = consumer.committed(ends, timeout=20)
        consumer.close()
        return sum(max(0, end.offset) for end in found)


class TestKafkaSpout(_Topic, SourceContract):
    reports_lag = True
    kills = KILLS
    kill_records = KILL_RECORDS

    def make_source(self, **options: Any) -> Spout:
        return self.spout(**options)

    @property
    def group(self) -> str:
        return f"group-{self.topic}"

    def partition_of(self, record: str) -> int:
        return int(record) % PARTITIONS

    def spout(self, **options: Any) -> KafkaSpout:
        # A killed worker is started under another topology id here: its members must expire.
        return KafkaSpout(
            self.server.address,
            self.topic,
            group_id=self.group,
            **{"config": {"session.timeout.ms": 2_000}, **options},
        )

    def test_a_record_in_flight_holds_back_the_offset_of_its_partition_alone(self) -> None:
        records = [str(number) for number in range(30)]
        with self.running_source(self.spout(commit_secs=0.1)) as (bolt, _run, _):
            bolt.decide = lambda record: "hold" if record == "3" else "ack"
            self.put(records)
            wait_until("the records", lambda: len(bolt.got) == 30)
            # Partition 0 stops before its second record; of the others all is committed.
            wait_until("the commits", lambda: self.committed(self.group) == 1 + 10 + 10)
            time.sleep(0.3)
            assert self.committed(self.group) == 21

    def test_two_tasks_share_the_partitions_and_one_takes_over_from_the_other(self) -> None:
        first = [str(number) for number in range(300)]
        second = [str(number) for number in range(300, 600)]
        spout, other_spout = self.spout(), self.spout()
        with self.running_source(spout) as (one, _run, _):
            with self.running_source(other_spout, name="other") as (other, other_run, _):
                wait_until(
                    "both to have some",
                    lambda: (
                        0 < len(self.partitions(spout)) < PARTITIONS
                        and len(self.partitions(spout) + self.partitions(other_spout)) == PARTITIONS
                    ),
                )
                self.put(first)
                wait_until("all", lambda: set(first) == {*one.got, *other.got})
                assert one.got
                assert other.got
                other_run.stop(drain_secs=10)
            wait_until("all partitions", lambda: len(self.partitions(spout)) == PARTITIONS)
            self.put(second)
            wait_until("the rest", lambda: set(second) <= set(one.got))
        # Both ended gracefully: nothing was read twice.
        assert len(one.got) + len(other.got) == 600

    def test_a_worker_that_joins_in_the_middle_loses_nothing(self) -> None:
        records = [str(number) for number in range(3_000)]
        self.put(records)
        with self.running_source(self.spout(in_flight_max=50)) as (one, _run, _):
            wait_until("some", lambda: len(one.got) > 100)
            with self.running_source(self.spout(in_flight_max=50), name="other") as (
                other,
                _other_run,
                _,
            ):
                wait_until("all", lambda: set(records) == {*one.got, *other.got})

    def test_latest_skips_what_was_there_before(self) -> None:
        self.put(["0", "1", "2"])
        spout = self.spout(start="latest")
        with self.running_source(spout) as (bolt, _run, _):
            wait_until("its partitions", lambda: len(self.partitions(spout)) == PARTITIONS)

            def new_ones() -> bool:
                # It asks for the ends in the background: they may already be behind the first.
                self.put(["3", "4", "5"])
                return {"3", "4", "5"} <= set(bolt.got)

            wait_until("the new ones", new_ones, poll_secs=0.5)
        assert set(bolt.got) == {"3", "4", "5"}

    def test_a_time_starts_at_the_first_record_from_then_on(self) -> None:
        self.put(["0", "1", "2"])
        time.sleep(0.02)
        start = datetime.now(UTC)
        time.sleep(0.02)
        self.put(["3", "4", "5"])
        with self.running_source(self.spout(start=start)) as (bolt, _run, _):
            wait_until("the new ones", lambda: {"3", "4", "5"} <= set(bolt.got))
        assert len(bolt.got) == 3

    def test_foreign_commits_can_be_ignored_and_ones_own_count(self) -> None:
        self.put(["0", "1", "2"])
        with self.running_source(self.spout()) as (bolt, run, _):
            wait_until("all", lambda: len(bolt.got) == 3)
            run.stop(drain_secs=10)
        options = {"ignore_foreign_commits": True}
        with self.running_source(self.spout(**options), name="again") as (bolt, run, _):
            wait_until("all, again", lambda: len(bolt.got) == 3)
            run.stop(drain_secs=10)
        with self.running_source(self.spout(**options), name="again") as (bolt, run, _):
            self.put(["3"])
            wait_until("the new one", lambda: bolt.got)
        assert bolt.got == ["3"]

    def test_a_pattern_reads_topics_that_appear_later(self) -> None:
        prefix = f"many-{self.topic}"
        spout = KafkaSpout(
            self.server.address,
            pattern=f"^{prefix}-.*",
            group_id=self.group,
            config={"topic.metadata.refresh.interval.ms": 200},
        )
        with self.running_source(spout) as (bolt, _run, _):
            for name in ("a", "b"):
                self.topic = f"{prefix}-{name}"
                self.server.create_topic(self.topic, PARTITIONS)
                self.put([str(ord(name))])
                wait_until(name, lambda n=name: str(ord(n)) in bolt.got)

    def test_aborted_transactions_are_not_read(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.server.address, "transactional.id": self.topic}
        )
        producer.init_transactions(30)
        for number, end in enumerate(("commit", "abort", "commit")):
            producer.begin_transaction()
            producer.produce(self.topic, str(number), partition=0)
            producer.flush(10)
            getattr(producer, f"{end}_transaction")(30)
        with self.running_source(self.spout()) as (bolt, _run, _):
            wait_until("the committed ones", lambda: set(bolt.got) == {"0", "2"})

    def test_a_record_that_cannot_be_decoded_is_reported_and_passed_over(self) -> None:
        spout = self.spout(value="json", commit_secs=0.1)
        with self.running_source(spout) as (bolt, run, _):
            producer = Producer({"bootstrap.servers": self.server.address})
            for value in ("1", "{", "2"):
                producer.produce(self.topic, value, partition=0)
            producer.flush(10)
            wait_until("the others", lambda: bolt.got == ["1", "2"])
            wait_until("the commit", lambda: self.committed(self.group) == 3)
        assert any("@1: JSONDecodeError" in str(error) for error in run.errors)

    def test_a_record_that_cannot_be_decoded_goes_to_a_bolt_that_consumes_the_stream(self) -> None:
        """It is a tuple like any other then, and no error. Its offset waits for the ack."""
        builder = TopologyBuilder()
        builder.spout("source", self.spout(value="json", commit_secs=0.1))
        builder.bolt("collect", Collect()).shuffle("source")
        builder.bolt("doubtful", Collect()).shuffle("source", stream="unreadable")
        Collect.got = {"collect": [], "doubtful": []}
        producer = Producer({"bootstrap.servers": self.server.address})
        for value in ("1", "{", "2"):
            producer.produce(self.topic, value, key="k", partition=0)
        producer.flush(10)
        with LocalCluster() as cluster:
            cluster.submit_topology("doubtful", {}, builder.build())
            wait_until("the commit", lambda: self.committed(self.group) == 3)
            errors = cluster.errors("doubtful")
        assert [values[4] for values in Collect.got["collect"]] == [1, 2]
        [(topic, partition, offset, key, value, reason)] = Collect.got["doubtful"]
        assert (topic, partition, offset, key, value) == (self.topic, 0, 1, b"k", b"{")
        assert reason.startswith("JSONDecodeError")
        assert errors == []

    def test_a_translator_makes_the_values_and_leaves_records_out(self) -> None:
        spout = self.spout(fields=["value", "where"], translator=odd_ones)
        with self.running_source(spout) as (bolt, _run, _):
            self.put([str(number) for number in range(10)])
            wait_until("the odd ones", lambda: sorted(bolt.got) == list("13579"))

    def test_at_most_once_commits_before_it_emits(self) -> None:
        self.put([str(number) for number in range(9)])
        spout = self.spout(guarantee="at-most-once")
        with self.running_source(spout) as (bolt, run, _):
            bolt.decide = lambda record: "fail"
            wait_until("all", lambda: len(bolt.got) == 9)
            run.stop()
        assert self.committed(self.group) == 9
        assert len(bolt.got) == 9

    def test_without_a_guarantee_offsets_are_committed_by_the_client(self) -> None:
        self.put([str(number) for number in range(9)])
        spout = self.spout(guarantee="none", config={"auto.commit.interval.ms": 100})
        with self.running_source(spout) as (bolt, _run, _):
            bolt.decide = lambda record: "hold"
            wait_until("all", lambda: len(bolt.got) == 9)
            wait_until("the commit", lambda: self.committed(self.group) == 9)

    def test_a_partition_waits_when_too_much_is_done_behind_one_record(self) -> None:
        self.put([str(3 * number) for number in range(200)])  # all in partition 0
        spout = self.spout(uncommitted_max=50, in_flight_max=20)
        with self.running_source(spout) as (bolt, run, _):
            bolt.decide = lambda record: "hold" if record == "0" else "ack"
            wait_until("it to pause", lambda: any(p.paused for p in self.partitions(spout)))
            time.sleep(0.5)
            before = len(bolt.got)
            time.sleep(1.5)
            assert len(bolt.got) - before <= 20
            run.call(bolt.release)
            wait_until("all", lambda: len(set(bolt.got)) == 200)

    def partitions(self, spout: KafkaSpout) -> list[Any]:
        return list(spout._reader.assigned.values())


def odd_ones(record: KafkaRecord) -> list[Any] | None:
    return [record.value, record.topic] if int(record.value) % 2 else None


class Collect(Bolt):
    """Keeps the values that each component of this class got."""

    got: ClassVar[dict[str, list[list[Any]]]] = {}

    def execute(self, tup: Tuple) -> None:
        self.got[self.context.this_component_id].append(list(tup.values))


class TestKafkaBolt(_Topic, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    fields = ("key", "value")

    def make_sink(self, **options: Any) -> Bolt:
        return KafkaBolt(
            self.server.address,
            self.topic,
            key_field="key",
            **options,
        )

    def values_of(self, record: str) -> list[str]:
        return [f"key-{int(record) % 10}", record]

    def stored(self) -> list[str]:
        return [message.value().decode() for message in self.read()]

    def rejected(self) -> list[Any]:
        return ["key", "x" * 2_000_000]

    def test_records_of_a_key_keep_their_order(self) -> None:
        records = [str(number) for number in range(2_000)]
        with self.running() as (feeder, acked, _run):
            self._feed(feeder, records)
            wait_until("the acks", lambda: len(acked.acked) == 2_000)
        by_key: dict[bytes, list[int]] = {}
        for message in self.read():
            by_key.setdefault(message.key(), []).append(int(message.value()))
        assert len(by_key) == 10
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


if SOAK:

    class TestTransactionalKafkaBoltKills(TestKafkaBolt):
        """The same contract, with each batch a transaction."""

        def make_sink(self, **options: Any) -> Bolt:
            return super().make_sink(transactional=True, **options)


class TestTransactionalKafkaBolt(_Topic):
    def test_a_batch_is_seen_as_a_whole_and_an_aborted_one_never(self) -> None:
        bolt = KafkaBolt(self.server.address, self.topic, transactional=True)
        with SinkContract().running_sink(bolt) as (feeder, run):
            for number in range(200):
                feeder.feed([str(number)], number)
            wait_until("the acks", lambda: len(feeder.acked) == 200)
            feeder.feed(["x" * 2_000_000], "refused")
            wait_until("the refusal", lambda: feeder.failed == ["refused"])
            feeder.feed(["200"], 200)
            wait_until("the next ack", lambda: len(feeder.acked) == 201)
        assert sorted(int(message.value()) for message in self.read()) == list(range(201))
        assert run.errors

    def test_the_next_task_of_a_name_fences_the_last_and_both_lose_nothing(self) -> None:
        def bolt() -> KafkaBolt:
            return KafkaBolt(self.server.address, self.topic, transactional=True)

        contract = SinkContract()
        with contract.running_sink(bolt()) as (old, old_run):
            old.feed(["1"], 1)
            wait_until("the first ack", lambda: old.acked)
            with contract.running_sink(bolt()) as (new, _):
                new.feed(["2"], 2)
                wait_until("the second ack", lambda: new.acked)
                old.feed(["3"], 3)
                wait_until("the third ack", lambda: 3 in old.acked)
            assert "fenced" in str(old_run.errors).lower()
        assert sorted(message.value() for message in self.read()) == [b"1", b"2", b"3"]


class TestKafkaOverTls(_Topic):
    def test_tls_and_a_password_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        password = self.server.password
        bolt = KafkaBolt(self.server.secure_address, self.topic, **self.secure())
        check_writes(bolt, password, monkeypatch)
        spout = KafkaSpout(self.server.secure_address, self.topic, **self.secure())
        check_reads(spout, password, monkeypatch)

    def test_a_wrong_password_or_an_unknown_authority_is_reported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spout = KafkaSpout(self.server.secure_address, self.topic, **self.secure())
        check_refusal(spout, monkeypatch, says="authentication")
        untrusting = KafkaBolt(
            self.server.secure_address,
            self.topic,
            **self.secure(**{"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}),
        )
        check_refusal(untrusting, monkeypatch, says="certificate")

    def secure(self, **more: Any) -> dict[str, Any]:
        return {
            "config": {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "app",
                "ssl.ca.location": str(self.server.certificates.ca),
                **more,
            },
            "config_env": {"sasl.password": VARIABLE},
        }
