"""KeyedFairBolt: requests take turns, so that a large one does not delay small ones.

Tuples wait in one queue per key (the first value: the request's id), and the queues are served in
turn. Storm's KeyedFairBolt has a thread and unbounded queues; this one holds as many tuples as an
async bolt may have in flight (`topology.bolt.async.concurrency` of its component: allow for the
tuples of several requests); further tuples wait in the bolt's inbox as for any bolt.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

from squall import Bolt, TopologyContext, Tuple
from squall_common.component.collector import BoltCollector
from squall_common.errors import InvalidTopologyError

_T = TypeVar("_T")


class KeyedRoundRobin(Generic[_T]):
    """Queues by key, served in turn. A key without items takes no memory."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Hashable, deque[_T]] = OrderedDict()

    def add(self, key: Hashable, item: _T) -> None:
        self._queues.setdefault(key, deque()).append(item)

    def next(self) -> _T | None:
        """An item of the key whose turn it is; None when all queues are empty."""
        if not self._queues:
            return None
        key, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        return item

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))


class KeyedFairBolt(Bolt):
    """Wraps a bolt with a plain `execute`; each of its tuples waits for its key's turn."""

    _collector: BoltCollector[Tuple]

    def __init__(self, delegate: Bolt) -> None:
        if not isinstance(delegate, Bolt) or type(delegate).execute is Bolt.execute:
            raise InvalidTopologyError(f"{delegate!r} is not a Bolt that defines execute()")
        if inspect.iscoroutinefunction(type(delegate).execute) or delegate.blocking:
            raise InvalidTopologyError(
                f"{type(delegate).__name__} is async or blocking: its tuples do not wait for each "
                "other, so it does not need a KeyedFairBolt"
            )
        self.delegate = delegate
        self.outputs = delegate.outputs
        self.auto_ack = delegate.auto_ack
        self.auto_anchor = delegate.auto_anchor

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> Any:
        self._waiting: KeyedRoundRobin[asyncio.Future[None]] = KeyedRoundRobin()
        self._working = False
        self.delegate._bind(self._collector, context)
        return self.delegate.prepare(conf, context)

    async def execute(self, tup: Tuple) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(None if tup.is_tick else tup[0], turn)
        if not self._working:
            self._working = True
            # Let the tuples that came together with this one go first.
            asyncio.get_running_loop().call_soon(self._next)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()
            raise
        try:
            self.delegate.execute(tup)
        finally:
            asyncio.get_running_loop().call_soon(self._next)

    def cleanup(self) -> Any:
        return self.delegate.cleanup()

    def finished_id(self, request_id: Any) -> None:
        """Let the delegate finish this request, in its turn."""
        finished = getattr(self.delegate, "finished_id", None)
        if finished is not None:
            finished(request_id)

    def timeout_id(self, request_id: Any) -> None:
        """Forget what waits of this request."""
        timeout = getattr(self.delegate, "timeout_id", None)
        if timeout is not None:
            timeout(request_id)

    def _next(self) -> None:
        while (turn := self._waiting.next()) is not None:
            if not turn.done():
                turn.set_result(None)
                return
        self._working = False
