"""The store over a real ZooKeeper ensemble, through kazoo, without blocking the event loop.

kazoo's connection has a thread of its own. Requests go to it as `*_async` calls; what comes back
(results, watch events, changes of the connection) is queued in the order of the wire and carried
over to the event loop by one wake-up a burst: a wake-up each made the loop lag by tens of
milliseconds under load.

What kazoo leaves to its user, and where it is done:

- A request during an outage would wait for its end, and then still be sent: `_send` holds it
  back, and gives up after the operation timeout. One that reached kazoo's queue before we heard of
  the outage is taken back then.
- kazoo says LOST only once it has reconnected: a timer of ours says it when the session timeout
  has passed since the last answered request was sent.
- Watches do not survive a reconnection: we keep our own list and fire them all.
- A server that hangs while requests keep coming is never noticed: `_watchdog` cuts the connection.
- A connection thread that died (a malformed answer) is started anew.

With a StoreAccess, each connection shows its digests, and nodes are made with access lists as soon
as the node at its marker has one; until then that is looked at every few seconds, since nothing
announces a change of a list.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import kazoo.exceptions as kz
from kazoo.protocol.states import EventType
from kazoo.security import ACL, Id

from squall_common.cluster import treewalk
from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.access.lists import AccessList, Entry, Identity, is_open
from squall_common.cluster.store import (
    AccessDeniedError,
    BadVersionError,
    Check,
    ConnectionLostError,
    ConnectionState,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    Set,
    Stat,
    StateListener,
    StoreError,
    Watcher,
    check_path,
    check_size,
    check_transaction,
)
from squall_common.cluster.stores.kazoo_link import KazooLink
from squall_common.config.options.typed import NimbusOptions, SupervisorOptions, WorkerOptions
from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

ZooKeeperOptions = NimbusOptions | SupervisorOptions | WorkerOptions

_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (kz.NoNodeError, NoNodeError),
    (kz.NodeExistsError, NodeExistsError),
    (kz.NotEmptyError, NotEmptyError),
    (kz.BadVersionError, BadVersionError),
    (kz.NoChildrenForEphemeralsError, EphemeralParentError),
    (kz.NoAuthError, AccessDeniedError),
)

# The server has answered with these, so they prove that the session lives.
_ANSWERS = tuple(theirs for theirs, _ in _ERRORS)

# What a request may end with: RuntimeError is kazoo's word for answers out of order.
_FAILURES = (kz.KazooException, RuntimeError)

# Results carried over in one turn of the loop: each wakes a task in the next.
_DRAIN_MAX = 64

# How often `start` says that it still waits.
_LOG_SECS = 10.0

# Pause before a connection thread that died is replaced.
_REVIVE_SECS = 1.0

# How often the marker is looked at while the cluster, or a worker's topology, is open.
_MARKER_SECS = 5.0

# Part of the session timeout without an answer after which the server is taken to hang. kazoo's
# own pings, when nothing else is sent, notice it at two thirds as well.
_HANGING_PART = 2 / 3


class _Watch:
    """One watcher on one node, as kazoo knows it."""

    __slots__ = ("key", "store")

    def __init__(self, store: ZooKeeperStore, key: tuple[str, str, Watcher]) -> None:
        self.store = store
        self.key = key

    def __call__(self, event: Any) -> None:  # kazoo's WatchedEvent, on the connection's thread
        if event.type != EventType.NONE:  # NONE: the connection broke; we fire when it is back
            self.store._post(self.store._fire, self)


@dataclass(slots=True)
class _Put:
    """Writes of one path by put_nowait: one under way at most, and the latest value."""

    latest: bytes | None = None  # to be written next
    sent: float | None = None  # when the one under way was sent


class ZooKeeperStore:
    """One session with an ensemble; implements `store.Store`.

    `hosts` is `host:port,host:port...`. The ensemble may grant another session timeout than the
    one asked for (between 2 and 20 ticks). `access` says how to prove who this is; `is_worker` that
    it may not look at the root.
    """

    def __init__(
        self,
        hosts: str,
        *,
        root: str = "/storm",
        session_timeout_secs: float = 20.0,
        connection_timeout_secs: float = 15.0,
        operation_timeout_secs: float = 10.0,
        access: StoreAccess | None = None,
        is_worker: bool = False,
    ) -> None:
        check_path(root)
        self._access = access
        self._is_worker = is_worker
        self._makes_lists = False
        self._refused = False
        self._marking: asyncio.Task[None] | None = None
        self._hosts = hosts
        self._root = "" if root == "/" else root
        self._asked_timeout_secs = session_timeout_secs
        self._connection_timeout_secs = connection_timeout_secs
        self._operation_timeout_secs = operation_timeout_secs
        self._link: KazooLink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._state = ConnectionState.LOST
        self._connected = asyncio.Event()
        self._listeners: list[StateListener] = []
        self._watches: dict[tuple[str, str, Watcher], _Watch] = {}
        self._futures: set[asyncio.Future[Any]] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._watchdog_timer: asyncio.TimerHandle | None = None
        self._hangs = 0
        self._reviving: asyncio.Task[None] | None = None
        # From the connection's thread to the loop
        self._posts: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._drain_due = False
        # Written by the connection's thread, read by any
        self._session_id = 0
        self._granted_timeout_secs = session_timeout_secs
        self._answered = time.monotonic()
        self._linked = False
        self._puts: dict[str, _Put] = {}
        self._puts_lock = threading.RLock()
        self.put_errors = 0
        self.observe: Callable[[str, float], None] | None = None

    @classmethod
    def of(cls, options: ZooKeeperOptions, access: StoreAccess | None = None) -> ZooKeeperStore:
        """The store that the `storm.zookeeper.*` options name."""
        port = options.storm_zookeeper_port
        servers = [f"[{s}]" if ":" in s else s for s in options.storm_zookeeper_servers]
        return cls(
            ",".join(f"{server}:{port}" for server in servers),
            root=options.storm_zookeeper_root,
            session_timeout_secs=options.storm_zookeeper_session_timeout / 1000,
            connection_timeout_secs=options.storm_zookeeper_connection_timeout / 1000,
            operation_timeout_secs=options.storm_zookeeper_operation_timeout_ms / 1000,
            access=access,
            is_worker=isinstance(options, WorkerOptions),
        )

    # The session

    async def start(self) -> None:
        if self._closed:
            raise ConnectionLostError("the store is closed")
        if self._loop is not None:
            await self._connected.wait()
            return
        self._loop = asyncio.get_running_loop()
        try:
            self._start_link()
            while True:
                await self._wait_first_connection()
                try:
                    await self._make_root()
                    await self._begin_access()
                    return
                except ConnectionLostError as error:
                    if self._closed:
                        raise
                    log.warning("zookeeper_root_not_made", root=self._root, error=error)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._listeners.clear()
        self._watches.clear()
        self._connected.set()  # callers that wait for a connection find the store closed
        for timer in (self._deadline, self._watchdog_timer):
            if timer is not None:
                timer.cancel()
        if self._marking is not None:
            self._marking.cancel()
            await asyncio.gather(self._marking, return_exceptions=True)
        if self._reviving is not None:
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            # Not to be cut short by a cancellation: threads and sockets would stay behind.
            await asyncio.shield(asyncio.to_thread(link.stop))
        self._linked = False
        self._session_id = 0
        self._state = ConnectionState.LOST
        for future in list(self._futures):
            if not future.done():
                future.set_exception(ConnectionLostError("the store is closed"))

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_secs(self) -> float:
        return self._granted_timeout_secs

    @property
    def last_answered_secs(self) -> float:
        return self._answered

    def add_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    # Reading

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        value, stat = await self._request("get_async", path, watch=("data", watch))
        return value, _stat(stat)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        check_path(path)
        stat = await self._request("exists_async", path, watch=("data", watch))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        check_path(path)
        names = await self._request("get_children_async", path, watch=("children", watch))
        return sorted(names)

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
        created: str = await self._request(
            "create_async",
            path,
            value,
            acl=self._acl(path),
            ephemeral=ephemeral,
            sequence=sequence,
        )
        return created[len(self._root) :]

    async def set(self, path: str, value: bytes, version: int = -1) -> Stat:
        check_path(path)
        check_size(path, value)
        return _stat(await self._request("set_async", path, value, version))

    async def delete(self, path: str, version: int = -1) -> None:
        check_path(path)
        await self._request("delete_async", path, version)

    async def delete_tree(self, path: str) -> None:
        await treewalk.delete_tree(self, path)

    async def transaction(self, ops: Sequence[Op]) -> None:
        check_transaction(ops)
        if not ops:
            return
        what = f"transaction of {len(ops)} at {ops[0].path}"
        results = await self._send(what, lambda: self._begin_transaction(ops), retry=False)
        for index, result in enumerate(results):
            # Those before the one that failed say "rolled back", those after it "inconsistency".
            if isinstance(result, Exception) and not isinstance(
                result, kz.RolledBackError | kz.RuntimeInconsistency
            ):
                error = _error(result, f"{type(ops[index]).__name__} {ops[index].path}")
                error.index = index
                raise error

    def put_nowait(self, path: str, value: bytes) -> None:
        check_path(path)
        check_size(path, value)
        with self._puts_lock:
            if self._closed:
                return
            put = self._puts.setdefault(path, _Put())
            put.latest = value
            self._send_put(path, put)

    # Access lists

    @property
    def makes_lists(self) -> bool:
        return self._makes_lists

    def begin_lists(self) -> None:
        self._makes_lists = self._access is not None

    def authenticate(self, access: StoreAccess) -> None:
        known = () if self._access is None else self._access.payloads
        self._access = access
        for payload in access.payloads:
            if payload not in known and self._link is not None:
                self._link.authenticate(payload)
        self._look_at_marker_later()

    async def access_list(self, path: str) -> AccessList:
        check_path(path)
        found, _ = await self._request("get_acls_async", path)
        return frozenset(Entry(Identity(one.id.scheme, one.id.id), one.perms) for one in found)

    async def set_access_list(self, path: str, acl: AccessList, version: int = -1) -> None:
        check_path(path)
        await self._request("set_acls_async", path, _kazoo_acl(acl), version)

    def _acl(self, path: str) -> list[ACL] | None:
        """The list of a node that is made now, for kazoo; None: ZooKeeper's own, open to all."""
        if self._access is None or not self._makes_lists:
            return None
        return _kazoo_acl(self._access.lists.of(path))

    async def _begin_access(self) -> None:
        """Find out whether this session gets in, and whether nodes have lists."""
        if self._is_worker:
            if self._access is not None:
                # Now, or what it makes first would be open, and nobody would close it.
                with contextlib.suppress(AccessDeniedError, NoNodeError):
                    await self._look_at_marker()
            self._look_at_marker_later()
            return
        try:
            await self.get("/")
            if self._access is not None:
                await self._look_at_marker()
        except AccessDeniedError as error:
            shown = "no digest" if self._access is None else "another digest than the cluster's"
            raise AccessDeniedError(
                f"ZooKeeper at {self._hosts} refuses this daemon, which shows {shown}, at "
                f"{self._root or '/'}: give storm.zookeeper.auth.payload.file the same content "
                "here as on the cluster's other nodes"
            ) from error
        self._look_at_marker_later()

    async def _look_at_marker(self) -> None:
        assert self._access is not None
        if not is_open(await self.access_list(self._access.marker)):
            self._makes_lists = True

    def _look_at_marker_later(self) -> None:
        if self._access is None or self._makes_lists or self._closed or self._loop is None:
            return
        if self._marking is None or self._marking.done():
            self._marking = asyncio.create_task(self._watch_marker(), name="zookeeper_marker")

    async def _watch_marker(self) -> None:
        while not self._makes_lists:
            try:
                await self._look_at_marker()
            except StoreError as error:  # a topology's node may not be there yet
                log.debug("marker_not_read", error=error)
            await asyncio.sleep(0 if self._makes_lists else _MARKER_SECS)

    # How a request goes

    async def _request(
        self,
        method: str,
        path: str,
        *args: Any,
        watch: tuple[str, Watcher | None] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a method of the kazoo client. Reads (those that could set a watch) are sent again
        when the connection broke under them, as long as there is time."""
        kazoo_watch = None
        if watch is not None and watch[1] is not None:
            key = (watch[0], path, watch[1])
            kazoo_watch = self._watches.get(key) or _Watch(self, key)
            kwargs["watch"] = kazoo_watch

        def begin() -> Any:
            assert self._link is not None
            return getattr(self._link.client, method)(self._root + path or "/", *args, **kwargs)

        operation = method.removesuffix("_async")
        began = time.monotonic()
        try:
            return await self._send(
                f"{operation} {path}", begin, watch=kazoo_watch, retry=watch is not None
            )
        finally:
            if self.observe is not None:
                self.observe(operation, time.monotonic() - began)

    async def _send(
        self, what: str, begin: Callable[[], Any], *, watch: _Watch | None = None, retry: bool
    ) -> Any:
        """Send a request once there is a connection, and wait for its result."""
        if self._loop is None:
            raise ConnectionLostError("the store was not started")
        future: asyncio.Future[Any] | None = None
        try:
            async with asyncio.timeout(self._operation_timeout_secs):
                while True:
                    await self._connected.wait()
                    if self._closed or self._link is None:
                        raise ConnectionLostError("the store is closed")
                    future = self._loop.create_future()
                    self._futures.add(future)
                    future.add_done_callback(self._futures.discard)
                    done = partial(self._done, future, watch, time.monotonic())
                    link = self._link
                    result, queued = link.begin(begin)
                    result.rawlink(done)
                    try:
                        return await future
                    except asyncio.CancelledError:  # given up, perhaps before it was sent
                        link.withdraw(queued)
                        raise
                    except _FAILURES as error:
                        if not retry or not _is_connection_error(error):
                            raise _error(error, what) from error
        except TimeoutError:
            raise ConnectionLostError(
                f"{what}: ZooKeeper at {self._hosts} did not answer within "
                f"{self._operation_timeout_secs} s"
            ) from None

    def _done(
        self, future: asyncio.Future[Any], watch: _Watch | None, sent: float, result: Any
    ) -> None:
        """A request has its result. On the connection's thread, perhaps twice (kazoo's fault)."""
        error = result.exception
        if error is None or isinstance(error, _ANSWERS):
            self.answered(sent)
        self._post(self._resolve, future, watch, result.value, error)

    def _resolve(
        self,
        future: asyncio.Future[Any],
        watch: _Watch | None,
        value: Any,
        error: Exception | None,
    ) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
            return
        if watch is not None:
            self._watches[watch.key] = watch
        future.set_result(value)

    def _begin_transaction(self, ops: Sequence[Op]) -> Any:
        assert self._link is not None
        transaction = self._link.client.transaction()
        for op in ops:
            path = self._root + op.path
            if isinstance(op, Create):
                transaction.create(path, op.value, acl=self._acl(op.path), ephemeral=op.ephemeral)
            elif isinstance(op, Set):
                transaction.set_data(path, op.value, op.version)
            elif isinstance(op, Delete):
                transaction.delete(path, op.version)
            elif isinstance(op, Check):
                transaction.check(path, op.version)
        return transaction.commit_async()

    async def _make_root(self) -> None:
        """Create the root, by names of its own: every other request is put below it."""
        try:
            if await self.exists("/") is not None:
                return  # to create it again would take a right on the node above it
        except AccessDeniedError:
            return  # it is there: ZooKeeper asks since 3.9 for the right to read
        name = ""
        for part in self._root.split("/")[1:]:
            name += f"/{part}"
            # The nodes above the root are not this cluster's.
            acl = None
            if name == self._root and self._access is not None and not self._is_worker:
                acl = _kazoo_acl(self._access.lists.of("/"))
            try:
                await self._send(
                    f"create {name}", partial(self._begin_create, name, acl), retry=False
                )
            except NodeExistsError:
                pass

    def _begin_create(self, absolute_path: str, acl: list[ACL] | None) -> Any:
        assert self._link is not None
        return self._link.client.create_async(absolute_path, acl=acl)

    # Heartbeats

    def _send_put(self, path: str, put: _Put) -> None:
        """Write the latest value, unless one is under way or there is no connection: then it
        follows that one, or waits for the connection. With the lock held."""
        now = time.monotonic()
        # One whose answer never came (kazoo drops some when a session ends) is not waited for.
        under_way = put.sent is not None and now < put.sent + self._operation_timeout_secs
        link = self._link
        if put.latest is None or under_way or not self._linked or link is None:
            return
        value, put.latest, put.sent = put.latest, None, now
        done = partial(self._put_done, path, put, value, now, False)
        link.client.set_async(self._root + path, value).rawlink(done)

    def _put_done(
        self, path: str, put: _Put, value: bytes, sent: float, created: bool, result: Any
    ) -> None:
        """On the connection's thread."""
        error = result.exception
        with self._puts_lock:
            if put.sent != sent:
                return  # a second report, or one that came after its time
            link = self._link
            if error is None or isinstance(error, _ANSWERS):
                self.answered(sent)
            if isinstance(error, kz.NoNodeError) and not created and link is not None:
                again = partial(self._put_done, path, put, value, sent, True)
                created_by = link.client.create_async(self._root + path, value, acl=self._acl(path))
                created_by.rawlink(again)
                return
            put.sent = None
            if error is not None and not isinstance(error, _ANSWERS):
                # The connection broke: the value goes out with the next one (link_up).
                if put.latest is None:
                    put.latest = value
                return
            if error is not None:
                self.put_errors += 1
                log.debug("put_failed", path=path, error=error)
            if put.latest is not None:
                self._send_put(path, put)
            elif self._puts.get(path) is put:
                del self._puts[path]

    # From the connection's thread

    def link_up(self, session_id: int, session_timeout_secs: float, sent: float) -> None:
        """Called by KazooLink, on the connection's thread; so are the next two."""
        self._session_id = session_id
        self._granted_timeout_secs = session_timeout_secs
        self.answered(sent)
        self._linked = True
        self._post(self._link_is_up, session_id)
        with self._puts_lock:
            for path, put in list(self._puts.items()):
                put.sent = None
                self._send_put(path, put)

    def link_down(self, *, session_ended: bool, link_dead: bool) -> None:
        self._linked = False
        if session_ended:
            self._session_id = 0
        self._post(self._link_is_down, session_ended, link_dead)

    def answered(self, sent: float) -> None:
        if sent > self._answered:
            self._answered = sent

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        """Have `call` run on the loop, in order with everything else that was posted."""
        assert self._loop is not None
        self._posts.append((call, args))
        if not self._drain_due:
            self._drain_due = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                pass  # the loop is closed: no listener is left

    def _drain(self) -> None:
        self._drain_due = False  # before looking: what comes later wakes us again
        for _ in range(_DRAIN_MAX):
            if not self._posts:
                return
            call, args = self._posts.popleft()
            call(*args)
        assert self._loop is not None
        # One is due already when something was posted meanwhile: two would take twice as much.
        if not self._drain_due:
            self._drain_due = True
            self._loop.call_soon(self._drain)

    # On the loop

    def _start_link(self) -> None:
        self._link = KazooLink(
            self._hosts,
            self,
            session_timeout_secs=self._asked_timeout_secs,
            connection_timeout_secs=self._connection_timeout_secs,
            payloads=() if self._access is None else self._access.payloads,
        )
        self._link.start()

    async def _wait_first_connection(self) -> None:
        waited = 0.0
        pause = 1.0  # the first word comes soon
        while not self._connected.is_set():
            if self._refused:
                raise AccessDeniedError(
                    f"ZooKeeper at {self._hosts} accepts no digests at all: its "
                    "DigestAuthenticationProvider is turned off"
                )
            try:
                async with asyncio.timeout(pause):
                    await self._connected.wait()
            except TimeoutError:
                waited += pause
                pause = _LOG_SECS
                log.warning("zookeeper_awaited", hosts=self._hosts, waited_secs=round(waited))

    def _link_is_up(self, session_id: int) -> None:
        if self._closed:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._hangs = 0
        if self._watchdog_timer is None:
            self._watchdog()
        log.info("zookeeper_connected", hosts=self._hosts, session=hex(session_id))
        self._connected.set()
        self._enter(ConnectionState.CONNECTED)
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            self._call_watcher(watch)

    def _link_is_down(self, session_ended: bool, link_dead: bool) -> None:
        if self._closed:
            return
        self._connected.clear()
        if session_ended:
            self._enter(ConnectionState.LOST)
        else:
            self._enter(ConnectionState.SUSPENDED)
            assert self._loop is not None
            if self._deadline is not None:
                self._deadline.cancel()
            left = self._answered + self._granted_timeout_secs - time.monotonic()
            self._deadline = self._loop.call_later(max(left, 0), self._enter, ConnectionState.LOST)
        if self._link is not None and self._link.refused:
            self._refused = True
            log.error("zookeeper_accepts_no_digests", hosts=self._hosts)
        if link_dead and (self._reviving is None or self._reviving.done()):
            self._reviving = asyncio.create_task(self._revive(), name="zookeeper_revive")

    def _enter(self, state: ConnectionState) -> None:
        if state is self._state or self._closed:
            return
        if state is not ConnectionState.CONNECTED:
            log.warning("zookeeper_connection", state=state.value, hosts=self._hosts)
        self._state = state
        for listener in list(self._listeners):
            listener(state)

    def _fire(self, watch: _Watch) -> None:
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]
            self._call_watcher(watch)

    def _call_watcher(self, watch: _Watch) -> None:
        _, path, watcher = watch.key
        try:
            watcher(path)
        except Exception as error:
            log.error("watcher_failed", path=path, error=error, exc_info=error)

    def _watchdog(self) -> None:
        """Cut the connection to a server that takes requests and answers none. Twice in a row, so
        that a pause of our own process, whose answers lie ready, is not taken for one."""
        assert self._loop is not None
        age = time.monotonic() - self._answered
        if self._linked and age > _HANGING_PART * self._granted_timeout_secs:
            self._hangs += 1
        else:
            self._hangs = 0
        if self._hangs >= 2 and self._link is not None:
            log.warning("zookeeper_hangs", hosts=self._hosts, unanswered_secs=round(age, 1))
            self._hangs = 0
            self._link.cut()
        self._watchdog_timer = self._loop.call_later(
            self._granted_timeout_secs / 20, self._watchdog
        )

    async def _revive(self) -> None:
        """Replace a client whose connection thread ended by itself."""
        await asyncio.sleep(_REVIVE_SECS)
        link, self._link = self._link, None
        if link is not None:
            log.error("zookeeper_client_restarted", hosts=self._hosts)
            await asyncio.to_thread(link.stop)
        self._start_link()


def _kazoo_acl(acl: AccessList) -> list[ACL]:
    found = [ACL(entry.rights, Id(entry.who.scheme, entry.who.id)) for entry in acl]
    return sorted(found, key=lambda one: (one.id.scheme, one.id.id))


def _stat(stat: Any) -> Stat:
    return Stat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ephemeral_owner=stat.ephemeralOwner,
        children=stat.numChildren,
        acl_version=stat.aversion,
    )


def _is_connection_error(error: Exception) -> bool:
    return isinstance(
        error,
        kz.ConnectionLoss | kz.SessionExpiredError | kz.ConnectionClosedError | RuntimeError,
    )


def _error(error: Exception, what: str) -> StoreError:
    """Our error for one of kazoo's."""
    if isinstance(error, kz.NoAuthError):
        return AccessDeniedError(f"{what}: the access list there does not allow it")
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(what)
    if _is_connection_error(error):
        return ConnectionLostError(f"{what}: the connection was lost ({type(error).__name__})")
    return StoreError(f"{what}: {type(error).__name__} {error}")
