"""What is measured. Components as users would write them who care about speed, on the public API
alone: what is used often lies in a local variable, values are tuples."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, islice, repeat
from typing import Any

from squall import Bolt, Columns, FanOut, Spout, TopologyBuilder, TopologyContext, Tuple
from squall_common.topology.model import Topology

WORDS_A_LINE = 8
_COLUMN_ROWS = 1_000  # that a spout emits at once


@functools.cache
def make_lines(count: int, seed: int = 42) -> list[str]:
    """Lines of eight words out of 10,000, with frequencies that fall off as in a text."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(10_000)]
    weights = list(accumulate(1.0 / (rank + 1) ** 0.8 for rank in range(len(vocabulary))))
    return [
        " ".join(rng.choices(vocabulary, cum_weights=weights, k=WORDS_A_LINE)) for _ in range(count)
    ]


def plain_loop(lines: list[str], rounds: int) -> dict[str, int]:
    """Split and count, and nothing else: the work without an engine."""
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for line in lines:
            for word in line.split():
                counts[word] = counts.get(word, 0) + 1
    return counts


def column_loop(lines: list[str], rounds: int) -> dict[str, int]:
    """The same with columns: all words of a thousand lines, and a count of all of them at once."""
    counts: Counter[str] = Counter()
    for _ in range(rounds):
        for start in range(0, len(lines), _COLUMN_ROWS):
            words: list[str] = []
            for line in lines[start : start + _COLUMN_ROWS]:
                words += line.split()
            counts.update(words)
    return counts


class CountingSpout(Spout):
    """Emits `total` tuples and knows how many were acked."""

    def __init__(self, total: int, acked: bool) -> None:
        self.total = total
        self.acked = acked

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.sent = 0
        self.done = 0

    def ack(self, msg_id: int) -> None:
        self.done += 1

    def is_through(self) -> bool:
        return self.sent >= self.total and (not self.acked or self.done >= self.total)


class Lines(CountingSpout):
    """Every line of the input, `rounds` times."""

    outputs = ("line",)

    def __init__(self, lines: int, rounds: int, acked: bool) -> None:
        super().__init__(lines * rounds, acked)
        self.count = lines
        self.rounds = rounds

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.lines = chain.from_iterable(repeat(make_lines(self.count), self.rounds))

    def next_tuple(self) -> None:
        line = next(self.lines, None)
        if line is not None:
            self.sent = sent = self.sent + 1
            if self.acked:
                self.emit((line,), message_id=sent)
            else:
                self.emit((line,))


class Split(Bolt):
    outputs = ("word",)

    def execute(self, tup: Tuple) -> None:
        emit = self.emit
        for word in tup.values[0].split():
            emit((word,))


class Count(Bolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup.values[0]
        counts = self.counts
        counts[word] = counts.get(word, 0) + 1


class SplitAsInTheReadme(Bolt):
    outputs = ("word",)

    def execute(self, tup: Tuple) -> None:
        for word in tup["line"].split():
            self.emit([word])


class CountAsInTheReadme(Count):
    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1


class AckedInBatches(CountingSpout):
    """Receives many acks in one call."""

    def ack_batch(self, msg_ids: Sequence[Any]) -> None:
        self.done += len(msg_ids)


class LineColumns(AckedInBatches, Lines):
    def next_tuple(self) -> None:
        lines = list(islice(self.lines, _COLUMN_ROWS))
        if lines:
            first = self.sent
            self.sent += len(lines)
            ids = range(first, self.sent) if self.acked else None
            self.emit_columns([lines], message_ids=ids)


class SplitColumns(Bolt):
    outputs = ("word",)

    def execute_columns(self, columns: Columns) -> None:
        words: list[str] = []
        counts: list[int] = []
        for line in columns[0]:
            found = line.split()
            words += found
            counts.append(len(found))
        self.emit_columns([words], origins=FanOut(counts))


class CountColumns(Bolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_columns(self, columns: Columns) -> None:
        self.counts.update(columns[0])


class Numbers(CountingSpout):
    """The same number, `total` times."""

    outputs = ("n",)

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((7,), message_id=sent)


class NumbersUnacked(CountingSpout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        if self.sent < self.total:
            self.sent += 1
            self.emit((7,))


class NumberColumns(AckedInBatches):
    outputs = ("n",)

    def next_tuple(self) -> None:
        n = min(_COLUMN_ROWS, self.total - self.sent)
        if n:
            ids = range(self.sent, self.sent + n) if self.acked else None
            self.sent += n
            self.emit_columns([[7] * n], message_ids=ids)


class TableColumns(AckedInBatches):
    """Rows of a number and a word, all different objects."""

    outputs = ("number", "word")

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.words = " ".join(make_lines(_COLUMN_ROWS)).split()[:_COLUMN_ROWS]

    def next_tuple(self) -> None:
        n = min(_COLUMN_ROWS, self.total - self.sent)
        if n:
            numbers = range(self.sent, self.sent + n)
            self.sent += n
            self.emit_columns(
                [numbers, self.words[:n]], message_ids=numbers if self.acked else None
            )


class Sink(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


class SinkColumns(Bolt):
    def execute_columns(self, columns: Columns) -> None:
        pass


def word_count(
    style: str, lines: int, rounds: int, *, acked: bool, tasks: int = 1, spouts: int = 1
) -> Topology:
    """`style`: "tuple", "readme" or "columns". Each spout emits all lines."""
    spout, split, count = {
        "tuple": (Lines, Split, Count),
        "readme": (Lines, SplitAsInTheReadme, CountAsInTheReadme),
        "columns": (LineColumns, SplitColumns, CountColumns),
    }[style]
    builder = TopologyBuilder()
    builder.spout("lines", spout(lines, rounds, acked), parallelism=spouts)
    builder.bolt("split", split(), parallelism=tasks).shuffle("lines")
    builder.bolt("count", count(), parallelism=tasks).fields("split", "word")
    return builder.build()


def const_spout(style: str, total: int, *, acked: bool) -> Topology:
    """A spout that emits the same tuple ("table": rows of a number and a word), and a bolt that
    does nothing."""
    spout, sink = {
        "tuple": (Numbers if acked else NumbersUnacked, Sink),
        "columns": (NumberColumns, SinkColumns),
        "table": (TableColumns, SinkColumns),
    }[style]
    builder = TopologyBuilder()
    builder.spout("numbers", spout(total, acked))
    builder.bolt("sink", sink()).shuffle("numbers")
    return builder.build()
