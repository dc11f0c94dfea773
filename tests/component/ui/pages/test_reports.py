"""Reports that the UI makes: by a process, and what a page gets of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.fake_nimbus import FakeNimbus, fake_nimbus
from tests.support.ui_structs import ID, answer_everything

from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.web import WebServer
from squall_ui.live.hub import Hub
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.pages.reports import Reports
from squall_ui.rest.text import Logviewers
from squall_ui.viewers import OneViewer

# What stands for the program: it recommends something, or writes its order where the report is to
# be.
ADVISE = (
    "import json, os, time; order = json.loads(os.environ['SQUALL_SPARK_REPORT']);"
    "advice = [{'component': 'split', 'recommended': 1, 'why': 'idle'}];"
    "report = {'format': 1, 'topology': {'id': order['topology']}, 'to_ms': 1000 * time.time()};"
    "open(order['json_file'], 'w').write(json.dumps({**report, 'advice': advice}))"
)
# It says who it is, and hangs.
HANG = (
    "import os, time; open(os.environ['SAY'] + '.new', 'w').write(str(os.getpid()));"
    "os.rename(os.environ['SAY'] + '.new', os.environ['SAY']); time.sleep(600)"
)
ECHO = (
    "import json, os; order = json.loads(os.environ['SQUALL_SPARK_REPORT']);"
    "open(order['html_file'], 'w').write('<p>' + json.dumps(order))"
)


class Site:
    """Requests to the reports of a UI."""

    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self.base, self.session = base, session

    async def make(self, span: object = "1 day", topology: str = ID) -> tuple[int, Any]:
        url = f"{self.base}/reports/{topology}"
        async with self.session.post(url, json={"span": span}) as response:
            return response.status, await response.json()

    async def recommend(self, topology: str = ID) -> tuple[int, Any]:
        url = f"{self.base}/reports/{topology}/recommendation"
        async with self.session.post(url, json={"span": "1 day"}) as response:
            return response.status, await response.json()

    async def show(self, path: str) -> tuple[int, str, str]:
        async with self.session.get(self.base + path) as response:
            policy = response.headers["Content-Security-Policy"]
            return response.status, policy, await response.text()


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as fake:
        answer_everything(fake)
        yield fake


@pytest.fixture
async def site(
    nimbus: FakeNimbus, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    """`request.param`: the program, if it is not the real one."""
    program = getattr(request, "param", None)
    conf = {**nimbus.conf, "storm.history.dir": str(tmp_path / "history")}
    gateway = NimbusGateway(ClientOptions.read(conf))
    more = {} if program is None else {"program": ("-c", program)}
    viewers = OneViewer(gateway, Hub(gateway, logviewers=Logviewers()))
    reports = Reports(viewers, ClientOptions.read(conf), **more)
    server = WebServer(reports.routes(), name="test", port=0)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Site(f"http://127.0.0.1:{server.port}", session)
    await server.stop()
    await gateway.close()


@pytest.mark.parametrize("site", [ECHO], indirect=True)
async def test_a_report_is_made_of_the_history_and_shown_without_a_script(
    site: Site, tmp_path: Path
) -> None:
    status, made = await site.make("6 hours")
    assert (status, made) == (200, {"report": f"/reports/{ID}"})
    status, policy, text = await site.show(made["report"])
    assert status == 200
    assert f'"topology": "{ID}", "history": "{tmp_path}/history", "since": "6h"' in text
    assert policy.startswith("sandbox; default-src 'none'; style-src 'unsafe-inline'")
    assert "script-src" not in policy


@pytest.mark.parametrize("site", ["import sys; sys.exit('nothing of ours')"], indirect=True)
async def test_a_program_that_ends_without_a_report_is_an_answer(site: Site) -> None:
    status, answer = await site.make()
    assert (status, answer["errorMessage"]) == (
        409, "the report could not be made: see `storm report`",
    )  # fmt: skip


async def test_the_program_says_why_there_is_no_report(site: Site, tmp_path: Path) -> None:
    """The real one, for a topology without a history."""
    status, answer = await site.make()
    assert status == 409
    assert "history" in answer["errorMessage"]
    assert "Traceback" not in answer["errorMessage"]
    assert (await site.show(f"/reports/{ID}"))[0] == 404


@pytest.mark.parametrize("site", [ECHO], indirect=True)
async def test_what_cannot_be_reported_on_is_refused(site: Site, nimbus: FakeNimbus) -> None:
    assert (await site.make("1d; rm -rf /"))[0] == 400
    assert (await site.make(["1 day"]))[0] == 400
    assert (await site.make(topology="gone-9-9"))[0] == 404
    url = f"{site.base}/reports/{ID}"
    async with site.session.post(url, data=b"[1") as response:
        assert response.status == 400
    foreign = {"Origin": "http://elsewhere.example"}
    async with site.session.post(url, json={"span": "all"}, headers=foreign) as response:
        assert response.status == 403


@pytest.mark.parametrize("site", [ADVISE], indirect=True)
async def test_a_report_recommends_a_rebalance_of_the_topology_as_it_runs(site: Site) -> None:
    assert await site.recommend() == (
        200,
        {
            "changes": [{"component": "split", "now": 2, "recommended": 1, "why": "idle"}],
            "unjudged": ["lines", ""],
        },
    )
    assert (await site.recommend("gone-9-9"))[0] == 404


@pytest.mark.parametrize("site", [ADVISE.replace("'format': 1", "'format': 7")], indirect=True)
async def test_a_report_that_cannot_be_applied_says_why(site: Site) -> None:
    status, answer = await site.recommend()
    assert status == 409
    assert "another version of squall" in answer["errorMessage"]


async def test_the_process_ends_with_the_ui_even_after_a_kill(tmp_path: Path) -> None:
    """A report that hangs has a minute in the UI; without the UI nothing else would end it."""
    ui = (
        "import asyncio, sys; from squall_common.config.options.typed import ClientOptions;"
        "from squall_ui.nimbus.gateway import NimbusGateway;"
        "from squall_ui.pages.reports import Reports; options = ClientOptions.read({});"
        "reports = Reports(NimbusGateway(options), options, ('-c', sys.argv[1]));"
        "asyncio.run(reports._process({'SAY': sys.argv[2]}))"
    )
    said = tmp_path / "pid"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ui, HANG, str(said))
    try:
        await _until(said.exists)
        child = int(said.read_text())
        process.kill()
        await process.wait()
        await _until(lambda: _ended(child))
    finally:
        if process.returncode is None:
            process.kill()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
