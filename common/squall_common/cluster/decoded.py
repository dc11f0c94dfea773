"""Decoded values of nodes that have not changed since they were last read.

Decoding the assignment of 10,000 executors takes 0.1 s, and daemons read all assignments for every
call and every ten seconds. So a value is kept with the bytes that it was decoded from: the same
bytes give the same value, whichever version of a node they come from. Readers that come while it is
being decoded wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

_T = TypeVar("_T")


class DecodedValues(Generic[_T]):
    """The last value of each node, by path. Values must be immutable: readers share them."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, asyncio.Future[_T]]] = {}

    async def of(self, path: str, data: bytes, decode: Callable[[], asyncio.Future[_T]]) -> _T:
        """Return the value of a node that has these bytes. `decode` is called if the node had
        others; what it raises is raised, and not kept."""
        kept = self._kept.get(path)
        if kept is None or kept[0] != data:
            kept = self._kept[path] = (data, decode())
            kept[1].add_done_callback(lambda done: self._drop_failed(path, done))
        return await asyncio.shield(kept[1])  # others may wait for it

    def forget_others(self, paths: Collection[str]) -> None:
        """Forget all nodes but these, which are the ones that exist."""
        for path in self._kept.keys() - set(paths):
            del self._kept[path]

    def _drop_failed(self, path: str, done: asyncio.Future[_T]) -> None:
        if done.cancelled() or done.exception() is not None:
            kept = self._kept.get(path)
            if kept is not None and kept[1] is done:
                del self._kept[path]
