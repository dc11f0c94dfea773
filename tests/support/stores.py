"""Both stores behind one face, so that one test suite runs on each."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.store import ConnectionState, NoNodeError, Store
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.stores.zookeeper import ZooKeeperStore


class Ensemble(Protocol):
    """Servers to which a test opens as many clients as it likes."""

    async def open(
        self,
        *,
        session_timeout_secs: float = 2.0,
        access: StoreAccess | None = None,
        is_worker: bool = False,
    ) -> Store: ...

    async def close(self) -> None: ...

    async def expire(self, store: Store) -> None:
        """End a client's session behind its back."""
        ...


class MemoryServers:
    """Clients of a MemoryEnsemble."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.stores: list[MemoryStore] = []

    async def open(
        self,
        *,
        session_timeout_secs: float = 2.0,
        access: StoreAccess | None = None,
        is_worker: bool = False,
    ) -> MemoryStore:
        store = MemoryStore(
            self.ensemble,
            session_timeout_secs=session_timeout_secs,
            operation_timeout_secs=3.0,
            access=access,
        )
        self.stores.append(store)
        await store.start()
        return store

    async def expire(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.ensemble.expire(store)

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


class RealServers:
    """Clients of a ZooKeeper server, under one root."""

    def __init__(self, address: str, root: str) -> None:
        self.address = address
        self.root = root
        self.stores: list[ZooKeeperStore] = []

    async def open(
        self,
        *,
        session_timeout_secs: float = 2.0,
        access: StoreAccess | None = None,
        is_worker: bool = False,
    ) -> ZooKeeperStore:
        store = ZooKeeperStore(
            self.address,
            root=self.root,
            session_timeout_secs=session_timeout_secs,
            operation_timeout_secs=3.0,
            access=access,
            is_worker=is_worker,
        )
        self.stores.append(store)
        await store.start()
        return store

    async def expire(self, store: Store) -> None:
        """Take the session over with a second client, which ends it: what a client whose process
        was paused too long sees."""
        assert isinstance(store, ZooKeeperStore)
        await asyncio.to_thread(end_session, store)

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


def end_session(store: ZooKeeperStore) -> None:
    """Connect with a store's session id and password, and end that session. Blocks.

    Both requests go in one segment: the client whose connection the server cuts for our sake comes
    back at once and would take its session over again.
    """
    assert store._link is not None
    session_id, password = store._link.client.client_id
    connect = struct.pack(">iqiq", 0, 0, 4000, session_id) + _buffer(password) + b"\0"
    close = struct.pack(">ii", 1, -11)
    host, port = store._hosts.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(_buffer(connect) + _buffer(close))
        while connection.recv(4096):
            pass


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Watched:
    """A watcher that counts and can be waited for."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._event = asyncio.Event()

    def __call__(self, path: str) -> None:
        self.paths.append(path)
        self._event.set()

    async def wait(self, timeout_secs: float = 60.0) -> str:
        """The path of the next call since the last wait."""
        async with asyncio.timeout(timeout_secs):
            await self._event.wait()
        self._event.clear()
        return self.paths[-1]


class States:
    """Records a store's connection states."""

    def __init__(self, store: Store) -> None:
        self.seen: list[ConnectionState] = []
        self._changed = asyncio.Event()
        store.add_listener(self._add)

    def _add(self, state: ConnectionState) -> None:
        self.seen.append(state)
        self._changed.set()

    async def wait(self, *states: ConnectionState, timeout_secs: float = 60.0) -> None:
        """Until what was seen ends with `states`."""
        async with asyncio.timeout(timeout_secs):
            while tuple(self.seen[-len(states) :]) != states:
                self._changed.clear()
                await self._changed.wait()


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], timeout_secs: float = 60.0
) -> None:
    """Wait for a condition that nothing announces."""
    async with asyncio.timeout(timeout_secs):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.01)


async def value_of(store: Store, path: str) -> bytes | None:
    """A node's value, or None when there is no node."""
    try:
        return (await store.get(path))[0]
    except NoNodeError:
        return None
