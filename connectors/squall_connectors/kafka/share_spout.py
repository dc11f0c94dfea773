"""`KafkaShareSpout`: records of Kafka's topics, as a member of a share group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any

from squall import Stream, TopologyContext
from squall.metrics import CountMetric
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import require_at_least, with_secrets
from squall_connectors.base.outages import shown_servers
from squall_connectors.base.source import Record, Source
from squall_connectors.base.unreadable import UNREADABLE, OnUnreadable, UnreadableRecords
from squall_connectors.kafka.records import (
    CLIENT_DEFAULTS,
    DEFAULT_FIELDS,
    Decoder,
    KafkaRecord,
    Translation,
    Unreadable,
)
from squall_connectors.kafka.share_reader import RecordId, ShareOptions, ShareReader

_OURS = frozenset(
    {"bootstrap.servers", "group.id", "max.poll.records", "share.acknowledgement.mode"}
)


class KafkaShareSpout(Source):
    """Reads topics as a member of a share group (KIP-932): the broker gives each record to one
    task, whichever its partition, so there may be many more tasks than partitions. For slow bolts
    and queues of work; records come in no order.

        KafkaShareSpout("broker:9092", "jobs", fields=["value"], value="json")

    An ack accepts the record. A record that fails is emitted again here, after a wait, and becomes
    a dead letter after `max_replays`. One that is not done within 80 % of `lock_secs` is released:
    the broker delivers it again, to this task or another, and gives it up after
    `group.share.delivery.count.limit` deliveries (a setting of the broker; 5 by default). So trees
    must end well within `lock_secs`.

    A record that cannot be decoded or translated goes to the stream "unreadable", with the fields
    `topic`, `partition`, `offset`, `key`, `value` and `reason`, if a bolt consumes it, and is
    accepted when its tuple tree is done. Otherwise it is rejected, and reported as an error, one
    every ten seconds for all of them.

    The client asks for further records only when all that it has are answered. `in_flight_max` is
    also how many it asks for at once: for slow bolts, few, so that other tasks get some.

    Needs brokers of 4.2 or later. In the client, share groups are a preview.

    The message id is `(topic, partition, offset)`. Beside the metrics of all sources, without
    `lag`, there are `released`, `rejected` and `unreadable`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: str | Sequence[str],
        *,
        group_id: str | None = None,
        start: str = "earliest",
        lock_secs: float = 30.0,
        fields: Sequence[str] = DEFAULT_FIELDS,
        key: Decoder = "bytes",
        value: Decoder = "bytes",
        translator: Callable[[KafkaRecord], Sequence[Any] | None] | None = None,
        group_config: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        config_env: Mapping[str, str] | None = None,
        in_flight_max: int = 200,
        max_replays: int | None = 5,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 5.0,
    ) -> None:
        """`group_id` defaults to TOPOLOGY-COMPONENT. The spout sets the group's configuration when
        it connects: where a new group starts (`start`, "earliest" or "latest"), `lock_secs` (the
        broker allows 15 to 60 by default), that it reads committed records, and `group_config`. So
        the user needs the right to alter it. `fields`, `key`, `value` and `translator` are those of
        KafkaSpout, `config` and `config_env` have further settings of librdkafka, and the others
        are those of `Source`. Raises InvalidTopologyError for arguments that contradict each
        other."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names or not all(names):
            raise InvalidTopologyError("KafkaShareSpout: topics has no topic, or an empty name")
        if start not in ("earliest", "latest"):
            raise InvalidTopologyError(
                f"KafkaShareSpout: start {start!r}; expected 'earliest' or 'latest'"
            )
        require_at_least("KafkaShareSpout", 1, lock_secs=lock_secs)
        given = dict(config or {})
        self._config_env = dict(config_env or {})
        if wrong := sorted(_OURS & (given.keys() | self._config_env.keys())):
            raise InvalidTopologyError(
                f"KafkaShareSpout: config may not set {', '.join(wrong)}",
                hint="these follow from the other arguments",
            )
        self.outputs = {
            "default": Stream(list(fields)),
            UNREADABLE: Stream([*DEFAULT_FIELDS, "reason"]),
        }
        self._servers, self._topics, self._group_id = bootstrap_servers, names, group_id
        self.server_shown = shown_servers(bootstrap_servers)
        self._lock_secs, self._config = lock_secs, given
        self._group_config = {
            "share.auto.offset.reset": start,
            "share.isolation.level": "read_committed",
            "share.record.lock.duration.ms": str(int(lock_secs * 1000)),
            **{name: str(value) for name, value in (group_config or {}).items()},
        }
        self._translation = Translation(fields, key, value, translator)

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.start(context)
        self._errors: deque[BaseException] = deque(maxlen=100)
        self._released = context.register_metric("released", CountMetric())
        self._rejected = context.register_metric("rejected", CountMetric())
        self._unreadable = UnreadableRecords(context, self.report_error)
        group = self._group_id or f"{context.topology_name}-{context.this_component_id}"
        config = {
            **CLIENT_DEFAULTS,
            # Closing a consumer whose broker is gone takes this long.
            "socket.timeout.ms": 10_000,
            "client.id": f"{group}-{context.this_task_index}",
            **with_secrets("KafkaShareSpout", self._config, self._config_env),
            "bootstrap.servers": self._servers,
            "group.id": group,
            "max.poll.records": self._in_flight_max,
            "share.acknowledgement.mode": "explicit",
        }
        self._reader = ShareReader(
            ShareOptions(config, self._topics, group, self._group_config, self._lock_secs),
            name=f"{context.this_component_id}:{context.this_task_id} kafka",
            wake=context.wake,
            report=self._errors.append,
        )
        self._reader.start()

    def activate(self) -> None:
        self._reader.active = True
        self._reader.nudge()

    def deactivate(self) -> None:
        self._reader.active = False

    def close(self) -> None:
        self._reader.close()

    def next_tuple(self) -> None:
        reader = self._reader
        while self._errors:
            self.report_outage(self._errors.popleft())
        if reader.released:
            self._forget({reader.released.popleft() for _ in range(len(reader.released))})
        while reader.batches:
            self._take(reader.batches.popleft())
        self._unreadable.look()
        if self._retries:
            self._emit_due()
        # The broker may deliver more than it was asked for.
        count = min(len(self._ready), self.batch_max, self._in_flight_max - len(self._kept))
        if count <= 0:
            return
        records = list(islice(self._ready, count))
        for _ in range(count):
            self._ready.popleft()
        rows: list[Record] = []
        for message_id, values in records:
            self._kept[message_id] = values
            if isinstance(values, OnUnreadable):
                self.emit(values, message_id=message_id, stream=UNREADABLE)
            else:
                rows.append((message_id, values))
        if rows:
            columns = list(zip(*(values for _, values in rows), strict=True))
            self.emit_columns(columns, message_ids=[message_id for message_id, _ in rows])
        self._metrics.in_flight.set(len(self._kept))

    def _take(self, messages: Sequence[Any]) -> None:
        for message, row in zip(messages, self._translation.rows(messages), strict=True):
            record = (message.topic(), message.partition(), message.offset())
            if row is None:
                self._reader.done(record)
            elif record in self._kept:
                continue  # it is in flight since a delivery before
            elif isinstance(row, Unreadable):
                self._take_unreadable(record, row)
            else:
                self._ready.append((record, row))

    def _take_unreadable(self, record: RecordId, row: Unreadable) -> None:
        topic, partition, offset = record
        if self._unreadable.found(f"record {topic}-{partition}@{offset}: {row.reason}"):
            values = [*record, row.message.key(), row.message.value(), row.reason]
            self._ready.append((record, OnUnreadable(values)))
        else:
            self._rejected.incr()
            self._reader.reject(record)

    def _forget(self, records: set[RecordId]) -> None:
        """These records went back to the broker. What their tuple trees do now changes nothing."""
        self._released.incr(len(records))
        for record in records:
            self._retries.forget(record)
            self._kept.pop(record, None)
        # At once: the broker may have delivered many thousands.
        self._ready = deque(one for one in self._ready if one[0] not in records)

    def processed(self, message_id: Hashable) -> None:
        record: Any = message_id
        self._reader.done(record)
        if self._ready:
            self.context.wake()
