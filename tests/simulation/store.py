"""A client of ZooKeeper over the simulated network: the in-memory store, with a way to it.

Requests and answers travel, in order. The server applies a request when it arrives, whatever has
become of the client meanwhile: one whose process was stopped, or whose way was cut, after it was
sent. Server and client each find out by themselves that they have lost each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.loop import current_process
from tests.simulation.network import Network

from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.access.lists import AccessList
from squall_common.cluster.store import (
    ConnectionLostError,
    ConnectionState,
    Op,
    Stat,
    StoreError,
    Watcher,
    check_path,
    check_size,
)
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore

_T = TypeVar("_T")

ZOOKEEPER = "zookeeper"  # its host
_RETRY_SECS = 1.0


class SimEnsemble(MemoryEnsemble):
    """The servers; `applied` is told of every transaction that was carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[SimStore] = []
        self.applied: list[Callable[[SimStore, list[Op]], None]] = []

    def restart(self) -> None:
        """Servers that were away are back; clients find out one after the other."""
        self.running = True
        self._awaiting = []
        for client in self.clients:
            client.server_is_back()


class SimStore(MemoryStore):
    """One client, in the process that makes it."""

    def __init__(
        self,
        network: Network,
        ensemble: SimEnsemble,
        *,
        session_timeout_secs: float,
        operation_timeout_secs: float,
        clock: Any,
        access: StoreAccess | None = None,
    ) -> None:
        super().__init__(
            ensemble,
            session_timeout_secs=session_timeout_secs,
            operation_timeout_secs=operation_timeout_secs,
            clock=clock,
            access=access,
        )
        self.process = current_process()
        self.host = self.process.host
        self._sim = ensemble
        self._network = network
        self._rng: random.Random = network.rng
        self._era = 0  # of the connection: requests of an earlier one are lost
        self._quiet_era = 0
        self._request_at = self._answer_at = 0.0
        self._under_way: dict[asyncio.Future[Any], None] = {}
        self._undelivered: dict[tuple[Callable[[Any], None], Any], None] = {}
        self._linked_at = 0.0
        self._heard_at = 0.0
        self._quiet: tuple[float, float] | None = None  # no pings between these
        ensemble.clients.append(self)
        self.process.on_exit.append(self._died)
        self.process.stop_hooks.append(self.went_quiet)
        self.process.resumed.append(self.came_back)

    # What goes wrong.

    @property
    def reachable(self) -> bool:
        return self._network.both(self.host, ZOOKEEPER)

    def _died(self) -> None:
        """The process is gone; the servers find out when its session runs out."""
        self._listeners.clear()
        self._watches.clear()
        self._closed = True
        self._era += 1
        self._quiet_era += 1
        if self in self._sim.clients:
            self._sim.clients.remove(self)
        self._expire_later(self._session, None)

    def went_quiet(self) -> None:
        """The way is cut, or the process was stopped: no pings."""
        if self._closed:
            return
        loop = self._network.loop
        if self._quiet is None or self._quiet[1] < loop.time():
            self._quiet = (loop.time(), float("inf"))
        self._quiet_era += 1
        era = self._quiet_era
        self._expire_later(self._session, era)
        if not self.process.stopped:
            notices = self._rng.uniform(0.4, 0.67) * self._session_timeout_secs
            loop.world_later(notices, self._notice, era)

    def came_back(self) -> None:
        """The way is open again, or the process goes on."""
        if self._closed or self.process.stopped or not self.reachable:
            if not self._closed and not self.process.stopped:
                self.went_quiet()  # resumed behind a cut
            return
        self._quiet_era += 1
        loop = self._network.loop
        if self._quiet is not None:
            self._quiet = (self._quiet[0], loop.time())
        wait = self._rng.uniform(0, self._session_timeout_secs / 10)
        if not self._linked:
            loop.world_later(wait, self._link_up)
        elif self._session not in self._sim._sessions:
            loop.world_later(min(wait, 0.05), self._reconnect)

    def server_is_back(self) -> None:
        """After an outage of all servers."""
        if not self.reachable or self.process.stopped:
            self.went_quiet()
        else:
            wait = self._rng.uniform(0, self._session_timeout_secs / 10)
            self._network.loop.world_later(wait, self._link_up)

    def _notice(self, era: int) -> None:
        if era == self._quiet_era and self._linked:
            self._lose_connection()

    def _lose_connection(self) -> None:
        self._link_down(expires=False)

    def _link_down(self, *, expires: bool) -> None:
        self._era += 1
        super()._link_down(expires=False)
        under_way, self._under_way = self._under_way, {}
        for future in under_way:
            if not future.done():
                future.set_exception(ConnectionLostError("the connection was lost"))

    def _reconnect(self) -> None:
        if self._linked and not self._closed:
            self._lose_connection()
        self._link_up()

    def _link_up(self) -> None:
        if self._closed or self._linked:
            return
        if not self.reachable or self.process.stopped or not self._sim.running:
            self._network.loop.world_later(_RETRY_SECS, self._link_up)
            return
        now = self._network.loop.time()
        self._linked_at = self._heard_at = now
        if self._quiet is not None and self._quiet[1] > now:
            self._quiet = (self._quiet[0], now)
        self._quiet_era += 1
        super()._link_up()

    def _expire_later(self, session: int, era: int | None) -> None:
        """The servers drop a session that they do not hear of. None: whatever happens."""

        def expire() -> None:
            if era is None or era == self._quiet_era:
                if not self._sim.running:  # nobody counts
                    self._network.loop.world_later(self._session_timeout_secs, expire)
                    return
                self._sim._end(session)

        part = self._rng.uniform(0.67, 1.0)
        self._network.loop.world_later(part * self._session_timeout_secs, expire)

    def expire_now(self) -> None:
        """The servers end the session."""
        self._sim._end(self._session)
        self._network.loop.world_later(self._rng.uniform(0, 0.1), self._reconnect)

    @property
    def last_answered_secs(self) -> float:
        """When the last request, or ping, that was answered was sent."""
        if not self._linked:
            return self._heard_at
        period = self._session_timeout_secs / 3
        now = self._network.loop.time()

        def last_ping(at: float) -> float:
            return at - (at - self._linked_at) % period

        ping = last_ping(now)
        if self._quiet is not None and self._quiet[0] <= ping <= self._quiet[1]:
            ping = last_ping(self._quiet[0])
        self._heard_at = max(self._heard_at, ping)
        return self._heard_at

    # How requests go.

    async def _serve(self, act: Callable[[], _T]) -> _T:
        await self._request()
        loop = self._network.loop
        future: asyncio.Future[_T] = loop.create_future()
        self._under_way[future] = None
        sent_at = loop.time()
        session, era = self._session, self._era

        def arrive() -> None:
            if session not in self._sim._sessions or not self._sim.running:
                return  # the client hears of it when it finds its connection gone
            if not self.reachable:
                loop.world_later(_RETRY_SECS, arrive)  # sent again, as TCP does
                return
            if era != self._era and not self._closed:
                return
            result: Any = None
            error: StoreError | None = None
            try:
                result = act()
            except StoreError as failure:
                error = failure

            def answer() -> None:
                self._under_way.pop(future, None)
                if future.done():
                    return
                self._heard_at = max(self._heard_at, sent_at)
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)

            self._answer_later(answer, era)

        now = loop.time()
        self._request_at = at = max(
            self._request_at, now + self._network.delay(self.host, ZOOKEEPER)
        )
        loop.world_later(at - now, arrive)
        return await future

    def _answer_later(self, answer: Callable[[], None], era: int) -> None:
        """Answers and watches come in the order in which the server sent them."""
        loop = self._network.loop
        now = loop.time()
        self._answer_at = at = max(self._answer_at, now + self._network.delay(ZOOKEEPER, self.host))

        def arrive() -> None:
            if era != self._era or self._closed:
                return
            if not self.reachable:
                loop.world_later(_RETRY_SECS, arrive)
                return
            self.process.call(answer)

        loop.world_later(at - now, arrive)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        check_path(path)

        def act() -> tuple[bytes, Stat]:
            found = self._sim.tree.get(path, self._client())
            self._watch("data", path, watch)
            return found

        return await self._serve(act)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        check_path(path)

        def act() -> Stat | None:
            self._watch("data", path, watch)
            return self._sim.tree.exists(path, self._client())

        return await self._serve(act)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        check_path(path)

        def act() -> list[str]:
            found = self._sim.tree.children(path, self._client())
            self._watch("children", path, watch)
            return found

        return await self._serve(act)

    async def access_list(self, path: str) -> AccessList:
        check_path(path)
        return await self._serve(lambda: self._sim.tree.access_list(path, self._client()))

    async def _write(self, write: Callable[[], _T]) -> _T:
        return await self._serve(write)

    def _apply(self, ops: Any) -> None:
        super()._apply(ops)
        for told in self._sim.applied:
            told(self, list(ops))

    def put_nowait(self, path: str, value: bytes) -> None:
        check_path(path)
        check_size(path, value)
        if not self._linked:
            if not self._closed:
                self._puts_waiting[path] = value
            return
        session = self._session

        def arrive() -> None:
            if session in self._sim._sessions and self._sim.running and self.reachable:
                self._put(path, value)

        self._network.loop.world_later(self._network.delay(self.host, ZOOKEEPER), arrive)

    def _on_loop(self, call: Callable[[Any], None], argument: Any) -> None:
        if isinstance(argument, ConnectionState):
            self.process.call(call, argument)
            return
        self._undelivered[call, argument] = None

        def fire() -> None:
            if (call, argument) in self._undelivered:
                del self._undelivered[call, argument]
                call(argument)

        self._answer_later(fire, self._era)

    def _fire_all(self) -> None:
        """After a reconnection: the watches that are set, and those whose word did not arrive."""
        undelivered, self._undelivered = self._undelivered, {}
        super()._fire_all()
        for call, path in undelivered:
            self._on_loop(call, path)

    async def close(self) -> None:
        if not self._closed:
            self._era += 1
            self._quiet_era += 1
            if self in self._sim.clients:
                self._sim.clients.remove(self)
        await super().close()
