"""The handover from a batch job to a live topology, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from squall import SquallError
from squall_spark.data import kafka_source
from squall_spark.data.kafka_sink import KafkaPlace
from squall_spark.data.kafka_source import TopicSoFar


class Refusing:
    """A consumer whose calls succeed, but not for partition 1."""

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        return self.committed(offsets, 0)

    def committed(self, partitions: list[Any], timeout: float) -> list[Any]:
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return [
            SimpleNamespace(offset=-1001, error=error if one.partition == 1 else None)
            for one in partitions
        ]

    def close(self) -> None:
        pass


def test_an_error_of_one_partition_is_one_of_the_handover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "_consumer", lambda place, group: Refusing())
    topic = TopicSoFar(KafkaPlace("a:1", "orders"), {0: 5, 1: 7})
    with pytest.raises(SquallError, match=r"--commit-group shop: .*'orders' were not committed"):
        topic.commit("shop")
    with pytest.raises(SquallError, match="--commit-group shop: "):
        topic.check_group("shop")
