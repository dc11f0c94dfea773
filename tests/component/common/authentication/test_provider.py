"""What is read of an identity provider over the network: bounded, by https, from nowhere else."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.certificates import Certificates
from tests.support.identity_provider import (
    AUDIENCE,
    ProviderKeys,
    ProviderServer,
    ok,
    raw,
    signed,
)

from squall_common.authentication import provider as module
from squall_common.authentication.provider import HttpsReader, Provider
from squall_common.outside.provider import ProviderSettings
from squall_common.security.tokens import TokenError

NOW = 1_700_000_000.0
DISCOVERY = "/.well-known/openid-configuration"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def keys() -> ProviderKeys:
    return ProviderKeys()


@pytest.fixture
async def server(certificates: Certificates, keys: ProviderKeys) -> AsyncIterator[ProviderServer]:
    async with ProviderServer(certificates.for_server(), keys) as running:
        yield running


async def verify(server: ProviderServer, ca: Path) -> str:
    settings = ProviderSettings(server.url, AUDIENCE, ("RS256",), "sub", None)
    claims = {"iss": server.url, "aud": AUDIENCE, "sub": "alice", "iat": NOW, "exp": NOW + 300}
    provider = Provider(settings, HttpsReader(str(ca)))
    return (await provider.verify(signed(claims, server.keys), NOW)).token.user


async def test_keys_are_found_through_discovery(
    server: ProviderServer, certificates: Certificates
) -> None:
    assert await verify(server, certificates.ca) == "alice"
    assert server.asked == [DISCOVERY, "/keys"]


@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
@pytest.mark.parametrize(
    "what",
    ["redirect", "huge", "endless", "packed", "not found", "not json", "deep", "silent", "cut"],
)
async def test_an_answer_that_is_something_else_hangs_and_grows_nothing(
    server: ProviderServer,
    certificates: Certificates,
    path: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_READ_SECS", 1.0 if what == "silent" else 30.0)
    right = server._right(path).partition(b"\r\n\r\n")[2]
    server.answers[path] = {
        "redirect": lambda: raw("302 Found", b"", f"Location: {server.url}/elsewhere"),
        "huge": lambda: raw("200 OK", right + b" " * module._BYTES_MAX),
        "endless": lambda: b"HTTP/1.1 200 OK\r\n\r\n" + right + b" " * 4 * module._BYTES_MAX,
        "packed": lambda: raw(
            "200 OK", gzip.compress(right + b" " * 2**24), "Content-Encoding: gzip"
        ),
        "not found": lambda: raw("404 Not Found", right),
        "not json": lambda: raw("200 OK", right[:-1]),
        "deep": lambda: raw("200 OK", b"[" * 100_000),
        "silent": lambda: b"",
        "cut": lambda: raw("200 OK", right).replace(b"Content-Length: ", b"Content-Length: 1"),
    }[what]
    with pytest.raises(TokenError, match="is not known"):
        await verify(server, certificates.ca)
    assert "/elsewhere" not in server.asked


@pytest.mark.parametrize("where", ["file:///etc/passwd", "http://{host}/keys", "//{host}/keys", ""])
async def test_keys_are_read_by_https_alone(
    server: ProviderServer, certificates: Certificates, where: str
) -> None:
    uri = where.format(host=server.url.partition("//")[2])
    server.answers[DISCOVERY] = lambda: ok({"issuer": server.url, "jwks_uri": uri})
    with pytest.raises(TokenError, match="is not known"):
        await verify(server, certificates.ca)
    assert server.asked == [DISCOVERY]


async def test_a_server_that_nobody_vouches_for_is_not_believed(
    server: ProviderServer, certificates: Certificates, tmp_path: Path
) -> None:
    other = Certificates.make(tmp_path)
    with pytest.raises(TokenError, match="is not known"):
        await verify(server, other.ca)
    assert server.asked == []
    by_system = HttpsReader(None)
    with pytest.raises(OSError, match="cannot be read"):
        await by_system(f"{server.url}{DISCOVERY}")
    assert by_system._context.verify_mode is ssl.CERT_REQUIRED
    assert await verify(server, certificates.ca) == "alice"
