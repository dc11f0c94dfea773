"""thriftpy2's own synchronous client and server as peers: framed transport, binary protocol.

They load the interface file themselves, so nothing of our classes or codec is on their side. Their
sockets block, so they run in threads.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import thriftpy2
from tests.support.servers import free_port
from thriftpy2.protocol import TBinaryProtocolFactory, TCyBinaryProtocolFactory
from thriftpy2.thrift import TApplicationException, TClient, TProcessor
from thriftpy2.transport import (
    TCyFramedTransportFactory,
    TFramedTransportFactory,
    TServerSocket,
    TSocket,
    TTransportException,
)

from squall_thrift import idl, storm
from squall_thrift.client import ThriftApplicationError, ThriftClient
from squall_thrift.protocol.messages import ApplicationErrorType
from squall_thrift.serving.authorization import PUBLIC, Call, permission
from squall_thrift.serving.server import ThriftServer

PEER: Any = thriftpy2.load(str(idl.INTERFACE_FILE), module_name="interop_peer_thrift")


class Nodes:
    """Service Supervisor, with structs both ways."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    @permission(PUBLIC)
    async def sendSupervisorAssignments(self, call: Call, assignments: Any) -> None:
        self.received.append(assignments)

    @permission(PUBLIC)
    async def getLocalAssignmentForStorm(self, call: Call, id: str) -> storm.Assignment:
        if id == "crash":
            raise RuntimeError
        if id != "wc-1-2":
            raise storm.NotAliveException(msg=f"{id} is not alive")
        return storm.Assignment("code", owner="ada", node_host={"n": "höst"})

    @permission(PUBLIC)
    async def sendSupervisorWorkerHeartbeat(self, call: Call, heartbeat: Any) -> None:
        self.received.append(heartbeat)


@contextmanager
def peer_client(port: int, service: Any, *, compiled: bool) -> Iterator[Any]:
    connection = TSocket("127.0.0.1", port)
    framed = TCyFramedTransportFactory() if compiled else TFramedTransportFactory()
    protocol = TCyBinaryProtocolFactory() if compiled else TBinaryProtocolFactory()
    transport = framed.get_transport(connection)
    transport.open()
    client = TClient(service, protocol.get_protocol(transport))
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("compiled", [False, True])
async def test_thriftpy2_client_calls_our_server(compiled: bool) -> None:
    handler = Nodes()
    server = ThriftServer(storm.Supervisor, handler)
    await server.start()
    port = server.port

    def talk() -> None:
        with peer_client(port, PEER.Supervisor, compiled=compiled) as client:
            assignment = client.getLocalAssignmentForStorm("wc-1-2")
            assert (assignment.owner, assignment.node_host) == ("ada", {"n": "höst"})
            with pytest.raises(PEER.NotAliveException) as info:
                client.getLocalAssignmentForStorm("other")
            assert info.value.msg == "other is not alive"
            with pytest.raises(TApplicationException) as failed:
                client.getLocalAssignmentForStorm("crash")
            assert failed.value.type == TApplicationException.INTERNAL_ERROR
            beat = PEER.SupervisorWorkerHeartbeat("wc-1-2", [PEER.ExecutorInfo(1, 2)], 2**40)
            assert client.sendSupervisorWorkerHeartbeat(beat) is None
            sent = PEER.Assignment("code", executor_node_port={(1, 2): PEER.NodeInfo("n", [6700])})
            client.sendSupervisorAssignments(PEER.SupervisorAssignments({"wc-1-2": sent}))
        with peer_client(port, PEER.Nimbus, compiled=compiled) as stranger:
            with pytest.raises(TApplicationException) as unknown:
                stranger.getLeader()
            assert unknown.value.type == TApplicationException.UNKNOWN_METHOD

    try:
        await asyncio.to_thread(talk)
    finally:
        await server.stop()
    beat, assignments = handler.received
    assert beat == storm.SupervisorWorkerHeartbeat("wc-1-2", [storm.ExecutorInfo(1, 2)], 2**40)
    [slot] = assignments.storm_assignment["wc-1-2"].executor_node_port.items()
    assert slot == ((1, 2), storm.NodeInfo("n", {6700}))


class PeerNodes:
    """The same service as thriftpy2's synchronous server calls it."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def sendSupervisorAssignments(self, assignments: Any) -> None:
        self.received.append(assignments)

    def getLocalAssignmentForStorm(self, id: str) -> Any:
        if id != "wc-1-2":
            raise PEER.NotAliveException(msg=f"{id} is not alive")
        return PEER.Assignment("code", executor_node_port={(1, 2): PEER.NodeInfo("n", [6700])})

    def sendSupervisorWorkerHeartbeat(self, heartbeat: Any) -> None:
        self.received.append(heartbeat)


@contextmanager
def peer_server(handler: Any, *, compiled: bool) -> Iterator[int]:
    """One connection of thriftpy2's processor, served in a thread."""
    framed = TCyFramedTransportFactory() if compiled else TFramedTransportFactory()
    factory = TCyBinaryProtocolFactory() if compiled else TBinaryProtocolFactory()
    port = free_port()
    listener = TServerSocket("127.0.0.1", port)
    listener.listen()

    def serve() -> None:
        transport = framed.get_transport(listener.accept())
        protocol = factory.get_protocol(transport)
        processor = TProcessor(PEER.Supervisor, handler)
        try:
            while True:
                processor.process(protocol, protocol)
        except (TTransportException, EOFError):
            transport.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        thread.join(10)
        listener.close()
        assert not thread.is_alive()


@pytest.mark.parametrize("compiled", [False, True])
async def test_our_client_calls_thriftpy2_server(compiled: bool) -> None:
    handler = PeerNodes()
    with peer_server(handler, compiled=compiled) as port:
        async with ThriftClient(storm.Supervisor, "127.0.0.1", port) as client:
            read = await client.call("getLocalAssignmentForStorm", "wc-1-2")
            assert read == storm.Assignment(
                "code", executor_node_port={(1, 2): storm.NodeInfo("n", {6700})}
            )
            with pytest.raises(storm.NotAliveException, match="other is not alive"):
                await client.call("getLocalAssignmentForStorm", "other")
            beat = storm.SupervisorWorkerHeartbeat("wc-1-2", [storm.ExecutorInfo(1, 2)], 2**40)
            await client.call("sendSupervisorWorkerHeartbeat", beat)
        # closed here, so that the peer's thread ends
    [received] = handler.received
    assert (received.storm_id, received.time_secs) == ("wc-1-2", 2**40)
    assert received.executors == [PEER.ExecutorInfo(1, 2)]


@pytest.mark.parametrize("compiled", [False, True])
async def test_our_client_understands_thriftpy2_application_errors(compiled: bool) -> None:
    with peer_server(PeerNodes(), compiled=compiled) as port:
        async with ThriftClient(storm.DistributedRPC, "127.0.0.1", port) as client:
            with pytest.raises(ThriftApplicationError) as info:
                await client.call("execute", "f", "x")
            assert info.value.type is ApplicationErrorType.UNKNOWN_METHOD
