"""Numeric addresses of daemons that are known by name.

A lookup cannot be taken back: one that nobody waits for any more goes on in one of the few threads
that all lookups of this process share. A name whose server is silent would, asked for again and
again, soon keep everything else waiting that is called by name, ZooKeeper and Nimbus among it. So
each name is looked up once at a time, however long it takes, and answers late rather than again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection

from squall_supervisor.node.isolation import Address


class Addresses:
    """Remembers what a name last led to, for when it cannot be looked up."""

    def __init__(self) -> None:
        self._known: dict[Address, Address] = {}
        self._under_way: dict[Address, asyncio.Task[Address | None]] = {}

    async def of(self, named: Collection[Address], secs: float) -> set[Address]:
        """The addresses of those that are known after at most so many seconds. Forgets those that
        are not among `named`."""
        for one in named:
            if one not in self._under_way:
                self._under_way[one] = asyncio.create_task(_look_up(one), name=f"address of {one}")
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=secs)
        for one, task in list(self._under_way.items()):
            if task.done():
                del self._under_way[one]
                if (found := task.result()) is not None:
                    self._known[one] = found
        self._known = {one: found for one, found in self._known.items() if one in named}
        return set(self._known.values())

    def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()


async def _look_up(named: Address) -> Address | None:
    host, port = named
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # unknown, or no name at all: others write what we look up
        return None
    return (str(found[0][4][0]), port)
