"""A worker's side of a server: it reconnects, brings every answer, and gets on with Storm's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from squall_drpc import AsyncDRPCClient, DRPCError
from squall_drpc.remote import Address, Answers, Fetcher
from squall_drpc.requests import Failure, Outcome, Reason, Request
from squall_drpc.server.services import WorkerService
from squall_thrift import storm
from squall_thrift.serving.server import ThriftServer

from .conftest import Serve, until


@asynccontextmanager
async def exclaiming(
    address: Address, *, bytes_max: int = 1_048_576, answer: Outcome | None = None
) -> AsyncIterator[list[Exception]]:
    """A worker that answers "exclaim"; what troubled it."""
    troubles: list[Exception] = []
    answers = Answers(address, bytes_max=bytes_max)

    def deliver(_: Address, requests: Sequence[Request]) -> None:
        for request in requests:
            answers.settle(request.id, request.args + "!" if answer is None else answer)

    fetcher = Fetcher(
        address, "exclaim", room=lambda: 10, deliver=deliver, on_trouble=troubles.append
    )
    fetcher.start()
    try:
        yield troubles
    finally:
        await fetcher.stop()
        await answers.stop()


async def test_many_requests_are_each_answered_with_their_own(serve: Serve) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        exclaiming(("127.0.0.1", server.workers.port)),
    ):
        texts = [str(number) for number in range(300)]
        results = await asyncio.gather(*(client.execute("exclaim", text) for text in texts))
        assert results == [text + "!" for text in texts]


async def test_a_storm_server_gets_storms_own_calls(serve: Serve) -> None:
    async with serve() as server, AsyncDRPCClient(port=server.callers.port) as client:
        plain = ThriftServer(storm.DistributedRPCInvocations, WorkerService(server.broker))
        await plain.start()
        try:
            async with exclaiming(("127.0.0.1", plain.port)):
                results = await asyncio.gather(*(client.execute("exclaim", t) for t in "abc"))
                assert results == ["a!", "b!", "c!"]
            failure = Failure(Reason.FAILED_REQUEST, "why")
            async with exclaiming(("127.0.0.1", plain.port), answer=failure):
                with pytest.raises(DRPCError, match="why"):
                    await client.execute("exclaim", "a")
        finally:
            await plain.stop(1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [("x" * 3000, "the result has 3000 bytes; the limit is 2048"), ("\ud800", "not valid text")],
)
async def test_a_result_that_cannot_be_sent_is_a_failure(
    serve: Serve, answer: str, why: str
) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        exclaiming(("127.0.0.1", server.workers.port), bytes_max=2048, answer=answer),
    ):
        with pytest.raises(DRPCError, match=why):
            await client.execute("exclaim", "a")


async def test_a_server_that_comes_back_is_found(serve: Serve) -> None:
    async with serve() as first:
        ports = {
            "drpc.port": first.callers.port,
            "drpc.invocations.port": first.workers.port,
            "drpc.http.port": 0,
        }
        async with exclaiming(("127.0.0.1", first.workers.port)) as troubles:
            async with AsyncDRPCClient(port=first.callers.port) as client:
                assert await client.execute("exclaim", "a") == "a!"
                await first.stop(1)
                await until(lambda: troubles)
                async with serve(**ports):
                    assert await client.execute("exclaim", "b") == "b!"
            assert len(troubles) <= 3, "an outage is told once, not at each try"


async def test_answers_to_an_unavailable_server_are_lost_eventually(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("squall_drpc.remote._SETTLE_DEADLINE_SECS", 0.3)
    answers = Answers(("127.0.0.1", 1))
    done = answers.settle("s-1", "r")
    with pytest.raises(Exception, match="cannot connect"):
        await asyncio.wait_for(done, 30)
    await answers.stop()
