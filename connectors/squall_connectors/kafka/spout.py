"""`KafkaSpout`: records of Kafka's topics as tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

from confluent_kafka import Message

from squall import Stream, TopologyContext
from squall.metrics import AssignableMetric, CountMetric
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import with_secrets
from squall_connectors.base.outages import shown_servers
from squall_connectors.base.source import Source
from squall_connectors.base.unreadable import UNREADABLE, OnUnreadable, UnreadableRecords
from squall_connectors.kafka.reader import Batch, Partition, Reader, ReaderOptions
from squall_connectors.kafka.records import (
    CLIENT_DEFAULTS,
    DEFAULT_FIELDS,
    Decoder,
    KafkaRecord,
    Translation,
    Unreadable,
)

#: How a guarantee commits.
_COMMITS = {"at-least-once": "acked", "at-most-once": "before", "none": "auto"}
_OURS = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.id",
        "partition.assignment.strategy",
    }
)


class KafkaSpout(Source):
    """Reads topics as a member of a consumer group: the tasks of the spout, in all workers, share
    the partitions, and take over from each other without stopping the others.

        KafkaSpout("broker:9092", ["orders", "returns"], value="json")
        KafkaSpout("broker:9092", pattern="^orders-.*", start=datetime(2026, 1, 1, tzinfo=UTC))

    With the default guarantee, "at-least-once", an offset is committed when all records before it
    are acked; acks may come in any order. Records of a partition are emitted in order; one that
    fails is emitted again later, behind others. "at-most-once" commits before it emits and emits
    without message ids; "none" commits every few seconds whatever happened.

    A record that cannot be decoded or translated goes to the stream "unreadable", with the fields
    `topic`, `partition`, `offset`, `key`, `value` and `reason`, if a bolt consumes it; otherwise it
    is reported as an error, one every ten seconds for all of them, and passed over.

    The message id is `(topic, partition, offset)`. Beside the metrics of all sources there are
    `rebalances`, `partitions` and `unreadable`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: str | Sequence[str] = (),
        *,
        pattern: str | None = None,
        group_id: str | None = None,
        start: str | datetime = "earliest",
        ignore_foreign_commits: bool = False,
        guarantee: str = "at-least-once",
        fields: Sequence[str] = DEFAULT_FIELDS,
        key: Decoder = "bytes",
        value: Decoder = "bytes",
        translator: Callable[[KafkaRecord], Sequence[Any] | None] | None = None,
        commit_secs: float = 1.0,
        uncommitted_max: int = 1_000_000,
        config: Mapping[str, Any] | None = None,
        config_env: Mapping[str, str] | None = None,
        in_flight_max: int = 10_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`topics` are names; `pattern` is instead a regular expression that begins with `^`, and
        topics that appear later are found. `group_id` defaults to TOPOLOGY-COMPONENT, so that a new
        version of a topology goes on where the last one ended.

        `start` is where a partition begins that the group has no offset of: "earliest", "latest",
        or a time. With `ignore_foreign_commits` offsets count only if this very topology committed
        them: a topology that is submitted again starts from `start`, and a restarted worker goes
        on (Storm's EARLIEST and LATEST; without it, its UNCOMMITTED_...).

        `fields` are those of topic, partition, offset, key, value, timestamp and headers that
        become a tuple's values: the fewer, the faster. `key` and `value` are "bytes", "text",
        "json" or a function. A `translator` gets a KafkaRecord and returns values for `fields`,
        which then are any names, or None to leave the record out. Functions must be importable.

        Offsets are committed every `commit_secs`. A partition in which more than `uncommitted_max`
        offsets are read behind a record that is still in flight pauses. `config` has further
        settings of librdkafka (security.protocol, group.protocol ...), and may override defaults:
        isolation.level (read_committed), group.instance.id (one for each task; None: no static
        membership), session.timeout.ms (10,000). `config_env` maps more of them (sasl.password ...)
        to environment variables of the worker that hold their values. The others are those of
        `Source`.

        Raises InvalidTopologyError for arguments that contradict each other.
        """
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays if guarantee == "at-least-once" else None,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise InvalidTopologyError("KafkaSpout: give either topics or a pattern")
        if pattern is not None and not pattern.startswith("^"):
            raise InvalidTopologyError(
                f"KafkaSpout: pattern {pattern!r} must begin with ^",
                hint="Kafka's client takes it for the name of a topic otherwise",
            )
        if guarantee not in _COMMITS:
            raise InvalidTopologyError(
                f"KafkaSpout: guarantee {guarantee!r}; expected one of {', '.join(_COMMITS)}"
            )
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise InvalidTopologyError(
                f"KafkaSpout: start {start!r}; expected 'earliest', 'latest' or a datetime"
            )
        if isinstance(start, datetime) and start.tzinfo is None:
            raise InvalidTopologyError("KafkaSpout: start needs a time zone")
        given = dict(config or {})
        self._config_env = dict(config_env or {})
        if wrong := sorted(_OURS & (given.keys() | self._config_env.keys())):
            raise InvalidTopologyError(
                f"KafkaSpout: config may not set {', '.join(wrong)}",
                hint="these follow from the other arguments",
            )
        if commit_secs <= 0 or uncommitted_max < 1:
            raise InvalidTopologyError(
                "KafkaSpout: commit_secs and uncommitted_max must be positive"
            )
        self.outputs = {
            "default": Stream(list(fields)),
            UNREADABLE: Stream([*DEFAULT_FIELDS, "reason"]),
        }
        self._servers = bootstrap_servers
        self.server_shown = shown_servers(bootstrap_servers)
        self._topics = names if pattern is None else [pattern]
        self._group_id = group_id
        self._start = start
        self._own_commits = ignore_foreign_commits
        self._guarantee = guarantee
        self._commit_secs = commit_secs
        self._uncommitted_max = uncommitted_max
        self._config = given
        self._translation = Translation(fields, key, value, translator)

    # -- life --

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.start(context)
        self._tracked = self._guarantee == "at-least-once"
        self._errors: deque[BaseException] = deque(maxlen=100)
        self._in_flight_count = 0
        self._partition_count = context.register_metric("partitions", AssignableMetric(0))
        self._rebalances = context.register_metric("rebalances", CountMetric())
        self._unreadable = UnreadableRecords(context, self.report_error)
        self._rebalances_seen = 0
        name = f"{context.this_component_id}:{context.this_task_id} kafka"
        self._reader = Reader(
            self._reader_options(context),
            name=name,
            room=lambda: self.room,
            wake=context.wake,
            report=self._errors.append,
        )
        self._reader.start()

    def _reader_options(self, context: TopologyContext) -> ReaderOptions:
        group = self._group_id or f"{context.topology_name}-{context.this_component_id}"
        config: dict[str, Any] = {
            **CLIENT_DEFAULTS,
            "isolation.level": "read_committed",
            "client.id": f"{group}-{context.this_task_index}",
            # A pause must not be followed by a flood of what was read ahead.
            "queued.max.messages.kbytes": 16_384,
        }
        if self._config.get("group.protocol") != "consumer":
            config["partition.assignment.strategy"] = "cooperative-sticky"
            config["session.timeout.ms"] = 10_000
        # A task that is started again takes its partitions over at once: its group need not notice
        # that it was gone.
        component, index = context.this_component_id, context.this_task_index
        config["group.instance.id"] = f"{context.topology_id}-{component}-{index}"
        config |= with_secrets("KafkaSpout", self._config, self._config_env)
        reset = self._start if isinstance(self._start, str) else "earliest"
        config |= {
            "bootstrap.servers": self._servers,
            "group.id": group,
            "auto.offset.reset": reset,
            "enable.auto.commit": self._guarantee == "none",
        }
        return ReaderOptions(
            config={name: value for name, value in config.items() if value is not None},
            topics=self._topics,
            start=self._start,
            own_commits=self._own_commits,
            owner=context.topology_id,
            commit_secs=self._commit_secs,
            uncommitted_max=self._uncommitted_max,
            commits=_COMMITS[self._guarantee],
        )

    def activate(self) -> None:
        self._reader.active = True
        self._reader.nudge()

    def deactivate(self) -> None:
        self._reader.active = False

    def close(self) -> None:
        self._reader.close()

    # -- records --

    @property
    def room(self) -> int:
        return self._in_flight_max - self._in_flight_count - self._reader.queued

    def next_tuple(self) -> None:
        reader = self._reader
        if self._retries:
            self._emit_due()
        if self._errors:
            self._report_errors()
        self._unreadable.look()
        batch = reader.take()
        if batch is not None and not batch.partition.revoked:
            self._emit_batch(batch)
        self._look()  # also without a batch: acks and rebalances change what it shows
        if reader.waits.is_set() and self.room >= max(1, self._in_flight_max // 4):
            reader.nudge()

    def _emit_batch(self, batch: Batch) -> None:
        partition, messages = batch.partition, batch.messages
        offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
        columns: list[Any] | None = self._translation.columns(messages)
        if columns is None:
            rows = self._translation.rows(messages)
            kept, offsets = self._without_others(partition, rows, offsets)
            if not kept:
                return
            columns = list(zip(*kept, strict=True))
        if self._tracked:
            partition.emitted_columns(offsets, columns)
            self._in_flight_count += len(offsets)
            topic, number = partition.id
            ids = list(zip(repeat(topic), repeat(number), offsets))
            self.emit_columns(columns, message_ids=ids)
        else:
            partition.position = offsets[-1] + 1
            self.emit_columns(columns)

    def _without_others(
        self, partition: Partition, rows: list[Any], offsets: list[int]
    ) -> tuple[list[Any], list[int]]:
        """The rows that are tuples of the default stream. Those left out are done, those that
        cannot be read are emitted to their own stream."""
        kept_rows, kept_offsets = [], []
        for offset, row in zip(offsets, rows, strict=True):
            if row is None:
                partition.skipped(offset)
            elif isinstance(row, Unreadable):
                self._emit_unreadable(partition, offset, row)
            else:
                kept_rows.append(row)
                kept_offsets.append(offset)
        return kept_rows, kept_offsets

    def _emit_unreadable(self, partition: Partition, offset: int, row: Unreadable) -> None:
        topic, number = partition.id
        if not self._unreadable.found(f"record {topic}-{number}@{offset}: {row.reason}"):
            partition.skipped(offset)
            return
        values = [topic, number, offset, row.message.key(), row.message.value(), row.reason]
        if not self._tracked:
            self.emit(values, stream=UNREADABLE)
            return
        partition.emitted([offset], [OnUnreadable(values)])
        self._in_flight_count += 1
        self.emit(values, message_id=(topic, number, offset), stream=UNREADABLE)

    def _look(self) -> None:
        reader = self._reader
        self._metrics.lag.set(reader.lag)
        self._metrics.in_flight.set(self._in_flight_count)
        self._partition_count.set(len(reader.assigned))
        self._rebalances.incr(reader.rebalances - self._rebalances_seen)
        self._rebalances_seen = reader.rebalances

    def _report_errors(self) -> None:
        while self._errors:
            self.report_outage(self._errors.popleft())

    # -- what became of them --

    def ack(self, msg_id: Any) -> None:
        topic, number, offset = msg_id
        self._in_flight_count -= 1
        partition = self._reader.assigned.get((topic, number))
        if partition is not None:
            partition.acked(offset)
            self._retries.forget(msg_id)

    def ack_batch(self, msg_ids: Sequence[Any]) -> None:
        self._in_flight_count -= len(msg_ids)
        last_topic, last_number = None, -1
        pending: dict[int, Any] = {}
        for topic, number, offset in msg_ids:
            if number != last_number or topic != last_topic:
                partition = self._reader.assigned.get((topic, number))
                pending = {} if partition is None else partition.pending
                last_topic, last_number = topic, number
            pending.pop(offset, None)
        self._retries.forget_all(msg_ids)

    def fail(self, msg_id: Any) -> None:
        topic, number, offset = msg_id
        partition = self._reader.assigned.get((topic, number))
        if partition is not None and offset in partition.pending:
            self._retries.failed(msg_id, self._now())
        else:  # another task has the partition now
            self._in_flight_count -= 1
            self._retries.forget(msg_id)

    def _emit_due(self) -> None:
        due: list[Any] = self._retries.due(self._now())
        for msg_id in due:
            topic, number, offset = msg_id
            partition = self._reader.assigned.get((topic, number))
            row = None if partition is None else partition.row(offset)
            if row is None:
                self._in_flight_count -= 1
                self._retries.forget(msg_id)
                continue
            self._metrics.retries.incr()
            if isinstance(row, OnUnreadable):
                self.emit(row, message_id=msg_id, stream=UNREADABLE)
            else:
                self.emit(row, message_id=msg_id)
