"""Sinks: bolts that write to a system in batches, and ack what the system has confirmed.

Tuples wait until a batch is full (`batch_records`) or its first tuple has waited for `batch_secs`.
One batch is written at a time, in the order of arrival. `write` returns when the system has
confirmed all of it; only then are the tuples acked. When it raises:

- an *outage* (what `connect` raises, and `is_outage`: connection lost, timeout, server starting):
  the sink connects again and repeats the batch, with waits that double, for `outage_secs_max`.
  Meanwhile, also within a call that gets no answer, it restarts the message timeouts of the tuples
  it holds, so that an outage causes no replays. After that the tuples fail, and their spouts emit
  them again.
- anything else, or `RecordsRejectedError`: the system does not want some record. A batch is divided
  until the record is found; the others are written. The record goes to the stream "dead_letter" if
  a bolt consumes it, and is then acked; otherwise its tuple fails.

`execute_batch` returns when its tuples are settled. So the engine knows what is in hand: it gives a
sink no more than two batches, which is how backpressure begins, and a stopping worker waits until
they are written.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from squall import Bolt, Stream, TopologyContext, Tuple
from squall.metrics import CountMetric, MeanMetric
from squall_common.component.component import Outputs
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import describe
from squall_connectors.base.backoff import Backoff
from squall_connectors.base.outages import explained, outage_line

_T = TypeVar("_T")

DEAD_LETTER = "dead_letter"
_ERROR_REPORT_SECS = 10.0
# So many calls may hang, and beyond that one more every so often: some never return.
_HANGING_MAX = 8
_HANGING_MORE_SECS = 300.0


class RecordsRejectedError(Exception):
    """The system refused some records of a batch and confirmed the others."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """`reasons` says why, by the index of the record in the batch."""
        first = next(iter(reasons.values()), "")
        super().__init__(f"rejected {len(reasons)} record(s): {first}")
        self.reasons = dict(reasons)


class Sink(Bolt):
    """Base of sinks. A subclass defines `write`, and `connect` and `disconnect` as needed:

        class ToService(Sink):
            async def connect(self):
                self.client = await service.connect(URL)

            async def disconnect(self):
                await self.client.close()

            async def write(self, tuples):
                await self.client.store([tup["line"] for tup in tuples])

    Metrics: `batches`, `batch-size`, `write-secs`, `rejected`, `connection-errors`.

    The fields of the stream "dead_letter" are `values`, `fields`, `component` and `stream` (where
    the tuple came from), and `reason`.
    """

    outputs: Outputs = MappingProxyType(
        {DEAD_LETTER: Stream(["values", "fields", "component", "stream", "reason"])}
    )
    auto_ack = False
    _squall_bounded_by = "batch_records"

    #: The server, as errors show it; None: the client's errors name it. No user and no password.
    server_shown: str | None = None

    #: The exceptions that mean that the system cannot be reached just now.
    outage_errors: tuple[type[BaseException], ...] = (OSError, TimeoutError, EOFError)

    def __init__(
        self,
        *,
        batch_records: int = 500,
        batch_secs: float = 0.05,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """A batch has at most `batch_records` tuples, the first of which waits at most `batch_secs`
        for more. A `write` that takes longer than `write_timeout_secs` counts as an outage. The
        sink waits for the system `outage_secs_max` seconds (None: as long as it takes) before
        tuples fail. Raises ValueError for numbers that are not positive."""
        if batch_records < 1 or batch_secs < 0 or write_timeout_secs <= 0:
            raise ValueError(
                f"batch_records={batch_records}, batch_secs={batch_secs}, "
                f"write_timeout_secs={write_timeout_secs}: they must be positive"
            )
        self._batch_records = batch_records
        self._batch_secs = batch_secs
        self._write_timeout_secs = write_timeout_secs
        self._outage_secs_max = outage_secs_max
        self.component_conf = {
            "topology.bolt.async.concurrency": 2 * batch_records,
            # An outage is not a call that hangs: `write_timeout_secs` ends those.
            "topology.worker.stall.timeout.secs": None,
        }

    # -- what a subclass defines --

    async def connect(self) -> None:
        """Connect. Raises when the system is not there."""

    async def disconnect(self) -> None:
        """End the connection. It may be broken: errors are ignored."""

    async def write(self, tuples: Sequence[Tuple]) -> None:
        """Write these tuples, and return when the system has confirmed them. May be repeated with
        the same tuples, and with others beside them, when it is not known whether it took
        effect."""
        raise NotImplementedError(f"{type(self).__name__} does not define write()")

    def is_outage(self, error: BaseException) -> bool:
        """Whether an error of `write` means that the system is not there, rather than that it
        refuses a record."""
        return isinstance(error, self.outage_errors)

    # -- the bolt --

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._waiting: deque[Tuple] = deque()
        self._since = 0.0  # when the first of those waiting came
        self._unsettled: dict[Tuple, _Countdown] = {}
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._flushing = False
        self._connected = False
        self._error_due = 0.0
        timeout_secs = TopologyOptions.read(conf).topology_message_timeout_secs
        self._keeps_alive_secs = max(1.0, timeout_secs / 3)
        self._dead_letters = DEAD_LETTER in context.this_targets
        self._metrics = _Metrics(
            batches=context.register_metric("batches", CountMetric()),
            batch_size=context.register_metric("batch-size", MeanMetric()),
            write_secs=context.register_metric("write-secs", MeanMetric()),
            rejected=context.register_metric("rejected", CountMetric()),
            connection_errors=context.register_metric("connection-errors", CountMetric()),
        )
        name = f"{context.this_component_id}:{context.this_task_id} sink"
        self._writer = loop.create_task(self._write_batches(), name=name)

    async def execute_batch(self, tuples: list[Tuple]) -> None:
        if tuples[0].is_tick:  # a topology may send ticks to all bolts
            for tup in tuples:
                self.ack(tup)
            return
        if not self._waiting:
            self._since = self._now()
        self._waiting.extend(tuples)
        settled = asyncio.get_running_loop().create_future()
        left = _Countdown(len(tuples), settled)
        for tup in tuples:
            self._unsettled[tup] = left
        self._arrived.set()
        if len(self._waiting) >= self._batch_records:
            self._full.set()
        try:
            await settled
        finally:  # cancelled: the worker ends, and the engine fails them
            if not settled.done() or settled.cancelled():
                for tup in tuples:
                    self._unsettled.pop(tup, None)

    async def flush(self) -> None:
        """Write what waits, without waiting for more."""
        self._flushing = True
        self._arrived.set()
        self._full.set()
        in_hand = {left.settled for left in self._unsettled.values()}
        if in_hand:
            await asyncio.wait(in_hand)
        self._flushing = False

    async def cleanup(self) -> None:
        self._writer.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._writer
        await self._end_connection()

    # -- writing --

    async def _write_batches(self) -> None:
        while True:
            batch = await self._next_batch()
            if not batch:
                continue
            self._keep_alive_later()
            try:
                await self._write(batch)
            except Exception as error:  # of the subclass' own code: the next batch may do better
                self.report_error(error)
                for tup in batch:
                    self._settle(tup, self.fail)
            finally:
                self._timeouts_due.cancel()

    def _keep_alive_later(self) -> None:
        """While a batch takes long, restart the message timeouts of what is in hand: the system is
        away, or a call gets no answer."""
        loop = asyncio.get_running_loop()
        self._timeouts_due = loop.call_later(self._keeps_alive_secs, self._keep_alive)

    def _keep_alive(self) -> None:
        for tup in list(self._unsettled):
            self.reset_timeout(tup)
        self._keep_alive_later()

    async def _next_batch(self) -> list[Tuple]:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        wait = self._since + self._batch_secs - self._now()
        if len(self._waiting) < self._batch_records and wait > 0 and not self._flushing:
            self._full.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._full.wait()
        count = min(self._batch_records, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        self._since = self._now()
        return [tup for tup in batch if tup in self._unsettled]

    async def _write(self, batch: Sequence[Tuple]) -> None:
        """Write a batch, and settle each of its tuples."""
        try:
            await self._write_through_outages(batch)
        except RecordsRejectedError as error:
            self._done([tup for i, tup in enumerate(batch) if i not in error.reasons])
            for index, reason in error.reasons.items():
                self._reject(batch[index], reason)
        except _OutageTooLongError as error:
            self.report_error(error)
            for tup in batch:
                self._settle(tup, self.fail)
        except Exception as error:
            if len(batch) == 1:
                self._reject(batch[0], describe(error))
                return
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
        else:
            self._done(batch)

    async def _write_through_outages(self, batch: Sequence[Tuple]) -> None:
        started = self._now()
        attempt = 0
        while True:
            connecting = not self._connected
            try:
                async with asyncio.timeout(self._write_timeout_secs):
                    if connecting:
                        await self.connect()
                        self._connected, connecting = True, False
                    start = self._now()
                    await self.write(batch)
                self._metrics.batches.incr()
                self._metrics.batch_size.update(len(batch))
                self._metrics.write_secs.update(self._now() - start)
                return
            except Exception as error:
                # No record is to blame for what happens before it is written.
                if not connecting and (
                    isinstance(error, RecordsRejectedError) or not self.is_outage(error)
                ):
                    raise
                attempt += 1
                shown = outage_line(error, self.server_shown)
                self.log.warning("sink: %s; attempt %d", shown, attempt)
                self.report_outage(error)
                await self._end_connection()
                now = self._now()
                limit = self._outage_secs_max
                if limit is not None and now - started >= limit:
                    raise _OutageTooLongError(
                        f"{type(self).__name__}: no answer for {now - started:.0f} s "
                        f"(outage_secs_max): {shown}"
                    ) from error
            await asyncio.sleep(Backoff(0.1, 5.0).secs(attempt))

    def report_outage(self, error: BaseException) -> None:
        """Count a failure to reach the system, and report it as an error of the topology, at most
        every ten seconds, with the server (`server_shown`) and what to do."""
        self._metrics.connection_errors.incr()
        if (now := self._now()) >= self._error_due:
            self._error_due = now + _ERROR_REPORT_SECS
            self.report_error(explained(error, self.server_shown))

    async def _end_connection(self) -> None:
        self._connected = False
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await self.disconnect()

    # -- settling --

    def _done(self, tuples: Sequence[Tuple]) -> None:
        unsettled, ack = self._unsettled, self.ack
        for tup in tuples:
            left = unsettled.pop(tup, None)
            if left is not None:
                ack(tup)
                left.one_less()

    def _settle(self, tup: Tuple, how: Callable[[Tuple], None]) -> None:
        left = self._unsettled.pop(tup, None)
        if left is not None:
            how(tup)
            left.one_less()

    def _reject(self, tup: Tuple, reason: str) -> None:
        if tup not in self._unsettled:
            return
        self._metrics.rejected.incr()
        self.report_error(RecordsRejectedError({0: reason}))
        if not self._dead_letters:
            self._settle(tup, self.fail)
            return
        where = [tup.source_component, tup.source_stream]
        values = [list(tup.values), list(tup.fields), *where, reason]
        self.emit(values, anchors=tup, stream=DEAD_LETTER)
        self._settle(tup, self.ack)


class ThreadedSink(Sink):
    """A sink whose client blocks. A subclass defines `connect_blocking`, `write_blocking` and
    `disconnect_blocking`, which run on one thread of the sink's own, one at a time. A call that
    takes too long keeps its thread until it returns, and the sink goes on with another; while
    eight of them hang, only every five minutes.

        class ToService(ThreadedSink):
            def connect_blocking(self):
                self.client = service.connect(URL)

            def disconnect_blocking(self):
                self.client.close()

            def write_blocking(self, tuples):
                self.client.store([tup["line"] for tup in tuples])
    """

    _hanging: list[concurrent.futures.Future[Any]]  # calls that were given up
    _more_at: float  # when one more may be made beside too many of them

    def connect_blocking(self) -> None:
        """As `connect`."""

    def disconnect_blocking(self) -> None:
        """As `disconnect`."""

    def write_blocking(self, tuples: Sequence[Tuple]) -> None:
        """As `write`."""
        raise NotImplementedError(f"{type(self).__name__} does not define write_blocking()")

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._start_thread()
        await super().prepare(conf, context)

    async def connect(self) -> None:
        await self._on_thread(self.connect_blocking)

    async def disconnect(self) -> None:
        await self._on_thread(self.disconnect_blocking)

    async def write(self, tuples: Sequence[Tuple]) -> None:
        await self._on_thread(functools.partial(self.write_blocking, tuples))

    async def cleanup(self) -> None:
        await super().cleanup()
        self._thread.shutdown(wait=False)

    async def _on_thread(self, call: Callable[[], _T]) -> _T:
        self._hanging = [one for one in self._hanging if not one.done()]
        loop = asyncio.get_running_loop()
        if len(self._hanging) >= _HANGING_MAX and loop.time() < self._more_at:
            raise TimeoutError(f"{len(self._hanging)} calls have not returned yet")
        future = self._thread.submit(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # The call hangs, or is about to return: what comes next must not wait behind it.
            if not future.done():
                self._hanging.append(future)
                self._more_at = loop.time() + _HANGING_MORE_SECS
            self._thread.shutdown(wait=False)
            self._new_thread()
            raise

    def _start_thread(self) -> None:
        self._hanging = []
        self._more_at = 0.0
        self._new_thread()

    def _new_thread(self) -> None:
        name = f"{type(self).__name__}"
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name)


@dataclass(frozen=True, slots=True)
class _Metrics:
    batches: CountMetric
    batch_size: MeanMetric
    write_secs: MeanMetric
    rejected: CountMetric
    connection_errors: CountMetric


class _Countdown:
    """Completes a future once a number of tuples are settled."""

    __slots__ = ("_left", "settled")

    def __init__(self, left: int, future: asyncio.Future[None]) -> None:
        self._left = left
        self.settled = future

    def one_less(self) -> None:
        self._left -= 1
        if not self._left and not self.settled.done():
            self.settled.set_result(None)


class _OutageTooLongError(Exception):
    pass
