"""Writing a stream to a Kafka topic, each micro-batch exactly once.

    --output counts=kafka:HOST:PORT/TOPIC

The driver produces the rows of a batch in one transaction of Kafka's, which also commits the number
of the batch, as if it were an offset that the consumer group GROUP had read:

    GROUP, partition 0 of TOPIC:  offset N + 1     batch N is written

A batch that runs again looks there first: if its number is there, its rows are, too. A driver that
was killed in the middle leaves a transaction that never commits; its successor has the same
transactional id and ends it. So consumers that read committed records (`read_committed`) see each
batch once.

A record's key and value are the fields `key` and `value`, if the stream has a field `value`;
otherwise the value is a JSON object of the fields.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.errors import SquallError

_TIMEOUT_SECS = 120.0
_CALL_SECS = 30.0
_ABORT_SECS = 5.0
_RETRY_SECS = 0.5
_TRANSACTION_MS = 900_000  # the most that brokers allow by default


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """`HOST:PORT[,HOST:PORT]/TOPIC`."""

    servers: str
    topic: str

    @classmethod
    def parse(cls, path: str, where: str) -> KafkaPlace:
        """Raises SquallError."""
        servers, slash, topic = path.partition("/")
        if not slash or not topic or not servers:
            raise SquallError(
                f"{where}=kafka:{path} has no topic", hint="write kafka:HOST:PORT/TOPIC"
            )
        return cls(servers, topic)


def check_client(where: str) -> None:
    """Raises SquallError without the client library."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise SquallError(
            f"{where}: Kafka needs the Python package confluent-kafka",
            hint="pip install 'squall[kafka]'",
        ) from None


def encoded(fields: Sequence[str], row: Sequence[Any]) -> tuple[bytes | None, bytes | None]:
    """The key and value of a record."""
    values = dict(zip(fields, map(_with_names, row), strict=True))
    if "value" in values:
        return _bytes(values.get("key")), _bytes(values["value"])
    return None, _json(values)


def _with_names(value: Any) -> Any:
    """A value as JSON has it: dicts for structs (which are Rows, so tuples to JSON), and text for
    the keys of maps and for NaN and infinity, as Spark writes them."""
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_with_names(each) for each in value]
    if isinstance(value, dict):
        return {_key(key): _with_names(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _key(key: Any) -> str:
    """A key of a map as text."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes | bytearray):
        return base64.b64encode(key).decode()
    if isinstance(key, bool):
        return str(key).lower()
    return str(key)


def _json(value: Any) -> bytes:
    def text(other: Any) -> str:
        # Bytes as in the JSON that Spark writes.
        binary = isinstance(other, bytes | bytearray)
        return base64.b64encode(other).decode() if binary else str(other)

    return json.dumps(value, default=text, ensure_ascii=False).encode()


def _is_of_brokers(error: Any) -> bool:
    """Whether it may pass, although it is not called retriable: a coordinator that moves, or was
    just made."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._WAIT_COORD,
    )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, dict | list):
        return _json(value)
    return bytes(value) if isinstance(value, bytearray) else str(value).encode()


class KafkaSink:
    """Writes the batches of one output. `name` says which stream of which job it is: two jobs with
    different names do not disturb each other."""

    def __init__(
        self, place: KafkaPlace, name: str, *, timeout_secs: float = _TIMEOUT_SECS
    ) -> None:
        self._place, self._timeout_secs = place, timeout_secs
        self.group = f"squall-spark-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def write(
        self, fields: Sequence[str], rows: Callable[[], Iterable[Sequence[Any]]], batch: int
    ) -> int | None:
        """Write a batch in one transaction. `rows` gives its rows, again if the transaction has to
        be repeated. Returns the number of records; None: it was written before. Raises SquallError
        if it still fails two minutes after it failed first."""
        from confluent_kafka import KafkaException

        deadline: float | None = None
        while True:
            try:
                return self._write(fields, rows, batch)
            except KafkaException as error:
                # The number of the batch tells whether it was written after all.
                why = error.args[0]
                may_pass = why.retriable() or why.txn_requires_abort() or _is_of_brokers(why)
                if deadline is None:
                    deadline = time.monotonic() + self._timeout_secs
                if why.fatal() or not may_pass or time.monotonic() > deadline:
                    raise SquallError(
                        f"batch {batch} was not written to Kafka topic {self._place.topic!r} at "
                        f"{self._place.servers}: {why.str()}"
                    ) from error
            time.sleep(_RETRY_SECS)

    def _write(
        self, fields: Sequence[str], rows: Callable[[], Iterable[Sequence[Any]]], batch: int
    ) -> int | None:
        from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

        servers = {"bootstrap.servers": self._place.servers, "log_level": 0}
        producer = Producer(
            {
                **servers,
                "transactional.id": self.group,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 20,
            }
        )
        topic = producer.list_topics(self._place.topic, _CALL_SECS).topics[self._place.topic]
        if topic.error is not None:
            raise SquallError(
                f"batch {batch} was not written to Kafka topic {self._place.topic!r} at "
                f"{self._place.servers}: {topic.error.str()}"
            )
        # Ends a transaction that a killed driver has left, or waits for its commit.
        producer.init_transactions(_CALL_SECS)
        consumer = Consumer({**servers, "group.id": self.group, "enable.auto.commit": False})
        try:
            mark = TopicPartition(self._place.topic, 0)
            (committed,) = consumer.committed([mark], timeout=_CALL_SECS)
            if committed.error is not None:
                raise KafkaException(committed.error)
            if committed.offset > batch:
                return None
            producer.begin_transaction()
            try:
                count = 0
                for row in rows():
                    key, value = encoded(fields, row)
                    self._produce(producer, key, value)
                    count += 1
                mark.offset = batch + 1
                producer.send_offsets_to_transaction(
                    [mark], consumer.consumer_group_metadata(), _CALL_SECS
                )
                producer.commit_transaction(_CALL_SECS)
            except BaseException:
                # All readers of the topic would wait for its end, until brokers time it out.
                with contextlib.suppress(KafkaException):
                    producer.abort_transaction(_ABORT_SECS)
                raise
            return count
        finally:
            consumer.close()

    def _produce(self, producer: Any, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._place.topic, value, key)
            except BufferError:
                producer.poll(1.0)
            else:
                producer.poll(0)
                return
