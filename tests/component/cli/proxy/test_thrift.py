"""Old clients of a secured Nimbus, through the proxy: bare frames here, TLS there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.nimbus_service import package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_cli.proxy import thrift as proxies
from squall_cli.proxy.thrift import Streams, ThriftProxy
from squall_common.security.identity import Role
from squall_thrift import storm
from squall_thrift.client import (
    ThriftApplicationError,
    ThriftClient,
    ThriftTransportError,
    open_proved,
)

NOBODY = 65_534


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.fixture
async def nimbus(tmp_path: Path, certificates: Certificates) -> AsyncIterator[SecuredNimbus]:
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        yield running


@asynccontextmanager
async def proxy(nimbus: SecuredNimbus, user: str = "alice") -> AsyncIterator[ThriftProxy]:
    credentials = nimbus.certificates.credentials(Role.USER, user)

    async def open_nimbus() -> Streams:
        return await open_proved("127.0.0.1", nimbus.server.port, credentials)

    running = ThriftProxy("Nimbus", 0, open_nimbus)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def client(proxy: ThriftProxy) -> ThriftClient:
    """As old ones are: nothing but frames."""
    return ThriftClient(storm.Nimbus, "127.0.0.1", proxy.port)


async def test_a_client_without_any_proof_acts_as_the_user_of_the_proxy(
    nimbus: SecuredNimbus,
) -> None:
    async with proxy(nimbus) as running, client(running) as old:
        leader = await old.call("getLeader")
        # It comes back here, and does not go where it could prove nothing.
        assert (leader.host, leader.port) == ("127.0.0.1", running.port)
        location = await old.call("beginFileUpload")
        await old.call("uploadChunk", location, package())
        await old.call("finishFileUpload", location)
        await old.call("submitTopology", "count", location, "{}", topology())
        [summary] = await old.call("getTopologySummaries")
        assert (summary.name, summary.owner) == ("count", "alice")
        with pytest.raises(storm.NotAliveException):
            await old.call("killTopology", "none")
        await old.call("killTopologyWithOpts", "count", storm.KillOptions(wait_secs=0))


async def test_a_server_that_hung_up_costs_one_call_and_is_then_looked_for_again(
    nimbus: SecuredNimbus,
) -> None:
    async with proxy(nimbus) as running, client(running) as old:
        await old.call("getLeader")
        for connection in list(nimbus.server._connections):
            connection.task.cancel()
        async with asyncio.timeout(30):
            while nimbus.server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with contextlib.suppress(ThriftApplicationError):  # it had not seen yet that it is gone
            await old.call("getLeader")
        await old.call("getLeader")


async def test_a_server_that_is_away_is_an_error_that_says_so(nimbus: SecuredNimbus) -> None:
    async with proxy(nimbus) as running:
        await nimbus.server.stop(1)
        async with client(running) as old:
            with pytest.raises(ThriftApplicationError, match=r"storm proxy: Nimbus.*cannot"):
                await old.call("getLeader")


async def test_other_users_of_the_machine_get_nothing(
    nimbus: SecuredNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy(nimbus) as running:
        if os.geteuid() == 0:  # as another user in truth
            told = await asyncio.to_thread(
                subprocess.run,
                [
                    sys.executable,
                    "-Ic",
                    "import encodings.idna, os, socket\n"
                    f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
                    f"s = socket.create_connection(('127.0.0.1', {running.port}))\n"
                    "s.settimeout(30)\n"
                    "try: print('read', s.recv(1))\n"
                    "except ConnectionResetError: print('read', b'')",
                ],
                capture_output=True,
                text=True,
                cwd="/",
                timeout=60,
            )
            assert told.stdout.strip() == "read b''", told.stderr
        monkeypatch.setattr(proxies, "is_own", lambda peer, local: False)
        with pytest.raises(ThriftTransportError):
            async with client(running) as old:
                await old.call("getLeader")
        assert not nimbus.server.connections


async def test_what_is_no_frame_ends_its_own_connection(nimbus: SecuredNimbus) -> None:
    async with proxy(nimbus) as running, client(running) as old:
        for bad in (b"POST / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\x00\x00\x00\x04oops", b"\x00"):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(bad)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        await old.call("getLeader")
