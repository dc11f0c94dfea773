"""A tuple whose key cannot be found, or that state does not take, fails alone: it is tried as often
as any other, becomes a dead letter, and all others count."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
from collections import Counter
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
)
from squall.windows import tumbling
from squall_engine.atomic import keys

COUNT = 60
BAD = frozenset({0, 17, 18, 40, COUNT - 1})  # their numbers
WORDS = ("the", "cow", "jumped")
MISSING = "missing"

written: dict[str, list[tuple[Any, ...]]] = {}


@dataclasses.dataclass(frozen=True, eq=False)
class OfItsOwn:
    """Equal to nothing but itself."""

    number: int


@dataclasses.dataclass
class HashRaises:
    number: int

    def __hash__(self) -> int:
        raise ValueError("it has no hash today")


def local() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Local:
        """Of no module, so it has no encoding."""

        number: int

    return Local(1)


# What makes a bad key, and what its error says.
KEYS: dict[str, tuple[Callable[[], Any], str]] = {
    "none is found": (lambda: MISSING, "IndexError"),
    "unhashable": (lambda: ["a"], "unhashable"),
    "its hash raises": (lambda: HashRaises(1), "no hash today"),
    "NaN": (lambda: math.nan, r"key nan \(field 'word'\).*not equal to itself\s+emit None"),
    "NaN in a tuple": (lambda: ("a", math.nan), r"\(field 'word'\).*not equal to itself"),
    "equal to nothing": (lambda: OfItsOwn(1), r"\(field 'word'\).*would not be found again"),
    "not encodable": (local, r"\(field 'word'\).*cannot be stored"),
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    written.clear()
    places = keys._places

    def without_some(topology: Any, component: str) -> Any:
        found = dict(places(topology, component))
        if ("words", "short") in found:
            found["words", "short"] = (7,)  # as if its tuples were shortened after the emit
        return found

    monkeypatch.setattr(keys, "_places", without_some)


class Words(RewindableSpout):
    outputs = {"default": ["word", "number"], "short": ["word", "number"]}

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def seek(self, positions: Any) -> None:
        self.at = positions.get("all", 0)

    def next_tuple(self) -> None:
        at = self.at
        if at < COUNT:
            self.at += 1
            word = KEYS[self.kind][0]() if at in BAD else WORDS[at % 3]
            stream = "short" if word is MISSING else "default"
            self.emit([word, at], position=("all", self.at), stream=stream)


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        self.emit(self.counted(tup["word"]))

    def counted(self, word: Any) -> list[Any]:
        count = self.state.get(word, 0) + 1
        self.state.put(word, count)
        return [word, count]


class CountOnThread(Count):
    blocking = True


class CountBatches(Count):
    def execute_batch(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            self.emit(self.counted(tup["word"]), anchors=tup)


class CountBatchesOnThread(CountBatches):
    blocking = True


class CountColumns(Count):
    def execute_columns(self, columns: Any) -> None:
        rows = [self.counted(word) for word in columns["word"]]
        self.emit_columns([list(one) for one in zip(*rows, strict=True)])


class CountAsync(Count):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.emit(self.counted(tup["word"]))


class CountAsyncBatches(Count):
    async def execute_batch(self, tuples: list[Tuple]) -> None:
        await asyncio.sleep(0)
        for tup in tuples:
            self.emit(self.counted(tup["word"]), anchors=tup)


class CountUnderTheKey(Count):
    """Its entries have other keys, and belong to that of the tuple."""

    def counted(self, word: Any) -> list[Any]:
        name = f"count of {word}"
        count = self.state.get(name, 0) + 1
        self.state.put(name, count)
        return [word, count]


class Write(TransactionalSink):
    def __init__(self, name: str) -> None:
        self.name = name

    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            written.setdefault(self.name, []).extend(tuple(row) for row in batch.rows)


class Totals(AggregateBolt):
    outputs = ["word", "count"]
    windows = tumbling(count=1, key="word")

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Tuple) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: Any) -> None:
        self.emit([window.key, total])


KINDS: list[type[Bolt]] = [
    Count,
    CountOnThread,
    CountBatches,
    CountBatchesOnThread,
    CountColumns,
    CountAsync,
    CountAsyncBatches,
]


class Money:
    """Travels by a serializer (`topology.kryo.register`)."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


class MoneyCodec:
    def encode(self, value: Money) -> int:
        return value.cents

    def decode(self, cents: int) -> Money:
        return Money(cents)


class Amounts(RewindableSpout):
    outputs = ["word"]

    def seek(self, positions: Any) -> None:
        self.at = positions.get("all", 0)

    def next_tuple(self) -> None:
        if self.at < COUNT:
            self.at += 1
            self.emit([Money(self.at % 3)], position=("all", self.at))


@pytest.mark.parametrize("bolt", [Count, CountAsync, Totals])
def test_keys_of_registered_types_are_taken(tmp_path: Path, bolt: type[Bolt]) -> None:
    builder = TopologyBuilder()
    builder.spout("amounts", Amounts())
    builder.bolt("count", bolt()).fields("amounts", "word")
    builder.bolt("write", Write("counts")).shuffle("count")
    conf = {
        "topology.checkpoint.interval.secs": 0.05,
        "topology.state.url": str(tmp_path),
        "topology.kryo.register": [{f"{__name__}:Money": f"{__name__}:MoneyCodec"}],
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("amounts", conf, builder.build())
        cluster.wait_until(lambda: len(written.get("counts", ())) >= COUNT, 60.0)
    assert {key.cents for key, _ in written["counts"]} == {0, 1, 2}


def run(folder: Path, bolt: Bolt, key: str, *, good: int = COUNT - len(BAD)) -> list[Any]:
    """Run until all rows are counted, or dead letters, and return these."""
    builder = TopologyBuilder()
    builder.spout("words", Words(key))
    count = builder.bolt("count", bolt)
    count.fields("words", "word").fields("words", "word", stream="short")
    builder.bolt("write", Write("counts")).shuffle("count")
    builder.bolt("letters", Write("letters")).shuffle("count", stream="__dead_letter")
    conf = {
        "topology.checkpoint.interval.secs": 0.05,
        "topology.state.url": str(folder),
        "topology.testing.always.try.serialize": False,  # as in a worker
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf, builder.build())
        cluster.wait_until(
            lambda: (
                len(written.get("counts", ())) >= good
                and len(written.get("letters", ())) >= len(BAD)
            ),
            60.0,
        )
    return written["letters"]


def check(letters: list[Any], key: str) -> None:
    assert sorted(row[1][1] for row in letters) == sorted(BAD)
    for row in letters:
        assert re.search(KEYS[key][1], row[3], re.DOTALL), row[3]
        assert row[4] == "count"
        assert row[7:] == (2, "words")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_tuple_whose_key_is_of_no_use_is_a_dead_letter_and_others_count(
    tmp_path: Path, kind: type[Bolt], key: str
) -> None:
    check(run(tmp_path, kind(), key), key)
    totals = Counter(WORDS[at % 3] for at in range(COUNT) if at not in BAD)
    expected = {(word, n) for word, total in totals.items() for n in range(1, total + 1)}
    assert set(written["counts"]) == expected
    assert len(written["counts"]) == len(expected)


@pytest.mark.parametrize("key", ["NaN", "equal to nothing", "not encodable"])
def test_neither_can_such_a_key_own_an_entry(tmp_path: Path, key: str) -> None:
    check(run(tmp_path, CountUnderTheKey(), key), key)


@pytest.mark.parametrize("key", [key for key in KEYS if key != "none is found"])
def test_a_tuple_whose_key_is_of_no_use_is_in_no_window(tmp_path: Path, key: str) -> None:
    letters = run(tmp_path, Totals(), key)
    assert sorted(row[1][1] for row in letters) == sorted(BAD)
    assert all("'words' is in no window, because of its key" in row[3] for row in letters)
    assert Counter(written["counts"]) == Counter(
        (WORDS[at % 3], 1) for at in range(COUNT) if at not in BAD
    )
    if key == "NaN":
        assert "nan, of field 'word', is not equal to itself" in letters[0][3]


def test_without_a_consumer_of_dead_letters_the_topology_names_the_tuple(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("words", Words("none is found"))
    count = builder.bolt("count", CountAsyncBatches())
    count.fields("words", "word").fields("words", "word", stream="short")
    conf = {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf, builder.build())
        with pytest.raises(SquallError, match=r"cannot process a tuple of 'words'.*'missing', 0"):
            cluster.wait(60.0)
