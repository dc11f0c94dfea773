"""The thread that polls one Kafka consumer.

A consumer must be polled to stay in its group and to give up partitions when the group changes,
also while its spout is throttled or inactive. So a thread of its own polls it, and nothing that
Kafka's client waits for holds up the worker's loop. The thread puts batches into a bounded queue;
when there is no room for long, it pauses the partitions and goes on polling.

                 poll, consume                     next_tuple
    broker  ───────────────────▶  thread ──queue──▶  spout (loop)
            ◀───────────────────         ◀─Offsets─
                 commit                    ack

The thread owns the consumer. `assigned` is written by it alone; each partition's `Offsets` are
changed by the spout and read here to commit. A batch of a partition that was given up meanwhile is
dropped by the spout.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from squall_connectors.base.backoff import Backoff
from squall_connectors.base.offsets import Offsets

PartitionId = tuple[str, int]

_POLL_SECS = 0.2
_BATCH_MAX = 1_000
_FULL_SECS = 1.0  # so long without room before partitions are paused
_LAG_SECS = 1.0
_ASK_SECS = 10.0  # for an answer about positions
_CLOSE_SECS = 5.0


class Partition(Offsets):
    """A partition that is assigned to this task."""

    __slots__ = ("id", "paused", "revoked")

    def __init__(self, partition: PartitionId) -> None:
        super().__init__(-1)
        self.id = partition
        self.revoked = False
        self.paused = False  # too many records wait behind one that is in flight


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive messages of one partition."""

    partition: Partition
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What a reader is to do. `start` is "earliest", "latest" or a time: where a partition begins
    that has no committed offset. `owner` is stored with each commit; with `own_commits`, offsets
    that another owner committed do not count."""

    config: Mapping[str, Any]
    topics: Sequence[str]
    start: str | datetime
    own_commits: bool
    owner: str
    commit_secs: float
    uncommitted_max: int
    commits: str  # "acked", "before" they are emitted, or "auto"


class Reader:
    """Polls a consumer on a thread. `room` says how many messages may be queued now, `wake` is
    called when something is there, `report` with errors; all three from the thread."""

    def __init__(
        self,
        options: ReaderOptions,
        *,
        name: str,
        room: Callable[[], int],
        wake: Callable[[], None],
        report: Callable[[BaseException], None],
    ) -> None:
        self._options = options
        # Where there is but one, no message is asked for it.
        only = options.topics[0] if len(options.topics) == 1 else "^"
        self._topic = None if only.startswith("^") else only
        self._room, self._wake, self._report = room, wake, report
        self.batches: deque[Batch] = deque()
        self.queued = 0  # messages in `batches`
        self.assigned: dict[PartitionId, Partition] = {}
        self.lag: int | None = None
        self.rebalances = 0
        self.active = False
        self.waits = threading.Event()  # set while it waits for room
        self._go_on = threading.Event()
        self._ending = False
        self._served = False
        self._paused = False
        self._lock = threading.Lock()  # of `queued`
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """There is room again, or `active` has changed."""
        self._go_on.set()

    def take(self) -> Batch | None:
        """The next batch, unless there is none. Called by the spout."""
        try:
            batch = self.batches.popleft()
        except IndexError:
            return None
        with self._lock:
            self.queued -= len(batch.messages)
        return batch

    def close(self) -> None:
        """Commit what is done, leave the group, and wait for the thread, a few seconds at most."""
        self._ending = True
        self._go_on.set()
        self._thread.join(_CLOSE_SECS)

    # -- on the thread --

    def _run(self) -> None:
        attempt = 0
        while not self._ending:
            self._served = False
            consumer = None
            try:
                consumer = Consumer(
                    {
                        **self._options.config,
                        "error_cb": self._on_error,
                        "on_commit": self._on_commit,
                    }
                )
                consumer.subscribe(
                    list(self._options.topics),
                    on_assign=self._on_assign,
                    on_revoke=self._on_revoke,
                    on_lost=self._on_lost,
                )
                self._serve(consumer)
            except Exception as error:  # a fatal one: only a new consumer helps
                attempt = 1 if self._served else attempt + 1
                self._report(error)
                self._go_on.clear()
                self._go_on.wait(0 if self._ending else Backoff(0.2, 10.0).secs(attempt))
            finally:
                self._drop(list(self.assigned))
                if consumer is not None:
                    with contextlib.suppress(Exception):
                        consumer.close()

    def _serve(self, consumer: Consumer) -> None:
        commit_due = time.monotonic() + self._options.commit_secs
        lag_due = full_since = 0.0
        while not self._ending:
            now = time.monotonic()
            if now >= commit_due:
                commit_due = now + self._options.commit_secs
                self._commit(consumer, wait=False)
            if now >= lag_due:
                lag_due = now + _LAG_SECS
                self._look_at_partitions(consumer)
            room = self._room() if self.active else 0
            if room <= 0:
                full_since = full_since or now
                if now - full_since < _FULL_SECS and self.active:
                    self._wait(0.05)
                else:
                    self._pause_all(consumer, True)
                    self._take(consumer, 0.0, 1)
                    self._wait(_POLL_SECS)
                continue
            full_since = 0.0
            self._pause_all(consumer, False)
            self._take(consumer, _POLL_SECS, min(room, _BATCH_MAX))
        self._commit(consumer, wait=True)

    def _wait(self, secs: float) -> None:
        self._go_on.clear()
        self.waits.set()
        self._go_on.wait(secs)
        self.waits.clear()

    def _take(self, consumer: Consumer, secs: float, count: int) -> None:
        """Poll, and queue what is there."""
        # consume() would wait until it has all that it is asked for.
        first = consumer.poll(secs)
        if first is None:
            return
        messages = [first, *consumer.consume(count - 1, 0)] if count > 1 else [first]
        groups = self._by_partition(self._without_errors(messages))
        if not groups:
            return
        self._served = True
        if self._options.commits == "before":
            ends = [TopicPartition(of[0], of[1], _end_of(found)) for of, found in groups.items()]
            consumer.commit(offsets=ends, asynchronous=False)
        for of, found in groups.items():
            if (partition_state := self.assigned.get(of)) is not None:
                with self._lock:
                    self.queued += len(found)
                self.batches.append(Batch(partition_state, found))
        self._wake()

    def _without_errors(self, messages: list[Message]) -> list[Message]:
        errors = list(map(Message.error, messages))
        if errors.count(None) == len(errors):
            return messages
        for error in errors:
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._report(KafkaException(error))
        return [m for m, error in zip(messages, errors, strict=True) if error is None]

    def _by_partition(self, messages: list[Message]) -> dict[Any, list[Message]]:
        """Any: the stubs allow for messages that have neither topic nor partition."""
        if not messages:
            return {}
        numbers = list(map(Message.partition, messages))
        topic = self._topic
        if topic is not None and numbers.count(numbers[0]) == len(numbers):
            return {(topic, numbers[0]): messages}
        topics = map(Message.topic, messages) if topic is None else repeat(topic, len(messages))
        groups: dict[Any, list[Message]] = {}
        for of, message in zip(zip(topics, numbers, strict=True), messages, strict=True):
            try:
                groups[of].append(message)
            except KeyError:
                groups[of] = [message]
        return groups

    # -- positions --

    def _commit(self, consumer: Consumer, *, wait: bool) -> None:
        if self._options.commits != "acked":
            return
        ends = self._committable(self.assigned.values())
        if ends:
            with contextlib.suppress(KafkaException):  # later: on_commit reports why
                if wait:
                    consumer.commit(offsets=ends, asynchronous=False)
                else:
                    consumer.commit(offsets=ends)

    def _committable(self, partitions: Any) -> list[TopicPartition]:
        return [
            TopicPartition(partition.id[0], partition.id[1], end, self._options.owner)
            for partition in list(partitions)
            if (end := partition.committable) > partition.committed
        ]

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            self._report(KafkaException(error))
            return
        for end in partitions:
            partition = self.assigned.get((end.topic, end.partition))
            if partition is not None and end.error is None:
                partition.committed = max(partition.committed, end.offset)

    def _look_at_partitions(self, consumer: Consumer) -> None:
        """Compute the lag, and pause partitions in which too much is done behind a record that is
        not."""
        lag = 0
        known = False
        for partition in self.assigned.values():
            of = TopicPartition(*partition.id)
            limit = self._options.uncommitted_max
            count = partition.uncommitted_count
            if not partition.paused and count > limit:
                consumer.pause([of])
                partition.paused = True
            elif partition.paused and count <= limit // 2:
                partition.paused = False
                if not self._paused:
                    consumer.resume([of])
            with contextlib.suppress(KafkaException):
                _, high = consumer.get_watermark_offsets(of, cached=True)
                if high >= 0 and partition.position >= 0:
                    known = True
                    lag += max(0, high - partition.committable)
        self.lag = lag if known else self.lag

    def _pause_all(self, consumer: Consumer, paused: bool) -> None:
        if paused == self._paused:
            return
        self._paused = paused
        mine = [
            TopicPartition(*partition.id)
            for partition in self.assigned.values()
            if not partition.paused
        ]
        (consumer.pause if paused else consumer.resume)(mine)

    # -- the group --

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        for partition in partitions:
            of = (partition.topic, partition.partition)
            self.assigned[of] = Partition(of)
        consumer.incremental_assign(self._started(consumer, partitions))
        if self._paused:
            consumer.pause(partitions)

    def _started(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """The partitions with the offsets to start from, where Kafka's own choice (the committed
        offset, or auto.offset.reset) is not what is asked for."""
        options = self._options
        if not partitions or (isinstance(options.start, str) and not options.own_commits):
            return partitions
        fresh = []
        for end in consumer.committed(partitions, timeout=_ASK_SECS):
            foreign = options.own_commits and end.metadata != options.owner
            if end.offset < 0 or foreign:
                fresh.append(end)
        if isinstance(options.start, datetime):
            millis = int(options.start.timestamp() * 1000)
            asked = [TopicPartition(end.topic, end.partition, millis) for end in fresh]
            found = consumer.offsets_for_times(asked, timeout=_ASK_SECS) if asked else []
        else:
            at = OFFSET_BEGINNING if options.start == "earliest" else OFFSET_END
            found = [TopicPartition(end.topic, end.partition, at) for end in fresh]
        by_id = {(end.topic, end.partition): end for end in found}
        return [by_id.get((p.topic, p.partition), p) for p in partitions]

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        of = [(partition.topic, partition.partition) for partition in partitions]
        if self._options.commits == "acked":
            ends = self._committable(self.assigned[p] for p in of if p in self.assigned)
            if ends:
                with contextlib.suppress(KafkaException):
                    consumer.commit(offsets=ends, asynchronous=False)
        self._drop(of)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Another member may have them already: nothing may be committed."""
        self.rebalances += 1
        self._drop([(partition.topic, partition.partition) for partition in partitions])
        consumer.incremental_unassign(partitions)

    def _drop(self, partitions: Sequence[PartitionId]) -> None:
        for of in partitions:
            partition = self.assigned.pop(of, None)
            if partition is not None:
                partition.revoked = True

    def _on_error(self, error: KafkaError) -> None:
        """The client tells of an outage, from which it recovers by itself unless it is fatal."""
        if error.fatal():
            raise KafkaException(error)
        self._report(KafkaException(error))


def _end_of(messages: Sequence[Message]) -> int:
    """The offset after the last one."""
    last: Any = messages[-1].offset()
    end: int = last + 1
    return end
