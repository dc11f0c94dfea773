"""What a caller meets whose connection ends while it waits."""

from __future__ import annotations

import asyncio

import pytest

from squall_drpc import AsyncDRPCClient, DRPCError


async def test_a_call_that_is_cut_off_is_not_repeated_elsewhere() -> None:
    """As when the CA that stood behind the caller goes: a worker may have the request."""
    calls: list[str] = []

    def cutting(name: str):
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            calls.append(name)
            writer.transport.abort()

        return hang_up

    servers = [await asyncio.start_server(cutting(name), "127.0.0.1", 0) for name in ("a", "b")]
    addresses = [one.sockets[0].getsockname() for one in servers]
    try:
        async with AsyncDRPCClient(addresses) as client:
            with pytest.raises(DRPCError) as caught:
                await client.execute("exclaim", "x")
            assert caught.value.reason is None
            assert "not known whether the request was carried out" in str(caught.value.hint)
            assert calls == ["a"]
            with pytest.raises(DRPCError):
                await client.execute("exclaim", "x")  # the caller's own decision
            assert calls == ["a", "b"]
    finally:
        for one in servers:
            one.close()
