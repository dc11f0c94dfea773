"""What foreign parties read of the UI: by whoever asks, and whatever Nimbus does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import Site, running

from squall_common.outside.published import PublicKey
from squall_ui.access import issuer as module

ISSUER = "https://id.example.org/prod"
DISCOVERY = "/prod/.well-known/openid-configuration"
KEYS = "/prod/.well-known/jwks.json"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


async def read(site: Site, path: str) -> tuple[int, dict[str, object], str]:
    """As a stranger, behind a proxy that has the issuer's name."""
    async with site.session.get(site.url(path), headers={"Host": "id.example.org"}) as answer:
        return answer.status, json.loads(await answer.text()), answer.headers["Cache-Control"]


async def test_a_stranger_finds_the_keys_through_discovery_and_keeps_them(
    tmp_path: Path, certificates: Certificates
) -> None:
    conf = {"storm.identity.issuer": ISSUER}
    async with running(tmp_path, certificates, conf) as site:
        status, document, keep = await read(site, DISCOVERY)
        assert (status, keep) == (200, "public, max-age=300")
        assert (document["issuer"], document["jwks_uri"]) == (
            ISSUER,
            f"https://id.example.org{KEYS}",
        )
        status, keys, keep = await read(site, KEYS)
        assert (status, keep) == (200, "public, max-age=300")
        outside = site.nimbus.local.nimbus.outside
        assert outside is not None
        assert keys == {"keys": [outside.keys.signing_key().public.jwk()]}
        assert "d" not in keys["keys"][0]  # type: ignore[index]
        for path in (DISCOVERY, KEYS):
            assert (await site.ask(path, method="POST"))[0] == 405
            headers = {"Sec-Fetch-Site": "cross-site"}
            assert (await site.ask(path, headers=headers))[0] == 403


async def test_without_an_issuer_there_is_nothing(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with running(tmp_path, certificates) as site:
        assert (await site.ask("/.well-known/openid-configuration"))[0] == 404
        assert (await site.ask("/.well-known/jwks.json"))[0] == 404


async def test_while_nimbus_is_away_the_last_keys_are_served_and_nimbus_is_not_flooded(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"storm.identity.issuer": ISSUER}
    async with running(tmp_path, certificates, conf) as site:
        pages = site.ui.issuer
        assert pages is not None
        asked, now = 0, [0.0]
        fetch = pages._fetch

        async def away() -> list[str]:
            nonlocal asked
            asked += 1
            raise ConnectionError("away")

        monkeypatch.setattr(pages, "_monotonic", lambda: now[0])
        monkeypatch.setattr(pages, "_fetch", away)
        for _ in range(3):
            status, _, keep = await read(site, KEYS)
            assert (status, keep) == (503, "no-store")
        assert asked == 1
        now[0] += 10
        monkeypatch.setattr(pages, "_fetch", fetch)
        status, keys, _ = await read(site, KEYS)
        assert status == 200
        monkeypatch.setattr(pages, "_fetch", away)
        now[0] += 100
        for _ in range(3):
            assert (await read(site, KEYS))[:2] == (200, keys)
        assert asked == 2
        [key] = [one for found in pages._publications() for one in found.keys]
        assert isinstance(key, PublicKey)
        monkeypatch.setattr(pages, "_now", lambda: key.until)
        assert (await read(site, KEYS))[0] == 503
        assert module.CACHE_SECS == 300
