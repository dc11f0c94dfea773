"""The DRPC server on its three ports, with Storm's calls and ours."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.component.drpc.conftest import Serve, until

from squall_cli.doctor import node
from squall_cli.doctor.doors import Answer
from squall_cli.doctor.node import listeners_of, probe
from squall_common.config.load import load_conf
from squall_drpc import AsyncDRPCClient, DRPCError, Reason
from squall_drpc.batches import INVOCATIONS, Settlement
from squall_drpc.server.daemon import DrpcServer
from squall_thrift import codec, storm
from squall_thrift.client import ThriftApplicationError, ThriftClient
from squall_thrift.protocol import messages

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
        assert server.broker.under_way == 0


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


async def test_a_batch_waits_for_requests_and_has_all_of_them(serve: Serve) -> None:
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


async def test_requests_taken_by_a_silent_worker_fail(serve: Serve) -> None:
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


async def test_a_function_without_workers_times_out_and_leaves_nothing(serve: Serve) -> None:
    async with (
        serve(**{"drpc.request.timeout.secs": 0.1}) as server,
        AsyncDRPCClient(port=server.callers.port) as client,
    ):
        asked = [client.execute(f"nobody-{i}", "") for i in range(50)]
        for error in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(error, DRPCError)
            assert error.reason is Reason.SERVER_TIMEOUT
            assert "no worker has taken it" in error.message
        requests = server.broker._requests
        assert len(requests) == 0
        assert requests.waiting_functions == []


async def test_bounds_refuse_at_once(serve: Serve) -> None:
    async with (
        serve(**{"drpc.function.requests.max": 2, "drpc.peer.percent.max": 100}) as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        asked = [asyncio.create_task(client.execute("f", str(i))) for i in range(2)]
        await until(lambda: server.broker.under_way == 2)
        with pytest.raises(DRPCError, match="2 requests already wait for function 'f'"):
            await client.execute("f", "one too many")
        for _ in asked:
            await topology.call("result", (await fetch(topology, "f")).request_id, "r")
        assert await asyncio.gather(*asked) == ["r", "r"]


@asynccontextmanager
async def call_from(server: DrpcServer, address: str, function: str, args: str = "") -> Any:
    """A call that waits for its answer, of a client at another address of loopback."""
    body = codec.to_bytes(storm.DistributedRPC.methods["execute"].args.cls(function, args))
    message = messages.serialize(messages.MessageType.CALL, "execute", 1, body)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.callers.port, local_addr=(address, 0)
    )
    try:
        writer.write(len(message).to_bytes(4) + message)
        yield reader
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(LONG_SECS):
        length = int.from_bytes(await reader.readexactly(4))
        return await reader.readexactly(length)


async def test_a_caller_that_hangs_up_gives_its_place_back(serve: Serve) -> None:
    async with serve() as server:
        async with call_from(server, "127.0.0.1", "f", "x" * 100_000):
            await until(lambda: server.broker.under_way == 1)
        await until(lambda: server.broker.under_way == 0)
        assert server.broker._requests.waiting_functions == []


async def test_one_address_leaves_room_for_others(serve: Serve) -> None:
    async with serve(**{"drpc.function.requests.max": 4}) as server, AsyncExitStack() as stack:
        for count in (1, 2):
            await stack.enter_async_context(call_from(server, "127.0.0.2", "f"))
            await until(lambda count=count: server.broker.under_way == count)  # type: ignore[misc]
        async with call_from(server, "127.0.0.2", "f") as refused:
            assert b"2 requests of 127.0.0.2 already wait for function 'f'" in await answer(refused)
        async with call_from(server, "127.0.0.1", "f"):
            await until(lambda: server.broker.under_way == 3)


async def test_the_bytes_of_all_requests_are_bounded(serve: Serve) -> None:
    async with (
        serve(**{"drpc.requests.bytes.max": 200_000}) as server,
        call_from(server, "127.0.0.2", "f", "x" * 90_000),
    ):
        await until(lambda: server.broker.under_way == 1)
        async with call_from(server, "127.0.0.2", "g", "x" * 20_000) as refused:
            held = f"of 127.0.0.2 with {sys.getsizeof('x' * 90_000)} bytes of arguments"
            assert held.encode() in await answer(refused)
        async with call_from(server, "127.0.0.1", "g", "x" * 90_000):
            await until(lambda: server.broker.under_way == 2)
            async with call_from(server, "127.0.0.3", "g", "x" * 30_000) as refused:
                held = f"requests with {2 * sys.getsizeof('x' * 90_000)} bytes of arguments"
                assert held.encode() in await answer(refused)


async def test_a_request_does_not_wait_for_a_worker_that_hung_up(serve: Serve) -> None:
    async with serve() as server, AsyncDRPCClient(port=server.callers.port) as client:
        gone = worker(server)
        await gone.connect()
        fetching = asyncio.create_task(gone.call("fetchRequests", "f", 1, 5000, None, 0))
        await until(lambda: server.broker._fetching)
        fetching.cancel()  # ends its connection
        await until(lambda: not server.broker._fetching)
        async with worker(server) as other:
            asked = asyncio.create_task(client.execute("f", "x"))
            await other.call("result", (await fetch(other, "f")).request_id, "y")
            assert await asked == "y"


@pytest.mark.parametrize("function", ["", "x" * 513])
async def test_an_invalid_function_name_is_refused(serve: Serve, function: str) -> None:
    async with (
        serve() as server,
        AsyncDRPCClient(port=server.callers.port) as client,
        worker(server) as topology,
    ):
        with pytest.raises(DRPCError, match="DRPC function"):
            await client.execute(function, "")
        with pytest.raises(ThriftApplicationError, match="DRPC function"):
            await topology.call("fetchRequest", function)


async def test_a_stopping_server_answers_waiting_callers(serve: Serve) -> None:
    async with serve() as server, AsyncDRPCClient(port=server.callers.port) as client:
        asked = asyncio.create_task(client.execute("f", ""))
        await until(lambda: server.broker.under_way)
        await server.stop()
        with pytest.raises(DRPCError) as caught:
            await asked
        assert caught.value.reason is Reason.SERVER_SHUTDOWN


async def test_a_late_answer_is_dropped(serve: Serve) -> None:
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


async def test_the_doctor_finds_the_doors_of_an_open_server(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_PROBE_SECS", 60.0)  # the machine may be busy
    async with serve() as server:
        ports = {
            "drpc.port": server.callers.port,
            "drpc.invocations.port": server.workers.port,
            "drpc.http.port": server.http.port,
        }
        doors = [one for one in listeners_of({**load_conf(), **ports}) if one[2] in ports.values()]
        found = [await probe(*one) for one in doors]
    assert [one.answer for one in found] == [Answer.ANSWERS] * 3
