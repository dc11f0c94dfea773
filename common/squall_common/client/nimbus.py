"""A connection to the leading Nimbus, found through `nimbus.seeds`.

async with await NimbusClient.connect(ClientOptions.read(conf)) as nimbus:
    await nimbus.call("activate", "wordcount")

run_nimbus(options, lambda nimbus: nimbus.call("activate", "wordcount"))   # from plain code
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

from squall_common.client.leader_search import (
    Address,
    LeaderSearch,
    NoLeaderError,
    UnreachableError,
)
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusConnectionError, NimbusError
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.serving.authentication import Credentials
from squall_thrift.wire import EncodeError

log = get_logger(__name__)

_T = TypeVar("_T")
# A port on this or a near machine answers at once or not at all.
_CONNECT_TIMEOUT_SECS = 5.0
# Who leads is answered within some seconds, also while an election is under way. (The next seed is
# asked long before, see leader_search.)
_LEADER_TIMEOUT_SECS = 10.0
# A Nimbus without ZooKeeper has waited for it before it answers. An outage is seldom over in a few
# seconds, and a person waits: no further attempt that would end later than this.
_WITHOUT_ZOOKEEPER_SECS = 3.0
# Replies may be larger than the requests that Nimbus takes: a page on a topology of thousands of
# tasks, a blob's chunk.
_REPLY_BYTES_MAX = 64 * 1024 * 1024


class NimbusClient:
    """A connection to the leader; an async context manager. Calls may overlap."""

    def __init__(
        self, client: ThriftClient, host: str, port: int, *, frame_bytes_max: int = 1_048_576
    ) -> None:
        self._client = client
        self.host = host
        self.port = port
        self._frame_bytes_max = frame_bytes_max  # of a request

    @classmethod
    async def connect(
        cls, options: ClientOptions, *, credentials: Credentials | None = None
    ) -> NimbusClient:
        """Ask the seeds for the leader, in order, and connect to it. While one seed does not
        answer, the next is asked as well. If none knows the leader, or there is none now, try again
        `storm.nimbus.retry.times` times, with growing pauses; while ZooKeeper is not available, for
        a few seconds only. Without `credentials` it proves who it is by what the options name.
        Raises NimbusError, which says what was tried."""
        seeds = [_address(seed, options.nimbus_thrift_port) for seed in options.nimbus_seeds]
        pause_secs = options.storm_nimbus_retry_interval_millis / 1000
        longest_secs = options.storm_nimbus_retry_intervalceiling_millis / 1000
        attempts = options.storm_nimbus_retry_times + 1
        timeout_secs = options.storm_thrift_socket_timeout_ms / 1000
        if credentials is None:
            credentials = nimbus_credentials(options)

        async def ask(address: Address) -> tuple[ThriftClient, Address]:
            return await _open_and_ask(*address, timeout_secs, credentials)

        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            tried = loop.time()
            try:
                client, (host, port) = await LeaderSearch(seeds, ask).run()
            except NoLeaderError as error:
                attempts -= 1
                next_end = loop.time() + pause_secs + (loop.time() - tried) - began
                too_long = error.without_zookeeper and next_end > _WITHOUT_ZOOKEEPER_SECS
                if not attempts or too_long:
                    raise _not_found(error) from None
                log.info("nimbus_not_reached", tried=str(error), retry_in_secs=pause_secs)
            else:
                frame_bytes_max = options.nimbus_thrift_max_buffer_size
                return cls(client, host, port, frame_bytes_max=frame_bytes_max)
            await asyncio.sleep(pause_secs)
            pause_secs = min(2 * pause_secs, longest_secs)

    async def call(self, method: str, *args: Any, timeout_secs: float | None = None) -> Any:
        """Call a method of Storm's service Nimbus. Raises what the method declares
        (`storm.NotAliveException` ...) as it is, `ThriftApplicationError` for what Nimbus could
        not do, NimbusError when an argument does not fit into Storm's types, and
        NimbusConnectionError when the connection fails or no answer comes in time."""
        try:
            return await self._client.call(method, *args, timeout_secs=timeout_secs)
        except EncodeError as error:  # a number or a text of the user's; nothing was sent
            raise NimbusError(f"{method} cannot be asked for that: {error}") from error
        except ThriftTransportError as error:
            hint = None
            if error.sent:
                hint = "whether the call took effect is not known"
                # It hangs up on a frame that is too large; its limit may be another than ours.
                size = self._client.size_of(method, *args)
                if size > self._frame_bytes_max:
                    hint += (
                        f"; it has {size} bytes, and Nimbus takes {self._frame_bytes_max} unless "
                        "its nimbus.thrift.max_buffer_size says otherwise"
                    )
            raise NimbusConnectionError(f"{method}: {error}", hint=hint) from error

    async def reconnect(self, options: ClientOptions) -> None:
        """Connect again, to the current leader, like `connect`, and with the same errors."""
        await self._client.close()
        fresh = await self.connect(options)
        self._client, self.host, self.port = fresh._client, fresh.host, fresh.port

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def __aenter__(self) -> NimbusClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _not_found(error: NoLeaderError) -> NimbusError:
    if error.without_zookeeper:
        return NimbusError(
            f"no Nimbus reaches ZooKeeper: {error}",
            hint="topologies run on; look at ZooKeeper, and try again when it is back",
        )
    if error.answered:
        return NimbusError(
            f"no Nimbus leads: {error}",
            hint="Nimbus runs; look at ZooKeeper, and at the log of Nimbus",
        )
    return NimbusError(
        f"Nimbus cannot be reached: {error}",
        hint="is it running? nimbus.seeds and nimbus.thrift.port say where it is looked for",
    )


def nimbus_credentials(options: ClientOptions) -> Credentials | None:
    """What the client proves who it is with; None in an open cluster. Raises ConfigError."""
    if options.storm_security_ca is None and options.storm_do_as_user is None:
        return None
    # Imported only where a cluster is secured: it takes some 40 ms.
    from squall_common.authentication.credentials import credentials_of

    return credentials_of(options)


async def _open(
    host: str, port: int, timeout_secs: float, credentials: Credentials | None
) -> ThriftClient:
    client = ThriftClient(
        storm.Nimbus,
        host,
        port,
        timeout_secs=timeout_secs,
        connect_timeout_secs=_CONNECT_TIMEOUT_SECS,
        frame_bytes_max=_REPLY_BYTES_MAX,
        credentials=credentials,
    )
    try:
        await client.connect()
    except ThriftTransportError as error:
        raise UnreachableError(str(error)) from error
    return client


async def _open_and_ask(
    host: str, port: int, timeout_secs: float, credentials: Credentials | None
) -> tuple[ThriftClient, tuple[str, int]]:
    """A connection, and who leads as the one at its other end says. Raises UnreachableError."""
    client = await _open(host, port, timeout_secs, credentials)
    try:
        leader: storm.NimbusSummary = await client.call(
            "getLeader", timeout_secs=min(_LEADER_TIMEOUT_SECS, timeout_secs)
        )
    except ThriftTransportError as error:
        await client.close()
        raise UnreachableError(str(error)) from error
    except ThriftApplicationError as error:  # such as: no leader is elected yet
        await client.close()
        raise UnreachableError(
            f"Nimbus at {host}:{port} does not know the leader: {error}", answered=True
        ) from error
    except BaseException:
        await client.close()
        raise
    return client, (leader.host, leader.port)


def _address(seed: str, default_port: int) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]:port` or a bare IPv6 address."""
    if seed.startswith("["):
        host, _, port = seed[1:].partition("]")
        return host, _port(seed, port.removeprefix(":"), default_port)
    if seed.count(":") == 1:
        host, _, port = seed.partition(":")
        return host, _port(seed, port, default_port)
    return seed, default_port


def _port(seed: str, text: str, default: int) -> int:
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise NimbusError(f"nimbus.seeds: {seed!r} is neither a host nor host:port")
    return int(text)


def run_nimbus(options: ClientOptions, action: Callable[[NimbusClient], Awaitable[_T]]) -> _T:
    """Connect, run `action` with the connection, close it; from synchronous code, also where an
    event loop runs in this thread already."""

    async def run() -> _T:
        async with await NimbusClient.connect(options) as client:
            return await action(client)

    return run_async(run)


def run_async(main: Callable[[], Awaitable[_T]]) -> _T:
    """Run a coroutine function from synchronous code, in an event loop of its own."""

    async def run() -> _T:
        return await main()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    results: list[_T] = []
    errors: list[BaseException] = []

    def in_thread() -> None:
        try:
            results.append(asyncio.run(run()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=in_thread, name="nimbus-call")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
