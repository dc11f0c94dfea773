"""The store in memory: one ensemble, any number of clients, with fault injection.

`MemoryEnsemble` stands for the servers, `MemoryStore` for one client's session. What the network
and time do to a client of ZooKeeper is done here by calls: `suspend` and `resume` its connection,
`expire` its session, `kill` its process, `stop` and `start` the whole ensemble, lose answers.
Nothing is random, and time is the event loop's, so a simulation with a virtual clock replays the
same run each time. The same test suite runs on this and on the real thing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from squall_common.cluster import treewalk
from squall_common.cluster.access.digests import StoreAccess, identity_of
from squall_common.cluster.access.lists import OPEN, AccessList, is_open
from squall_common.cluster.store import (
    ConnectionLostError,
    ConnectionState,
    Create,
    Delete,
    Op,
    Set,
    Stat,
    StateListener,
    StoreError,
    Watcher,
    check_path,
    check_size,
    check_transaction,
    parent_of,
)
from squall_common.cluster.stores.tree import Client, Event, EventKind, Tree
from squall_common.daemon.clock import Clock, SystemClock

_T = TypeVar("_T")

_DATA = "data"
_CHILDREN = "children"
_FIRES = {
    EventKind.CREATED: (_DATA,),
    EventKind.CHANGED: (_DATA,),
    EventKind.DELETED: (_DATA, _CHILDREN),
    EventKind.CHILDREN: (_CHILDREN,),
}


class MemoryEnsemble:
    """The servers: one tree, the sessions, and the switches for faults."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.running = True
        self.lock = threading.RLock()  # put_nowait comes from any thread
        self._sessions: dict[int, MemoryStore] = {}
        self._last_session = 0x1000
        self._awaiting: list[MemoryStore] = []  # clients that started while no server was up

    def suspend(self, store: MemoryStore) -> None:
        """Cut a client's connection; its session expires after its timeout unless resumed."""
        store._link_down(expires=self.running)

    def resume(self, store: MemoryStore) -> None:
        """Let a client connect again: to its session when that still lives, else to a new one."""
        if self.running:
            store._link_up()

    def expire(self, store: MemoryStore) -> None:
        """End a client's session now. A client that is not suspended learns of it at once and gets
        a new session, as one does whose process was paused too long."""
        store._expire()

    def kill(self, store: MemoryStore) -> None:
        """The client's process dies: it never hears anything again, and its session lives on until
        its timeout."""
        store._listeners.clear()
        store._watches.clear()
        store._link_down(expires=self.running)
        store._closed = True

    def stop(self) -> None:
        """Stop every server. Sessions do not expire while no server runs."""
        self.running = False
        for store in list(self._sessions.values()):
            store._link_down(expires=False)

    def start(self) -> None:
        """The servers are back, with the tree and the sessions as they were."""
        self.running = True
        awaiting, self._awaiting = self._awaiting, []
        for store in awaiting:
            store._link_up()
        for store in list(self._sessions.values()):
            if store._closed:
                store._link_down(expires=True)
            else:
                store._link_up()

    def lose_answers(self, store: MemoryStore, count: int = 1) -> None:
        """The next `count` writes of a client happen, but it gets a ConnectionLostError."""
        store._answers_to_lose = count

    def lose_requests(self, store: MemoryStore, count: int = 1) -> None:
        """The next `count` writes of a client do not happen, and it gets a ConnectionLostError."""
        store._requests_to_lose = count

    def _join(self, store: MemoryStore) -> None:
        if self.running:
            store._link_up()
        else:
            self._awaiting.append(store)

    def _open(self, store: MemoryStore) -> int:
        self._last_session += 1
        self._sessions[self._last_session] = store
        return self._last_session

    def _end(self, session: int) -> None:
        """Forget a session and delete its ephemeral nodes."""
        with self.lock:
            if self._sessions.pop(session, None) is not None:
                for path in self.tree.owned_by(session):
                    self._publish(self.tree.end(path))

    def _publish(self, events: Sequence[Event]) -> None:
        for store in list(self._sessions.values()):
            store._notify(events)


class MemoryStore:
    """One client of a MemoryEnsemble; implements `store.Store`."""

    def __init__(
        self,
        ensemble: MemoryEnsemble,
        *,
        session_timeout_secs: float = 20.0,
        operation_timeout_secs: float = 10.0,
        clock: Clock | None = None,
        access: StoreAccess | None = None,
    ) -> None:
        """`access` says how to prove who this is."""
        self._access = access
        self._makes_lists = False
        self._ensemble = ensemble
        self._clock = clock or SystemClock()
        self._session_timeout_secs = session_timeout_secs
        self._operation_timeout_secs = operation_timeout_secs
        self._state = ConnectionState.LOST
        self._session = 0
        self._linked = False
        self._unlinked_at = self._clock.monotonic()
        self._closed = False
        self._connected = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._listeners: list[StateListener] = []
        # Insertion-ordered, so that watchers are called in the order in which they were set.
        self._watches: dict[tuple[str, str, Watcher], None] = {}
        self._answers_to_lose = 0
        self._requests_to_lose = 0
        self._puts_waiting: dict[str, bytes] = {}
        self.put_errors = 0
        self.observe: Callable[[str, float], None] | None = None  # it has no latency

    # The session

    async def start(self) -> None:
        if self._closed:
            raise ConnectionLostError("the store is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop_thread = threading.get_ident()
            self._ensemble._join(self)
        await self._connected.wait()
        self._make_root_list()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._cancel_timers()
        self._listeners.clear()
        self._watches.clear()
        self._linked = False
        self._connected.clear()
        self._state = ConnectionState.LOST
        self._ensemble._end(self._session)
        self._session = 0

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session

    @property
    def session_timeout_secs(self) -> float:
        return self._session_timeout_secs

    @property
    def last_answered_secs(self) -> float:
        """A linked client is taken to be heard of all the time."""
        return self._clock.monotonic() if self._linked else self._unlinked_at

    def add_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    # Reading

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        await self._request()
        with self._ensemble.lock:
            found = self._ensemble.tree.get(path, self._client())
            self._watch(_DATA, path, watch)
        await self._answer()
        return found

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        check_path(path)
        await self._request()
        with self._ensemble.lock:
            self._watch(_DATA, path, watch)
            stat = self._ensemble.tree.exists(path, self._client())
        await self._answer()
        return stat

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        check_path(path)
        await self._request()
        with self._ensemble.lock:
            names = self._ensemble.tree.children(path, self._client())
            self._watch(_CHILDREN, path, watch)
        await self._answer()
        return names

    # Writing

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        check_path(path)
        check_size(path, value)
        if make_parents:
            await treewalk.make_parents(self, path)

        def write() -> str:
            full = path
            if sequence:
                full += f"{self._ensemble.tree.next_sequence(parent_of(path)):010d}"
            self._apply_one(Create(full, value, ephemeral))
            return full

        return await self._write(write)

    async def set(self, path: str, value: bytes, version: int = -1) -> Stat:
        check_path(path)
        check_size(path, value)

        def write() -> Stat:
            self._apply_one(Set(path, value, version))
            stat = self._ensemble.tree.stat_of(path)
            assert stat is not None
            return stat

        return await self._write(write)

    async def delete(self, path: str, version: int = -1) -> None:
        check_path(path)
        await self._write(lambda: self._apply_one(Delete(path, version)))

    async def delete_tree(self, path: str) -> None:
        await treewalk.delete_tree(self, path)

    async def transaction(self, ops: Sequence[Op]) -> None:
        check_transaction(ops)
        if not ops:
            return
        await self._write(lambda: self._apply(ops))

    def put_nowait(self, path: str, value: bytes) -> None:
        check_path(path)
        check_size(path, value)
        with self._ensemble.lock:
            if self._linked:
                self._put(path, value)
            elif not self._closed:
                self._puts_waiting[path] = value

    # How a request goes

    async def _request(self) -> None:
        """Wait for a connection."""
        if self._closed or self._loop is None:
            raise ConnectionLostError("the store is closed")
        if not self._connected.is_set():
            try:
                async with asyncio.timeout(self._operation_timeout_secs):
                    await self._connected.wait()
            except TimeoutError:
                raise ConnectionLostError(
                    f"no connection within {self._operation_timeout_secs} s"
                ) from None

    async def _answer(self) -> None:
        """Let others run, as they do while an answer travels: watches that fired before come
        first, as ZooKeeper promises."""
        await asyncio.sleep(0)

    async def _write(self, write: Callable[[], _T]) -> _T:
        await self._request()
        if self._requests_to_lose:
            self._requests_to_lose -= 1
            raise ConnectionLostError("the request was lost")
        try:
            with self._ensemble.lock:
                return write()
        finally:
            await self._answer()
            if self._answers_to_lose:
                self._answers_to_lose -= 1
                raise ConnectionLostError("the answer was lost")

    def _apply(self, ops: Sequence[Op]) -> None:
        self._ensemble._publish(self._ensemble.tree.apply(ops, self._client()))

    def _apply_one(self, op: Op) -> None:
        try:
            self._apply([op])
        except StoreError as error:
            error.index = None  # it was no transaction
            raise

    def _put(self, path: str, value: bytes) -> None:
        exists = self._ensemble.tree.stat_of(path) is not None
        try:
            self._apply([Set(path, value) if exists else Create(path, value)])
        except StoreError:
            self.put_errors += 1

    # Access lists

    @property
    def makes_lists(self) -> bool:
        return self._makes_lists

    def begin_lists(self) -> None:
        self._makes_lists = self._access is not None

    def authenticate(self, access: StoreAccess) -> None:
        self._access = access

    async def access_list(self, path: str) -> AccessList:
        check_path(path)
        await self._request()
        with self._ensemble.lock:
            found = self._ensemble.tree.access_list(path, self._client())
        await self._answer()
        return found

    async def set_access_list(self, path: str, acl: AccessList, version: int = -1) -> None:
        check_path(path)
        tree = self._ensemble.tree
        await self._write(lambda: tree.set_access_list(path, acl, version, self._client()))

    def _client(self) -> Client:
        access = self._access
        if access is None:
            return Client(self._session)
        return Client(self._session, tuple(map(identity_of, access.payloads)), self._acl_of)

    def _acl_of(self, path: str) -> AccessList:
        """Here the marker is looked at each time: it costs nothing."""
        assert self._access is not None
        if not self._makes_lists:
            try:
                marker = self._ensemble.tree.access_list(self._access.marker, self._client())
            except StoreError:
                return OPEN
            self._makes_lists = not is_open(marker)
        return self._access.lists.of(path) if self._makes_lists else OPEN

    def _make_root_list(self) -> None:
        """Close an empty tree, as the daemon that makes the root does. Raises AccessDeniedError if
        it is closed to this one."""
        access, tree = self._access, self._ensemble.tree
        if access is None or access.marker != "/":
            return
        with self._ensemble.lock:
            client = self._client()
            tree.get("/", client)
            if tree.zxid == 0:
                tree.set_access_list("/", access.lists.of("/"), client=client)
            self._makes_lists = not is_open(tree.access_list("/", client))

    # Watches

    def _watch(self, kind: str, path: str, watcher: Watcher | None) -> None:
        if watcher is not None:
            self._watches[kind, path, watcher] = None

    def _notify(self, events: Sequence[Event]) -> None:
        """Fire the watches that `events` concern; those of a client without a connection stay, and
        all fire when it is back."""
        if not self._watches or not self._linked:
            return
        for event in events:
            kinds = _FIRES[event.kind]
            hit = [key for key in self._watches if key[0] in kinds and key[1] == event.path]
            for key in hit:
                del self._watches[key]
                self._on_loop(key[2], key[1])

    def _fire_all(self) -> None:
        with self._ensemble.lock:
            watches, self._watches = self._watches, {}
        for _, path, watcher in watches:
            self._on_loop(watcher, path)

    def _on_loop(self, call: Callable[[_T], None], argument: _T) -> None:
        assert self._loop is not None
        if threading.get_ident() == self._loop_thread:
            self._loop.call_soon(call, argument)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, argument)

    # What happens to the session

    def _link_up(self) -> None:
        if self._closed or self._linked:
            return
        if self._loop is None:  # it connects when it starts
            return
        self._cancel_timers()
        with self._ensemble.lock:
            if self._session not in self._ensemble._sessions:
                if self._session:
                    self._enter(ConnectionState.LOST)
                self._session = self._ensemble._open(self)
            self._linked = True
            waiting, self._puts_waiting = self._puts_waiting, {}
            for path, value in waiting.items():
                self._put(path, value)
        self._enter(ConnectionState.CONNECTED)
        self._fire_all()

    def _link_down(self, *, expires: bool) -> None:
        if self._loop is None:  # it has not started yet: there is nothing to lose
            return
        was_linked = self._linked
        if was_linked:
            self._linked = False
            self._unlinked_at = self._clock.monotonic()
            self._enter(ConnectionState.SUSPENDED)
            self._deadline = self._loop.call_later(
                self._session_timeout_secs, self._enter, ConnectionState.LOST
            )
        if expires and self._expiry is None:
            self._expiry = self._loop.call_later(
                self._session_timeout_secs, self._ensemble._end, self._session
            )
        elif not expires and self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        self._ensemble._end(self._session)
        if self._linked:
            self._linked = False
            self._unlinked_at = self._clock.monotonic()
            self._enter(ConnectionState.SUSPENDED)
            self._link_up()

    def _enter(self, state: ConnectionState) -> None:
        """Change the state and tell the listeners, once each, in the loop's next turn."""
        if state is ConnectionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        if state is not self._state:
            self._state = state
            for listener in self._listeners:
                self._on_loop(listener, state)

    def _cancel_timers(self) -> None:
        for timer in (self._expiry, self._deadline):
            if timer is not None:
                timer.cancel()
        self._expiry = self._deadline = None
