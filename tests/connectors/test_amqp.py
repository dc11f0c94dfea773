"""AMQP's connectors against a real RabbitMQ."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from tests.support.effort import KILL_RECORDS, KILLS, SLOW_SERVER_KILLS
from tests.support.rabbitmq_server import RabbitmqServer
from tests.support.secure import VARIABLE, check_reads, check_refusal, check_writes

from squall import Bolt, Spout
from squall.testing.connectors import SinkContract, SourceContract, wait_until
from squall_common.errors import InvalidTopologyError
from squall_connectors.amqp import AmqpSink, AmqpSpout

_names = itertools.count(1)


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqServer]:
    with RabbitmqServer.start(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


class _Queue:
    """A queue of its own for each test, as `queue`, and the broker as `server`."""

    server: RabbitmqServer
    queue: str

    @pytest.fixture(autouse=True)
    def _new_queue(self, rabbitmq: RabbitmqServer) -> None:
        self.server = rabbitmq
        self.queue = f"queue-{next(_names)}"
        self.ask(lambda channel: channel.declare_queue(self.queue, durable=True))

    def ask(self, call: Callable[[AbstractChannel], Awaitable[Any]]) -> Any:
        """What the call with a channel returns."""

        async def asking() -> Any:
            connection = await aio_pika.connect(self.server.url)
            async with connection:
                return await call(await connection.channel())

        return asyncio.run(asking())

    def put(self, records: Sequence[str]) -> None:
        self.publish([aio_pika.Message(record.encode(), delivery_mode=2) for record in records])

    def publish(self, messages: Sequence[aio_pika.Message]) -> None:
        async def publish(channel: AbstractChannel) -> None:
            exchange = channel.default_exchange
            await asyncio.gather(*(exchange.publish(one, self.queue) for one in messages))

        self.ask(publish)

    def count(self) -> int:
        """The messages of the queue that no one has."""

        async def count(channel: AbstractChannel) -> int:
            queue = await channel.declare_queue(self.queue, passive=True)
            return queue.declaration_result.message_count or 0

        number: int = self.ask(count)
        return number


class TestAmqpSpout(_Queue, SourceContract):
    reports_lag = True
    kills = KILLS
    server_kills = SLOW_SERVER_KILLS
    kill_records = KILL_RECORDS
    record_field = "body"

    def make_source(self, **options: Any) -> Spout:
        return AmqpSpout(self.server.url, self.queue, **options)

    def partition_of(self, record: str) -> int:
        return 0

    def test_two_tasks_share_a_queue(self) -> None:
        records = [str(number) for number in range(200)]
        with (
            self.running(in_flight_max=20) as (one, run, _),
            self.running(in_flight_max=20) as (other, other_run, _),
        ):
            one.decide = other.decide = lambda record: "hold"
            self.put(records)
            wait_until("both to be full", lambda: len(one.got) == len(other.got) == 20)
            assert self.count() == 160
            run.call(one.release)
            other_run.call(other.release)
            wait_until("all", lambda: len(set(one.got + other.got)) == 200)
            assert len(one.got + other.got) == 200

    def test_messages_with_ids_are_not_emitted_twice_when_the_connection_is_lost(self) -> None:
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.publish(
                [
                    aio_pika.Message(str(number).encode(), message_id=f"id-{number}")
                    for number in range(10)
                ]
            )
            wait_until("the records", lambda: len(bolt.got) == 10)
            run.call(lambda: asyncio.ensure_future(self.cut(run)))
            wait_until("an error", lambda: run.errors)
            self.publish([aio_pika.Message(b"last", message_id="id-10")])
            wait_until("the last", lambda: "last" in bolt.got)
            assert len(bolt.got) == 11
            run.call(bolt.release)
            run.stop(drain_secs=10)
        wait_until("the acks", lambda: self.count() == 0)

    async def cut(self, run: Any) -> None:
        """End the spout's connection."""
        await run._objects["source"]._connection.close()

    def test_messages_that_share_an_id_are_all_emitted(self) -> None:
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.publish(
                [aio_pika.Message(str(number).encode(), message_id="same") for number in range(5)]
            )
            wait_until("all", lambda: len(bolt.got) == 5)
            run.call(bolt.release)
            run.stop(drain_secs=10)
        assert self.count() == 0

    def test_a_queue_that_is_missing_or_deleted_is_reported_and_awaited(self) -> None:
        async def delete(channel: AbstractChannel) -> None:
            await channel.queue_delete(self.queue)

        source = AmqpSpout(self.server.url, self.queue)
        source.lag_secs = 0.2
        with self.running_source(source) as (bolt, run, _):
            self.put(["0"])
            wait_until("the first", lambda: bolt.got == ["0"])
            self.ask(delete)
            wait_until("an error", lambda: run.errors)
            assert "no queue" in str(run.errors[0])
            self.ask(lambda channel: channel.declare_queue(self.queue, durable=True))
            self.put(["1"])
            wait_until("the second", lambda: bolt.got == ["0", "1"])

    def test_a_queue_that_is_deleted_and_made_again_at_once_is_read_on(self) -> None:
        async def replace(channel: AbstractChannel) -> None:
            await channel.queue_delete(self.queue)
            await channel.declare_queue(self.queue, durable=True)

        with self.running() as (bolt, run, _):
            self.put(["0"])
            wait_until("the first", lambda: bolt.got == ["0"])
            self.ask(replace)
            self.put(["1"])
            wait_until("the second", lambda: bolt.got == ["0", "1"])
            assert run.errors

    def test_it_declares_and_binds_its_queue(self) -> None:
        name = f"declared-{self.queue}"
        source = AmqpSpout(
            self.server.url,
            name,
            declare=True,
            arguments={"x-queue-type": "quorum"},
            bindings=[("amq.topic", "order.#")],
        )
        source.lag_secs = 0.2

        async def publish(channel: AbstractChannel) -> None:
            exchange = await channel.get_exchange("amq.topic")
            await exchange.publish(aio_pika.Message(b"1", headers={"a": 1}), "order.new")

        with self.running_source(source) as (bolt, _, _letters):
            wait_until("the queue", lambda: source._metrics.lag.value is not None)
            self.ask(publish)
            wait_until("the message", lambda: bolt.got == ["1"])


class TestAmqpSink(_Queue, SinkContract):
    kills = KILLS
    server_kills = SLOW_SERVER_KILLS
    kill_records = KILL_RECORDS
    fields = ("body",)

    def make_sink(self, **options: Any) -> Bolt:
        return AmqpSink(self.server.url, routing_key=self.queue, **options)

    def stored(self) -> list[str]:
        async def read(channel: AbstractChannel) -> list[str]:
            queue = await channel.declare_queue(self.queue, passive=True)
            wanted = queue.declaration_result.message_count or 0
            found: list[str] = []
            arrived = asyncio.Event()

            async def take(message: Any) -> None:
                found.append(message.body.decode())
                arrived.set()

            if wanted:
                await queue.consume(take)  # without acks: they go back when the channel ends
            while len(found) < wanted:
                arrived.clear()
                async with asyncio.timeout(30):
                    await arrived.wait()
            return found

        stored: list[str] = self.ask(read)
        return stored

    def rejected(self) -> list[Any]:
        return ["x" * 1_100_000]  # more than max_message_size

    def test_a_message_that_no_queue_takes_is_refused(self) -> None:
        sink = AmqpSink(self.server.url, routing_key_field="to")
        with self.running_sink(sink, fields=("to", "body")) as (feeder, run):
            feeder.feed([self.queue, "1"], "1")
            feeder.feed(["nowhere", "2"], "2")
            wait_until("both", lambda: feeder.acked == ["1"] and feeder.failed == ["2"])
            assert "no queue takes" in str(run.errors[0])
        assert self.stored() == ["1"]

    def test_an_exchange_that_is_missing_is_awaited(self) -> None:
        name = f"exchange-{self.queue}"
        sink = AmqpSink(self.server.url, exchange=name, routing_key="k", id_field="body")

        async def declare(channel: AbstractChannel) -> None:
            exchange = await channel.declare_exchange(name, "direct")
            queue = await channel.get_queue(self.queue)
            await queue.bind(exchange, "k")

        with self.running_sink(sink) as (feeder, run):
            feeder.feed(["1"], "1")
            wait_until("an error", lambda: run.errors)
            self.ask(declare)
            wait_until("the ack", lambda: feeder.acked == ["1"])

    def test_a_broker_that_hangs_is_awaited(self) -> None:
        with self.running(write_timeout_secs=1.0) as (feeder, acked, run):
            self._feed(feeder, ["0"])
            wait_until("the first", lambda: acked.acked == ["0"])
            self.server.stop()
            try:
                self._feed(feeder, ["1"])
                wait_until("it to be noticed", lambda: run.errors)
                time.sleep(0.5)
            finally:
                self.server.resume()
            wait_until("the second", lambda: acked.acked == ["0", "1"])


class TestAmqpOverTls(_Queue):
    def test_tls_and_a_password_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        secure = {"password_env": VARIABLE, "ca_file": str(self.server.certificates.ca)}
        url, password = self.server.secure_url, self.server.password
        sink = AmqpSink(url, routing_key=self.queue, body_field="value", **secure)
        check_writes(sink, password, monkeypatch)
        check_reads(AmqpSpout(url, self.queue, **secure), password, monkeypatch, field="body")
        untrusting = AmqpSpout(url, self.queue, password_env=VARIABLE)
        check_refusal(untrusting, monkeypatch, says="certificate")


def test_a_wrong_password_is_an_error_that_does_not_show_it(
    rabbitmq: RabbitmqServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_SECRET", "p4ssw0rd")
    url = f"amqp://guest@127.0.0.1:{rabbitmq.port}"
    spout = AmqpSpout(url, "q", password_env="AMQP_SECRET")
    with TestAmqpSpout().running_source(spout) as (_, run, _letters):
        wait_until("an error", lambda: run.errors)
        text = str(run.errors[0])
    assert "ACCESS_REFUSED" in text
    assert "p4ssw0rd" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "http://broker"}, "url has scheme 'http'"),
        ({"queue": ""}, "queue ''"),
        ({"arguments": {"x": 1}}, "arguments need declare=True"),
        ({"heartbeat_secs": 0}, "heartbeat_secs is 0"),
        ({"bindings": ["abc"]}, "bindings are pairs"),
        ({"ca_file": "/ca.pem"}, "ca_file needs a url with amqps://"),
    ],
)
def test_a_spout_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    given = {"url": "amqp://broker", "queue": "q", **arguments}
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        AmqpSpout(given.pop("url"), given.pop("queue"), **given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either routing_key or routing_key_field"),
        ({"routing_key": "k", "properties": {"colour": 1}}, "properties: "),
        ({"routing_key": "k", "properties": {"body": b""}}, "properties may not set body"),
        (
            {"routing_key": "k", "id_field": "id", "properties": {"message_id": "1"}},
            "properties may not set message_id",
        ),
    ],
)
def test_a_sink_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        AmqpSink("amqp://broker", **arguments)
