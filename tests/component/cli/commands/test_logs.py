"""`storm logs` over the real logviewer, and over servers that are not one."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall_cli.observe import worker_logs
from squall_cli.observe.worker_logs import (
    Follower,
    LogviewerError,
    Logviewers,
    Slot,
    TopologyGoneError,
    last_part,
    logviewers,
)
from squall_common.config.options.typed import ClientOptions, LogviewerOptions
from squall_common.errors import NimbusError
from squall_thrift import storm
from squall_ui.logviewer.daemon import LogServer

ID = "words-1-1700000000"
FIRST, SECOND = Slot("127.0.0.1", 6700), Slot("localhost", 6701)


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[..., Path]:
    """The file of a worker, with its folder."""

    def path(slot: Slot, name: str = "worker.log") -> Path:
        folder = tmp_path / "workers-artifacts" / ID / str(slot.port)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


# The command -----------------------------------------------------------------------------------


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a logviewer with a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    options = LogviewerOptions.read({"storm.log.dir": str(tmp_path), "logviewer.port": 0})

    async def begin() -> Any:
        server = LogServer(options, ClientOptions())
        await server.start()
        return server

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(20)
    yield server.port
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


def worker(slot: Slot, *components: str) -> storm.WorkerSummary:
    return storm.WorkerSummary(
        host=slot.host, port=slot.port, component_to_num_tasks=dict.fromkeys(components, 1)
    )


@pytest.fixture
def page(nimbus: FakeNimbus) -> storm.TopologyPageInfo:
    """A topology with two workers, of which only the second runs `count`."""
    page = storm.TopologyPageInfo(
        id=ID,
        name="words",
        id_to_spout_agg_stats={"lines": storm.ComponentAggregateStats()},
        id_to_bolt_agg_stats={"count": storm.ComponentAggregateStats()},
        workers=[worker(SECOND, "count"), worker(FIRST, "lines")],
    )
    summary = storm.TopologySummary(
        id=ID, name="words", num_tasks=2, num_executors=2, num_workers=2, uptime_secs=1,
        status="ACTIVE",
    )  # fmt: skip
    nimbus.answers |= {
        "getTopologySummaryByName": summary,
        "getTopologyPageInfo": lambda *_: page,
    }
    return page


@pytest.mark.usefixtures("page")
class TestCommand:
    def test_the_last_lines_of_all_workers_are_printed(
        self, command: Any, port: int, log_of: Callable[..., Path]
    ) -> None:
        log_of(FIRST).write_text("".join(f"line {n}\n" for n in range(20_000)))
        log_of(SECOND).write_text("red \x1b[31m\nlast without an end")
        status, out, err = command("-c", f"logviewer.port={port}", "logs", "words", "-n", "2")
        assert (status, err) == (0, "")
        assert out.splitlines() == [
            "127.0.0.1:6700 line 19998",
            "127.0.0.1:6700 line 19999",
            "localhost:6701 red \\x1b[31m",
            "localhost:6701 last without an end",
        ]

    def test_more_lines_than_the_first_part_holds(
        self, command: Any, port: int, log_of: Callable[..., Path]
    ) -> None:
        log_of(FIRST).write_text("".join(f"{n:500}\n" for n in range(2_000)))
        status, out, _ = command(
            "-c", f"logviewer.port={port}", "logs", "words", "lines", "-n", "1000"
        )
        assert status == 0
        lines = out.splitlines()
        assert (len(lines), lines[0].split()[1]) == (1000, "1000")

    def test_of_a_component_only_its_workers_are_read(
        self, command: Any, port: int, log_of: Callable[..., Path]
    ) -> None:
        log_of(FIRST).write_text("a\n")
        log_of(SECOND).write_text("b\n")
        status, out, _ = command("-c", f"logviewer.port={port}", "logs", "words", "count")
        assert (status, out) == (0, "localhost:6701 b\n")

    def test_another_file_of_the_workers(
        self, command: Any, port: int, log_of: Callable[..., Path]
    ) -> None:
        log_of(FIRST, "worker.log.err").write_text("MemoryError\n")
        status, out, err = command(
            "-c", f"logviewer.port={port}", "logs", "words", "--file", "worker.log.err"
        )
        assert (status, out) == (0, "127.0.0.1:6700 MemoryError\n")
        assert "localhost:6701 has no worker.log.err yet" in err

    def test_an_unknown_component_is_refused_with_the_known_ones(self, command: Any) -> None:
        status, _, err = command("logs", "words", "nope")
        assert status == 1
        assert "no component 'nope'" in err
        assert "It has: count, lines." in err

    def test_without_workers_it_says_where_to_look(
        self, command: Any, page: storm.TopologyPageInfo
    ) -> None:
        page.workers = []
        status, _, err = command("logs", "words")
        assert status == 1
        assert "'storm status words' says why" in err

    def test_without_a_logviewer_it_says_what_to_start(self, command: Any) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
            free = server.server_port
        status, out, err = command("-c", f"logviewer.port={free}", "logs", "words")
        assert (status, out) == (1, "")
        assert f"the logviewer of 127.0.0.1 (http://127.0.0.1:{free}) does not answer" in err
        assert "Run 'storm logviewer' on 127.0.0.1" in err

    def test_following_ends_when_the_topology_is_gone(
        self,
        nimbus: FakeNimbus,
        page: storm.TopologyPageInfo,
        command: Any,
        port: int,
        log_of: Callable[..., Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        log_of(FIRST).write_text("one\n")
        looks = 0

        def answer(*_: Any) -> storm.TopologyPageInfo:
            nonlocal looks
            looks += 1
            if looks == 2:
                append(log_of(FIRST), "two\n")
            if looks == 3:
                raise storm.NotAliveException(msg="words is not alive")
            return page

        nimbus.answers["getTopologyPageInfo"] = answer
        quick = functools.partial(Follower, poll_secs=0.05, workers_secs=0.3)
        monkeypatch.setattr(worker_logs, "Follower", quick)
        status, out, err = command("-c", f"logviewer.port={port}", "logs", "words", "lines", "-f")
        assert (status, out) == (0, "127.0.0.1:6700 one\n127.0.0.1:6700 two\n")
        assert "the topology has been removed" in err


# Following -------------------------------------------------------------------------------------


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Logviewers]:
    options = LogviewerOptions.read({"storm.log.dir": str(tmp_path), "logviewer.port": 0})
    server = LogServer(options, ClientOptions())
    await server.start()
    async with logviewers(server.port) as client:
        yield client
    await server.stop()


class Following:
    """A follower under way, and what it has shown and said."""

    def __init__(self, client: Logviewers, *slots: Slot, lines: int = 10) -> None:
        self.shown: list[str] = []
        self.said: list[str] = []
        self.slots: Any = list(slots)  # or an error, where the workers are looked for
        follower = Follower(
            client, ID, "worker.log", lines=lines, show=self._show, say=self.said.append,
            poll_secs=0.02, workers_secs=0.05,
        )  # fmt: skip
        self.task = asyncio.create_task(follower.run(slots, self._look))

    def _show(self, slot: Slot, lines: Iterable[str]) -> None:
        self.shown += [f"{slot.port} {line}" for line in lines]

    async def _look(self) -> list[Slot]:
        if isinstance(self.slots, Exception):
            raise self.slots
        found: list[Slot] = self.slots
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                assert not self.task.done(), self.task
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.slots = TopologyGoneError()
        async with asyncio.timeout(20):
            await self.task


async def test_new_lines_are_shown_once_they_have_ended(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("zero\none\n")
    following = Following(client, FIRST, lines=1)
    await following.until(lambda: following.shown == ["6700 one"])
    append(log_of(FIRST), "two\nthr")
    await following.until(lambda: following.shown == ["6700 one", "6700 two"])
    append(log_of(FIRST), "ee\n")
    await following.until(lambda: following.shown[-1] == "6700 three")
    await following.end()
    assert following.said == []


async def test_a_log_that_is_turned_over_loses_no_line(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("long enough\n")
    following = Following(client, FIRST)
    await following.until(lambda: bool(following.shown))
    # Both at once, as far as the follower can see: the folder is turned over between two polls.
    append(log_of(FIRST), "late\n")
    log_of(FIRST).rename(log_of(FIRST, "worker.log.1"))
    log_of(FIRST).write_text("new\n")
    await following.until(lambda: following.shown[-1] == "6700 new")
    assert following.shown == ["6700 long enough", "6700 late", "6700 new"]
    await following.end()


async def test_a_log_that_is_turned_over_and_grows_loses_no_line(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    """The new file is longer than what was read of the old one."""
    log_of(FIRST).write_text("a\n")
    following = Following(client, FIRST)
    await following.until(lambda: bool(following.shown))
    append(log_of(FIRST), "late\n")
    log_of(FIRST).rename(log_of(FIRST, "worker.log.1"))
    log_of(FIRST).write_text("new and long\nnewer\n")
    await following.until(lambda: following.shown[-1] == "6700 newer")
    assert following.shown == ["6700 a", "6700 late", "6700 new and long", "6700 newer"]
    assert following.said == []
    await following.end()


async def test_a_log_that_is_turned_over_three_times_between_two_looks_loses_no_line(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("a\n")
    following = Following(client, FIRST)
    await following.until(lambda: bool(following.shown))
    for turn in range(3):
        append(log_of(FIRST), f"end of {turn}\n")
        for number in (2, 1):
            if log_of(FIRST, f"worker.log.{number}").exists():
                log_of(FIRST, f"worker.log.{number}").rename(
                    log_of(FIRST, f"worker.log.{number + 1}")
                )
        log_of(FIRST).rename(log_of(FIRST, "worker.log.1"))
        log_of(FIRST).write_text(f"begin of {turn + 1}\n")
    await following.until(lambda: following.shown[-1] == "6700 begin of 3")
    assert [line.removeprefix("6700 ") for line in following.shown] == [
        "a", "end of 0", "begin of 1", "end of 1", "begin of 2", "end of 2", "begin of 3",
    ]  # fmt: skip
    await following.end()


async def test_lines_that_are_lost_are_said_to_be(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("a\n")
    following = Following(client, FIRST)
    await following.until(lambda: bool(following.shown))
    log_of(FIRST, "new").write_text("another file\n")
    log_of(FIRST, "new").replace(log_of(FIRST))
    await following.until(lambda: following.shown[-1] == "6700 another file")
    assert following.said == [
        "warning: lines of 127.0.0.1:6700 may be missing: its worker.log was replaced"
    ]
    await following.end()


async def test_many_lines_between_two_looks_are_all_shown(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("begin\n")
    following = Following(client, FIRST)
    await following.until(lambda: bool(following.shown))
    append(log_of(FIRST), "".join(f"ünïcode {n:80}\n" for n in range(60_000)))  # 5 MB
    await following.until(lambda: len(following.shown) == 60_001)
    assert following.shown[-1].split()[-1] == "59999"
    assert not any("�" in line for line in following.shown)
    await following.end()


async def test_workers_that_move_are_followed(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("a\n")
    following = Following(client, FIRST)
    await following.until(lambda: following.shown == ["6700 a"])
    following.slots = [SECOND]
    await following.until(lambda: bool(following.said))
    assert following.said == ["localhost:6701 has no worker.log yet"]
    log_of(SECOND).write_text("b\n")
    await following.until(lambda: following.shown == ["6700 a", "6701 b"])
    await following.end()


async def test_while_nimbus_is_away_the_logs_go_on(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("a\n")
    following = Following(client, FIRST)
    following.slots = NimbusError("no Nimbus answers")
    await following.until(lambda: bool(following.said))
    append(log_of(FIRST), "b\n")
    await following.until(lambda: following.shown == ["6700 a", "6700 b"])
    await following.end()
    assert following.said == ["warning: no Nimbus answers"]


async def test_a_logviewer_that_comes_back_is_read_on(
    tmp_path: Path, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("a\n")
    conf: dict[str, Any] = {"storm.log.dir": str(tmp_path), "logviewer.port": 0}
    server = LogServer(LogviewerOptions.read(conf), ClientOptions())
    await server.start()
    async with logviewers(server.port) as client:
        following = Following(client, FIRST)
        await following.until(lambda: bool(following.shown))
        conf["logviewer.port"] = server.port
        await server.stop()
        await following.until(lambda: bool(following.said))
        append(log_of(FIRST), "b\n")
        server = LogServer(LogviewerOptions.read(conf), ClientOptions())
        await server.start()
        await following.until(lambda: following.shown == ["6700 a", "6700 b"])
        await following.end()
    await server.stop()
    assert len(following.said) == 2
    assert "Run 'storm logviewer' on 127.0.0.1" in following.said[0]
    assert following.said[1] == "the logviewer of 127.0.0.1 answers again"


async def test_a_reader_of_its_output_that_leaves_ends_it(
    client: Logviewers, log_of: Callable[..., Path]
) -> None:
    log_of(FIRST).write_text("a\n")

    def closed(_slot: Slot, _lines: Iterable[str]) -> None:
        raise BrokenPipeError

    async def look() -> list[Slot]:
        return [FIRST, SECOND]

    follower = Follower(client, ID, "worker.log", lines=1, show=closed, say=lambda _: None)
    with pytest.raises(BrokenPipeError):
        async with asyncio.timeout(20):
            await follower.run([FIRST, SECOND], look)


# Servers that are not logviewers -----------------------------------------------------------------


@pytest.fixture
def other() -> Iterator[Callable[[int, bytes], int]]:
    """Start a server that gives each request the same answer; its port."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", "http://localhost/")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "part"),
    [
        (200, b"<html>", "answered something else than a part of a log"),
        (200, b"[1]", "answered something else than a part of a log"),
        (200, b'{"text": "x"}', "answered something else than a part of a log"),
        (403, b'{"error": "x", "errorMessage": "not a name of this node"}', "403: not a name of"),
        (500, b"oops" * 1000, "answered 500: oops"),
        (302, b"", "answered 302"),
    ],
)
async def test_what_is_not_an_answer_of_a_logviewer_is_an_error(
    other: Callable[[int, bytes], int], status: int, body: bytes, part: str
) -> None:
    async with logviewers(other(status, body)) as client:
        with pytest.raises(LogviewerError) as caught:
            await last_part(client, FIRST, f"{ID}/6700/worker.log", 10, ended=False)
    assert part in caught.value.message
    assert len(caught.value.message) < 400


async def test_a_logviewer_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_logs, "_TIMEOUT_SECS", 0.2)

    with socket.create_server(("127.0.0.1", 0)) as server:  # connects, and never answers
        port: int = server.getsockname()[1]
        async with logviewers(port) as client:
            with pytest.raises(LogviewerError, match=r"has not answered within 0\.2 s"):
                await last_part(client, FIRST, f"{ID}/6700/worker.log", 10, ended=False)


async def test_an_answer_without_an_end_is_not_kept(
    other: Callable[[int, bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_logs, "_ANSWER_BYTES_MAX", 100)
    answer = b'{"text": "%s", "start": 0, "end": 200, "size": 200}' % (b"x" * 200)
    async with logviewers(other(200, answer)) as client:
        with pytest.raises(LogviewerError, match="something else than a part of a log"):
            await last_part(client, FIRST, f"{ID}/6700/worker.log", 10, ended=False)
