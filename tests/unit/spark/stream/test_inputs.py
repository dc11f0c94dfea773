"""Kafka as the source of a stream on Spark: what Spark's connector is asked for. (The connector
itself is no part of these tests.)"""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.errors import SquallError
from squall_spark.data.bindings import Format, Source, StreamName
from squall_spark.stream.inputs import Limits, StreamReader


class Spark:
    """Takes what a reader is told, and fails to load as it is told to."""

    version = "4.3.0"

    def __init__(self, error: str) -> None:
        self.error = error
        self.options: dict[str, Any] = {}
        self.readStream = self

    def format(self, name: str) -> Spark:
        self.options["format"] = name
        return self

    def option(self, name: str, value: str) -> Spark:
        self.options[name] = value
        return self

    def load(self) -> Any:
        raise RuntimeError(self.error)


def read(spark: Any, of: Source, limits: Limits | None = None) -> None:
    StreamReader(spark, None, limits or Limits()).read(of, ("text",), ())  # type: ignore[arg-type]


def source(path: str) -> Source:
    return Source(StreamName("records", "default"), path, Format.KAFKA)


def test_a_topic_is_read_from_its_beginning() -> None:
    """Where Spark's default is what comes after the start."""
    spark = Spark("no broker")
    with pytest.raises(SquallError, match="no broker"):
        read(spark, source("host:9092/lines"))
    assert spark.options == {
        "format": "kafka",
        "kafka.bootstrap.servers": "host:9092",
        "subscribe": "lines",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": 500_000,
    }


def test_a_micro_batch_gets_at_most_max_rows() -> None:
    spark = Spark("no broker")
    with pytest.raises(SquallError, match="no broker"):
        read(spark, source("host:9092/lines"), Limits(max_rows=7))
    assert spark.options["maxOffsetsPerTrigger"] == 7


def test_a_missing_connector_is_named_with_how_to_get_it() -> None:
    spark = Spark("Failed to find the data source: kafka. Make sure the provider name is correct")
    with pytest.raises(SquallError, match="no Kafka connector") as reported:
        read(spark, source("host:9092/lines"))
    assert "spark-sql-kafka-0-10_2.13:4.3.0" in (reported.value.hint or "")


@pytest.mark.parametrize("path", ["host:9092", "host:9092/"])
def test_a_path_without_a_topic_is_refused(path: str) -> None:
    with pytest.raises(SquallError, match="has no topic"):
        read(Spark(""), source(path))
