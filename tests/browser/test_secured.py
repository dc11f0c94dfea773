"""The pages of a secured cluster: logging in, seeing one's own, logging out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.browser import CHROMIUM, Browser
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import running
from tests.support.thirdparty import unavailable


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


async def test_a_person_logs_in_sees_their_own_topologies_and_is_logged_out(
    tmp_path: Path, certificates: Certificates
) -> None:
    if CHROMIUM is None:
        unavailable("there is no Chromium on this machine")
    async with running(tmp_path / "site", certificates) as site, Browser.start(tmp_path) as browser:
        await site.submit("alice", "count")
        await site.submit("bob", "sum")
        page = await browser.page()
        await page.call("Security.setIgnoreCertificateErrors", ignore=True)
        await page.open(site.url("/"))
        await page.wait(
            "location.pathname === '/login' && document.querySelector('#token') !== null"
        )
        await page.run("document.querySelector('#token').value = 'wrong'")
        await page.click("Log in")
        await page.wait("document.querySelector('.error')?.innerText.includes('was refused')")
        await page.screenshot(tmp_path / "login.png")
        token = json.dumps(await site.token("alice"))
        await page.run(f"document.querySelector('#token').value = {token}")
        await page.click("Log in")
        await page.wait("document.body.innerText.includes('count')")
        text = await page.text()
        assert "alice" in text
        assert "sum" not in text
        assert await page.run("document.cookie") == ""  # no script can read it
        await page.click("count")
        await page.wait("document.querySelector('h1')?.innerText === 'count'")
        await page.screenshot(tmp_path / "topology.png")
        # Revoked: the page that is open leads to the form.
        assert site.ui.secured is not None
        async with site.nimbus.user("alice") as client:
            await client.call("revokeTokens", None)
        await site.ui.secured.revocations.refresh()
        await page.wait("location.pathname === '/login'", 60)

        # By a link of `storm login --open`, and out by the button.
        status, answer = await site.ask("/login/code", await site.token("bob"), method="POST")
        assert status == 200
        await page.open(site.url(json.loads(answer)["login"]))
        await page.click("Log in as bob")
        await page.wait("document.body.innerText.includes('sum')")
        assert "count" not in await page.text()
        await page.screenshot(tmp_path / "cluster.png")
        await page.click("Log out")
        await page.wait("location.pathname === '/login'")
        # Of the refusals and of the stream that was ended; nothing of a script.
        assert [one for one in page.reports if not one.startswith("network: ")] == []
