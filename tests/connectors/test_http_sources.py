"""The sources of HTTP, with a server that is in this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.certificates import Certificates
from tests.support.effort import KILL_RECORDS, KILLS
from tests.support.secure import VARIABLE, check_reads, check_refusal
from tests.support.servers import free_port

from squall import Spout
from squall.testing._runs import LoopThread
from squall.testing.connectors import SourceContract, wait_until
from squall_common.daemon.files import write_atomic
from squall_common.errors import InvalidTopologyError
from squall_connectors.http import HttpPollSpout, SseSpout, WebSocketSpout, target


class Feed:
    """Serves the same records as events, as pages, as one answer, and over web sockets. `kill` ends
    its connections and its port; the records stay."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        self.port = free_port()
        self.url = f"http{'' if certificates is None else 's'}://127.0.0.1:{self.port}"
        self._tls = None if certificates is None else certificates.for_server()
        self.records: list[str] = []
        self.requests: list[web.Request] = []
        self.sockets: set[web.WebSocketResponse] = set()
        self.greetings: list[str] = []
        self.answers_pings = True
        self.etag = True
        self.heeds_last_id = True
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Feed]:
        self._loop = LoopThread("feed")
        try:
            self.restart()
            yield self
        finally:
            self.kill()
            self._loop.end()

    def _do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.call(call, 20)

    def restart(self) -> None:
        async def start() -> None:
            app = web.Application()
            app.router.add_get("/events", self._events)
            app.router.add_get("/pages", self._pages)
            app.router.add_get("/all", self._all)
            app.router.add_get("/socket", self._socket)
            self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls).start()

        self._do(start())

    def kill(self) -> None:
        async def stop() -> None:
            runner, self._runner = self._runner, None
            if runner is not None:
                for connection in list(runner.server.connections if runner.server else ()):
                    if connection.transport is not None:
                        connection.transport.abort()
                await runner.cleanup()

        self._do(stop())

    def put(self, records: Sequence[str]) -> None:
        async def add() -> None:
            self.records += records
            self._changed.set()
            self._changed = asyncio.Event()
            for socket in list(self.sockets):
                for record in records:
                    with contextlib.suppress(ConnectionError):
                        await socket.send_str(record)

        self._do(add())

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the client has gone
            await self._send_events(request, response)
        return response

    async def _send_events(self, request: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"retry: 50\n\n")
        last_id = request.headers.get("Last-Event-ID", "-1") if self.heeds_last_id else "-1"
        next_one = int(last_id) + 1
        while True:
            changed = self._changed
            for number in range(next_one, len(self.records)):
                kind = "noise" if self.records[number].startswith("noise") else "record"
                text = f"event: {kind}\nid: {number}\ndata: {self.records[number]}\n\n"
                await response.write(text.encode())
            next_one = len(self.records)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.3)
            await response.write(b": alive\n\n")

    async def _pages(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        start = int(request.query.get("after", "-1")) + 1
        page = [
            {"id": number, "value": self.records[number]}
            for number in range(start, min(start + 50, len(self.records)))
        ]
        return web.json_response({"data": {"items": page}})

    async def _all(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        body = "\n".join(self.records)
        etag = f'"{len(self.records)}"'
        if self.etag and request.headers.get("If-None-Match") == etag:
            return web.Response(status=304)
        return web.Response(text=body, headers={"ETag": etag} if self.etag else {})

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        self.requests.append(request)
        socket = web.WebSocketResponse(autoping=self.answers_pings)
        await socket.prepare(request)
        self.sockets.add(socket)
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self.greetings.append(message.data)
        finally:
            self.sockets.discard(socket)
        return socket


class _WithFeed:
    feed: Feed
    server: Any

    @pytest.fixture(autouse=True)
    def _new_feed(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        with Feed().running() as self.feed:
            self.server = self.feed
            yield

    def put(self, records: Sequence[str]) -> None:
        self.feed.put(records)

    def partition_of(self, record: str) -> int:
        return 0


class TestSseSpout(_WithFeed, SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS
    record_field = "data"

    def make_source(self, **options: Any) -> Spout:
        return SseSpout(f"{self.feed.url}/events", state=self.folder / "state", **options)

    def test_events_of_other_types_are_left_out_and_not_asked_for_again(self) -> None:
        with self.running(events=["record"]) as (bolt, run, _):
            self.put(["noise", "1", "2", "noise"])
            wait_until("both", lambda: bolt.got == ["1", "2"])
            run.stop(drain_secs=10)
        with self.running(events=["record"]) as (bolt, _, _):
            self.put(["3"])
            wait_until("the third", lambda: bolt.got == ["3"])
        assert self.feed.requests[-1].headers["Last-Event-ID"] in ("2", "3")

    def last_id(self) -> str | None:
        """The position on the disk."""
        for path in (self.folder / "state").glob("*.json"):
            return str(json.loads(path.read_bytes())["last_id"])
        return None

    def test_events_that_the_server_repeats_while_they_are_in_flight_are_emitted_once(self) -> None:
        self.feed.heeds_last_id = False
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(["1", "2", "3"])
            wait_until("the records", lambda: bolt.got == ["1", "2", "3"])
            self.feed.kill()
            self.feed.restart()
            self.put(["4"])
            wait_until("the last", lambda: "4" in bolt.got)
            assert bolt.got == ["1", "2", "3", "4"]
            run.call(bolt.release)
            wait_until("the position", lambda: self.last_id() == "3")

    def test_a_position_that_a_full_disk_refused_is_written_later(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failures = iter([OSError(errno.ENOSPC, "No space left on device")] * 2)

        def write(path: Path, data: bytes) -> None:
            for error in failures:
                raise error
            write_atomic(path, data)

        monkeypatch.setattr(target, "write_atomic", write)
        with self.running() as (bolt, run, _):
            self.put(["1"])
            wait_until("the position", lambda: self.last_id() == "0")
            assert bolt.got == ["1"]
            assert "No space left on device" in str(run.errors[0])

    def test_events_of_other_types_are_not_written_one_by_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[bytes] = []

        def write(path: Path, data: bytes) -> None:
            written.append(data)
            write_atomic(path, data)

        monkeypatch.setattr(target, "write_atomic", write)
        self.put(["noise"] * 300)
        with self.running(events=["record"]):
            wait_until("the position", lambda: self.last_id() == "299")
        assert len(written) < 30

    def test_an_answer_that_is_no_stream_is_reported_without_its_query(self) -> None:
        source = SseSpout(f"{self.feed.url}/all?key=p4ssw0rd")
        with self.running_source(source) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
        text = str(run.errors[0])
        assert "answers 200 OK with text/plain, not a stream of events" in text
        assert "p4ssw0rd" not in text

    def test_a_silent_server_counts_as_lost(self) -> None:
        source = SseSpout(f"{self.feed.url}/events", silence_secs_max=0.1)
        with self.running_source(source) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
            wait_until("another request", lambda: len(self.feed.requests) > 1)


class TestHttpPollSpoutPages(_WithFeed, SourceContract):
    kills = KILLS
    kill_records = KILL_RECORDS

    def make_source(self, **options: Any) -> Spout:
        return HttpPollSpout(
            f"{self.feed.url}/pages",
            ["value"],
            format="json",
            items="data.items",
            cursor_field="id",
            cursor_parameter="after",
            poll_secs=0.1,
            state=self.folder / "state",
            **options,
        )


class TestHttpPollSpout(_WithFeed):
    def run(self, url: str, **options: Any) -> Any:
        contract = TestHttpPollSpoutPages()
        contract.record_field = options.pop("record_field", "body")  # type: ignore[misc]
        source = HttpPollSpout(url, poll_secs=0.1, state=self.folder / "state", **options)
        return contract.running_source(source)

    @pytest.mark.parametrize("etag", [True, False])
    def test_an_answer_is_emitted_when_it_has_changed(self, etag: bool) -> None:
        self.feed.etag = etag
        self.put(["1"])
        with self.run(f"{self.feed.url}/all") as (bolt, run, _):
            wait_until("the first", lambda: bolt.got == ["1"])
            wait_until("more requests", lambda: len(self.feed.requests) > 3)
            self.put(["2"])
            wait_until("the second", lambda: bolt.got == ["1", "1\n2"])
            run.stop(drain_secs=10)
        count = len(self.feed.requests)
        with self.run(f"{self.feed.url}/all") as (bolt, run, _):
            wait_until("more requests", lambda: len(self.feed.requests) > count + 2)
            assert bolt.got == []
        assert ("If-None-Match" in self.feed.requests[-1].headers) == etag

    def test_it_asks_again_when_all_records_of_an_answer_are_done(self) -> None:
        self.put(["1", "2", "3"])
        options = {"fields": ["line"], "format": "lines", "record_field": "line"}
        with self.run(f"{self.feed.url}/all", **options) as (bolt, run, _):
            bolt.decide = lambda record: "hold" if record == "2" else "ack"
            wait_until("the lines", lambda: bolt.got == ["1", "2", "3"])
            time.sleep(0.4)
            assert len(self.feed.requests) == 1
            run.call(bolt.release)
            wait_until("another request", lambda: len(self.feed.requests) > 1)

    def test_what_is_not_of_the_format_is_reported_and_asked_for_again(self) -> None:
        options = {"fields": ["a"], "format": "json", "record_field": "a"}
        self.put(["{"])
        with self.run(f"{self.feed.url}/all", **options) as (bolt, run, _):
            wait_until("an error", lambda: run.errors)
            assert "answers no JSON" in str(run.errors[0])
            self.feed.records.clear()
            self.put([json.dumps([{"a": "1"}, {"b": 2}])])
            wait_until("the records", lambda: bolt.got == ["1", "None"])

    def test_an_answer_that_is_too_large_or_an_error_is_reported(self) -> None:
        self.put(["x" * 1000])
        with self.run(f"{self.feed.url}/all", body_bytes_max=100) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
            assert "body_bytes_max" in str(run.errors[0])
        with self.run(f"{self.feed.url}/nowhere?key=p4ssw0rd") as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
            assert "answers 404 Not Found" in str(run.errors[0])
            assert "p4ssw0rd" not in str(run.errors[0])

    def test_a_cursor_that_stays_is_reported_rather_than_followed(self) -> None:
        self.put([json.dumps([{"id": 7}])])
        options = {"fields": ["id"], "format": "json", "record_field": "id"}
        options |= {"cursor_field": "id", "cursor_parameter": "after"}
        with self.run(f"{self.feed.url}/all", **options) as (bolt, run, _):
            wait_until("an error", lambda: run.errors)
            assert "beyond the one that was asked for (7)" in str(run.errors[0])
            assert bolt.got == ["7"]


class TestWebSocketSpout(_WithFeed, SourceContract):
    record_field = "data"
    durable = False

    def make_source(self, **options: Any) -> Spout:
        return WebSocketSpout(f"ws://127.0.0.1:{self.feed.port}/socket", **options)

    def put(self, records: Sequence[str]) -> None:
        wait_until("a connection", lambda: self.feed.sockets)
        self.feed.put(records)

    @contextlib.contextmanager
    def running_source(self, source: Spout, **options: Any) -> Iterator[Any]:
        with super().running_source(source, **options) as running:
            wait_until("a connection", lambda: self.feed.sockets)
            yield running

    test_records_that_are_there_before_the_topology_are_emitted = None

    def test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy(self) -> None:
        """It loses what is sent meanwhile; after it all goes on."""
        with self.running() as (bolt, run, _):
            self.put(["1"])
            wait_until("the first", lambda: bolt.got == ["1"])
            self.feed.kill()
            wait_until("an error", lambda: run.errors)
            self.feed.restart()
            self.put(["2"])
            wait_until("the second", lambda: bolt.got == ["1", "2"])

    def test_it_sends_its_greetings_and_headers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FEED_KEY", "secret")
        options: dict[str, Any] = {"greetings": ["hello"], "headers_env": {"X-Key": "FEED_KEY"}}
        with self.running(**options):
            wait_until("the greeting", lambda: self.feed.greetings == ["hello"])
        assert self.feed.requests[-1].headers["X-Key"] == "secret"

    def test_a_handshake_that_is_refused_is_reported_without_the_query(self) -> None:
        source = WebSocketSpout(f"ws://127.0.0.1:{self.feed.port}/nowhere?key=p4ssw0rd")
        with super().running_source(source) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
        assert "/nowhere answers 404" in str(run.errors[0])
        assert "p4ssw0rd" not in str(run.errors[0])

    def test_a_silent_server_is_pinged_and_one_that_does_not_answer_is_left(self) -> None:
        with self.running(ping_secs=1.0) as (bolt, run, _):
            time.sleep(2.5)
            assert not run.errors
            self.put(["1"])
            wait_until("the first", lambda: bolt.got == ["1"])
        self.feed.answers_pings = False
        with self.running(ping_secs=0.3) as (_, run, _letters):
            wait_until("an error", lambda: run.errors)
            assert "was silent for" in str(run.errors[0])


@pytest.mark.parametrize("kind", ["poll", "events", "socket"])
def test_tls_and_a_header_from_the_environment(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Certificates.make(tmp_path)
    with Feed(made).running() as feed:

        def source(**options: Any) -> Spout:
            given: dict[str, Any] = {"headers_env": {"Authorization": VARIABLE}, **options}
            if kind == "poll":
                return HttpPollSpout(
                    f"{feed.url}/all", ["line"], format="lines", poll_secs=0.1, **given
                )
            if kind == "events":
                return SseSpout(f"{feed.url}/events", **given)
            return WebSocketSpout(f"{feed.url.replace('http', 'ws')}/socket", **given)

        check_refusal(source(), monkeypatch, says="certificate")
        assert not feed.requests
        field = {"poll": "line", "events": "data", "socket": "data"}[kind]

        def put() -> None:
            if kind == "socket":  # it keeps nothing of before
                wait_until("a socket", lambda: feed.sockets)
            feed.put(["1"])

        check_reads(source(ca_file=str(made.ca)), "right", monkeypatch, field=field, put=put)
        assert feed.requests[-1].headers["Authorization"] == "right"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SseSpout("ftp://x"), "SseSpout: url is not a URL"),
        (lambda: SseSpout("http://x:p4ss"), "SseSpout: url is not a URL"),
        (lambda: SseSpout("http://x", event_bytes_max=0), "event_bytes_max is 0"),
        (lambda: SseSpout("http://x", silence_secs_max=0), "silence_secs_max must"),
        (lambda: WebSocketSpout("http://x"), "expected ws://HOST... or wss://HOST..."),
        (lambda: WebSocketSpout("ws://x", ping_secs=0), "ping_secs must"),
        (lambda: WebSocketSpout("ws://x", greetings=[{}]), "greetings are strings"),  # type: ignore
        (lambda: HttpPollSpout("http://x", format="xml"), "format 'xml'"),
        (lambda: HttpPollSpout("http://x", ["a", "b"]), "does not take 2 fields"),
        (lambda: HttpPollSpout("http://x", items="a"), "need format='json'"),
        (lambda: HttpPollSpout("http://x", cursor_field="a"), "need each other"),
        (lambda: HttpPollSpout("http://x", poll_secs=0), "poll_secs"),
        (lambda: HttpPollSpout("http://x", body_bytes_max=0), "body_bytes_max is 0"),
    ],
)
def test_they_refuse_what_cannot_be(make: Callable[[], Spout], message: str) -> None:
    with pytest.raises(InvalidTopologyError, match=re.escape(message)) as error:
        make()
    assert "p4ss" not in str(error.value)
