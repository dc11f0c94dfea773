"""`RewindableKafkaSpout`: each record of Kafka's topics once, with checkpoints.

The position of each partition is in the checkpoints, and nowhere else: there is no consumer group,
nothing is committed, and partitions go to tasks by their hash, so that they move only when the
number of tasks has changed. After a fault every partition is read again from the last checkpoint.

Where a partition begins is decided once. At the first run all partitions that are there begin at
`start`, and what that means for each is a number from then on. One that is found later is new, and
begins with its first record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from squall import RewindableSpout, Stream, TopologyContext
from squall.metrics import AssignableMetric
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError, SquallError
from squall_connectors.base.address import with_secrets
from squall_connectors.base.unreadable import UNREADABLE, UnreadableRecords
from squall_connectors.kafka.records import (
    CLIENT_DEFAULTS,
    DEFAULT_FIELDS,
    Decoder,
    KafkaRecord,
    Translation,
    Unreadable,
)

_ASK_SECS = 10.0  # for an answer of the broker about partitions and offsets
_BATCH = 500  # records for each call of `next_tuple`, at most
_REPORT_SECS = 10.0
_OURS = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "partition.assignment.strategy",
    }
)

Split = tuple[str, int]  # topic, partition


class RewindableKafkaSpout(RewindableSpout):
    """Reads topics exactly once, in topologies with checkpoints:

        RewindableKafkaSpout("broker:9092", ["orders", "returns"], value="json")

    The position in each partition is part of every checkpoint. There is no consumer group, and
    nothing is committed to the broker. The tasks share the partitions, and records of a partition
    come in order. Only records of committed transactions are read (`isolation.level`).

    A record that cannot be decoded or translated goes to the stream "unreadable", with the fields
    `topic`, `partition`, `offset`, `key`, `value` and `reason`, if a bolt consumes it; otherwise it
    is reported as an error, one every ten seconds for all of them, and passed over. Metrics: `lag`,
    `partitions`, `unreadable`.
    """

    blocking = True  # the client may wait for a broker

    def __init__(
        self,
        bootstrap_servers: str,
        topics: str | Sequence[str],
        *,
        start: str | datetime = "earliest",
        fields: Sequence[str] = DEFAULT_FIELDS,
        key: Decoder = "bytes",
        value: Decoder = "bytes",
        translator: Callable[[KafkaRecord], Sequence[Any] | None] | None = None,
        refresh_secs: float = 10.0,
        skip_lost: bool = False,
        config: Mapping[str, Any] | None = None,
        config_env: Mapping[str, str] | None = None,
    ) -> None:
        """`start` is where the partitions begin that are there at the first run: "earliest",
        "latest", or a time. All later starts go on from the last checkpoint; until there is one, a
        start is the first run. Partitions that appear later are found within `refresh_secs`, and
        are read from their first record. A topic that is left out is not read any more; if it is
        given again later, it is read on from where that was.

        `fields`, `key`, `value`, `translator`, `config` and `config_env` are those of `KafkaSpout`.

        Records that the broker has deleted before they were read, by its retention, are lost. The
        partition then waits and an error says so. With `skip_lost` it goes on with the first record
        that is there.

        Raises InvalidTopologyError for arguments that contradict each other.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise InvalidTopologyError("RewindableKafkaSpout: give at least one topic")
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise InvalidTopologyError(
                f"RewindableKafkaSpout: start {start!r}; expected 'earliest', 'latest' or a "
                "datetime"
            )
        if isinstance(start, datetime) and start.tzinfo is None:
            raise InvalidTopologyError("RewindableKafkaSpout: start needs a time zone")
        if not refresh_secs > 0:
            raise InvalidTopologyError(
                f"RewindableKafkaSpout: refresh_secs {refresh_secs!r}; expected above 0"
            )
        self._config = dict(config or {})
        self._config_env = dict(config_env or {})
        if wrong := sorted(_OURS & (self._config.keys() | self._config_env.keys())):
            raise InvalidTopologyError(
                f"RewindableKafkaSpout: config may not set {', '.join(wrong)}",
                hint="positions are in the checkpoints, and there is no consumer group",
            )
        self.outputs = {
            "default": Stream(list(fields)),
            UNREADABLE: Stream([*DEFAULT_FIELDS, "reason"]),
        }
        self._servers = bootstrap_servers
        self._topics = names
        self._start = start
        self._refresh_secs = refresh_secs
        self._skip_lost = skip_lost
        self._translation = Translation(fields, key, value, translator)

    # -- life --

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._now = context.monotonic
        self._lag = context.register_metric("lag", AssignableMetric(0))
        self._partition_count = context.register_metric("partitions", AssignableMetric(0))
        self._unreadable = UnreadableRecords(context, self.report_error)
        # The next record of each partition that is read, or OFFSET_BEGINNING.
        self._at: dict[Split, int] = {}
        self._waiting: dict[Split, SquallError] = {}  # why partitions are not read on
        self._moved = False  # a partition goes on elsewhere
        self._pending_max = TopologyOptions.read(context.conf).topology_max_spout_pending
        self._errors: deque[BaseException] = deque(maxlen=100)
        self._report_at: dict[str, float] = {}
        config = {
            **CLIENT_DEFAULTS,
            "isolation.level": "read_committed",
            "client.id": f"{context.topology_name}-{context.this_component_id}",
            "queued.max.messages.kbytes": 16_384,
            **with_secrets("RewindableKafkaSpout", self._config, self._config_env),
            "bootstrap.servers": self._servers,
            "group.id": f"{context.topology_name}-{context.this_component_id}",  # it is not used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # never to go on somewhere else without a word
            "error_cb": self._errors.append,
        }
        self._consumer = Consumer(config)
        # Looks for partitions: the broker may be away, and no checkpoint is to wait for that.
        self._threads = ThreadPoolExecutor(1, "partitions")
        self._looking: Future[list[Split]] | None = None

    def seek(self, positions: Mapping[Any, Any]) -> None:
        """Begin where the last checkpoint ended. Raises SquallError if the broker does not say what
        partitions there are."""
        # Positions of topics that are not wanted any more stay in the checkpoints.
        self._at = {
            (split[0], split[1]): at for split, at in positions.items() if split[0] in self._topics
        }
        if self.is_first_run:
            self._begin()
            self._look_at = self._now() + self._refresh_secs
        else:  # what is known can be read; the broker may be away
            self._assign()
            self._look_at = self._now()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._consumer.close()

    # -- partitions --

    def _begin(self) -> None:
        """Choose where each partition begins, at the first run."""
        splits = self._partitions()
        self._at = dict.fromkeys(splits, OFFSET_BEGINNING)
        if self._start != "earliest":
            self._at = self._beginnings(splits)
            for split, at in self._at.items():
                self.begin_at(split, at)
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*split, at) for split, at in self._at.items()])
        self._partition_count.set(len(self._at))

    def _partitions(self) -> list[Split]:
        """The partitions that this task reads."""
        found: list[Split] = []
        for topic in self._topics:
            try:
                asked = self._consumer.list_topics(topic, timeout=_ASK_SECS).topics[topic]
            except KafkaException as error:
                raise self._no_answer(error) from error
            if asked.error is not None:
                raise SquallError(
                    f"topic {topic!r} of {self._servers}: {asked.error.str()}",
                    hint="create the topic, or correct its name",
                )
            found += [(topic, number) for number in sorted(asked.partitions)]
        return [split for split in found if self.owns(split)]

    def _beginnings(self, splits: Sequence[Split]) -> dict[Split, int]:
        """Where partitions begin that do not begin with their first record."""
        ends = {split: self._ends(split)[1] for split in splits}
        if not splits or not isinstance(self._start, datetime):
            return ends  # (The client refuses to be asked about no partition.)
        millis = int(self._start.timestamp() * 1000)
        try:
            found = self._consumer.offsets_for_times(
                [TopicPartition(*split, millis) for split in splits], timeout=_ASK_SECS
            )
        except KafkaException as error:
            raise self._no_answer(error) from error
        for one in found:
            if one.error is not None:
                raise self._no_answer(KafkaException(one.error))
            if one.offset >= 0:  # otherwise all its records are older
                ends[one.topic, one.partition] = one.offset
        return ends

    def _ends(self, split: Split) -> tuple[int, int]:
        """The first record of a partition, and that behind the last."""
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*split), timeout=_ASK_SECS)
        except KafkaException as error:
            raise self._no_answer(error) from error
        if found is None:
            raise self._no_answer(TimeoutError(f"no answer within {_ASK_SECS:g} s"))
        return found

    def _no_answer(self, error: Exception) -> SquallError:
        return SquallError(
            f"Kafka at {self._servers} does not say what partitions there are: {error}",
            hint="is the broker up, and its address right?",
        )

    # -- records --

    def next_tuple(self) -> None:
        while self._errors:
            self._report("client", KafkaException(self._errors.popleft()))
        if self._looking is not None:
            self._see(self._looking)
        elif self._now() >= self._look_at:
            self._look_at = self._now() + self._refresh_secs
            self._looking = self._threads.submit(self._partitions)
        self._unreadable.look()
        room = _BATCH
        if self._pending_max is not None:
            room = max(1, min(room, self._pending_max - self.pending_count))
        messages = self._consumer.consume(room, timeout=0)
        at = 0
        while at < len(messages):
            first = messages[at]
            if first.error() is not None:
                self._failed(first)
                at += 1
                continue
            split: Split = (first.topic() or "", first.partition() or 0)
            end = at + 1
            while end < len(messages) and _is_of(messages[end], split):
                end += 1
            self._emit_records(split, messages[at:end])
            at = end
        if self._moved:  # now that all that was taken is emitted
            self._moved = False
            self._assign()
        self._show_lag()

    def _see(self, looking: Future[list[Split]]) -> None:
        """Read partitions that are new from their first record, too. (Their positions are in the
        checkpoints from that on.)"""
        if not looking.done():
            return
        self._looking = None
        for split, lost in self._waiting.items():
            self._report(f"lost {split}", lost)
        try:
            fresh = [split for split in looking.result() if split not in self._at]
        except SquallError as error:  # those that are known are read on
            self._report("partitions", error)
            return
        if fresh:
            self._at |= dict.fromkeys(fresh, OFFSET_BEGINNING)
            self._assign()

    def _emit_records(self, split: Split, messages: Sequence[Message]) -> None:
        """Emit records of one partition, in order."""
        last = messages[-1].offset()
        assert last is not None
        after = last + 1
        columns: Sequence[Sequence[Any]] | None = self._translation.columns(messages)
        if columns is None:
            kept: list[Sequence[Any]] = []
            for row in self._translation.rows(messages):
                if isinstance(row, Unreadable):
                    self._flush(kept)
                    kept = []
                    self._emit_unreadable(row)
                elif row is not None:
                    kept.append(row)
            self._flush(kept)
        else:
            self.emit_columns(columns)
        self._at[split] = after
        self._waiting.pop(split, None)
        # All of a call belongs to one checkpoint.
        self.begin_at(split, after)

    def _flush(self, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.emit_columns([list(column) for column in zip(*rows, strict=True)])

    def _emit_unreadable(self, row: Unreadable) -> None:
        message = row.message
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if self._unreadable.found(f"record {topic}-{number}@{offset}: {row.reason}"):
            values = [topic, number, offset, message.key(), message.value(), row.reason]
            self.emit(values, stream=UNREADABLE)

    # -- what goes wrong --

    def _failed(self, message: Message) -> None:
        """The client has an error in place of a record."""
        error = message.error()
        assert error is not None
        lost = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
        if error.code() not in lost or message.topic() is None:
            self._report("client", KafkaException(error))
            return
        split: Split = (message.topic() or "", message.partition() or 0)
        at = self._at[split]
        try:
            first, end = self._ends(split)
        except SquallError as no_answer:
            self._report(f"lost {split}", no_answer)
            return
        what = (
            f"record {at} of {split[0]}-{split[1]} is not there: the partition has the records "
            f"from {first} to {end - 1}"
        )
        if not self._skip_lost:
            self._waiting[split] = SquallError(
                what + ", so it is not read on",
                hint="choose skip_lost=True, or begin anew with another topology.state.url",
            )
            self._report(f"lost {split}", self._waiting[split])
            return
        self._report(f"lost {split}", SquallError(f"{what}, where it is read on"))
        self._at[split] = first
        self.begin_at(split, first)
        self._moved = True

    def _report(self, what: str, error: BaseException) -> None:
        """Report an error, at most one of a kind every ten seconds."""
        now = self._now()
        if now >= self._report_at.get(what, now):
            self._report_at[what] = now + _REPORT_SECS
            self.report_error(error)

    def _show_lag(self) -> None:
        lag = 0
        for split, at in self._at.items():
            try:
                ends = self._consumer.get_watermark_offsets(TopicPartition(*split), cached=True)
            except KafkaException:
                continue
            if ends is not None:
                lag += max(0, ends[1] - max(at, ends[0], 0))
        self._lag.set(lag)


def _is_of(message: Message, split: Split) -> bool:
    return (
        message.error() is None and message.partition() == split[1] and message.topic() == split[0]
    )
