"""The keys of an identity provider: when they are read, and what counts while they cannot be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.identity_provider import AUDIENCE, ISSUER, ProviderKeys, signed

from squall_common.authentication import provider as module
from squall_common.authentication.provider import Provider, provider_of
from squall_common.errors import ConfigError
from squall_common.outside.provider import ProviderSettings
from squall_common.security.tokens import TokenError

NOW = 1_700_000_000.0
SETTINGS = ProviderSettings(ISSUER, AUDIENCE, ("RS256",), "sub", None)


class Site:
    """A provider behind a clock, which counts how often its keys are read."""

    def __init__(self) -> None:
        self.keys = ProviderKeys()
        self.now = 1_000.0
        self.reads = 0
        self.began = asyncio.Event()
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.document: Any = {"issuer": ISSUER, "jwks_uri": "https://keys.example.org/jwks"}
        self.provider = Provider(SETTINGS, self.read, monotonic=lambda: self.now)

    async def read(self, url: str) -> Any:
        if url.endswith("/openid-configuration"):
            assert url == f"{ISSUER}/.well-known/openid-configuration"
            self.reads += 1
            self.began.set()
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
            return self.document
        assert url == "https://keys.example.org/jwks"
        return self.keys.jwks()

    def token(self, keys: ProviderKeys | None = None) -> str:
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW, "exp": NOW + 300}
        return signed(claims, keys or self.keys)

    async def verify(self, keys: ProviderKeys | None = None) -> str:
        return (await self.provider.verify(self.token(keys), NOW)).token.user

    async def settle(self) -> None:
        """Let what reads beside the calls end."""
        if self.provider._reading is not None:
            await self.provider._reading


@pytest.fixture
def site() -> Site:
    return Site()


async def test_keys_are_read_once_and_again_beside_the_calls(site: Site) -> None:
    for _ in range(3):
        assert await site.verify() == "alice"
    assert site.reads == 1
    site.now += module._FRESH_SECS
    site.gate = asyncio.Event()
    assert await site.verify() == "alice"  # does not wait for what it has begun
    site.gate.set()
    await site.settle()
    assert site.reads == 2
    assert await site.verify() == "alice"
    assert site.reads == 2


async def test_a_key_that_was_taken_back_does_not_count_because_nobody_called(site: Site) -> None:
    assert await site.verify() == "alice"
    old, site.keys = site.keys, ProviderKeys("-2")
    site.now += module._KEPT_SECS
    with pytest.raises(TokenError, match="is not known"):
        await site.verify(old)
    assert await site.verify() == "alice"
    assert site.reads == 2


async def test_what_is_not_for_us_asks_nobody(site: Site) -> None:
    for text in ("a.b.c", signed({"iss": ISSUER, "aud": "other"}, site.keys)):
        with pytest.raises(TokenError):
            await site.provider.verify(text, NOW)
    assert site.reads == 0


async def test_a_new_key_counts_at_once_and_made_up_ones_cost_little(site: Site) -> None:
    assert await site.verify() == "alice"
    old, site.keys = site.keys, ProviderKeys("-2")
    site.now += module._AGAIN_SECS
    assert await site.verify() == "alice"
    assert site.reads == 2
    with pytest.raises(TokenError, match="is not known"):  # the provider has taken it back
        await site.verify(old)
    for number in range(50):
        with pytest.raises(TokenError, match="is not known"):
            await site.verify(ProviderKeys(f"-{number + 3}") if number < 2 else old)
    assert site.reads == 2
    site.now += module._AGAIN_SECS
    with pytest.raises(TokenError, match="is not known"):
        await site.verify(old)
    assert site.reads == 3


async def test_many_that_wait_read_the_keys_once(site: Site) -> None:
    site.gate = asyncio.Event()
    waiting = [asyncio.create_task(site.verify()) for _ in range(20)]
    await site.began.wait()
    waiting[0].cancel()  # one that gives up takes the keys from nobody
    site.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert found[1:] == ["alice"] * 19
    assert site.reads == 1


async def test_while_the_provider_is_away_the_last_keys_count_for_an_hour(site: Site) -> None:
    assert await site.verify() == "alice"
    site.error = OSError("away")
    site.now += module._KEPT_SECS + module._STALE_SECS - 1
    assert await site.verify() == "alice"
    await site.settle()
    site.now += 1
    with pytest.raises(TokenError, match="is not known"):
        await site.verify()
    site.error = None
    site.now += module._AGAIN_SECS
    assert await site.verify() == "alice"


async def test_a_provider_that_does_not_answer_is_waited_for_in_vain_but_not_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_SECS", 0.05)
    site.gate = asyncio.Event()
    async with asyncio.timeout(30):
        with pytest.raises(TokenError, match="is not known"):
            await site.verify()


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"issuer": "https://other.example.org", "jwks_uri": "https://keys.example.org/jwks"},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": 5},
    ],
)
async def test_a_document_that_is_not_the_issuers_leads_to_no_key(
    site: Site, document: Any
) -> None:
    site.document = document
    with pytest.raises(TokenError, match="is not known"):
        await site.verify()


def options(**changes: Any) -> Any:
    return SimpleNamespace(
        **{
            "storm_oidc_issuer": ISSUER, "storm_oidc_audience": AUDIENCE,
            "storm_oidc_algorithms": ("RS256",), "storm_oidc_claim_user": "sub",
            "storm_oidc_claim_groups": None, "storm_oidc_ca": None, **changes,
        }
    )  # fmt: skip


def test_a_provider_is_configured_whole_or_not_at_all() -> None:
    made = provider_of(options(), "https://id.example.org")
    assert made is not None
    assert made.settings == SETTINGS
    slash = provider_of(options(storm_oidc_issuer=f"{ISSUER}/"))
    assert slash is not None
    assert slash.settings.issuer == f"{ISSUER}/"
    assert provider_of(options(storm_oidc_issuer=None, storm_oidc_audience=None)) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"storm_oidc_audience": None}, r"storm\.oidc\.audience is not"),
        ({"storm_oidc_issuer": None}, r"storm\.oidc\.issuer is not"),
        ({"storm_oidc_issuer": "http://login.example.org"}, r"storm\.oidc\.issuer"),
        ({"storm_oidc_issuer": "https://id.example.org"}, "own issuer"),
        ({"storm_oidc_ca": "/nowhere/ca.pem"}, r"storm\.oidc\.ca"),
    ],
)
def test_a_wrong_setting_refuses_to_start(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        provider_of(options(**changes), "https://id.example.org")
