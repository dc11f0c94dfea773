"""The contract of transactional sinks finds what a sink may do wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from squall import RowBatch, TransactionalSink
from squall.testing.connectors import TransactionalSinkContract

rows: list[str] = []
applied: dict[str, int] = {}


class Good(TransactionalSink):
    """Writes to this process's memory, as a database with transactions would."""

    def commit(self, batches: Sequence[RowBatch]) -> None:
        new, epochs = [], dict(applied)
        for batch in batches:
            if epochs.get(self.name(batch), 0) < batch.epoch:
                new += [self.checked(row[0]) for row in batch.rows]
                epochs[self.name(batch)] = batch.epoch
        rows.extend(new)
        applied.update(epochs)

    def name(self, batch: RowBatch) -> str:
        return batch.writer

    def checked(self, value: str) -> str:
        if value == "refused":
            raise ValueError(value)
        return value


class WithoutEpochs(Good):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        rows.extend(row[0] for batch in batches for row in batch.rows)


class WithoutHistory(Good):
    def name(self, batch: RowBatch) -> str:
        return batch.writer.partition("/")[2]


class OneWriter(Good):
    def name(self, batch: RowBatch) -> str:
        return "all"


class RowByRow(Good):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            super().commit([batch])


class Contract(TransactionalSinkContract):
    make: Callable[[], TransactionalSink] = Good

    def make_sink(self) -> TransactionalSink:
        return type(self).make()

    def stored(self) -> list[str]:
        return rows

    def rejected(self) -> list[Any]:
        return ["refused"]


AGAIN = "test_batches_that_are_committed_again_are_written_once"
WRITERS = "test_one_commit_takes_batches_of_several_writers"
HISTORY = "test_an_epoch_of_another_history_is_written"
REFUSED = "test_a_commit_that_is_refused_writes_nothing"


@pytest.fixture(autouse=True)
def _clean() -> None:
    rows.clear()
    applied.clear()


def contract_of(sink: type[TransactionalSink]) -> TransactionalSinkContract:
    return type("OfSink", (Contract,), {"make": sink})()  # type: ignore[no-any-return]


@pytest.mark.parametrize("test", [AGAIN, WRITERS, HISTORY, REFUSED])
def test_a_sink_that_is_right_passes(test: str) -> None:
    getattr(contract_of(Good), test)()


@pytest.mark.parametrize(
    ("sink", "test"),
    [
        (WithoutEpochs, AGAIN),
        (WithoutHistory, HISTORY),
        (OneWriter, WRITERS),
        (RowByRow, REFUSED),
    ],
)
def test_a_sink_that_is_wrong_fails(sink: type[TransactionalSink], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(contract_of(sink), test)()
