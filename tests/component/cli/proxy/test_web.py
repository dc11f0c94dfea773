"""Programs that know Storm's REST API and nothing of security, through the proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import Site, running

from squall_cli.proxy import web as proxies
from squall_cli.proxy.web import WebProxy
from squall_common.authentication.credentials import credentials_of
from squall_common.config.options.typed import ClientOptions
from squall_common.security.identity import Role


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.fixture
async def site(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Site]:
    async with running(tmp_path, certificates) as found:
        yield found


@pytest.fixture
async def proxy(site: Site, tmp_path: Path, certificates: Certificates) -> AsyncIterator[WebProxy]:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(await site.token("alice"))
    options = ClientOptions(
        storm_security_ca=str(certificates.authority.certificate),
        storm_security_token_file=str(file),
    )
    credentials = credentials_of(options, Role.UI)
    assert credentials is not None
    made = WebProxy(site.url("").rstrip("/"), 0, credentials)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def ask(
    proxy: WebProxy, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, aiohttp.ClientResponse]:
    url = f"http://127.0.0.1:{proxy.port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text(), answer


async def test_a_program_sees_and_changes_what_is_its_users(site: Site, proxy: WebProxy) -> None:
    topology_id = await site.submit("alice", "mine")
    await site.submit("bob", "his")
    status, text, answer = await ask(proxy, "/api/v1/topology/summary")
    assert status == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    assert [one["name"] for one in json.loads(text)["topologies"]] == ["mine"]
    status, _, _ = await ask(proxy, f"/api/v1/topology/{topology_id}/deactivate", "POST")
    assert status == 200
    status, _, _ = await ask(proxy, f"/api/v1/topology/{topology_id}?window=600")
    assert status == 200
    assert (await ask(proxy, "/api/v1/topology/none"))[0] in (403, 404)


async def test_a_stream_of_events_comes_piece_by_piece(site: Site, proxy: WebProxy) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{proxy.port}/live/cluster") as answer,
        asyncio.timeout(30),
    ):
        assert answer.status == 200
        assert await answer.content.readany()


async def test_pages_of_other_sites_and_other_users_get_nothing(
    site: Site, proxy: WebProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/api/v1/topology/summary"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"User-Agent": "Mozilla/5.0"},
    ):
        assert (await ask(proxy, path, **headers))[0] == 403, headers
    assert (await ask(proxy, path, Host="evil.example"))[0] == 421
    # What a client says of itself is not passed on.
    said = {"Authorization": "Bearer other", "doAsUser": "root", "Cookie": "a=b"}
    assert (await ask(proxy, path, **said))[0] == 200
    monkeypatch.setattr(proxies, "is_own", lambda peer, local: False)
    assert (await ask(proxy, path))[0] == 403


async def test_a_ui_that_is_away_is_said_to_be(site: Site, proxy: WebProxy) -> None:
    await site.ui.http.stop()
    status, text, _ = await ask(proxy, "/api/v1/cluster/summary")
    assert status == 502
    assert "the UI at https://" in text
