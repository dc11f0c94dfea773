"""A tuple that was emitted and cannot be sent is a dead letter of its sender, in its epoch. One
that a snapshot could not have is a dead letter of the bolt that would keep it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import (
    AggregateBolt,
    Bolt,
    LocalCluster,
    RewindableSpout,
    RowBatch,
    SquallError,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
    WindowedBolt,
)
from squall.windows import tumbling

COUNT = 60
BAD = frozenset({0, 17, 18, COUNT - 1})
GOOD = sorted(set(range(COUNT)) - BAD)

written: dict[str, list[tuple[Any, ...]]] = {}


def made(number: int, bad: bool) -> Any:
    """A number, or what has no encoding."""
    return threading.Lock() if bad and number in BAD else number


class Numbers(RewindableSpout):
    outputs = ["value", "number"]

    def __init__(self, bad: bool = False) -> None:
        self.bad = bad

    def seek(self, positions: Any) -> None:
        self.at = positions.get("all", 0)

    def next_tuple(self) -> None:
        at = self.at
        if at < COUNT:
            self.at += 1
            self.emit([made(at, self.bad), at], position=("all", self.at))


class Pass(Bolt):
    outputs = ["value"]

    def __init__(self, bad: bool = False) -> None:
        self.bad = bad

    def execute(self, tup: Tuple) -> None:
        self.emit([made(tup["number"], self.bad)])


class PassWithState(StatefulBolt, Pass):  # type: ignore[misc]
    pass


class PassOnThread(Pass):
    blocking = True


class PassBatches(Pass):
    def execute_batch(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            self.emit([made(tup["number"], self.bad)], anchors=tup)


class PassColumns(Pass):
    def execute_columns(self, columns: Any) -> None:
        self.emit_columns([[made(number, self.bad) for number in columns["number"]]])


class PassAsync(Pass):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        self.emit([made(tup["number"], self.bad)])


class ChangedNumbers(Numbers):
    """Changes the lists of some tuples after their emit."""

    def next_tuple(self) -> None:
        at = self.at
        if at < COUNT:
            self.at += 1
            row = [at, at]
            self.emit(row, position=("all", self.at))
            if at in BAD:
                row[:] = [at] if at % 2 else [at, at, "more"]


class Write(TransactionalSink):
    def __init__(self, name: str) -> None:
        self.name = name

    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            written.setdefault(self.name, []).extend(tuple(row) for row in batch.rows)


KINDS = [Pass, PassWithState, PassOnThread, PassBatches, PassColumns, PassAsync]


@pytest.fixture(autouse=True)
def _clean() -> None:
    written.clear()


def run(
    folder: Path,
    spout: Numbers,
    bolt: Pass,
    letters_of: str | None,
    until: Callable[[LocalCluster], None],
    *,
    serialize: bool = True,
) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", spout)
    builder.bolt("pass", bolt).fields("numbers", "number")
    builder.bolt("write", Write("values")).shuffle("pass")
    if letters_of is not None:
        builder.bolt("letters", Write("letters")).shuffle(letters_of, stream="__dead_letter")
    conf = {
        "topology.checkpoint.interval.secs": 0.05,
        "topology.state.url": str(folder),
        "topology.testing.always.try.serialize": serialize,  # as between two workers
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("numbers", conf, builder.build())
        until(cluster)


def all_written(cluster: LocalCluster) -> None:
    def enough() -> bool:
        return sum(map(len, written.values())) >= COUNT

    cluster.wait_until(enough, 60.0)
    assert sorted(value for (value,) in written["values"]) == GOOD
    assert len(written["letters"]) == len(BAD)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_a_bolt_cannot_send_is_its_dead_letter(tmp_path: Path, kind: type[Pass]) -> None:
    run(tmp_path, Numbers(), kind(bad=True), "pass", all_written)
    for row in written["letters"]:
        message_id, values, stream, reason, component, _, _, replays, source = row
        assert (message_id, stream, component, replays, source) == (
            None,
            "default",
            "pass",
            0,
            "pass",
        )
        assert "lock" in values[0]  # as text
        assert "field 'value': a value of type _thread:lock cannot be sent" in reason


def test_what_a_spout_cannot_send_is_its_dead_letter(tmp_path: Path) -> None:
    run(tmp_path, Numbers(bad=True), Pass(), "numbers", all_written)
    assert sorted(row[1][1] for row in written["letters"]) == sorted(BAD)
    assert {row[4] for row in written["letters"]} == {"numbers"}


def test_a_row_whose_list_was_changed_is_a_dead_letter_of_the_bolt_that_gets_it(
    tmp_path: Path,
) -> None:
    run(tmp_path, ChangedNumbers(), PassColumns(), "pass", all_written, serialize=False)
    assert sorted(row[1][0] for row in written["letters"]) == sorted(BAD)
    for row in written["letters"]:
        _, values, stream, reason, component, _, _, replays, source = row
        assert (stream, component, replays, source) == ("default", "pass", 0, "numbers")
        assert reason.startswith(
            f"ChangedRowError: a tuple of numbers has {len(values)} values for the 2 fields"
        )


def test_without_a_consumer_a_row_whose_list_was_changed_ends_the_topology(tmp_path: Path) -> None:
    def ended(cluster: LocalCluster) -> None:
        with pytest.raises(SquallError, match=r"'pass' .* tuple of 'numbers'.*was changed after"):
            cluster.wait(60.0)

    run(tmp_path, ChangedNumbers(), PassColumns(), None, ended, serialize=False)
    assert written == {}  # the first tuple is one of these


@pytest.mark.parametrize("bad", ["numbers", "pass"])
def test_without_a_consumer_the_topology_ends_and_says_what_to_do(tmp_path: Path, bad: str) -> None:
    def ended(cluster: LocalCluster) -> None:
        with pytest.raises(
            SquallError, match=f"'{bad}'.*has emitted a tuple that cannot be sent"
        ) as caught:
            cluster.wait(60.0)
        assert "subscribe a bolt to its stream '__dead_letter'" in str(caught.value)

    run(tmp_path, Numbers(bad == "numbers"), Pass(bad == "pass"), None, ended)


def test_a_row_that_cannot_be_stored_is_a_dead_letter_of_its_sink(tmp_path: Path) -> None:
    run(tmp_path, Numbers(), Pass(bad=True), "write", all_written, serialize=False)
    for row in written["letters"]:
        assert "a row with a value of type _thread:lock cannot be stored" in row[3]
        assert (row[4], row[8]) == ("write", "pass")


class Kept(WindowedBolt):
    outputs = ["value"]
    windows = tumbling(count=len(GOOD))

    def execute_window(self, window: Any) -> None:
        for tup in window:
            self.emit([tup["value"]])


class Sums(AggregateBolt):
    outputs = ["value"]
    windows = tumbling(count=len(GOOD))

    def init(self) -> tuple[Any, ...]:
        return ()

    def add(self, total: tuple[Any, ...], tup: Tuple) -> Any:
        value = tup["value"]
        return (*total, value) if isinstance(value, int) else value

    def merge(self, first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
        return first + second

    def result(self, total: tuple[Any, ...], window: Any) -> None:
        for value in total:
            self.emit([value])


class Lists(AggregateBolt):
    """The total is changed in place, also by the value that is refused then."""

    outputs = ["value"]
    windows = tumbling(count=len(GOOD))

    def init(self) -> Any:
        return []

    def add(self, total: Any, tup: Tuple) -> Any:
        total.append(tup["value"])
        return total

    def merge(self, first: Any, second: Any) -> Any:
        return first + second

    def result(self, total: Any, window: Any) -> None:
        for value in total:
            self.emit([value])


class Tables(Lists):
    def init(self) -> Any:
        return {}

    def add(self, total: Any, tup: Tuple) -> Any:
        total[tup["number"]] = [tup["value"]]
        return total

    def merge(self, first: Any, second: Any) -> Any:
        return first | second

    def result(self, total: Any, window: Any) -> None:
        for (value,) in total.values():
            self.emit([value])


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Kept, "a tuple"), (Sums, "a total"), (Lists, "a total"), (Tables, "a total")],
)
def test_what_windows_could_not_store_is_their_dead_letter(
    tmp_path: Path, kind: type[Bolt], what: str
) -> None:
    """Values are not encoded on their way within a worker. Checkpoints are taken meanwhile."""
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(bad=True))
    builder.bolt("windows", kind()).shuffle("numbers")
    builder.bolt("write", Write("values")).shuffle("windows")
    builder.bolt("letters", Write("letters")).shuffle("windows", stream="__dead_letter")
    conf = {
        "topology.checkpoint.interval.secs": 0.02,
        "topology.state.url": str(tmp_path),
        "topology.testing.always.try.serialize": False,
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("numbers", conf, builder.build())
        all_written(cluster)
    for row in written["letters"]:
        assert f"{what} with a value of type _thread:lock cannot be stored" in row[3]
        assert row[1][1] in BAD
