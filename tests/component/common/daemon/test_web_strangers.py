"""Who makes room at a listener for HTTPS: strangers, and of these whichever kind is a crowd."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from aiohttp import web
from tests.support.nimbus_service import eventually
from tests.support.secured_nimbus import Certificates

from squall_common.daemon.web import Route, WebServer
from squall_common.security.identity import Role

PLACES = 16


class Nobody:
    """An authenticator that knows no one."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    async def identify(self, request: web.Request, certificate: bytes | None, peer: str) -> None:
        return None

    def ended(self, identity: Any) -> str | None:
        return None

    def refused(self, peer: str, reason: str) -> None:
        pass


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.mark.parametrize(
    ("crowd", "stage"),
    [("silent", "begun"), ("silent", "speaks"), ("begun", "silent"), ("begun", "speaks")],
)
async def test_a_crowd_of_another_kind_does_not_drive_out_one_that_is_on_its_way(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, crowd: str, stage: str
) -> None:
    monkeypatch.setattr("squall_common.daemon.tls_listener.HANDSHAKE_SECS", 600.0)

    async def show(_: web.Request) -> web.Response:
        return web.Response()

    server = WebServer(
        [Route("GET", "/metrics", show, "metrics")],
        name="test",
        connections_max=PLACES,
        idle_timeout_secs=600.0,
        authenticator=Nobody(certificates.trusted(Role.NIMBUS, "n1").server_context()),
    )
    await server.start()
    context = certificates.credentials(Role.USER, "alice").context
    opened: list[asyncio.StreamWriter] = []

    async def come(kind: str, own: str) -> asyncio.StreamReader:
        speaks = kind == "speaks"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            server.port,
            local_addr=(own, 0),
            ssl=context if speaks else None,
            server_hostname="127.0.0.1" if speaks else None,
        )
        opened.append(writer)
        if kind == "begun":
            writer.write(b"\x16")
        return reader

    def of_kinds() -> dict[str, int]:
        tls, runner = server._tls, server._runner.server
        assert tls is not None
        assert runner is not None
        there = {"silent": tls.silent, "begun": tls.handshakes - tls.silent}
        return {**there, "speaks": len(runner.connections)}

    come_so_far = 0

    async def are_there() -> bool:
        assert not on_its_way.at_eof()
        found = of_kinds()
        return found[stage] == 1 and found[crowd] == min(come_so_far, PLACES - 1)

    try:
        on_its_way = await come(stage, "127.0.0.1")
        await eventually(are_there, "the one on its way", 30.0)
        for come_so_far in range(1, 2 * PLACES):
            await come(crowd, f"127.0.1.{come_so_far}")
            await eventually(are_there, "the crowd and the one on its way", 30.0)
    finally:
        for writer in opened:
            writer.transport.abort()
        await server.stop()
