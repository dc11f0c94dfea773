"""Batches in a part of a topology: each bolt sees all of a batch before it finishes it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from squall import Bolt, InvalidTopologyError, Spout, TopologyBuilder
from squall.testing import TopologyTest
from squall_drpc import BatchBolt, BatchSubtopologyBuilder

TEXTS = ["to be or not to be", "", "a b c d e f", "one", " ".join(str(n % 7) for n in range(200))]
STORED: list[list[Any]] = []


class Documents(Spout):
    """Each attempt is a batch of its own: 3, 1003, 2003 are document 3."""

    outputs = ["document", "text"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = list(range(len(TEXTS)))

    def next_tuple(self) -> None:
        if self.left:
            batch = self.left.pop()
            self.emit([batch, TEXTS[batch % 1000]], message_id=batch)

    def fail(self, msg_id: int) -> None:
        self.left.append(msg_id + 1000)


class Split(Bolt):
    outputs = ["document", "word"]

    def execute(self, tup: Any) -> None:
        for word in tup["text"].split():
            self.emit([tup["document"], word])


class Count(BatchBolt):
    outputs = ["document", "word", "count"]

    def prepare(self, conf: Any, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Any) -> None:
        self.counts[tup["word"]] += 1

    def finish_batch(self) -> None:
        for word, count in self.counts.items():
            self.emit([self.request_id, word, count])


class FailingOnce(Count):
    failed = False

    def finish_batch(self) -> None:
        if self.counts["one"] and not FailingOnce.failed:
            FailingOnce.failed = True
            raise ValueError("not yet")
        super().finish_batch()


class Merge(BatchBolt):
    """Words from the master, and counts from `count`."""

    outputs = ["document", "words", "counted"]

    def prepare(self, conf: Any, context: Any) -> None:
        self.words = self.counted = 0

    def execute(self, tup: Any) -> None:
        if tup.source_component == "split":
            self.words += 1
        else:
            self.counted += tup["count"]

    def finish_batch(self) -> None:
        self.emit([self.request_id, self.words, self.counted])


class Store(Bolt):
    def execute(self, tup: Any) -> None:
        STORED.append(list(tup.values))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    STORED.clear()
    FailingOnce.failed = False


def documents(count: BatchBolt, parallelism: int) -> TopologyBuilder:
    part = BatchSubtopologyBuilder("split", Split(), parallelism)
    part.master.shuffle("documents")
    part.bolt("count", count, parallelism).fields("split", "document", "word")
    merge = part.bolt("merge", Merge(), parallelism)
    merge.fields("split", "document").fields("count", "document")
    builder = TopologyBuilder()
    builder.spout("documents", Documents())
    part.extend_topology(builder)
    builder.bolt("store", Store()).shuffle("merge")
    return builder


def sums() -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for document, words, counted in STORED:
        before = found.get(document, (0, 0))
        found[document] = (before[0] + words, before[1] + counted)
    return found


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_bolt_with_two_sources_waits_for_both(parallelism: int) -> None:
    with TopologyTest(documents(Count(), parallelism)) as test:
        test.run_until_idle()
        expected = {n: (len(text.split()),) * 2 for n, text in enumerate(TEXTS)}
        assert sums() == expected
        # Every task finishes every batch, once.
        assert Counter(document for document, *_ in STORED) == dict.fromkeys(expected, parallelism)
        assert len(test.acked("documents")) == len(TEXTS)
        assert not test.errors


def test_a_batch_fails_as_a_whole_and_is_emitted_again() -> None:
    conf = {"topology.message.timeout.secs": 10}
    with TopologyTest(documents(FailingOnce(), 2), conf) as test:
        test.run_until(lambda: len(test.acked("documents")) == len(TEXTS))
        assert test.failed("documents") == [3]
        assert 1003 in test.acked("documents")
        assert sums()[1003] == (1, 1)
        assert "not yet" in str(test.errors[0].error)


def test_a_part_that_cannot_work_is_refused_with_all_that_is_wrong() -> None:
    part = BatchSubtopologyBuilder("split", Split())
    part.bolt("count", Count())
    part.bolt("merge", Merge()).fields("documents", "document")
    part.bolt("merge", Merge()).fields("split", "document")
    with pytest.raises(InvalidTopologyError) as caught:
        part.extend_topology(TopologyBuilder())
    text = str(caught.value)
    for problem in (
        "bolt 'merge': there is a component with this id already",
        "'split' is the master and has no grouping",
        "'count' has no grouping",
        "'merge' subscribes to 'documents' outside of this part",
    ):
        assert problem in text
