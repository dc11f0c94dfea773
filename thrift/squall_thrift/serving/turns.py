"""Fair order for many waiting peers: they take turns, one item each, and so do the connections of
a peer. Peers are addresses, so that one with many connections gets no more than one with few; a
connection waits behind at most one item of each other connection of its peer.

    queue.add(("10.0.0.7", 41822), work)
    queue.next()

`Turns` spreads calls over a loop's iterations in this order: the first step of one call (decoding
it, and its handler's work until it first waits) is one turn.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

# A peer's address, and one of its connections.
Key = tuple[Hashable, Hashable]


class FairQueue(Generic[T]):
    """Items by peer and connection. Peers and connections without items take no memory."""

    def __init__(self) -> None:
        self._peers: OrderedDict[Hashable, OrderedDict[Hashable, deque[T]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, key: Key, item: T) -> None:
        """Add an item behind the others of its connection."""
        peer, connection = key
        self._peers.setdefault(peer, OrderedDict()).setdefault(connection, deque()).append(item)
        self._length += 1

    def next(self) -> T:
        """Take the item whose turn it is. Raises KeyError if there is none."""
        peer, connections = self._peers.popitem(last=False)
        connection, items = connections.popitem(last=False)
        item = items.popleft()
        if items:
            connections[connection] = items
        if connections:
            self._peers[peer] = connections
        self._length -= 1
        return item


class Turns:
    """At most one turn in each iteration of the loop while others wait; else at once."""

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._taken = False  # this iteration's turn has been taken

    async def take(self, key: Key) -> None:
        """Wait for the turn of `key`, which lasts until the caller next waits."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._grant)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(key, turn)
        await turn

    def _grant(self) -> None:
        while self._waiting:
            turn = self._waiting.next()
            if not turn.done():  # its connection may have ended meanwhile
                turn.set_result(None)
                # Runs after the step that this has just scheduled.
                asyncio.get_running_loop().call_soon(self._grant)
                return
        self._taken = False
