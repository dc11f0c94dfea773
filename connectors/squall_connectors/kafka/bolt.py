"""`KafkaBolt`: tuples as records in Kafka's topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.address import with_secrets
from squall_connectors.base.outages import shown_servers
from squall_connectors.base.sink import RecordsRejectedError, ThreadedSink
from squall_connectors.kafka.records import CLIENT_DEFAULTS

# What is wrong with a record, rather than with the connection or the cluster.
_REJECTED = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_PARTITION,
    }
)
# Far less than its queue holds.
_BULK_BYTES_MAX = 64 * 1024 * 1024
_OURS = frozenset(
    {"bootstrap.servers", "delivery.report.only.error", "message.timeout.ms", "transactional.id"}
)


class KafkaBolt(ThreadedSink):
    """Writes each tuple as a record, and acks it when all in-sync replicas have it. The producer is
    idempotent: its own repetitions double nothing, and records of one task keep their order. Tuples
    that are replayed by their spout are written again.

        KafkaBolt("broker:9092", "priced", key_field="customer", value_field="price")
        KafkaBolt("broker:9092", topic_field="topic", headers_field="headers")

    Values that are bytes are written as they are, strings as UTF-8, None as a null (a tombstone),
    and anything else as JSON.

    With `transactional=True` each batch is a transaction: consumers that read committed records see
    all of it or nothing, and the task that takes the place of a lost one aborts what that has left
    open. That is not exactly-once: a replayed tuple is written again.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | None = None,
        *,
        topic_field: str | None = None,
        key_field: str | None = None,
        value_field: str = "value",
        headers_field: str | None = None,
        timestamp_field: str | None = None,
        transactional: bool = False,
        config: Mapping[str, Any] | None = None,
        config_env: Mapping[str, str] | None = None,
        batch_records: int = 1_000,
        batch_secs: float = 0.02,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """The topic is `topic`, or the value of `topic_field`. `headers_field` holds a mapping of
        names to bytes or strings, `timestamp_field` milliseconds since the epoch. `config` has
        further settings of librdkafka (security.protocol, compression.type ...), `config_env` those
        whose values are in environment variables of the worker (sasl.password ...). The others are
        those of `Sink`. Raises InvalidTopologyError for arguments that contradict each other."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        if (topic is None) == (topic_field is None):
            raise InvalidTopologyError("KafkaBolt: give either topic or topic_field")
        given = dict(config or {})
        self._config_env = dict(config_env or {})
        if wrong := sorted(_OURS & (given.keys() | self._config_env.keys())):
            raise InvalidTopologyError(
                f"KafkaBolt: config may not set {', '.join(wrong)}",
                hint="these follow from the other arguments",
            )
        self._servers = bootstrap_servers
        self.server_shown = shown_servers(bootstrap_servers)
        self._topic = topic
        self._topic_field = topic_field
        self._key_field = key_field
        self._value_field = value_field
        self._headers_field = headers_field
        self._timestamp_field = timestamp_field
        # The client's call for many records knows nothing of these, and does not wait when its
        # queue is full.
        unusual = (topic_field, headers_field, timestamp_field)
        self._in_bulk = all(field is None for field in unusual) and not any(
            name.startswith("queue.buffering.max") for name in given
        )
        self._transactional = transactional
        self._config = given

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._producer: Producer | None = None
        self._errors: list[KafkaError] = []
        self._lost: KafkaException | None = None  # the client's own report, since it connected
        name = f"{context.topology_name}-{context.this_component_id}-{context.this_task_index}"
        # A record is given up before the whole write is, so that the reason is known.
        timeout_ms = max(1_000, int(self._write_timeout_secs * 1_000) - 2_000)
        loop = asyncio.get_running_loop()

        def lost(error: KafkaError) -> None:  # on the sink's thread
            self._lost = KafkaException(error)
            loop.call_soon_threadsafe(self.report_outage, KafkaException(error))

        self._producer_config: dict[str, Any] = {
            **CLIENT_DEFAULTS,
            "enable.idempotence": True,
            "linger.ms": 5,
            "client.id": name,
            "queue.buffering.max.messages": max(100_000, 2 * self._batch_records),
            **with_secrets("KafkaBolt", self._config, self._config_env),
            "bootstrap.servers": self._servers,
            "error_cb": lost,
            "delivery.report.only.error": True,
            "message.timeout.ms": timeout_ms,
        }
        if self._transactional:
            self._producer_config["transactional.id"] = name
            self._producer_config["transaction.timeout.ms"] = timeout_ms + 1_000
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        if isinstance(error, KafkaException):
            kafka: KafkaError = error.args[0]
            return kafka.code() not in _REJECTED
        return super().is_outage(error) or isinstance(error, BufferError | SystemError)

    def connect_blocking(self) -> None:
        self._errors = []
        self._lost = None
        self._producer = Producer(self._producer_config)
        if self._transactional:
            self._producer.init_transactions(self._write_timeout_secs / 2)

    def disconnect_blocking(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)

    def write_blocking(self, tuples: Sequence[Tuple]) -> None:
        producer = self._producer
        assert producer is not None
        self._errors.clear()
        if self._transactional:
            producer.begin_transaction()
        try:
            rejected = self._produce(producer, tuples)
            left = producer.flush(self._write_timeout_secs)
            if self._errors:
                raise KafkaException(self._errors[0])
            if left:
                raise TimeoutError(f"{left} records were not confirmed")
            if self._transactional:
                producer.commit_transaction(self._write_timeout_secs / 2)
        except KafkaException as error:
            if self._transactional and not error.args[0].fatal():
                producer.abort_transaction(self._write_timeout_secs / 2)
            raise
        except SystemError as error:
            # How a fatal error within a callback arrives, with its cause or without.
            cause = error.__cause__ or error.__context__ or self._lost
            raise cause if isinstance(cause, KafkaException) else error from None
        if rejected:
            raise RecordsRejectedError(rejected)

    def _produce(self, producer: Producer, tuples: Sequence[Tuple]) -> dict[int, str]:
        """Queue the records. Returns those that the client refuses, by index."""
        if self._in_bulk:
            messages = self._messages(tuples)
            if messages is not None:
                return self._produce_bulk(producer, messages)
        rejected = {}
        for index, tup in enumerate(tuples):
            try:
                arguments = self._record(tup)
            except Exception as error:  # a field that is missing, a value that JSON has no form for
                rejected[index] = describe(error)
                continue
            try:
                self._queue(producer, arguments)
            except (KafkaException, TypeError) as error:
                if isinstance(error, KafkaException) and self.is_outage(error):
                    raise
                rejected[index] = describe(error)
        return rejected

    def _messages(self, tuples: Sequence[Tuple]) -> list[dict[str, Any]] | None:
        """The records for `produce_batch`; None if they must be looked at one by one, because one
        cannot be made, or because they may not fit into the client's queue together."""
        value_field, key_field = self._value_field, self._key_field
        try:
            values = [_encoded(tup[value_field]) for tup in tuples]
            size = sum(map(len, filter(None, values)))
            if key_field is None:
                messages: list[dict[str, Any]] = [{"value": value} for value in values]
            else:
                keys = [_encoded(tup[key_field]) for tup in tuples]
                size += sum(map(len, filter(None, keys)))
                messages = [
                    {"value": value, "key": key} for value, key in zip(values, keys, strict=True)
                ]
        except Exception:  # a field that is missing, a value that JSON has no form for
            return None
        return messages if size <= _BULK_BYTES_MAX else None

    def _produce_bulk(self, producer: Producer, messages: list[dict[str, Any]]) -> dict[int, str]:
        assert self._topic is not None
        count = producer.produce_batch(self._topic, messages, on_delivery=self._delivered)
        rejected: dict[int, str] = {}
        if count == len(messages):
            return rejected
        for index, message in enumerate(messages):
            if (error := message.get("_error")) is not None:
                failure = KafkaException(error)
                if self.is_outage(failure):
                    raise failure
                rejected[index] = describe(failure)
        return rejected

    def _queue(self, producer: Producer, arguments: dict[str, Any]) -> None:
        while True:
            try:
                producer.produce(on_delivery=self._delivered, **arguments)
                return
            except BufferError:  # the queue is full of large records
                if not producer.poll(self._write_timeout_secs / 2):
                    raise

    def _record(self, tup: Tuple) -> dict[str, Any]:
        record: dict[str, Any] = {
            "topic": self._topic if self._topic_field is None else tup[self._topic_field],
            "value": _encoded(tup[self._value_field]),
        }
        if self._key_field is not None:
            record["key"] = _encoded(tup[self._key_field])
        if self._headers_field is not None:
            record["headers"] = list((tup[self._headers_field] or {}).items())
        if self._timestamp_field is not None:
            record["timestamp"] = tup[self._timestamp_field]
        return record

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)


def _encoded(value: Any) -> bytes | str | None:
    if value is None or isinstance(value, bytes | str):
        return value
    return orjson.dumps(value)
