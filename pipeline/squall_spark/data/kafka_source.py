"""Reading a Kafka topic: as a stream, or as a batch from its beginning to where it ends just now.

A batch job can hand over to a live topology: it reads to some offsets and, when its outputs are
complete, commits exactly these for the consumer group of the topology's KafkaSpout
(`--commit-group`), which begins there. No record is missing between the two, and none is read
twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.data import datasets
from squall_spark.data.bad_records import FAIL, OnBadRecord
from squall_spark.data.bindings import Source
from squall_spark.data.kafka_sink import KafkaPlace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
_CALL_SECS = 30.0


def open_topic(spark: SparkSession, source: Source, *, stream: bool) -> tuple[Any, KafkaPlace]:
    """A reader of a topic from its beginning (of what transactions have committed)."""
    place = KafkaPlace.parse(source.path, f"--input {source.stream}")
    reader: Any = (spark.readStream if stream else spark.read).format("kafka")
    reader = reader.option("kafka.bootstrap.servers", place.servers)
    reader = reader.option("subscribe", place.topic).option("startingOffsets", "earliest")
    return reader.option("kafka.isolation.level", "read_committed"), place


def load(reader: Any, spark: SparkSession) -> DataFrame:
    """Raises SquallError without Spark's connector."""
    try:
        frame: DataFrame = reader.load()
    except Exception as error:
        if "find the data source: kafka" in str(error) or "DATA_SOURCE_NOT_FOUND" in str(error):
            raise SquallError(
                "Spark has no Kafka connector",
                hint="--spark-conf spark.jars.packages="
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}",
            ) from error
        raise
    return frame


def select(
    frame: DataFrame, source: Source, fields: tuple[str, ...], on_bad: OnBadRecord, *more: Column
) -> DataFrame:
    """A spout's fields of Kafka's columns, by name; a spout with one field of another name gets the
    value, as text."""
    from pyspark.sql import functions as sf

    if len(fields) == 1 and fields[0] not in _COLUMNS:
        frame = datasets.filtered(frame, source)
        value = sf.col("value").cast("string").alias(fields[0])
        return frame.select(value, *datasets.no_bad_records(on_bad), *more)
    return datasets.select_fields(frame, source, fields, on_bad, *more)


@dataclass(frozen=True, slots=True)
class TopicSoFar:
    """A topic as a batch job reads it."""

    place: KafkaPlace
    ends: Mapping[int, int]  # the first offset that is not read, by partition

    @classmethod
    def find(cls, source: Source) -> TopicSoFar:
        """Where the topic ends just now. Raises SquallError."""
        from confluent_kafka import KafkaException, TopicPartition

        where = f"--input {source.stream}"
        place = KafkaPlace.parse(source.path, where)
        consumer = _consumer(place, "squall-spark")
        try:
            found = consumer.list_topics(place.topic, _CALL_SECS).topics[place.topic]
            if found.error is not None:
                raise KafkaException(found.error)
            ends = {}
            for number in sorted(found.partitions):
                partition = TopicPartition(place.topic, number)
                _, ends[number] = consumer.get_watermark_offsets(partition, _CALL_SECS)
        except KafkaException as error:
            raise SquallError(
                f"{where}: Kafka topic {place.topic!r} at {place.servers} cannot be read: "
                f"{error.args[0].str()}"
            ) from error
        finally:
            consumer.close()
        return cls(place, ends)

    def read(
        self,
        spark: SparkSession,
        source: Source,
        fields: tuple[str, ...],
        on_bad: OnBadRecord = FAIL,
    ) -> DataFrame:
        """Its records so far, with a spout's fields. Raises SquallError."""
        reader, _ = open_topic(spark, source, stream=False)
        ends = {self.place.topic: {str(number): end for number, end in self.ends.items()}}
        frame = load(reader.option("endingOffsets", json.dumps(ends)), spark)
        return select(frame, source, fields, on_bad)

    def check_group(self, group: str) -> None:
        """Raises SquallError if a consumer group has read any of it."""
        if any(partition.offset >= 0 for partition in self._committed(group)):
            raise SquallError(
                f"--commit-group {group}: the group has read a part of topic "
                f"{self.place.topic!r} already, so that records would be read twice",
                hint="give the topology another group_id",
            )

    def commit(self, group: str) -> None:
        """Let a consumer group begin where this ends. Raises SquallError."""
        from confluent_kafka import KafkaException

        consumer = _consumer(self.place, group)
        try:
            _check(consumer.commit(offsets=self._partitions(ends=True), asynchronous=False))
        except KafkaException as error:
            raise SquallError(
                f"--commit-group {group}: the offsets of topic {self.place.topic!r} were not "
                f"committed: {error.args[0].str()}",
                hint="submit the topology only after this job",
            ) from error
        finally:
            consumer.close()

    def _committed(self, group: str) -> Any:
        from confluent_kafka import KafkaException

        consumer = _consumer(self.place, group)
        try:
            return _check(consumer.committed(self._partitions(ends=False), timeout=_CALL_SECS))
        except KafkaException as error:
            raise SquallError(f"--commit-group {group}: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def _partitions(self, *, ends: bool) -> list[Any]:
        from confluent_kafka import TopicPartition

        if not ends:
            return [TopicPartition(self.place.topic, number) for number in self.ends]
        return [TopicPartition(self.place.topic, n, end) for n, end in self.ends.items()]


def _check(partitions: list[Any]) -> list[Any]:
    """The same. Raises KafkaException if one of them has an error: the call itself does not."""
    from confluent_kafka import KafkaException

    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions


def _consumer(place: KafkaPlace, group: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": place.servers,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
