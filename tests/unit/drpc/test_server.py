"""The DRPC server on its three ports, with Storm's calls and ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from squall_drpc import AsyncDRPCClient, DRPCError, Reason
from squall_drpc.batches import INVOCATIONS, Settlement
from squall_drpc.daemon import DrpcServer
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient

from .conftest import Serve, until

LONG_SECS = 30.0


def worker(server: DrpcServer, service: Any = INVOCATIONS) -> ThriftClient:
    return ThriftClient(service, "127.0.0.1", server.workers.port)


async def fetch(client: ThriftClient, function: str) -> Any:
    """As Storm's spout does: ask until there is one."""
    async with asyncio.timeout(LONG_SECS):
        while True:
            request = await client.call("fetchRequest", function)
            if request.request_id:
                return request
            await asyncio.sleep(0.005)


async def test_storms_own_calls_answer_a_request(serve: Serve) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server, storm.DistributedRPCInvocations) as topology,
    ):
        nothing = await topology.call("fetchRequest", "exclaim")
        assert (nothing.request_id, nothing.func_args) == ("", "")
        asked = asyncio.create_task(client.execute("exclaim", "hello"))
        request = await fetch(topology, "exclaim")
        assert request.func_args == "hello"
        await topology.call("result", request.request_id, "hello!")
        assert await asked == "hello!"
        assert server.exchange.under_way == 0


async def test_storms_failures_keep_their_kind(serve: Serve) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        asked = asyncio.create_task(client.execute("f", "x"))
        await topology.call("failRequest", (await fetch(topology, "f")).request_id)
        with pytest.raises(DRPCError, match="Request failed") as caught:
            await asked
        assert caught.value.reason is Reason.FAILED_REQUEST
        asked = asyncio.create_task(client.execute("f", "x"))
        why = storm.DRPCExecutionException(msg="why", type=storm.DRPCExceptionType.INTERNAL_ERROR)
        await topology.call("failRequestV2", (await fetch(topology, "f")).request_id, why)
        with pytest.raises(DRPCError, match="why") as caught:
            await asked
        assert caught.value.reason is Reason.INTERNAL_ERROR


async def test_a_batch_waits_for_requests_and_brings_all_of_them(serve: Serve) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        waiting = asyncio.create_task(topology.call("fetchRequests", "f", 10, 5000, "me", 0))
        asked = [asyncio.create_task(client.execute("f", str(i))) for i in range(3)]
        batch = await waiting
        requests = list(batch.requests)
        while len(requests) < 3:
            batch = await topology.call("fetchRequests", "f", 10, 5000, "me", batch.number)
            requests += batch.requests
        assert sorted(r.func_args for r in requests) == ["0", "1", "2"]
        await topology.call(
            "settleRequests",
            [Settlement(request_id=r.request_id, result=r.func_args + "!") for r in requests[:2]]
            + [Settlement(request_id=requests[2].request_id, error="no", error_type=3)],
        )
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert sorted(str(e) for e in ended)[-1] == "no"


async def test_a_batch_whose_answer_was_lost_comes_again(serve: Serve) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        asked = asyncio.create_task(client.execute("f", "x"))
        first = await topology.call("fetchRequests", "f", 10, 5000, "me", 0)
        again = await topology.call("fetchRequests", "f", 10, 0, "me", 0)
        assert first == again
        assert (await topology.call("fetchRequests", "f", 10, 0, "me", 1)).requests == []
        await topology.call("result", again.requests[0].request_id, "y")
        assert await asked == "y"


async def test_what_a_silent_worker_took_fails(serve: Serve) -> None:
    async with (
        serve(**{"drpc.worker.timeout.secs": 0.2}) as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        asked = asyncio.create_task(client.execute("f", "x"))
        await topology.call("fetchRequests", "f", 10, 5000, "me", 0)
        with pytest.raises(DRPCError, match="worker that took the request is gone") as caught:
            await asked
        assert caught.value.reason is Reason.FAILED_REQUEST


async def test_a_function_that_nobody_serves_times_out_and_leaves_nothing(serve: Serve) -> None:
    async with (
        serve(**{"drpc.request.timeout.secs": 0.1}) as server,
        AsyncDRPCClient(port=server.callers.port) as client,
    ):
        asked = [client.execute(f"nobody-{i}", "") for i in range(50)]
        for error in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(error, DRPCError)
            assert error.reason is Reason.SERVER_TIMEOUT
            assert "nobody has taken it" in error.message
        requests = server.exchange._requests
        assert len(requests) == 0
        assert requests.waiting_functions == []


async def test_bounds_refuse_at_once(serve: Serve) -> None:
    async with (
        serve(**{"drpc.function.requests.max": 2}) as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        asked = [asyncio.create_task(client.execute("f", str(i))) for i in range(2)]
        await until(lambda: server.exchange.under_way == 2)
        with pytest.raises(DRPCError, match="2 requests wait for function 'f' already"):
            await client.execute("f", "one too many")
        for _ in asked:
            await topology.call("result", (await fetch(topology, "f")).request_id, "r")
        assert await asyncio.gather(*asked) == ["r", "r"]


@pytest.mark.parametrize("function", ["", "x" * 513])
async def test_a_name_that_is_none_is_refused(serve: Serve, function: str) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        with pytest.raises(DRPCError, match="DRPC function"):
            await client.execute(function, "")
        with pytest.raises(ThriftApplicationError, match="DRPC function"):
            await topology.call("fetchRequest", function)


async def test_a_server_that_stops_says_so_to_those_who_wait(serve: Serve) -> None:
    async with serve() as server, AsyncDRPCClient(port=server.callers.port) as client:
        asked = asyncio.create_task(client.execute("f", ""))
        await until(lambda: server.exchange.under_way)
        await server.stop()
        with pytest.raises(DRPCError) as caught:
            await asked
        assert caught.value.reason is Reason.SERVER_SHUTDOWN


async def test_a_late_answer_answers_nobody(serve: Serve) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        asked = asyncio.create_task(client.execute("f", "1"))
        first = await fetch(topology, "f")
        await topology.call("result", first.request_id, "right")
        assert await asked == "right"
        asked = asyncio.create_task(client.execute("f", "2"))
        second = await fetch(topology, "f")
        await topology.call("result", first.request_id, "late")
        await topology.call("result", "never-1", "forged")
        assert not asked.done()
        await topology.call("result", second.request_id, "two")
        assert await asked == "two"


async def test_a_client_goes_on_to_a_server_that_answers(serve: Serve) -> None:
    async with serve() as server, worker(server) as topology:
        client = AsyncDRPCClient([("127.0.0.1", 1), ("127.0.0.1", server.callers.port)])
        async with client:
            for _ in range(3):
                asked = asyncio.create_task(client.execute("f", ""))
                await topology.call("result", (await fetch(topology, "f")).request_id, "r")
                assert await asked == "r"
    with pytest.raises(DRPCError, match="no DRPC server can be reached"):
        await client.execute("f", "")
