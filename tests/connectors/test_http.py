"""HTTP's connectors, with real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.certificates import Certificates
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.http_service import service
from tests.support.servers import free_port

from squall import Spout
from squall.testing.connectors import (
    DeadLetterBolt,
    SinkContract,
    SourceContract,
    wait_until,
)
from squall_connectors.http import HttpEnrich, WebhookSpout


class TestWebhookSpout(SourceContract):
    reports_lag = True
    kills = KILLS
    kill_records = KILL_RECORDS
    record_field = "body"

    @pytest.fixture(autouse=True)
    def _new_queue(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.port = free_port()

    def make_source(self, **options: Any) -> Spout:
        return WebhookSpout(self.port, queue=self.folder / "queue", host="127.0.0.1", **options)

    def post(self, body: bytes, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/", data=body, headers=headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error) if error.code != 413 else None

    def put(self, records: Sequence[str]) -> None:
        """As a sender does that wants each to arrive: until it gets 202."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        deadline = time.monotonic() + 60
        for record in records:
            while True:
                try:
                    connection.request("POST", "/", record)
                    with connection.getresponse() as response:
                        response.read()
                        if response.status == 202:
                            break
                except (OSError, http.client.HTTPException):
                    connection.close()
                assert time.monotonic() < deadline, "the spout does not answer"
                time.sleep(0.05)
        connection.close()

    def partition_of(self, record: str) -> int:
        return 0

    def test_records_that_are_there_before_the_topology_are_emitted(self) -> None:
        """Nothing listens before."""

    def test_what_was_answered_is_there_after_a_stop(self) -> None:
        with self.running() as (_, run, _):
            run.set_active(False)
            time.sleep(0.2)
            self.put(["1", "2", "3"])
            run.stop()
        with self.running() as (bolt, _, _):
            wait_until("the requests", lambda: bolt.got == ["1", "2", "3"])

    def test_a_request_that_is_repeated_while_it_waits_is_taken_once(self) -> None:
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            for _ in range(3):
                assert self.post(b"1", **{"Idempotency-Key": "a"})[0] == 202
            assert self.post(b"2", **{"Idempotency-Key": "b"})[0] == 202
            wait_until("the second", lambda: "2" in bolt.got)
            assert bolt.got == ["1", "2"]
            run.call(bolt.release)

    def test_a_full_queue_answers_503(self) -> None:
        source = WebhookSpout(self.port, queue=self.folder, host="127.0.0.1", queue_max=3)
        with self.running_source(source) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            assert [self.post(b"1")[0] for _ in range(5)] == [202, 202, 202, 503, 503]
            wait_until("the requests", lambda: len(bolt.got) == 3)
            run.call(bolt.release)
            wait_until("room", lambda: self.post(b"1")[0] == 202)

    def test_a_body_that_is_too_large_answers_413(self) -> None:
        source = WebhookSpout(self.port, queue=self.folder, host="127.0.0.1", body_bytes_max=9)
        with self.running_source(source) as (bolt, _, _):
            assert self.post(b"x" * 10)[0] == 413
            assert self.post(b"x" * 9)[0] == 202
            wait_until("the other", lambda: bolt.got == ["x" * 9])

    def test_requests_must_be_signed_if_there_is_a_secret(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOOK_SECRET", "secret")
        source = WebhookSpout(
            self.port, queue=self.folder, host="127.0.0.1", secret_env="HOOK_SECRET"
        )
        right = "sha256=" + hmac.new(b"secret", b"1", hashlib.sha256).hexdigest()
        with self.running_source(source) as (bolt, _, _):
            assert self.post(b"1")[0] == 401
            assert self.post(b"2", **{"X-Hub-Signature-256": right})[0] == 401
            assert self.post(b"1", **{"X-Hub-Signature-256": right})[0] == 202
            wait_until("the signed one", lambda: bolt.got == ["1"])


class TestHttpEnrich:
    def run(self, bolt: HttpEnrich, **options: Any) -> Any:
        return SinkContract().running_sink(bolt, fields=("order", "sku"), **options)

    def enrich(self, url: str, **options: Any) -> HttpEnrich:
        given = {"keep": ["order"], "outputs": ["order", "item"], **options}
        return HttpEnrich(url + "/items/{sku}", **given)

    def test_a_tuple_gets_its_answer_and_many_are_asked_at_the_same_time(self) -> None:
        under_way, most = [0], [0]

        async def slow(request: web.Request) -> web.Response:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(0.1)
            under_way[0] -= 1
            return web.json_response({"path": request.path})

        with service(slow) as url, self.run(self.enrich(url, concurrency=8)) as (feeder, run):
            for number in range(40):
                feeder.feed([number, f"a/{number}"], number)
            wait_until("the acks", lambda: len(feeder.acked) == 40)
        assert most[0] == 8
        assert [3, {"path": "/items/a/3"}] in run.emitted

    def test_tls_and_a_header_from_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = Certificates.make(tmp_path)
        monkeypatch.setenv("SERVICE_KEY", "right")

        def keyed(request: web.Request) -> web.Response:
            right = request.headers["Authorization"] == "right"
            return web.json_response("nut", status=200 if right else 403)

        secure = {"headers_env": {"Authorization": "SERVICE_KEY"}, "attempts": 1}
        with service(keyed, made) as url:
            bolt = self.enrich(url, ca_file=str(made.ca), **secure)
            with self.run(bolt) as (feeder, run):
                feeder.feed([1, "a"], 1)
                wait_until("the ack", lambda: feeder.acked == [1])
            with self.run(self.enrich(url, **secure)) as (feeder, run):
                feeder.feed([1, "a"], 1)
                wait_until("the failure", lambda: feeder.failed == [1])
                assert "certificate" in str(run.errors[0])

    def test_a_service_that_fails_at_first_is_asked_again(self) -> None:
        answers = iter([503, 429, 200])

        def sometimes(request: web.Request) -> web.Response:
            headers = {"Retry-After": "0"}
            return web.json_response("nut", status=next(answers), headers=headers)

        with service(sometimes) as url, self.run(self.enrich(url)) as (feeder, run):
            feeder.feed([1, "a"], 1)
            wait_until("the ack", lambda: feeder.acked)
        assert run.emitted == [[1, "nut"]]

    def test_what_does_not_exist_is_a_dead_letter(self) -> None:
        letters = DeadLetterBolt()

        def missing(request: web.Request) -> web.Response:
            return web.Response(status=404, text="no such item")

        with service(missing) as url:
            with self.run(self.enrich(url), letters=letters) as (feeder, _):
                feeder.feed([1, "a"], 1)
                wait_until("the ack", lambda: feeder.acked)
                wait_until("the letter", lambda: letters.got)
            assert letters.got[0][:4] == [[1, "a"], ["order", "sku"], "feed", "default"]
            assert "status 404: no such item" in letters.got[0][4]
            with self.run(self.enrich(url)) as (feeder, _):
                feeder.feed([1, "a"], 1)
                wait_until("the failure", lambda: feeder.failed)

    def test_the_breaker_opens_and_closes_again(self) -> None:
        count, works = [0], [False]

        def answer(request: web.Request) -> web.Response:
            count[0] += 1
            return web.json_response(1, status=200 if works[0] else 500)

        bolt = {"attempts": 1, "breaker_failures": 3, "breaker_secs": 2.0}
        with service(answer) as url, self.run(self.enrich(url, **bolt)) as (feeder, run):
            for number in range(20):
                feeder.feed([number, f"{number}"], number)
                wait_until("the failure", lambda n=number: len(feeder.failed) == n + 1)
            assert 3 <= count[0] < 10
            assert any("circuit breaker is open" in str(error) for error in run.errors)
            works[0] = True
            time.sleep(2.1)
            for number in range(20, 30):
                feeder.feed([number, f"{number}"], number)
            wait_until("an ack", lambda: feeder.acked)

    def test_answers_are_kept_and_equal_questions_shared(self) -> None:
        count = [0]

        async def slow(request: web.Request) -> web.Response:
            count[0] += 1
            await asyncio.sleep(0.1)
            return web.json_response(None)

        with service(slow) as url, self.run(self.enrich(url, cache_secs=60)) as (feeder, run):
            for number in range(30):
                feeder.feed([number, "same"], number)
            wait_until("the acks", lambda: len(feeder.acked) == 30)
            feeder.feed([30, "same"], 30)
            wait_until("the last", lambda: len(feeder.acked) == 31)
        assert count[0] == 1
        assert len(run.emitted) == 31

    def test_requests_are_made_at_a_rate(self) -> None:
        times: list[float] = []

        def answer(request: web.Request) -> web.Response:
            times.append(time.monotonic())
            return web.json_response(1)

        with service(answer) as url, self.run(self.enrich(url, rate_per_sec=20)) as (feeder, _):
            for number in range(50):
                feeder.feed([number, f"{number}"], number)
            wait_until("the acks", lambda: len(feeder.acked) == 50)
        assert times[-1] - times[0] >= 1.3  # a second's worth at once, then 30 evenly

    def test_a_body_is_posted_and_a_service_that_hangs_is_not_waited_for(self) -> None:
        bodies: list[Any] = []

        async def answer(request: web.Request) -> web.Response:
            bodies.append(await request.json())
            if len(bodies) == 1:
                await asyncio.sleep(30)
            return web.json_response("ok")

        bolt = {"method": "POST", "body_fields": ["order", "sku"], "timeout_secs": 0.3}
        with service(answer) as url, self.run(self.enrich(url, **bolt)) as (feeder, run):
            feeder.feed([1, "a"], 1)
            wait_until("the ack", lambda: feeder.acked)
        assert bodies == [{"order": 1, "sku": "a"}] * 2
        assert run.emitted == [[1, "ok"]]
