"""One Chromium for a file's tests, and a UI with a logviewer over a fake Nimbus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.browser import CHROMIUM, Browser
from tests.support.fake_nimbus import FakeNimbus, fake_nimbus
from tests.support.thirdparty import unavailable
from tests.support.ui_structs import ID, answer_everything

from squall_common.config.options.typed import ClientOptions, LogviewerOptions, UiOptions
from squall_ui.daemon import UiServer
from squall_ui.logviewer.daemon import LogServer


@dataclass(frozen=True, slots=True)
class Site:
    """A UI that answers."""

    base: str
    nimbus: FakeNimbus
    logs: Path  # of the worker
    server: UiServer


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as fake:
        answer_everything(fake)
        yield fake


@pytest.fixture
async def site(nimbus: FakeNimbus, tmp_path: Path) -> AsyncIterator[Site]:
    folder = tmp_path / "workers-artifacts" / ID / "6700"
    folder.mkdir(parents=True)
    (folder / "worker.log").write_text("INFO <img src=x onerror=alert(1)> started\n" * 50)
    (folder / "dead-letters.jsonl").write_text('{"message_id": 7, "reason": "replays"}\n<b>\n')
    (tmp_path / "nimbus.log").write_text("nimbus leads\n")
    logviewer = LogServer(
        LogviewerOptions.read({"storm.log.dir": str(tmp_path), "logviewer.port": 0}),
        ClientOptions(),
    )
    await logviewer.start()
    conf = {**nimbus.conf, "ui.port": 0, "logviewer.port": logviewer.port}
    server = UiServer(UiOptions.read(conf), ClientOptions.read(conf))
    await server.start()
    yield Site(f"http://127.0.0.1:{server.http.port}", nimbus, folder, server)
    await server.stop()
    await logviewer.stop()


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        unavailable("there is no Chromium on this machine")
    async with Browser.start(tmp_path) as browser:
        yield browser
