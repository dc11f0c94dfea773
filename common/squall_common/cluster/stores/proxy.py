"""A store in front of another one: it passes everything on. Subclasses change what they must."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.access.lists import AccessList
from squall_common.cluster.store import (
    ConnectionState,
    Op,
    Stat,
    StateListener,
    Store,
    Watcher,
)


class StoreProxy:
    """Implements `cluster.store.Store` by `inner`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def put_errors(self) -> int:
        return self.inner.put_errors

    @put_errors.setter
    def put_errors(self, count: int) -> None:
        self.inner.put_errors = count

    @property
    def observe(self) -> Callable[[str, float], None] | None:
        return self.inner.observe

    @observe.setter
    def observe(self, observe: Callable[[str, float], None] | None) -> None:
        self.inner.observe = observe

    async def start(self) -> None:
        await self.inner.start()

    async def close(self) -> None:
        await self.inner.close()

    @property
    def state(self) -> ConnectionState:
        return self.inner.state

    @property
    def session_id(self) -> int:
        return self.inner.session_id

    @property
    def session_timeout_secs(self) -> float:
        return self.inner.session_timeout_secs

    @property
    def last_answered_secs(self) -> float:
        return self.inner.last_answered_secs

    def add_listener(self, listener: StateListener) -> None:
        self.inner.add_listener(listener)

    def remove_listener(self, listener: StateListener) -> None:
        self.inner.remove_listener(listener)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self.inner.get(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        return await self.inner.exists(path, watch)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        return await self.inner.children(path, watch)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        return await self.inner.create(
            path, value, ephemeral=ephemeral, sequence=sequence, make_parents=make_parents
        )

    async def set(self, path: str, value: bytes, version: int = -1) -> Stat:
        return await self.inner.set(path, value, version)

    async def delete(self, path: str, version: int = -1) -> None:
        await self.inner.delete(path, version)

    async def delete_tree(self, path: str) -> None:
        await self.inner.delete_tree(path)

    async def transaction(self, ops: Sequence[Op]) -> None:
        await self.inner.transaction(ops)

    @property
    def makes_lists(self) -> bool:
        return self.inner.makes_lists

    def begin_lists(self) -> None:
        self.inner.begin_lists()

    def authenticate(self, access: StoreAccess) -> None:
        self.inner.authenticate(access)

    async def access_list(self, path: str) -> AccessList:
        return await self.inner.access_list(path)

    async def set_access_list(self, path: str, acl: AccessList, version: int = -1) -> None:
        await self.inner.set_access_list(path, acl, version)

    def put_nowait(self, path: str, value: bytes) -> None:
        self.inner.put_nowait(path, value)
