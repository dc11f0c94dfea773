"""Calls to the leading Nimbus, shared by all requests and pages.

    gateway = NimbusGateway(ClientOptions.read(conf))
    cluster = await gateway.read("getClusterInfo")              # at most 0.2 s old
    await gateway.change("activate", "wordcount")

- Equal reads at the same time are one call, and its answer serves for `max_age_secs`: twenty tabs
  cost as much as one.
- Nimbus is spared: an answer that took long to make is kept longer, so that reading it again and
  again keeps Nimbus busy for at most `_SHARE` of the time. How long it took is the least of the
  last few times: the others also waited for something else.
- A lost connection is found by the next call, which looks for the leader again. A read is repeated
  once then; a change is not, since it may have been carried out.
- A connection carries one call at a time, so there are three: for changes, for small answers, and
  for the pages of large topologies, which nothing else should wait for.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusConnectionError

log = get_logger(__name__)

MAX_AGE_SECS = 0.2
_SHARE = 0.02  # of Nimbus' time for one kind of answer that is read all the time
_KEEP_SECS_MAX = 30.0
_TIMES_KEPT = 20
_CALL_SECS = 20.0
_CONNECT_SECS = 8.0
# Answers that are kept at once; pages of topologies that nobody watches any more go first.
_ANSWERS_MAX = 256
_LARGE = frozenset(
    {
        "getComponentPageInfo",
        "getTopology",
        "getTopologyInfo",
        "getTopologyInfoWithOpts",
        "getTopologyPageInfo",
        "getUserTopology",
    }
)


class Connection(Protocol):
    """What the gateway needs of a NimbusClient."""

    async def call(self, method: str, *args: Any, timeout_secs: float | None = None) -> Any: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class _Answer:
    value: Any
    at: float
    took_secs: tuple[float, ...]  # of this call, the last times


class _Lane:
    """One connection, opened when it is needed."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        connection = await self._connected()
        try:
            return await connection.call(method, *args, timeout_secs=_CALL_SECS)
        except NimbusConnectionError as error:
            log.info("nimbus_connection_lost", method=method, error=error)
            if self._connection is connection:
                self._connection = None
                await connection.close()
            raise

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _connected(self) -> Connection:
        if self._connection is not None:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._connecting)

    async def _open(self) -> Connection:
        try:
            async with asyncio.timeout(_CONNECT_SECS):
                self._connection = await self._connect()
            return self._connection
        except TimeoutError:
            raise NimbusConnectionError(
                f"no Nimbus answered within {_CONNECT_SECS:.0f} s",
                hint="is it running? nimbus.seeds says where it is looked for",
            ) from None
        finally:
            self._connecting = None


class NimbusGateway:
    """Raises what `NimbusClient.call` raises: the method's own exceptions, ThriftApplicationError,
    and NimbusError if there is no Nimbus."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        connect: Callable[[ClientOptions], Awaitable[Connection]] = NimbusClient.connect,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._changes, self._small, self._pages = (_Lane(lambda: connect(options)) for _ in "123")
        self._answers: OrderedDict[tuple[Any, ...], _Answer] = OrderedDict()
        self._under_way: dict[tuple[Any, ...], asyncio.Task[Any]] = {}
        self._changed = 0  # how many changes were made: an answer from before one is not kept

    async def read(self, method: str, *args: Any, max_age_secs: float = MAX_AGE_SECS) -> Any:
        """The answer of a method that changes nothing; `args` must be hashable."""
        key = (method, *args)
        found = self._answers.get(key)
        if found is not None and self._clock() - found.at < max(max_age_secs, _pause(found)):
            self._answers.move_to_end(key)
            return found.value
        task = self._begin(key)
        # One caller's hanging up must not take the answer from the others.
        return await asyncio.shield(task)

    async def read_last(self, method: str, *args: Any, max_age_secs: float) -> Any:
        """The last answer, however long ago it was read: one that is older than `max_age_secs` is
        read anew meanwhile, for who asks next. Waits only if there is none, so errors are those of
        other calls."""
        key = (method, *args)
        found = self._answers.get(key)
        if found is None:
            return await self.read(method, *args, max_age_secs=max_age_secs)
        if self._clock() - found.at >= max(max_age_secs, _pause(found)):
            self._begin(key)
        self._answers.move_to_end(key)
        return found.value

    def pause_secs(self, method: str, *args: Any) -> float:
        """How long a caller who reads this over and over should wait in between, at least."""
        found = self._answers.get((method, *args))
        return 0.0 if found is None else _pause(found)

    async def change(self, method: str, *args: Any) -> Any:
        """Call a method that changes the cluster, once. Answers from before are not used again."""
        try:
            return await self._changes.call(method, args)
        finally:
            self._changed += 1
            self._answers.clear()
            self._under_way.clear()

    async def close(self) -> None:
        """Close the connections; idempotent."""
        for task in list(self._under_way.values()):
            task.cancel()
        for lane in (self._changes, self._small, self._pages):
            await lane.close()

    def _begin(self, key: tuple[Any, ...]) -> asyncio.Task[Any]:
        """The call under way, or a new one."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(self._fetch(key))
            task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: tuple[Any, ...], done: asyncio.Task[Any]) -> None:
        if self._under_way.get(key) is done:
            del self._under_way[key]
        if not done.cancelled():
            done.exception()  # seen, also if every caller has hung up

    async def _fetch(self, key: tuple[Any, ...]) -> Any:
        lane = self._pages if key[0] in _LARGE else self._small
        changed = self._changed
        began = self._clock()
        try:
            value = await lane.call(key[0], key[1:])
        except NimbusConnectionError:
            began = self._clock()
            value = await lane.call(key[0], key[1:])
        if changed == self._changed:
            now, before = self._clock(), self._answers.get(key)
            took = before.took_secs[1 - _TIMES_KEPT :] if before is not None else ()
            self._answers[key] = _Answer(value, now, (*took, now - began))
            self._answers.move_to_end(key)
            while len(self._answers) > _ANSWERS_MAX:
                self._answers.popitem(last=False)
        return value


def _pause(answer: _Answer) -> float:
    return min(min(answer.took_secs) / _SHARE, _KEEP_SECS_MAX)
