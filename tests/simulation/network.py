"""The network between simulated machines: who reaches whom, and how long it takes.

Three things use it: calls (Thrift), worker sockets (ZeroMQ's are simulated behind the real
transport), and probes. Connections are TCP's: in order, silent while the way is cut, reset after a
while, and a reset loses what was under way. On top of that frames between workers can be dropped,
repeated and swapped, which TCP never does and the link must survive all the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import zmq
from tests.simulation.loop import Process, SimLoop, current_process

from squall_common.client.reporting import ReportSender
from squall_common.cluster.state import UndecodedBeat
from squall_common.cluster.values import WorkerReport
from squall_common.errors import NimbusError
from squall_common.topology.model import WorkerSlot
from squall_nimbus.blobs.keys import secret_call
from squall_nimbus.blobs.peers import undecoded_beats
from squall_nimbus.blobs.replication import PeerError
from squall_nimbus.blobs.store import BlobMeta
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.authorization import Call

Address = tuple[str, int]
Write = Callable[[bytes], Awaitable[None]]

_POLL_SECS = 0.5
_CALL_SECS = 10.0


class Network:
    """Hosts are names such as "10.0.0.3"."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.rng = random.Random(f"network {seed}")
        self.cut: set[tuple[str, str]] = set()  # ordered pairs that do not reach
        self.slow: dict[str, float] = {}  # host -> seconds of delay
        self.dark: set[str] = set()  # machines without power
        self.mangling = 0.0  # of the frames between workers
        self.servers: dict[Address, tuple[Process, Any]] = {}
        self.listeners: dict[Address, SimSocket] = {}
        self.connections: set[Connection] = set()
        self.connections_made = 0
        self._next_fd = 10_000
        self.counts: dict[str, int] = {}
        self.principal: str | None = None  # whom every call comes from

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self.cut

    def both(self, one: str, other: str) -> bool:
        return self.reaches(one, other) and self.reaches(other, one)

    def delay(self, source: str, target: str) -> float:
        """Seconds on the way, this time."""
        base = 0.0001 if source == target else self.rng.uniform(0.0002, 0.003)
        slow = self.slow.get(source, 0.0) + self.slow.get(target, 0.0)
        return base + (self.rng.uniform(0, slow) if slow else 0.0)

    def new_fd(self) -> int:
        self._next_fd += 1
        return self._next_fd

    # Calls.

    def serve(self, address: Address, handler: Any) -> None:
        """The current process answers calls."""
        process = current_process()
        self.servers[address] = (process, handler)
        process.on_exit.append(lambda: self.unserve(address, process))

    def unserve(self, address: Address, process: Process) -> None:
        if address in self.servers and self.servers[address][0] is process:
            del self.servers[address]

    async def probe(self, address: Address, secs: float) -> bool:
        """A connection attempt. A living machine without a listener refuses: that is a way, too."""
        source, target = current_process().host, address[0]
        if not self.both(source, target) or target in self.dark:
            await asyncio.sleep(secs)
            return False
        await asyncio.sleep(min(secs, 2 * self.delay(source, target)))
        return self.both(source, target)

    async def refuses(self, address: Address, secs: float) -> bool:
        """A connection attempt at a worker's port that is refused."""
        answers = await self.probe(address, secs)
        return answers and address not in self.listeners

    async def call(
        self, address: Address, method: str, *args: Any, secs: float = _CALL_SECS
    ) -> Any:
        """One call. Raises what the method raises, and NimbusError when no answer comes."""
        loop = self.loop
        source, target = current_process().host, address[0]
        answer: asyncio.Future[Any] = loop.create_future()

        def reply(result: Any, error: BaseException | None) -> None:
            def arrive() -> None:
                if answer.done():
                    return
                if not self.reaches(target, source):
                    return  # the caller's time runs out
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(result)

            loop.world_later(self.delay(target, source), arrive)

        def request() -> None:
            if not self.both(source, target) or target in self.dark:
                return
            found = self.servers.get(address)
            if found is None:
                reply(None, NimbusError(f"connection to {address} refused"))
                return
            process, handler = found

            async def serve() -> None:
                try:
                    result = await getattr(handler, method)(
                        Call(method, f"{source}:1", self.principal), *args
                    )
                except Exception as error:
                    reply(None, error)
                else:
                    reply(result, None)

            def died() -> None:
                reply(None, NimbusError(f"connection to {address} was reset"))

            process.on_exit.append(died)
            task = process.start(serve())
            process.tasks.add(task)
            task.add_done_callback(
                lambda _: process.on_exit.remove(died) if process.alive else None,
                context=loop.world.context.copy(),
            )

        loop.world_later(self.delay(source, target), request)
        try:
            return await asyncio.wait_for(answer, secs)
        except TimeoutError:
            raise NimbusError(f"{address} did not answer {method}") from None

    # Worker sockets.

    def reset(self, connection: Connection) -> None:
        """A connection breaks; what was under way is lost."""
        if connection in self.connections:
            self.connections.discard(connection)
            connection.broken = True
            connection.push.disconnected()

    def reset_cut(self) -> None:
        """Break what a partition has cut, some time later."""
        for connection in self.ordered():
            if not self.both(connection.push.host, connection.address[0]):
                self.loop.world_later(
                    self.rng.uniform(3, 30), lambda one=connection: self._reset_if_cut(one)
                )

    def _reset_if_cut(self, connection: Connection) -> None:
        if not self.both(connection.push.host, connection.address[0]):
            self.reset(connection)

    def ordered(self) -> list[Connection]:
        """The connections, in the order in which they were made."""
        return sorted(self.connections, key=lambda one: one.number)


class Connection:
    """One TCP connection from a PUSH to a PULL socket."""

    numbers = 0

    def __init__(
        self, network: Network, push: SimSocket, address: Address, pull: SimSocket
    ) -> None:
        self.network = network
        self.push = push
        self.address = address
        self.pull = pull
        self.broken = False
        network.connections_made += 1
        self.number = network.connections_made
        self._last = 0.0

    def send(self, data: bytes) -> None:
        network = self.network
        now = network.loop.time()
        at = now + network.delay(self.push.host, self.address[0])
        copies = 1
        if network.mangling and network.rng.random() < network.mangling:
            kind = network.rng.randrange(4)
            network.count(("frame dropped", "frame repeated", "frame late", "reset")[kind])
            if kind == 0:
                return
            if kind == 1:
                copies = 2
            elif kind == 2:  # overtaken by those behind it
                network.loop.world_later(network.rng.uniform(0.01, 1.0), self._arrive, data)
                return
            else:
                network.reset(self)
                return
        self._last = at = max(at, self._last)
        for _ in range(copies):
            network.loop.world_later(at - now, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.broken or self.pull.closed:
            return
        if not self.network.both(self.push.host, self.address[0]):
            self.network.loop.world_later(_POLL_SECS, self._arrive, data)
            return
        self.pull.inbox.append(data)
        self.network.loop.readable(self.pull.fd)


class SimSocket:
    """What the transport uses of a `zmq.Socket`. With keys two sockets meet if they have the same
    secret one; the handler and the monitor of refusals hear nothing."""

    def __init__(self, network: Network, kind: int) -> None:
        self.network = network
        self.kind = kind
        self.process = current_process()
        self.host = self.process.host
        self.fd = network.new_fd()
        self.inbox: deque[bytes] = deque()
        self.secret: bytes | None = None
        self.closed = False
        self.address: Address | None = None
        self.connection: Connection | None = None
        self.process.on_exit.append(self.close)

    def setsockopt(self, option: int, value: int | bytes) -> None:
        if option == zmq.CURVE_SECRETKEY:
            assert isinstance(value, bytes)
            self.secret = value

    def monitor(self, address: str, events: int) -> None:
        pass

    def disable_monitor(self) -> None:
        pass

    def getsockopt(self, option: int) -> int:
        if option == zmq.EVENTS:
            writable = zmq.POLLOUT if self.connection is not None else 0
            return int(writable | (zmq.POLLIN if self.inbox else 0))
        return 0

    def getsockopt_string(self, option: int) -> str:
        assert self.address is not None
        return f"tcp://{self.address[0]}:{self.address[1]}"

    def fileno(self) -> int:
        return self.fd

    def bind(self, endpoint: str) -> None:
        if endpoint.startswith("inproc:"):
            return
        self.address = (self.host, int(endpoint.rpartition(":")[2]))
        if self.address in self.network.listeners:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        self.network.listeners[self.address] = self

    def connect(self, endpoint: str) -> None:
        if endpoint.startswith("inproc:"):
            return
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.address = (host, int(port))
        self._try_soon(0.0)

    def _try_soon(self, secs: float) -> None:
        assert self.address is not None
        wait = secs + 2 * self.network.delay(self.host, self.address[0])
        self.network.loop.world_later(wait, self._try)

    def _try(self) -> None:
        if self.closed or self.connection is not None or self.address is None:
            return
        pull = self.network.listeners.get(self.address)
        if pull is None or not self.network.both(self.host, self.address[0]):
            self._try_soon(_POLL_SECS)
            return
        if pull.secret != self.secret:
            self.network.count("handshake refused")
            self._try_soon(_POLL_SECS)
            return
        self.connection = Connection(self.network, self, self.address, pull)
        self.network.connections.add(self.connection)
        self.network.loop.readable(self.fd)

    def disconnected(self) -> None:
        self.connection = None
        if not self.closed:
            self.network.loop.readable(self.fd)
            self._try_soon(0.1)

    def send(self, data: bytes, flags: int) -> None:
        if self.connection is None:
            raise zmq.Again()
        self.connection.send(data)

    def recv(self, flags: int) -> bytes:
        if not self.inbox:
            raise zmq.Again()
        return self.inbox.popleft()

    def recv_multipart(self, flags: int) -> list[bytes]:
        raise zmq.Again()

    def close(self, linger_ms: int = 0) -> None:
        if self.closed:
            return
        self.closed = True
        network = self.network
        if self.address is not None and network.listeners.get(self.address) is self:
            del network.listeners[self.address]
        for connection in network.ordered():
            if connection.pull is self:
                network.reset(connection)
        if self.connection is not None:
            network.connections.discard(self.connection)  # what was sent still arrives
            self.connection = None


class SimSockets:
    """Stands for `zmq.Context`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def socket(self, kind: int) -> SimSocket:
        return SimSocket(self._network, kind)

    def term(self) -> None:
        pass


class SimThriftServer:
    """Stands for `ThriftServer`."""

    def __init__(
        self, network: Network, service: Any, handler: Any, *, host: str, port: int, **_: Any
    ) -> None:
        self._network = network
        self._handler = handler
        self.port = port

    async def start(self) -> None:
        self._network.serve((current_process().host, self.port), self._handler)

    async def stop(self, grace_secs: float = 0.0) -> None:
        process = current_process()
        self._network.unserve((process.host, self.port), process)


class NimbusConnection:
    """Stands for `NimbusClient`, connected to the leader."""

    def __init__(self, network: Network, address: Address) -> None:
        self._network = network
        self.address = address

    @classmethod
    async def connect(cls, network: Network, seeds: list[Address]) -> NimbusConnection:
        """Ask each seed for the leader, as clients do."""
        reasons = []
        for seed in seeds:
            try:
                leader = await network.call(seed, "getLeader")
            except Exception as error:
                reasons.append(f"{seed}: {error}")
                continue
            return cls(network, (leader.host, leader.port))
        raise NimbusError(f"no leader: {'; '.join(reasons)}")

    async def call(self, method: str, *args: Any, secs: float = _CALL_SECS) -> Any:
        return await self._network.call(self.address, method, *args, secs=secs)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> NimbusConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class SimAlone:
    """Stands for `AloneThread`: a worker's reports while its supervisor is away."""

    def __init__(self, make_sender: Callable[[], ReportSender]) -> None:
        self._process = current_process()
        self._make_sender = make_sender
        self._sender: ReportSender | None = None
        self._task: asyncio.Task[Any] | None = None

    def send(self, report: WorkerReport) -> None:
        if self._task is not None and not self._task.done():
            return
        if self._sender is None:
            self._sender = self._make_sender()
        self._task = self._process.start(self._sender.send([report]))
        self._process.tasks.add(self._task)

    def rest(self) -> None:
        pass

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


class SimPeers:
    """Stands for `ThriftPeers`: a Nimbus' blobs, for another Nimbus."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def fetch(self, host: str, port: int, meta: BlobMeta, write: Write) -> None:
        try:
            began = await self._network.call((host, port), "beginBlobDownload", meta.key)
            if began.version != meta.version:
                raise PeerError(f"it has version {began.version}, not {meta.version}")
            while chunk := await self._network.call(
                (host, port), "downloadBlobChunk", began.session
            ):
                await write(chunk)
        except (NimbusError, ThriftApplicationError, storm.KeyNotFoundException) as error:
            raise PeerError(str(error)) from error

    async def fetch_secret(self, host: str, port: int, key: str, receiver: str) -> bytes:
        try:
            return bytes(await self._network.call((host, port), *secret_call(key), receiver))
        except (
            NimbusError,
            ThriftApplicationError,
            storm.AuthorizationException,
            storm.KeyNotFoundException,
        ) as error:
            raise PeerError(str(error)) from error

    async def heartbeats(
        self, host: str, port: int, topology_id: str
    ) -> dict[WorkerSlot, UndecodedBeat]:
        try:
            answer = await self._network.call((host, port), "getWorkerHeartbeats", topology_id)
        except (NimbusError, ThriftApplicationError, storm.NotAliveException) as error:
            raise PeerError(str(error)) from error
        return undecoded_beats(answer)

    async def finished(self, host: str, port: int) -> dict[str, bool]:
        try:
            return dict(await self._network.call((host, port), "getFinishedTopologies"))
        except (NimbusError, ThriftApplicationError) as error:
            raise PeerError(str(error)) from error
