"""Which of the client's calls takes a batch, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from squall_connectors.kafka import KafkaBolt

LARGE = b"x" * (1 << 20)


class Queue:
    """A producer's queue: notes how records come in."""

    def __init__(self) -> None:
        self.in_bulk, self.singly = 0, 0

    def produce_batch(self, topic: str, messages: list[Any], **options: Any) -> int:
        self.in_bulk += len(messages)
        return len(messages)

    def produce(self, **record: Any) -> None:
        self.singly += 1


@pytest.mark.parametrize(
    ("key", "value", "in_bulk"),
    [(b"k", b"v", True), (None, None, True), (LARGE, b"v", False), (b"k", LARGE, False)],
)
def test_a_batch_goes_in_bulk_if_its_keys_and_values_fit_into_the_queue(
    key: bytes | None, value: bytes | None, in_bulk: bool
) -> None:
    bolt = KafkaBolt("broker:9092", "t", key_field="key")
    queue: Any = Queue()
    tuples: list[Any] = [{"key": key, "value": value}] * 100
    assert bolt._produce(queue, tuples) == {}
    assert (queue.in_bulk, queue.singly) == ((100, 0) if in_bulk else (0, 100))
