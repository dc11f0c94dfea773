"""Calling DRPC functions.

    async with AsyncDRPCClient("127.0.0.1", 3772) as client:      # calls may overlap
        result = await client.execute("reach", "foo.com/blog/1")

    with DRPCClient.from_conf(conf) as client:                     # from plain code, any thread
        result = client.execute("reach", "foo.com/blog/1")

`execute` raises DRPCError when there is no result; its `reason` says where the failure lies. With
several servers, each call goes to the next one. A call that cannot have been sent is retried on
another server. A call that may have been carried out is never repeated: only the caller knows
whether repeating it does harm.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from squall_common.authentication.worker_identity import worker_credentials
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import SquallError
from squall_common.security.identity import Role
from squall_drpc.requests import Reason
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.serving.authentication import Credentials
from squall_thrift.wire import EncodeError

Address = tuple[str, int]

_CONNECT_TIMEOUT_SECS = 5.0
_REPLY_BYTES_MAX = 64 * 1024 * 1024
# Above the server's own timeout, which has the better message.
_TIMEOUT_MARGIN_SECS = 5.0
_IDLE_MAX = 256  # connections kept for later calls


class DRPCError(SquallError):
    """A DRPC request without a result. `reason` is None when no answer came at all."""

    def __init__(
        self, message: str, *, reason: Reason | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def server_addresses(servers: Sequence[str] | None, port: int) -> list[Address]:
    """The hosts of `drpc.servers`, each with a port. Raises DRPCError when there are none."""
    if not servers:
        raise DRPCError(
            "no DRPC server is configured",
            hint="Set drpc.servers to the hosts on which `storm drpc` runs.",
        )
    return [(server, port) for server in servers]


def drpc_credentials(options: ClientOptions) -> Credentials | None:
    """What a client of DRPC servers proves who it is with: in a worker its token, elsewhere what
    the options name; None in an open cluster. Raises ConfigError."""
    worker = worker_credentials(Role.DRPC)
    if worker is not None:
        return worker
    if options.storm_security_ca is None and options.storm_do_as_user is None:
        return None
    # Imported only where a cluster is secured: it takes some 40 ms.
    from squall_common.authentication.credentials import credentials_of

    return credentials_of(options, Role.DRPC)


class AsyncDRPCClient:
    """A client for asyncio. Each call has its own connection while it waits; connections are
    reused.

        async def reach(urls):
            async with AsyncDRPCClient("drpc1", 3772) as client:
                return [await client.execute("reach", url) for url in urls]
    """

    def __init__(
        self,
        host: str | Sequence[Address] = "127.0.0.1",
        port: int = 3772,
        *,
        timeout_secs: float = 605.0,
        credentials: Credentials | None = None,
    ) -> None:
        """`host` may be a list of (host, port). With `credentials`, calls speak TLS and prove who
        makes them; `from_conf` has those of the configuration."""
        self._credentials = credentials
        self._addresses = [(host, port)] if isinstance(host, str) else list(host)
        if not self._addresses:
            raise DRPCError("no DRPC server was given")
        self._timeout_secs = timeout_secs
        self._next = 0
        self._idle: dict[Address, deque[ThriftClient]] = {a: deque() for a in self._addresses}

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> Self:
        """A client of `drpc.servers`. Raises DRPCError when there are none."""
        return cls.of(ClientOptions.read(conf))

    @classmethod
    def of(cls, options: ClientOptions) -> Self:
        """Like `from_conf`, from what was read of a configuration."""
        addresses = server_addresses(options.drpc_servers, options.drpc_port)
        timeout_secs = options.drpc_request_timeout_secs + _TIMEOUT_MARGIN_SECS
        return cls(addresses, timeout_secs=timeout_secs, credentials=drpc_credentials(options))

    async def execute(
        self, function: str, args: str = "", *, timeout_secs: float | None = None
    ) -> str:
        """The function's result. Raises DRPCError."""
        secs = self._timeout_secs if timeout_secs is None else timeout_secs
        reasons = []
        for _ in self._addresses:
            address = self._addresses[self._next % len(self._addresses)]
            self._next += 1
            try:
                return await self._execute(address, function, args, secs)
            except ThriftTransportError as error:
                if error.sent:
                    hint = (
                        "It is not known whether the request was carried out. Is there a topology "
                        f"that serves {function!r}?"
                    )
                    raise DRPCError(str(error), hint=hint) from error
                reasons.append(str(error))
        raise DRPCError(
            "no DRPC server can be reached: " + "; ".join(reasons),
            hint="Is a server running, and do drpc.servers and drpc.port give its address?",
        )

    async def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _execute(self, address: Address, function: str, args: str, secs: float) -> str:
        idle = self._idle[address]
        while idle:
            # If the server has closed it meanwhile, that shows before anything is sent.
            client = idle.pop()
            try:
                return await self._call(client, idle, function, args, secs)
            except ThriftTransportError as error:
                if error.sent:
                    raise
        client = ThriftClient(
            storm.DistributedRPC,
            *address,
            frame_bytes_max=_REPLY_BYTES_MAX,
            connect_timeout_secs=_CONNECT_TIMEOUT_SECS,
            credentials=self._credentials,
        )
        await client.connect()
        return await self._call(client, idle, function, args, secs)

    async def _call(
        self, client: ThriftClient, idle: deque[ThriftClient], function: str, args: str, secs: float
    ) -> str:
        whole = False
        try:
            result: str = await client.call("execute", function, args, timeout_secs=secs)
            whole = True
            return result
        except storm.DRPCExecutionException as error:
            whole = True
            raise DRPCError(error.msg, reason=_reason(error.type)) from error
        except storm.AuthorizationException as error:
            whole = True
            raise DRPCError(
                f"not allowed: {error.msg}",
                hint=f"The lists of function {function!r} in drpc.authorizer.acl.filename say who "
                "may call it.",
            ) from error
        except (ThriftApplicationError, EncodeError) as error:
            raise DRPCError(f"the request could not be made: {error}") from error
        finally:
            if whole and len(idle) < _IDLE_MAX:
                idle.append(client)
            else:
                await client.close()


class DRPCClient:
    """A client for synchronous code. It has its own event loop; calls from several threads take
    turns.

        def reach(url):
            with DRPCClient("drpc1", 3772, timeout_secs=10) as client:
                return client.execute("reach", url)
    """

    def __init__(
        self,
        host: str | Sequence[Address] = "127.0.0.1",
        port: int = 3772,
        *,
        timeout_secs: float = 605.0,
        credentials: Credentials | None = None,
    ) -> None:
        """As of AsyncDRPCClient."""
        self._client = AsyncDRPCClient(
            host, port, timeout_secs=timeout_secs, credentials=credentials
        )
        self._runner = asyncio.Runner()
        self._lock = threading.Lock()

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> Self:
        """A client of `drpc.servers`. Raises DRPCError when there are none."""
        return cls.of(ClientOptions.read(conf))

    @classmethod
    def of(cls, options: ClientOptions) -> Self:
        """Like `from_conf`, from what was read of a configuration."""
        addresses = server_addresses(options.drpc_servers, options.drpc_port)
        timeout_secs = options.drpc_request_timeout_secs + _TIMEOUT_MARGIN_SECS
        return cls(addresses, timeout_secs=timeout_secs, credentials=drpc_credentials(options))

    def execute(self, function: str, args: str = "", *, timeout_secs: float | None = None) -> str:
        """The function's result. Raises DRPCError."""
        with self._lock:
            return self._runner.run(self._client.execute(function, args, timeout_secs=timeout_secs))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        with self._lock:
            self._runner.run(self._client.close())
            self._runner.close()
            self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _reason(kind: int | None) -> Reason:
    return Reason.FAILED_REQUEST if kind is None else Reason(int(kind))
