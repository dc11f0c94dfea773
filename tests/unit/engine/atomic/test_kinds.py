"""Every kind of bolt with checkpoints: what fails is undone and tried again, poison becomes a dead
letter, and each tuple counts once, also after the topology was ended in the middle."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import (
    Bolt,
    FanOut,
    LocalCluster,
    RowBatch,
    SquallError,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
)
from squall.testing import ReplayableSpout

WORDS = ("the", "cow", "jumped", "over", "the", "moon", "and", "ran", "away")
ROWS: list[list[Any]] = [[WORDS[i % len(WORDS)], i] for i in range(1_500)]
POISON = frozenset({17, 700, 701, 1_499})  # they fail whenever they are tried

written: dict[str, list[tuple[Any, ...]]] = {}
applied: dict[str, int] = {}
lock = threading.Lock()
flaky: Counter[int] = Counter()  # by number: how often it fails from now on


@pytest.fixture(autouse=True)
def _clean() -> None:
    written.clear()
    applied.clear()
    flaky.clear()


def check(number: int) -> None:
    """Fail for poison, and for what is flaky."""
    if number in POISON and flaky[-1]:
        raise ValueError(f"poison {number}")
    with lock:
        flaky[number] -= flaky[number] > 0
        fails = flaky[number] > 0
    if fails:
        raise ValueError(f"flaky {number}")


class Words(ReplayableSpout):
    outputs = ["word", "number"]


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        self.emit(self.counted(tup["word"], tup["number"]))

    def counted(self, word: str, number: int) -> list[Any]:
        count = self.state.get(word, 0) + 1
        self.state.put(word, count)
        seen = self.state.get((word, "seen"))
        if seen is None:
            seen = []
            self.state.put((word, "seen"), seen)
        seen[:] = [*seen[-2:], number]  # changed in place
        check(number)
        return [word, count]


class CountOnThread(Count):
    blocking = True


class CountBatches(Count):
    def execute_batch(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            self.emit(self.counted(tup["word"], tup["number"]), anchors=tup)


class CountBatchesOnThread(CountBatches):
    blocking = True


class CountFailing(Count):
    """Says which tuples have failed."""

    def execute_batch(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            try:
                self.emit(self.counted(tup["word"], tup["number"]), anchors=tup)
            except ValueError:
                self.fail(tup)


class CountColumns(Count):
    def execute_columns(self, columns: Any) -> None:
        rows = [
            self.counted(word, number)
            for word, number in zip(columns["word"], columns["number"], strict=True)
        ]
        columns["word"].clear()  # they are the bolt's
        self.emit_columns([list(one) for one in zip(*rows, strict=True)])


class CountColumnsFailing(Count):
    def execute_columns(self, columns: Any) -> None:
        rows, origins = [], []
        for row in range(columns.rows):
            try:
                rows.append(self.counted(columns["word"][row], columns["number"][row]))
                origins.append(row)
            except ValueError:
                columns.fail(row)
        if rows:
            self.emit_columns([list(one) for one in zip(*rows, strict=True)], origins=origins)


class CountColumnsFanOut(CountColumns):
    """Emits of each row one tuple, or none if it fails."""

    def execute_columns(self, columns: Any) -> None:
        words, numbers, counts = [], [], []
        for row in range(columns.rows):
            try:
                word, number = self.counted(columns["word"][row], columns["number"][row])
                words.append(word)
                numbers.append(number)
                counts.append(1)
            except ValueError:
                columns.fail(row)
                counts.append(0)
        self.emit_columns([words, numbers], origins=FanOut(counts))
        counts[:] = [0] * columns.rows  # it was read when it was given


class CountAsync(StatefulBolt):
    outputs = ["word", "count"]

    async def execute(self, tup: Tuple) -> None:
        self.emit(await self.counted(tup["word"], tup["number"]))

    async def counted(self, word: str, number: int) -> list[Any]:
        count = self.state.get(word, 0) + 1
        await asyncio.sleep(0)
        seen = self.state.get((word, "seen"), [])
        self.state.put(word, count)
        seen.append(number)
        self.state.put((word, "seen"), seen[-3:])
        await asyncio.sleep(0)
        check(number)
        return [word, count]


class CountAsyncBatches(CountAsync):
    async def execute_batch(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            self.emit(await self.counted(tup["word"], tup["number"]), anchors=tup)


class Write(TransactionalSink):
    def __init__(self, name: str) -> None:
        self.name = name

    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            if applied.get(batch.writer, 0) < batch.epoch:
                written.setdefault(self.name, []).extend(tuple(row) for row in batch.rows)
                applied[batch.writer] = batch.epoch


KINDS: list[type[Bolt]] = [
    Count,
    CountOnThread,
    CountBatches,
    CountBatchesOnThread,
    CountFailing,
    CountColumns,
    CountColumnsFailing,
    CountColumnsFanOut,
    CountAsync,
    CountAsyncBatches,
]


def conf(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "topology.checkpoint.interval.secs": 0.05,
        "topology.state.url": str(folder),
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def topology(count: Bolt, *, rows: int, tasks: int, letters: bool) -> Any:
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:rows], splits=4), parallelism=2)
    builder.bolt("count", count, parallelism=tasks).fields("words", "word")
    builder.bolt("write", Write("counts")).shuffle("count")
    if letters:
        builder.bolt("letters", Write("letters")).shuffle("count", stream="__dead_letter")
    return builder.build()


def expected(rows: int, *, poison: bool) -> Counter[tuple[Any, ...]]:
    totals = Counter(word for word, at in ROWS[:rows] if not (poison and at in POISON))
    return Counter((word, at) for word, total in totals.items() for at in range(1, total + 1))


def run(folder: Path, kind: type[Bolt], *, rows: int, tasks: int = 2, poison: bool = True) -> None:
    flaky[-1] = int(poison)
    found = expected(rows, poison=poison)
    bad = {number for number in POISON if poison and number < rows}
    with LocalCluster() as cluster:
        cluster.submit_topology(
            "words", conf(folder), topology(kind(), rows=rows, tasks=tasks, letters=True)
        )
        cluster.wait_until(
            lambda: (
                len(written.get("counts", ())) >= found.total()
                and len(written.get("letters", ())) >= len(bad)
            ),
            60.0,
        )
    assert Counter(written["counts"]) == found
    letters = written.get("letters", [])
    assert sorted(row[1][1] for row in letters) == sorted(bad)
    for row in letters:
        assert row[2] == "default"
        assert row[4] == "count"
        assert row[7:] == (2, "words")
        assert f"poison {row[1][1]}" in row[3] or "fail()" in row[3]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_flaky_tuples_count_once_and_poison_is_a_dead_letter(
    tmp_path: Path, kind: type[Bolt]
) -> None:
    chance = random.Random(7)
    for number in chance.sample(range(len(ROWS)), 60):
        flaky[number] = 2  # one failure: `check` counts down first
    run(tmp_path, kind, rows=700)
    run(tmp_path, kind, rows=len(ROWS))


@pytest.mark.parametrize(
    "kind", [CountBatches, CountColumns, CountAsync], ids=lambda kind: kind.__name__
)
def test_state_of_batches_and_coroutines_moves_with_its_key(
    tmp_path: Path, kind: type[Bolt]
) -> None:
    run(tmp_path, kind, rows=500, tasks=1)
    run(tmp_path, kind, rows=1_000, tasks=3)
    run(tmp_path, kind, rows=len(ROWS), tasks=2)


@pytest.mark.parametrize(
    "kind", [CountBatches, CountColumns, CountAsync], ids=lambda kind: kind.__name__
)
def test_without_a_consumer_of_dead_letters_the_topology_ends_and_goes_on_later(
    tmp_path: Path, kind: type[Bolt]
) -> None:
    flaky[-1] = 1
    with LocalCluster() as cluster:
        made = topology(kind(), rows=len(ROWS), tasks=2, letters=False)
        cluster.submit_topology("words", conf(tmp_path), made)
        with pytest.raises(SquallError, match=r"cannot process a tuple of 'words'.*poison"):
            cluster.wait(60.0)
    run(tmp_path, kind, rows=len(ROWS), poison=False)


class Order(Bolt):
    """Waits the longer, the earlier its tuple is of its key."""

    outputs = ["word", "number"]

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0.002 if tup["number"] % 5 == 0 else 0)
        self.emit([tup["word"], tup["number"]])


def test_coroutines_of_one_key_run_one_after_the_other(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:400]))
    builder.bolt("order", Order()).fields("words", "word")
    builder.bolt("write", Write("order")).shuffle("order")
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), builder.build())
        cluster.wait_until(lambda: len(written.get("order", ())) >= 400, 60.0)
    for word in set(WORDS):
        numbers = [number for one, number in written["order"] if one == word]
        assert numbers == sorted(numbers)
    assert [number for _, number in written["order"]] != list(range(400))  # others do not wait


class Total(StatefulBolt):
    """All its calls use one entry."""

    outputs = ["total"]

    async def execute(self, tup: Tuple) -> None:
        total = self.state.get("total", 0)
        await asyncio.sleep(0.001)
        self.state.put("total", total + 1)
        self.emit([total + 1])


def test_calls_of_different_keys_that_share_an_entry_lose_no_change(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:200]))
    builder.bolt("total", Total()).fields("words", "word")
    builder.bolt("write", Write("totals")).shuffle("total")
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), builder.build())
        cluster.wait_until(lambda: len(written.get("totals", ())) >= 200, 60.0)
    assert sorted(total for (total,) in written["totals"]) == list(range(1, 201))


LEFT: list[Callable[[], None]] = []
left_errors: list[BaseException] = []


class Leaves(Bolt):
    """Leaves a coroutine running that emits after its call has ended."""

    outputs = ["word"]

    async def execute(self, tup: Tuple) -> None:
        done = asyncio.Event()
        self.task = asyncio.ensure_future(self.later(done))
        self.emit([tup["word"]])
        asyncio.get_running_loop().call_later(0.01, done.set)

    async def later(self, done: asyncio.Event) -> None:
        await done.wait()
        try:
            self.emit(["too late"])
        except RuntimeError as error:
            left_errors.append(error)


def test_what_a_call_has_left_running_cannot_emit(tmp_path: Path) -> None:
    left_errors.clear()
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:10]))
    builder.bolt("leaves", Leaves()).shuffle("words")
    builder.bolt("write", Write("left")).shuffle("leaves")
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), builder.build())
        cluster.wait_until(
            lambda: len(written.get("left", ())) >= 10 and len(left_errors) >= 10, 60.0
        )
    assert {word for (word,) in written["left"]} <= set(WORDS)
    assert "has ended" in str(left_errors[0])
