"""Bytewax: one worker, no recovery store. Lines come in batches of 1,000."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import bytewax.operators as op
import peer
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

_BATCH = 1_000


class _Partition(StatelessSourcePartition):
    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def next_batch(self) -> list[str]:
        batch = list(islice(self._lines, _BATCH))
        if not batch:
            raise StopIteration
        return batch


class Lines(DynamicSource):
    def __init__(self, lines: list[str], rounds: int) -> None:
        self._lines, self._rounds = lines, rounds

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return _Partition(line for _ in range(self._rounds) for line in self._lines)


class _Collect(StatelessSinkPartition):
    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        self._counts.update(items)


class Counts(DynamicSink):
    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Collect:
        return _Collect(self._counts)


def count(lines: list[str], rounds: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    flow = Dataflow("word_count")
    source = op.input("lines", flow, Lines(lines, rounds))
    words = op.flat_map("split", source, str.split)
    op.output("counts", op.count_final("count", words, lambda word: word), Counts(counts))
    run_main(flow)
    return counts


if __name__ == "__main__":
    peer.main(count)
