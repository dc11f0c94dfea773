"""Sources: spouts that read from a system which keeps each record until it hears of its end.

    Source        the part on the worker's loop: emits what was read, within a bound; emits failed
                  records again, after a wait; counts
    AsyncSource   a Source whose client is a coroutine's: a task reads ahead, another settles

A record is in flight from its emission until `ack`. One that fails is emitted again after a wait
that doubles, while the records behind it go on. After `max_replays` failures the engine emits it on
the stream `__dead_letter`, and acks it once that is processed (docs/messages.md); so a record that
can never be processed holds up nothing.

What waits to be emitted is bounded too, so that backpressure reaches the server: a source whose
topology is slow stops asking for more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from squall import Spout, TopologyContext
from squall.metrics import AssignableMetric, CountMetric
from squall_connectors.base.backoff import Backoff
from squall_connectors.base.outages import explained, outage_line
from squall_connectors.base.retries import Retries
from squall_connectors.base.unreadable import UNREADABLE, OnUnreadable

Record = tuple[Hashable, Sequence[Any]]  # a message id, and the values

_ERROR_REPORT_SECS = 10.0  # an outage is one error every so often, not one for each attempt


class Source(Spout):
    """Base of sources: bounded in flight, failed records again after a wait, metrics.

    Metrics: `in-flight`, `retries`, `connection-errors`, and `lag`: the records that the server has
    and that are not done yet, where it says how many.
    """

    _squall_bounded_by = "in_flight_max"
    #: How many records one call of next_tuple emits at the most.
    batch_max: int = 500
    #: The server, as errors show it; None: the client's errors name it. No user and no password.
    server_shown: str | None = None

    def __init__(
        self,
        *,
        in_flight_max: int = 10_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`in_flight_max` bounds the records of one task that are emitted and not acked.
        `max_replays` is how often a record that fails is emitted again before it becomes a dead
        letter; None leaves that to the topology's own `topology.max.replays`. The wait before each
        doubles, from `retry_first_secs` to `retry_max_secs`. Raises ValueError for numbers that are
        not positive."""
        if in_flight_max < 1:
            raise ValueError(f"in_flight_max must be at least 1, not {in_flight_max}")
        self._in_flight_max = in_flight_max
        self._backoff = Backoff(retry_first_secs, retry_max_secs)
        if max_replays is not None:
            self.component_conf = {"topology.max.replays": max_replays}

    def start(self, context: TopologyContext) -> None:
        """Subclasses call this first in their `open`."""
        self._now = asyncio.get_running_loop().time
        self._ready: deque[Record] = deque()  # read, not emitted yet
        self._kept: dict[Hashable, Sequence[Any]] = {}  # emitted, not acked yet
        self._retries = Retries(self._backoff)
        self._active = False
        self._error_due = 0.0
        self._metrics = _Metrics(
            lag=context.register_metric("lag", AssignableMetric()),
            retries=context.register_metric("retries", CountMetric()),
            in_flight=context.register_metric("in-flight", AssignableMetric(0)),
            connection_errors=context.register_metric("connection-errors", CountMetric()),
        )

    @property
    def room(self) -> int:
        """How many more records may be read now."""
        return self._in_flight_max - len(self._kept) - len(self._ready)

    def next_tuple(self) -> None:
        if self._retries:
            self._emit_due()
        ready = self._ready
        if not ready:
            return
        count = min(len(ready), self.batch_max)
        records = list(islice(ready, count))
        for _ in range(count):
            ready.popleft()
        for message_id, values in records:
            self._kept[message_id] = values
            if type(values) is OnUnreadable:
                self.emit(values, message_id=message_id, stream=UNREADABLE)
            else:
                self.emit(values, message_id=message_id)
        self._metrics.in_flight.set(len(self._kept))
        self.made_room()

    def _emit_due(self) -> None:
        for message_id in self._retries.due(self._now()):
            values = self._kept.get(message_id)
            if values is not None:
                self._metrics.retries.incr()
                stream = UNREADABLE if type(values) is OnUnreadable else "default"
                self.emit(values, message_id=message_id, stream=stream)

    def ack(self, msg_id: Any) -> None:
        if self._kept.pop(msg_id, None) is not None:
            self._retries.forget(msg_id)
            self.processed(msg_id)
            self.made_room()

    def fail(self, msg_id: Any) -> None:
        if msg_id in self._kept:
            self._retries.failed(msg_id, self._now())

    def activate(self) -> None:
        self._active = True
        self.made_room()

    def deactivate(self) -> None:
        self._active = False

    def processed(self, message_id: Hashable) -> None:
        """Called for each record that is done: the server may forget it."""

    def made_room(self) -> None:
        """Called when more may be read."""

    def report_outage(self, error: BaseException) -> None:
        """Count a failure to reach the server, and report it as an error of the topology, at most
        every ten seconds, with the server (`server_shown`) and what to do."""
        self._metrics.connection_errors.incr()
        now = self._now()
        if now >= self._error_due:
            self._error_due = now + _ERROR_REPORT_SECS
            self.report_error(explained(error, self.server_shown))


class AsyncSource(Source):
    """A source whose client is asynchronous. A subclass defines four coroutines. They run in the
    background, never two `fetch` at once, and a failure of `fetch` or `settle` leads to
    `disconnect`, a wait that doubles, and `connect`:

        class Lines(AsyncSource):
            outputs = ["line"]

            async def connect(self):
                self.client = await client.connect(URL)

            async def disconnect(self):
                await self.client.close()

            async def fetch(self, limit):
                found = await self.client.read(limit, wait_secs=1)
                return [(message.id, [message.text]) for message in found]

            async def settle(self, message_ids):
                await self.client.acknowledge(message_ids)

    Records that are in flight stay so while the connection is lost, and are settled when it is
    back.
    """

    async def connect(self) -> None:
        """Connect. Raises when the server is not there."""

    async def disconnect(self) -> None:
        """End the connection. It may be broken: errors are ignored."""

    async def fetch(self, limit: int) -> Sequence[Record]:
        """Read at most `limit` records, each with a message id that is unique, and stays the same
        when the server delivers the record again. Waits about a second at the most if there are
        none."""
        raise NotImplementedError(f"{type(self).__name__} does not define fetch()")

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        """Make the server forget these records, which are processed. They are repeated if this
        raises."""

    async def measure_lag(self) -> int | None:
        """How many records wait at the server; None where it does not say. Called every few
        seconds."""
        return None

    async def keep(self) -> None:
        """Make the server keep what is in flight for this task (leases, deadlines of acks). Called
        every `keep_secs`."""

    @property
    def keep_secs(self) -> float:
        """How often `keep` is called."""
        return 10.0

    #: How long acks may wait for more of them, to be settled together.
    settle_secs: float = 0.05
    lag_secs: float = 5.0

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.start(context)
        self._done: list[Hashable] = []  # processed, not settled yet
        self._waiting: set[Hashable] = set()  # of those read: not settled yet
        self._wanted = asyncio.Event()
        self._ending = False
        self._connected = False
        self._work = asyncio.get_running_loop().create_task(
            self._run(), name=f"{context.this_component_id}:{context.this_task_id} source"
        )

    async def close(self) -> None:
        self._ending = True
        self._wanted.set()
        self._work.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._work
        if self._connected:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(5):
                    await self._settle_done()
            await self._end_connection()

    def processed(self, message_id: Hashable) -> None:
        self._done.append(message_id)

    def made_room(self) -> None:
        self._wanted.set()

    async def _run(self) -> None:
        """Connect, read and settle, until the end."""
        attempt = 0
        while not self._ending:
            self._served = False
            try:
                await self.connect()
                self._connected = True
                await self._serve()
            except asyncio.CancelledError:
                raise
            except Exception as failure:
                error = _first(failure)
                # A connection that has served is lost for the first time.
                attempt = 1 if self._served else attempt + 1
                self.report_outage(error)
                shown = outage_line(error, self.server_shown)
                self.log.warning("source: %s; attempt %d", shown, attempt)
                await self._end_connection()
                await asyncio.sleep(Backoff(0.1, 5.0).secs(attempt))

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._settle())
            group.create_task(self._watch_lag())
            group.create_task(self._keep())

    async def _read(self) -> None:
        while True:
            self._wanted.clear()
            room = self.room
            if not self._active or room <= 0:
                await self._wanted.wait()
                continue
            records = await self.fetch(min(room, 2 * self.batch_max))
            _heed_cancellation()
            self._served = True
            self.take(records)

    def take(self, records: Sequence[Record]) -> None:
        """Emit these records, which the server has delivered."""
        for record in records:
            # Delivered again while it is in flight: the first delivery's ack settles it.
            if record[0] not in self._waiting:
                self._waiting.add(record[0])
                self._ready.append(record)
        if records:
            self.context.wake()

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(self.settle_secs)
            if self._done:
                await self._settle_done()

    async def _settle_done(self) -> None:
        while done := self._done[:1000]:
            await self.settle(done)
            _heed_cancellation()
            del self._done[: len(done)]
            self._waiting.difference_update(done)

    async def _watch_lag(self) -> None:
        while True:
            lag = await self.measure_lag()
            _heed_cancellation()
            if lag is not None:
                self._metrics.lag.set(lag)
            await asyncio.sleep(self.lag_secs)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.keep_secs)
            if self._waiting:
                await self.keep()
                _heed_cancellation()

    async def _end_connection(self) -> None:
        self._connected = False
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await self.disconnect()


@dataclass(frozen=True, slots=True)
class _Metrics:
    lag: AssignableMetric
    retries: CountMetric
    in_flight: AssignableMetric
    connection_errors: CountMetric


def _heed_cancellation() -> None:
    """End a task that was cancelled within a call of a client that swallows cancellations."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _first(error: BaseException) -> BaseException:
    """The error itself, of those that several tasks raised the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
