"""The thread that polls one share consumer.

A share group (KIP-932) has no offsets of its own to keep: the broker hands out single records, each
locked for a while, and hears of each whether it is accepted, released or rejected. The client asks
for the next records only when all of the last are answered. So the thread works batch by batch:

    poll ─▶ batch ─▶ spout emits; acks and failures arrive ─▶ accept each ─▶ poll
                     after most of the lock's time ─────────▶ release what is left ─▶ poll

The thread owns the consumer. The spout calls `take`, `done`, `reject` and `nudge`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from squall_connectors.base.backoff import Backoff

RecordId = tuple[str, int, int]  # topic, partition, offset

_POLL_SECS = 0.2
_COMMIT_SECS = 0.1
_MANY, _GATHER_SECS = 20, 0.002
_ASK_SECS = 10.0
_CLOSE_SECS = 5.0
#: The part of a lock's time after which what is not done is released: before the broker does it.
_LOCK_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """What a reader is to do. `group_config` is set for the group before it is joined."""

    config: Mapping[str, Any]
    topics: Sequence[str]
    group: str
    group_config: Mapping[str, str]
    lock_secs: float


class ShareReader:
    """Polls a share consumer on a thread. `wake` is called when something is there, `report` with
    errors; both from the thread."""

    def __init__(
        self,
        options: ShareOptions,
        *,
        name: str,
        wake: Callable[[], None],
        report: Callable[[BaseException], None],
    ) -> None:
        self._options = options
        self._wake, self._report = wake, report
        self.active = False
        self.batches: deque[list[Any]] = deque()  # of confluent_kafka.Message
        self.released: deque[RecordId] = deque()  # the spout should forget these
        self._answers: deque[tuple[RecordId, AcknowledgeType]] = deque()
        self._answered = threading.Event()
        self._ending = False
        self._served = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """`active` has changed."""
        self._answered.set()

    def done(self, record: RecordId) -> None:
        """A record is processed."""
        self._answers.append((record, AcknowledgeType.ACCEPT))
        self._answered.set()

    def reject(self, record: RecordId) -> None:
        """Nothing can be done with a record: the broker should not deliver it again."""
        self._answers.append((record, AcknowledgeType.REJECT))
        self._answered.set()

    def close(self) -> None:
        """Release what is not done, leave the group, and wait for the thread, a few seconds at
        most."""
        self._ending = True
        self._answered.set()
        self._thread.join(_CLOSE_SECS)

    # -- on the thread --

    def _run(self) -> None:
        attempt = 0
        while not self._ending:
            self._served = False
            consumer = None
            try:
                self._configure_group()
                consumer = ShareConsumer({**self._options.config, "error_cb": self._on_error})
                consumer.set_acknowledgement_commit_callback(self._on_committed)
                self._serve(consumer)
            except Exception as error:  # a fatal one: only a new consumer helps
                attempt = 1 if self._served else attempt + 1
                self._report(error)
                self._answered.clear()
                self._answered.wait(0 if self._ending else Backoff(0.2, 10.0).secs(attempt))
            finally:
                if consumer is not None:
                    with contextlib.suppress(Exception):
                        consumer.close()

    def _configure_group(self) -> None:
        if not self._options.group_config:
            return
        client = AdminClient(
            {
                name: value
                for name, value in self._options.config.items()
                if not name.startswith(("group.", "share.", "max.poll."))
            }
        )
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in self._options.group_config.items()
        ]
        group = ConfigResource(ResourceType.GROUP, self._options.group, incremental_configs=entries)
        answers = client.incremental_alter_configs([group], request_timeout=_ASK_SECS)
        for answer in answers.values():
            answer.result(_ASK_SECS)

    def _serve(self, consumer: ShareConsumer) -> None:
        subscribed = False
        while not self._ending:
            if not self.active:
                if subscribed:  # its records are for others
                    consumer.unsubscribe()
                    subscribed = False
                self._answered.clear()
                if not self.active and not self._ending:
                    self._answered.wait(_POLL_SECS)
                continue
            if not subscribed:
                consumer.subscribe(list(self._options.topics))
                subscribed = True
            messages = []
            for message in consumer.poll(_POLL_SECS):
                if (error := message.error()) is not None:
                    self._report(KafkaException(error))
                else:
                    messages.append(message)
            if messages:
                self._served = True
                self._work_on(consumer, messages)

    def _work_on(self, consumer: ShareConsumer, messages: list[Any]) -> None:
        """Hand a batch to the spout, and answer the broker for each record of it."""
        deadline = time.monotonic() + self._options.lock_secs * _LOCK_SHARE
        self._answers.clear()  # of records of batches before
        commit_due = 0.0
        unanswered = {(m.topic(), m.partition(), m.offset()): m for m in messages}
        self.batches.append(messages)
        self._wake()
        while unanswered and not self._ending and (now := time.monotonic()) < deadline:
            self._answered.clear()
            if not self._answers:
                self._answered.wait(min(_POLL_SECS, deadline - now))
            if len(unanswered) > _MANY:
                time.sleep(_GATHER_SECS)  # the next answers come at once: not one by one
            if self._answer(consumer, unanswered) and unanswered and now >= commit_due:
                commit_due = now + _COMMIT_SECS
                consumer.commit_async()
        self._answer(consumer, unanswered)
        if not unanswered:
            return
        for record in unanswered:
            consumer.acknowledge_offset(*record, AcknowledgeType.RELEASE)
            self.released.append(record)
        if not self._ending:
            count = max(message.delivery_count() or 1 for message in unanswered.values())
            self._report(
                TimeoutError(
                    f"{len(unanswered)} records were not done within {_LOCK_SHARE:.0%} of lock_secs"
                    f" and go back to the broker, one after delivery {count}"
                )
            )
            self._wake()

    def _answer(self, consumer: ShareConsumer, unanswered: dict[RecordId, Any]) -> bool:
        """Pass on what the spout says about records of this batch. Returns whether there was
        something."""
        some = False
        while self._answers:
            record, kind = self._answers.popleft()
            if unanswered.pop(record, None) is not None:
                consumer.acknowledge_offset(*record, kind)
                some = True
        return some

    def _on_committed(self, offsets: Any, error: KafkaException | None) -> None:
        if error is not None:
            self._report(error)

    def _on_error(self, error: Any) -> None:
        """The client reports an outage, from which it recovers by itself unless it is fatal."""
        if error.fatal():
            raise KafkaException(error)
        self._report(KafkaException(error))
