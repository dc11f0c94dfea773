"""MQTT's connectors against a real mosquitto."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.support.certificates import Certificates
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.mosquitto_server import MosquittoServer
from tests.support.secure import VARIABLE, check_reads, check_writes
from tests.support.thirdparty import command

from squall import Bolt, Spout, TopologyBuilder, Tuple
from squall.local import LocalCluster
from squall.testing.connectors import SinkContract, SourceContract, wait_until
from squall_common.errors import InvalidTopologyError
from squall_connectors.mqtt import MqttSink, MqttSpout

_names = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoServer]:
    with MosquittoServer.start(tmp_path_factory.mktemp("mosquitto")) as server:
        yield server


class _Session:
    """A connection of the test's own; it keeps its session if it has a name."""

    def __init__(self, server: MosquittoServer, name: str = "") -> None:
        self.got: list[MQTTMessage] = []
        self._subscribed = 0
        self.client = Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5
        )
        self.client.max_inflight_messages_set(60_000)
        self.client.on_message = lambda client, userdata, message: self.got.append(message)
        self.client.on_subscribe = self._on_subscribe
        properties = Properties(PacketTypes.CONNECT)
        if name:
            properties.SessionExpiryInterval = 600
        self.client.connect(
            "127.0.0.1", server.port, clean_start=not name, keepalive=60, properties=properties
        )
        self.client.loop_start()

    def _on_subscribe(self, *_: object) -> None:
        self._subscribed += 1

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, topic: str) -> None:
        count = self._subscribed
        self.client.subscribe(topic, qos=1)
        wait_until("the subscription", lambda: self._subscribed > count)

    def publish(self, topic: str, records: Sequence[str], qos: int = 1) -> None:
        sent = [self.client.publish(topic, record, qos=qos) for record in records]
        for info in sent:
            info.wait_for_publish(30)
            assert info.is_published()


class _Topic:
    """A topic of its own for each test, as `topic`, and the broker as `server`."""

    server: MosquittoServer
    topic: str

    @pytest.fixture(autouse=True)
    def _new_topic(self, broker: MosquittoServer) -> None:
        self.server = broker
        self.topic = f"topic-{next(_names)}"


class TestMqttSpout(_Topic, SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    record_field = "payload"
    version = "5"

    @pytest.fixture(autouse=True)
    def _new_session(self, _new_topic: None) -> None:
        # A broker keeps what is published for sessions that exist.
        with _Session(self.server, f"{self.topic}-0") as session:
            session.subscribe(self.topic)

    def make_source(self, **options: Any) -> Spout:
        return MqttSpout(
            self.server.url, self.topic, client_id=self.topic, version=self.version, **options
        )

    def put(self, records: Sequence[str]) -> None:
        with _Session(self.server) as session:
            session.publish(self.topic, records)

    def partition_of(self, record: str) -> int:
        return 0

    def test_pubacks_are_sent_in_order_so_one_record_in_flight_holds_back_those_behind_it(
        self,
    ) -> None:
        records = [str(number) for number in range(20)]
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold" if record == "3" else "ack"
            self.put(records)
            wait_until("the records", lambda: len(bolt.got) == 20)
            run.stop(drain_secs=0.5)
        with self.running() as (bolt, _, _):
            wait_until("the rest", lambda: len(bolt.got) >= 17)
            time.sleep(0.5)
            assert bolt.got == records[3:]

    def test_a_record_in_flight_is_not_emitted_twice_when_the_broker_comes_back(self) -> None:
        records = [str(number) for number in range(20)]
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold" if int(record) % 2 else "ack"
            self.put(records)
            wait_until("the records", lambda: len(bolt.got) == 20)
            time.sleep(2)  # the PUBACK of the first, of which nobody tells
            self.server.kill()
            time.sleep(0.5)
            self.server.restart()
            self.put(["20"])
            wait_until("the last", lambda: "20" in bolt.got)
            assert len(bolt.got) == 21
            run.call(bolt.release)
            run.stop(drain_secs=10)
        with self.running() as (bolt, _, _):
            self.put(["21"])
            wait_until("another", lambda: "21" in bolt.got)
            assert bolt.got == ["21"]

    def test_a_broker_that_hangs_is_left_and_found_again(self) -> None:
        with self.running(keepalive_secs=1) as (bolt, run, _):
            self.put(["0"])
            wait_until("the first", lambda: bolt.got == ["0"])
            self.server.stop()
            try:
                wait_until("it to be noticed", lambda: run.errors, 40)
            finally:
                self.server.resume()
            self.put(["1"])
            wait_until("the second", lambda: "1" in bolt.got)

    def test_qos_0_beyond_the_bound_is_dropped(self) -> None:
        with self.running(in_flight_max=5) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            with _Session(self.server) as session:
                session.publish(self.topic, [str(number) for number in range(50)], qos=0)
                session.publish(self.topic, ["last"], qos=1)
            wait_until("five", lambda: len(bolt.got) >= 5)
            time.sleep(0.3)
            assert bolt.got == ["0", "1", "2", "3", "4"]
            run.call(bolt.release)
            wait_until("the one with QoS 1", lambda: "last" in bolt.got)


class TestMqtt311(TestMqttSpout):
    """The older version: the client's part differs little, so a few tests are enough."""

    version = "3.1.1"
    test_a_killed_worker_loses_nothing = None
    test_a_killed_server_loses_nothing = None
    test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy = None
    test_a_broker_that_hangs_is_left_and_found_again = None
    test_qos_0_beyond_the_bound_is_dropped = None
    test_records_in_flight_are_bounded = None  # the broker's own bound is all there is


def test_two_tasks_share_a_subscription(broker: MosquittoServer) -> None:
    builder = TopologyBuilder()
    spout = MqttSpout(broker.url, "shared/#", client_id="shared")
    builder.spout("meters", spout, parallelism=2)
    builder.bolt("seen", TaskOf()).shuffle("meters")
    TaskOf.seen.clear()
    records = {str(number) for number in range(200)}
    with LocalCluster() as cluster:
        cluster.submit_topology("shared", {}, builder.build())
        with _Session(broker) as session:
            # A message without a subscriber is gone: wait for both with messages of no account.
            deadline = time.monotonic() + 30
            while len({task for task, _ in TaskOf.seen}) < 2 and time.monotonic() < deadline:
                session.publish("shared/probe", ["probe"])
                time.sleep(0.05)
            session.publish("shared/1", sorted(records))
        wait_until("all", lambda: records <= {payload for _, payload in TaskOf.seen})
    got = [payload for _, payload in TaskOf.seen if payload in records]
    assert sorted(got) == sorted(records)
    assert len({task for task, payload in TaskOf.seen if payload in records}) == 2


class TaskOf(Bolt):
    """Notes which task each record comes from."""

    seen: ClassVar[list[tuple[int, str]]] = []

    def execute(self, tup: Tuple) -> None:
        self.seen.append((tup.source_task, tup["payload"].decode()))


class TestMqttSink(_Topic, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    fields = ("payload",)
    # mosquitto confirms before it has written to its disk.
    durable = False

    @pytest.fixture(autouse=True)
    def _subscribed(self, _new_topic: None) -> Iterator[None]:
        with _Session(self.server, f"reader-{self.topic}") as self.reader:
            self.reader.subscribe(self.topic)
            yield

    def make_sink(self, **options: Any) -> Bolt:
        return MqttSink(self.server.url, self.topic, **options)

    def stored(self) -> list[str]:
        count = -1
        while count != len(self.reader.got):
            count = len(self.reader.got)
            time.sleep(0.1)
        return [message.payload.decode() for message in self.reader.got]

    def rejected(self) -> list[Any]:
        return ["x" * 1_100_000]  # more than max_packet_size

    def test_more_than_a_brokers_bound_is_sent_in_steps(self, tmp_path: Path) -> None:
        records = [str(number) for number in range(200)]
        with MosquittoServer.start(tmp_path, "max_inflight_messages 7") as server:
            sink = MqttSink(server.url, self.topic, batch_records=100)
            with _Session(server) as reader, self.running_sink(sink) as (feeder, _):
                reader.subscribe(self.topic)
                self._feed(feeder, records)
                wait_until("the acks", lambda: len(feeder.acked) == 200)
                wait_until("the messages", lambda: len(reader.got) >= 200)
            assert [message.payload.decode() for message in reader.got] == records

    def test_what_the_broker_does_not_allow_is_reported(self, tmp_path: Path) -> None:
        rules = tmp_path / "acl"
        rules.write_text("topic readwrite allowed\n")
        with MosquittoServer.start(tmp_path, f"acl_file {rules}") as server:
            sink = MqttSink(server.url, topic_field="topic")
            with self.running_sink(sink, fields=("topic", "payload")) as (feeder, run):
                feeder.feed(["allowed", "1"], "1")
                feeder.feed(["forbidden", "2"], "2")
                wait_until("both", lambda: feeder.acked == ["1"] and feeder.failed == ["2"])
                assert "Not authorized" in str(run.errors[0])


def test_tls_and_a_password_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Certificates.make(tmp_path)
    passwords = tmp_path / "passwords"
    subprocess.run(
        [command("mosquitto_passwd"), "-b", "-c", str(passwords), "meters", "right"], check=True
    )
    settings = (
        "allow_anonymous false",
        f"password_file {passwords}",
        f"cafile {made.ca}",
        f"certfile {made.certificate}",
        f"keyfile {made.key}",
    )
    with MosquittoServer.start(tmp_path, *settings) as server:
        url = server.url.replace("mqtt://", "mqtts://meters@")
        secure = {"password_env": VARIABLE, "ca_file": str(made.ca)}
        sink = MqttSink(url, "t", payload_field="value", retain=True, **secure)
        check_writes(sink, "right", monkeypatch)
        spout = MqttSpout(url, "t", client_id="t", **secure)
        check_reads(spout, "right", monkeypatch, field="payload")


def test_a_wrong_password_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("meters:hash\n")
    settings = ("allow_anonymous false", f"password_file {passwords}")
    with MosquittoServer.start(tmp_path, *settings) as server:
        url = server.url.replace("mqtt://", "mqtt://meters:p4ssw0rd@")
        contract = TestMqttSpout()
        with contract.running_source(MqttSpout(url, "t", client_id="t")) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
            text = str(run.errors[0])
    assert "ot authorized" in text
    assert "p4ssw0rd" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "http://broker"}, "url has scheme 'http'"),
        ({"url": "mqtt://u:p4ss@:99999"}, "url"),
        ({"topic": "a/b#"}, "topic 'a/b#' is not a topic filter"),
        ({"topic": "#/a"}, "topic '#/a' is not a topic filter"),
        ({"topic": "$share/g/a"}, "is not a topic filter"),
        ({"client_id": ""}, "client_id"),
        ({"version": "4"}, "version '4'"),
        ({"session_secs": 0}, "session_secs is 0"),
        ({"keepalive_secs": 70_000}, "keepalive_secs is 70000"),
        ({"ca_file": "/ca.pem"}, "ca_file needs a url with mqtts://"),
    ],
)
def test_a_spout_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    given = {"url": "mqtt://broker", "topic": "t", "client_id": "c", **arguments}
    with pytest.raises(InvalidTopologyError, match=re.escape(message)) as error:
        MqttSpout(given.pop("url"), given.pop("topic"), **given)
    assert "p4ss" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either topic or topic_field"),
        ({"topic": "a", "topic_field": "b"}, "either topic or topic_field"),
        ({"topic": "a/+"}, "topic 'a/+' is not a topic's name"),
    ],
)
def test_a_sink_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        MqttSink("mqtt://broker", **arguments)
