"""NATS' connectors against a real server with JetStream."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from tests.support.certificates import Certificates
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.nats_server import NatsServer
from tests.support.secure import VARIABLE, WRONG, check_reads, check_refusal, check_writes

from squall import Bolt, Spout
from squall.testing.connectors import SinkContract, SourceContract, wait_until
from squall_connectors.base.address import tls_context
from squall_connectors.nats import NatsSink, NatsSpout

_names = itertools.count(1)


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer.start(tmp_path_factory.mktemp("nats")) as server:
        yield server


class _Subject:
    """A stream of its own for each test, with the subject `subject`, and the server as `server`."""

    server: NatsServer
    subject: str

    @pytest.fixture(autouse=True)
    def _new_stream(self, nats_server: NatsServer) -> None:
        self.server = nats_server
        self.subject = f"subject-{next(_names)}"
        self.ask(lambda js: js.add_stream(name=self.subject, subjects=[self.subject]))

    def ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        """What the call with a JetStream context returns."""

        async def asking() -> Any:
            connection = await nats.connect(self.server.url)
            try:
                return await call(connection.jetstream(timeout=20))
            finally:
                await connection.close()

        return asyncio.run(asking())


class TestNatsSpout(_Subject, SourceContract):
    reports_lag = True
    kills = KILLS
    kill_records = KILL_RECORDS
    record_field = "data"

    def make_source(self, **options: Any) -> Spout:
        return NatsSpout(
            self.server.url, self.subject, durable="durable", ack_wait_secs=3, **options
        )

    def put(self, records: Sequence[str]) -> None:
        async def publish(js: Any) -> None:
            for record in records:
                await js.publish(self.subject, record.encode())

        self.ask(publish)

    def partition_of(self, record: str) -> int:
        return 0

    def test_two_tasks_share_a_consumer_and_nothing_in_flight_is_delivered_twice(self) -> None:
        records = [str(number) for number in range(200)]
        with (
            self.running(in_flight_max=20) as (one, run, _),
            self.running(in_flight_max=20) as (other, other_run, _),
        ):
            one.decide = other.decide = lambda record: "hold"
            self.put(records)
            wait_until("both to be full", lambda: len(one.got) == len(other.got) == 20)
            time.sleep(5)  # more than ack_wait_secs
            assert len(set(one.got + other.got)) == len(one.got + other.got) == 40
            run.call(one.release)
            other_run.call(other.release)
            wait_until("all", lambda: len(set(one.got + other.got)) == 200)


class TestNatsSink(_Subject, SinkContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    fields = ("data",)

    def make_sink(self, **options: Any) -> Bolt:
        return NatsSink(self.server.url, subject=self.subject, **options)

    def stored(self) -> list[str]:
        async def read(js: Any) -> list[str]:
            found: list[str] = []
            wanted = (await js.stream_info(self.subject)).state.messages
            subscription = await js.pull_subscribe(self.subject)
            while len(found) < wanted:
                for message in await subscription.fetch(500, timeout=10):
                    found.append(message.data.decode())
                    await message.ack()
            return found

        stored: list[str] = self.ask(read)
        return stored

    def rejected(self) -> list[Any]:
        return ["x" * 2_000_000]

    def test_a_message_with_a_known_id_is_stored_once(self) -> None:
        sink = NatsSink(self.server.url, subject=self.subject, id_field="id")
        with self.running_sink(sink, fields=("id", "data")) as (feeder, _):
            for number in range(20):
                feeder.feed([str(number % 5), str(number)], number)
            wait_until("the acks", lambda: len(feeder.acked) == 20)
        assert sorted(self.stored()) == ["0", "1", "2", "3", "4"]


def test_tls_and_a_password_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Certificates.make(tmp_path)
    settings = (
        *("--tls", "--tlscert", str(made.certificate), "--tlskey", str(made.key)),
        *("--user", "app", "--pass", "right"),
    )
    with NatsServer.start(tmp_path, *settings) as server:

        async def prepare() -> None:
            connection = await nats.connect(
                server.url, user="app", password="right", tls=tls_context(str(made.ca))
            )
            await connection.jetstream().add_stream(name="s", subjects=["s"])
            await connection.close()

        asyncio.run(prepare())
        secure: dict[str, Any] = {
            "options": {"user": "app"},
            "options_env": {"password": VARIABLE},
        }
        trusting = {**secure, "ca_file": str(made.ca)}
        sink = NatsSink(server.url, subject="s", data_field="value", **trusting)
        check_writes(sink, "right", monkeypatch)
        spout = NatsSpout(server.url, "s", durable="d", **trusting)
        check_reads(spout, "right", monkeypatch, field="data")
        check_refusal(NatsSpout(server.url, "s", durable="d", **trusting), monkeypatch)
        check_refusal(NatsSpout(server.url, "s", durable="d", **secure), monkeypatch)


def test_a_server_that_is_not_there_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client alone would try for two minutes before it says that there is no server."""
    with NatsServer.start(tmp_path) as server:
        url = server.url
    shown = url.replace("nats://", "nats://app:" + WRONG + "@")
    for one in (NatsSpout(shown, "s", durable="d"), NatsSink(shown, subject="s")):
        check_refusal(one, monkeypatch, says=f"{url}: ConnectionRefusedError")
        assert one.server_shown == url


@pytest.mark.parametrize("kind", ["ca_file", "tls"])
def test_a_server_without_tls_gets_no_password_if_tls_is_asked_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it wants the user and the password, and not TLS."""
    made = Certificates.make(tmp_path)
    with NatsServer.start(tmp_path, "--user", "app", "--pass", WRONG, "-DV") as server:
        given: dict[str, Any] = {"options": {"user": "app"}, "options_env": {"password": VARIABLE}}
        if kind == "ca_file":
            given["ca_file"] = str(made.ca)
        url = server.url if kind == "ca_file" else server.url.replace("nats://", "tls://")
        check_refusal(NatsSpout(url, "s", durable="d", **given), monkeypatch, says="ask for TLS")
        check_refusal(NatsSink(url, subject="s", **given), monkeypatch, says="ask for TLS")
        # The server's log has what it received.
        log = server.log_tail()
    assert "Client connection created" in log
    assert "CONNECT" not in log
