"""The logviewer over HTTP."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from squall_common.config.options.typed import ClientOptions, LogviewerOptions
from squall_ui.logviewer.daemon import LogServer

TOPOLOGY = "words-1-1700000000"
LINES = "".join(f"2026-11-24 line {n} <script>alert({n})</script>\n" for n in range(3_000))


class Client:
    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.session = session

    async def get(
        self, path: str, headers: dict[str, str] | None = None, **query: Any
    ) -> tuple[int, str, Any]:
        url = f"{self.base}{path}"
        async with self.session.get(url, params=query, headers=headers) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            return response.status, await response.text(), response.headers

    async def json(self, path: str, **query: Any) -> Any:
        status, text, _ = await self.get(path, **query)
        assert status == 200, text
        return json.loads(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "workers-artifacts" / TOPOLOGY / "6700"
    folder.mkdir(parents=True)
    (folder / "worker.log").write_text(LINES)
    (folder / "worker.log.1.gz").write_bytes(gzip.compress(LINES.encode()))
    (folder / "stacks-17.txt").write_text("stacks")
    (tmp_path / "nimbus.log").write_text("nimbus leads\n")
    return folder


@pytest.fixture
async def logs(tmp_path: Path, folder: Path) -> AsyncIterator[Client]:
    options = LogviewerOptions.read({"storm.log.dir": str(tmp_path), "logviewer.port": 0})
    server = LogServer(options, ClientOptions())
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(server.port, session)
    await server.stop()


FILE = f"{TOPOLOGY}/6700/worker.log"


@pytest.mark.parametrize("file", [FILE, f"{FILE}.1.gz"])
async def test_a_log_is_shown_as_text_never_as_markup(logs: Client, file: str) -> None:
    status, text, headers = await logs.get("/api/v1/log", file=file)
    assert status == 200
    assert "line 2999 &lt;script&gt;" in text
    assert "<script" not in text
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")
    status, text, _ = await logs.get("/api/v1/log", file=file, start=0, length=100)
    assert "line 0 " in text
    assert "line 100 " not in text


async def test_prometheus_finds_how_requests_were_answered(logs: Client) -> None:
    await logs.get("/api/v1/log", file="not-there")
    _, text, _ = await logs.get("/metrics")
    assert 'squall_http_requests_total{route="GET /api/v1/log",status="404"} 1.0' in text
    assert 'squall_build{daemon="logviewer"' in text


async def test_lines_with_a_text(logs: Client) -> None:
    _, text, _ = await logs.get("/api/v1/log", file=FILE, grep="line 29")
    assert "111 lines" in text
    assert "line 30 " not in text


async def test_a_download_is_the_file(logs: Client) -> None:
    _, text, headers = await logs.get("/api/v1/download", file=FILE)
    assert text == LINES
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"].startswith("attachment")


async def test_a_log_is_followed_from_its_end(logs: Client, folder: Path) -> None:
    part = await logs.json("/api/v1/part", file=FILE)
    assert part["end"] == part["size"] == len(LINES)
    nothing = await logs.json("/api/v1/part", file=FILE, start=part["end"])
    assert (nothing["text"], nothing["end"]) == ("", part["end"])
    with (folder / "worker.log").open("a") as file:
        file.write("more\n")
    assert (await logs.json("/api/v1/part", file=FILE, start=part["end"]))["text"] == "more\n"


async def test_daemons_logs(logs: Client) -> None:
    assert "nimbus leads" in (await logs.get("/api/v1/daemonlog", file="nimbus.log"))[1]
    assert (await logs.get("/api/v1/daemondownload", file="nimbus.log"))[1] == "nimbus leads\n"
    assert (await logs.get("/api/v1/daemonlog", file="../etc/passwd"))[0] == 404


async def test_lists(logs: Client) -> None:
    paths = [f"{TOPOLOGY}/6700/{name}" for name in ("stacks-17.txt", "worker.log")]
    assert await logs.json("/api/v1/listLogs", topoId=TOPOLOGY, port=6700) == [
        *paths, f"{FILE}.1.gz"
    ]  # fmt: skip
    assert await logs.json("/api/v1/searchLogs", topoId="other") == []
    files = await logs.json("/api/v1/files")
    assert files["daemonLogs"] == ["nimbus.log"]
    assert {one["name"]: one["isDump"] for one in files["files"]}["stacks-17.txt"] is True


async def test_dumps(logs: Client) -> None:
    _, text, _ = await logs.get(f"/api/v1/dumps/{TOPOLOGY}/node1:6700")
    assert "stacks-17.txt" in text
    assert "worker.log" not in text
    assert (await logs.get(f"/api/v1/dumps/{TOPOLOGY}/node1:6700/stacks-17.txt"))[1] == "stacks"
    assert (await logs.get(f"/api/v1/dumps/{TOPOLOGY}/node1:6700/worker.log"))[0] == 404
    assert (await logs.get(f"/api/v1/dumps/{TOPOLOGY}/node1:6700/..%2Fsecret.txt"))[0] == 404


async def test_a_search_has_storms_fields(logs: Client) -> None:
    query = {"file": FILE, "search-string": "line 7 ", "num-matches": 2}
    found = await logs.json("/api/v1/search", **query)
    assert found.keys() == {"searchString", "startByteOffset", "isDaemon", "matches"}
    assert found["isDaemon"] == "no"
    (match,) = found["matches"]
    assert match.keys() == {
        "byteOffset", "beforeString", "matchString", "afterString", "logviewerURL"
    }  # fmt: skip
    assert LINES.encode()[match["byteOffset"] :].startswith(b"line 7 ")
    status, text, _ = await logs.get(match["logviewerURL"])
    assert status == 200
    assert "line 7 " in text
    many = await logs.json("/api/v1/search", **{**query, "search-string": "line"})
    assert (len(many["matches"]), many["startByteOffset"]) == (2, 0)
    more = await logs.json(
        "/api/v1/search",
        **{**query, "search-string": "line", "start-byte-offset": many["nextByteOffset"]},
    )
    assert more["matches"][0]["beforeString"].endswith("2026-11-24 ")


async def test_a_deep_search_names_files(logs: Client) -> None:
    query = {"search-string": "line 7 ", "search-archived": "on"}
    (port,) = await logs.json(f"/api/v1/deepSearch/{TOPOLOGY}", **query)
    assert {one["fileName"] for one in port["matches"]} == {FILE, f"{FILE}.1.gz"}
    one = await logs.json(f"/api/v1/deepSearch/{TOPOLOGY}", **{**query, "port": 6700})
    assert one["matches"] == port["matches"]
    none = await logs.json(f"/api/v1/deepSearch/{TOPOLOGY}", **{**query, "port": 1})
    assert none["matches"] == []


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/api/v1/log", {}, 400),
        ("/api/v1/log", {"file": FILE, "start": "-1"}, 400),
        ("/api/v1/log", {"file": FILE, "start": "9" * 30}, 400),
        ("/api/v1/log", {"file": f"{TOPOLOGY}/6700/../../../nimbus.log"}, 404),
        ("/api/v1/part", {"file": "/etc/passwd"}, 404),
        ("/api/v1/search", {"file": FILE}, 400),
        ("/api/v1/search", {"file": FILE, "search-string": "x" * 2_000}, 400),
        ("/static/../daemon.py", {}, 404),
        ("/static/%2e%2e/daemon.py", {}, 404),
    ],
)
async def test_errors(logs: Client, path: str, query: dict[str, str], status: int) -> None:
    found, text, _ = await logs.get(path, **query)
    assert found == status
    assert json.loads(text)["errorMessage"]


async def test_other_sites_may_link_to_a_page_and_read_nothing(logs: Client) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site"}
    status, _, headers = await logs.get("/api/v1/log", foreign, file=FILE)
    assert status == 200
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert (await logs.get("/api/v1/part", foreign, file=FILE))[0] == 403
    assert (await logs.get("/api/v1/log", {"Host": "evil.example"}, file=FILE))[0] == 421
