"""Redis' connectors against a real server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
import redis
from tests.support.effort import KILL_RECORDS, KILLS, SOAK
from tests.support.redis_server import RedisServer
from tests.support.secure import VARIABLE, check_reads, check_refusal, check_writes

from squall import Bolt, Spout
from squall.testing.connectors import SinkContract, SourceContract, wait_until
from squall_connectors.redis import RedisLookup, RedisPubSubSpout, RedisSink, RedisStreamSpout

_names = itertools.count(1)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer.start(tmp_path_factory.mktemp("redis")) as server:
        yield server


class _Key:
    """A key of its own for each test, as `key`, and the server as `server`."""

    server: RedisServer
    key: str

    @pytest.fixture(autouse=True)
    def _new_key(self, redis_server: RedisServer) -> Iterator[None]:
        self.server = redis_server
        self.key = f"key-{next(_names)}"
        # Any: redis-py's annotations allow each answer to be a future or not.
        self.client: Any = redis.Redis.from_url(redis_server.url)
        yield
        self.client.close()


class TestRedisStreamSpout(_Key, SourceContract):
    reports_lag = True
    kills = KILLS
    kill_records = KILL_RECORDS

    def make_source(self, **options: Any) -> Spout:
        return RedisStreamSpout(
            self.server.url, self.key, group="group", fields=["value"], claim_secs=3, **options
        )

    def put(self, records: Sequence[str]) -> None:
        pipeline = self.client.pipeline()
        for record in records:
            pipeline.xadd(self.key, {"value": record})
        pipeline.execute()

    def partition_of(self, record: str) -> int:
        return 0

    def pending(self) -> int:
        count: int = self.client.xpending(self.key, "group")["pending"]
        return count

    def test_processed_entries_are_acknowledged(self) -> None:
        with self.running() as (bolt, _run, _):
            self.put(["1", "2", "3"])
            wait_until("the entries", lambda: len(bolt.got) == 3)
            wait_until("the acknowledgements", lambda: self.pending() == 0)

    def test_what_a_lost_consumer_had_is_claimed_by_another(self) -> None:
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(["1", "2", "3"])
            wait_until("the entries", lambda: len(bolt.got) == 3)
            run.stop()
        source = self.make_source()
        with self.running_source(source, name="other") as (other, _, _):
            wait_until("the entries", lambda: sorted(other.got) == ["1", "2", "3"], 30)

    def test_what_is_in_flight_is_not_claimed_by_another(self) -> None:
        with self.running() as (one, run, _):
            one.decide = lambda record: "hold"
            self.put(["1"])
            wait_until("the entry", lambda: one.got)
            with self.running_source(self.make_source(), name="other") as (other, _, _):
                time.sleep(8)  # more than claim_secs, and a look for what is left
                assert not other.got
            run.call(one.release)

    def test_entries_are_deleted_if_that_is_asked_for(self) -> None:
        source = RedisStreamSpout(
            self.server.url, self.key, group="group", fields=["value"], delete=True
        )
        with self.running_source(source) as (bolt, _, _):
            self.put(["1", "2", "3"])
            wait_until("the entries", lambda: len(bolt.got) == 3)
            wait_until("an empty stream", lambda: self.client.xlen(self.key) == 0)

    def test_latest_skips_what_was_there_before(self) -> None:
        self.put(["1"])
        source = RedisStreamSpout(
            self.server.url, self.key, group="group", fields=["value"], start="latest"
        )
        with self.running_source(source) as (bolt, _, _):
            wait_until("the group", lambda: self.client.xinfo_groups(self.key))
            self.put(["2"])
            wait_until("the new one", lambda: bolt.got)
        assert bolt.got == ["2"]


class TestRedisPubSubSpout(_Key, SourceContract):
    durable = False
    record_field = "message"

    def make_source(self, **options: Any) -> Spout:
        return RedisPubSubSpout(self.server.url, [self.key], **options)

    def put(self, records: Sequence[str]) -> None:
        wait_until("a subscriber", lambda: self.client.pubsub_numsub(self.key)[0][1])
        for record in records:
            self.client.publish(self.key, record)

    def partition_of(self, record: str) -> int:
        return 0

    def test_records_that_are_there_before_the_topology_are_emitted(self) -> None:
        """Not by this source: Redis does not keep them."""

    def test_answers_to_pings_are_not_messages(self) -> None:
        source: Any = self.make_source()
        source.lag_secs = 0.05
        with self.running_source(source) as (bolt, run, _):
            for number in range(20):
                self.put([str(number)])
                time.sleep(0.05)
            wait_until("all", lambda: len(bolt.got) == 20)
            assert run.errors == []

    def test_a_server_that_stands_still_is_left_and_found_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("squall_connectors.redis.pubsub._ANSWER_SECS", 1.0)
        source: Any = self.make_source()
        source.lag_secs = 0.2
        with self.running_source(source) as (bolt, run, _):
            self.put(["0"])
            wait_until("the first", lambda: bolt.got == ["0"])
            self.server.stop()
            try:
                wait_until("the report", lambda: run.errors, 20)
            finally:
                self.server.resume()
            assert "has not answered a ping" in str(run.errors[0])
            wait_until("one subscriber", lambda: self.client.pubsub_numsub(self.key)[0][1] == 1)
            self.put(["1"])
            wait_until("the second", lambda: "1" in bolt.got)


class TestRedisStreamSink(_Key, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    command: ClassVar[str] = "stream"

    def make_sink(self, **options: Any) -> Bolt:
        return RedisSink(self.server.url, self.command, ["value"], key=self.key, **options)

    def stored(self) -> list[str]:
        return [entry[b"value"].decode() for _, entry in self.client.xrange(self.key)]

    def test_a_server_that_hangs_is_left_and_tried_again(self) -> None:
        with self.running(write_timeout_secs=1.0) as (feeder, acked, run):
            self._feed(feeder, ["1"])
            wait_until("the first ack", lambda: acked.acked)
            self.server.stop()
            try:
                self._feed(feeder, ["2"])
                wait_until("the report", lambda: run.errors)
                assert acked.acked == ["1"]
            finally:
                self.server.resume()
            wait_until("the second ack", lambda: acked.acked == ["1", "2"])
        assert set(self.stored()) == {"1", "2"}


class TestRedisListSink(TestRedisStreamSink):
    command = "list"

    def stored(self) -> list[str]:
        return [value.decode() for value in self.client.lrange(self.key, 0, -1)]


class TestRedisHashSink(_Key, SinkContract):
    importable = SOAK  # the stream's kills are the same code
    kills = KILLS
    kill_records = KILL_RECORDS
    fields = ("key", "value")

    def make_sink(self, **options: Any) -> Bolt:
        return RedisSink(
            self.server.url,
            "hash",
            ["value"],
            key_field="key",
            key_prefix=f"{self.key}:",
            **options,
        )

    def values_of(self, record: str) -> list[str]:
        return [record, record]

    def stored(self) -> list[str]:
        found = self.client.scan_iter(f"{self.key}:*", count=1_000, _type="hash")
        pipeline = self.client.pipeline(transaction=False)
        for key in found:
            pipeline.hget(key, "value")
        return [value.decode() for value in pipeline.execute()]

    def rejected(self) -> list[Any]:
        self.client.set(f"{self.key}:a-string", "x")  # a hash cannot take its place
        return ["a-string", "1"]


class TestRedisLookup(_Key):
    def test_a_batch_is_looked_up_and_what_is_not_there_is_none(self) -> None:
        self.client.hset(f"{self.key}:a", mapping={"price": "3", "name": "nut"})
        bolt = RedisLookup(
            self.server.url,
            "sku",
            key_prefix=f"{self.key}:",
            hash_fields=["price", "name"],
            keep=["order"],
            outputs=["order", "price", "name"],
        )
        with SinkContract().running_sink(bolt, fields=("order", "sku")) as (feeder, run):
            for order, sku in ((1, "a"), (2, "b"), (3, "a")):
                feeder.feed([order, sku], order)
            wait_until("the acks", lambda: len(feeder.acked) == 3)
        assert sorted(run.emitted) == [[1, b"3", b"nut"], [2, None, None], [3, b"3", b"nut"]]


class TestRedisOverTls(_Key):
    def test_tls_and_a_password_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        password, secure = self.server.password, self.secure()
        url = self.server.secure_url
        check_writes(
            RedisSink(url, "stream", ["value"], key=self.key, **secure), password, monkeypatch
        )
        spout = RedisStreamSpout(url, self.key, group="group", fields=["value"], **secure)
        check_reads(spout, password, monkeypatch)
        self.client.set("item:1", "one")
        lookup = RedisLookup(url, "value", key_prefix="item:", outputs=["found"], **secure)
        check_writes(lookup, password, monkeypatch)

    def test_a_wrong_password_or_an_unknown_authority_is_reported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = RedisSink(self.server.secure_url, "list", ["value"], key=self.key, **self.secure())
        check_refusal(sink, monkeypatch, says="password")
        untrusting = RedisStreamSpout(
            self.server.secure_url, self.key, group="group", password_env=VARIABLE
        )
        check_refusal(untrusting, monkeypatch, says="certificate")

    def secure(self) -> dict[str, Any]:
        return {"password_env": VARIABLE, "ca_file": str(self.server.certificates.ca)}
