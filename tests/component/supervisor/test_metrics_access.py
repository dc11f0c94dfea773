"""Who reads the metrics pages of a secured cluster's Nimbus and supervisors."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from tests.support.certificates import Certificates as Authority
from tests.support.identity_provider import AUDIENCE, ProviderKeys, ProviderServer, signed
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_common.config.options.typed import ClientOptions, SupervisorOptions
from squall_common.daemon.ports import free_ports
from squall_common.daemon.web import WebServer
from squall_common.security.identity import Role
from squall_common.telemetry.page import DaemonMetrics
from squall_nimbus.metrics_page import metrics_server as nimbus_page
from squall_supervisor.metrics_page import metrics_server as supervisor_page
from squall_supervisor.node.secured import SecuredServer

READERS = {"metrics.users": ["prometheus"], "metrics.groups": ["ops"]}  # bob is in ops


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@asynccontextmanager
async def pages(
    folder: Path, certificates: Certificates, more: dict[str, Any] | None = None
) -> AsyncIterator[tuple[SecuredNimbus, dict[str, WebServer]]]:
    """Nimbus' page and a supervisor's, both on all addresses; `more` is of the configuration of
    both."""
    shared = {**READERS, **(more or {})}
    (port,) = free_ports(1)
    async with secured_nimbus(
        folder / "nimbus", certificates, {"storm.bind.host": "0.0.0.0", **shared}, port=port
    ) as nimbus:
        conf: dict[str, Any] = {
            "nimbus.seeds": ["127.0.0.1"],
            "nimbus.thrift.port": port,
            "storm.local.dir": str(folder / "supervisor"),
            "nimbus.admins": ["root"],
            "storm.group.mapping.service": "org.apache.storm.security.auth.FixedGroupsMapping",
            "storm.group.mapping.service.params": {"storm.fixed.group.mapping": {"bob": ["ops"]}},
            "storm.security.revoked": str(certificates.authority.revoked),
            **shared,
            **certificates.conf(Role.SUPERVISOR, "node-1"),
        }
        secured = SecuredServer(
            certificates.trusted(Role.SUPERVISOR, "node-1"), SupervisorOptions.read(conf)
        )
        readers = secured.metrics_readers(ClientOptions.read(conf))
        readers.start()
        settings: Any = SimpleNamespace(
            thrift_host="0.0.0.0", insecure=False, http_hosts=None, hostname="localhost"
        )
        servers = {
            "nimbus": nimbus_page(DaemonMetrics("nimbus"), nimbus.local.nimbus, 0),
            "supervisor": supervisor_page(DaemonMetrics("supervisor"), settings, 0, readers),
        }
        try:
            for server in servers.values():
                await server.start()
            yield nimbus, servers
        finally:
            for server in servers.values():
                await server.stop()
            await readers.close()
            await secured.close()


async def read(
    server: WebServer, context: ssl.SSLContext, token: str | None = None
) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"https://localhost:{server.port}/metrics", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_only_administrators_and_listed_users_read_the_pages(
    tmp_path: Path, certificates: Certificates
) -> None:
    def shows(role: Role, name: str) -> ssl.SSLContext:
        return certificates.credentials(role, name).context

    nobody = certificates.by_token("none").context
    async with pages(tmp_path, certificates) as (nimbus, servers):
        tokens = {}
        for user, actions in {
            "prometheus": ["readMetrics"], "alice": None, "bob": ["killTopology"]
        }.items():  # fmt: skip
            async with nimbus.user(user) as client:
                tokens[user] = await client.call("createToken", None, 3600, "", actions, None)
        for name, server in servers.items():
            for user in ("root", "prometheus", "bob"):
                status, text = await read(server, shows(Role.USER, user))
                assert (status, "squall_build" in text) == (200, True), (name, user)
            refused = [
                await read(server, shows(Role.USER, "alice")),
                await read(server, shows(Role.SUPERVISOR, "node-2")),
                await read(server, nobody, tokens["alice"]),
                await read(server, nobody, tokens["bob"]),  # a token for something else
                await read(server, nobody, tokens["prometheus"][:-3] + "AAA"),
                await read(server, nobody),
            ]
            assert [status for status, _ in refused] == [403, 403, 403, 403, 401, 401], name
            assert not any("squall_" in text for _, text in refused), name
            status, text = await read(server, nobody, tokens["prometheus"])
            assert (status, "squall_build" in text) == (200, True), name


async def test_users_and_groups_of_an_identity_provider_read_them(
    tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "authority").mkdir()
    authority, now = Authority.make(tmp_path / "authority"), int(time.time())
    nobody = certificates.by_token("none").context
    async with ProviderServer(authority.for_server(), ProviderKeys()) as provider:
        conf = {
            "storm.oidc.issuer": provider.url,
            "storm.oidc.audience": AUDIENCE,
            "storm.oidc.claim.groups": "groups",
            "storm.oidc.ca": str(authority.ca),
        }
        async with pages(tmp_path, certificates, conf) as (_, servers):
            for user, groups, expected in (
                ("prometheus", [], 200), ("dave", ["ops"], 200), ("dave", [], 403)
            ):  # fmt: skip
                claims = {
                    "iss": provider.url, "aud": AUDIENCE, "sub": user, "groups": groups,
                    "iat": now, "exp": now + 3_600,
                }  # fmt: skip
                token = signed(claims, provider.keys)
                for name, server in servers.items():
                    assert (await read(server, nobody, token))[0] == expected, (name, user)


async def test_the_pages_of_a_secured_cluster_are_not_served_in_the_clear(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with pages(tmp_path, certificates) as (_, servers), aiohttp.ClientSession() as session:
        for server in servers.values():
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://localhost:{server.port}/metrics")
