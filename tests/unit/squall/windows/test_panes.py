from __future__ import annotations

import math
import pickle
import random
from typing import Any

import pytest

from squall.windows.panes import NOTHING, AggregateWindows, Panes


class Texts:
    """Totals in which the order of the tuples can be seen, and which count their merges."""

    def __init__(self) -> None:
        self.merges = 0

    def of(self, item: str) -> str:
        return item

    def add(self, contents: str, item: str) -> str:
        return contents + item

    def merge(self, first: str, second: str) -> str:
        self.merges += 1
        return first + second


def fired(windows: AggregateWindows, watermark: int) -> list[tuple[Any, str, int]]:
    return [(one.key, one.total, one.end_ms) for one in windows.advance(watermark)]


def test_a_window_is_the_panes_in_order() -> None:
    windows = AggregateWindows(Texts(), 20, 10)
    for at, item in ((603, "a"), (605, "b"), (618, "c"), (626, "d"), (636, "e")):
        assert windows.add("k", at, item)
    assert fired(windows, 631) == [("k", "ab", 610), ("k", "abc", 620), ("k", "cd", 630)]
    assert windows.add("k", 825, "f")
    assert fired(windows, 834) == [("k", "de", 640), ("k", "e", 650), ("k", "f", 830)]
    assert len(windows) == 1


def test_keys_without_tuples_in_a_window_do_not_fire_and_are_forgotten() -> None:
    windows = AggregateWindows(Texts(), 10, 10)
    windows.add("a", 5, "x")
    windows.add("b", 15, "y")
    assert fired(windows, 10) == [("a", "x", 10)]
    assert len(windows) == 1
    assert fired(windows, 20) == [("b", "y", 20)]
    assert len(windows) == 0


def test_keys_of_later_windows_are_not_looked_at() -> None:
    class Unread(dict[Any, Any]):
        def __iter__(self) -> Any:
            raise AssertionError("all keys are looked at")

        items = values = keys = __iter__

    windows = AggregateWindows(Texts(), 20, 10)
    for at in range(5, 100, 10):
        windows.add(at, at, "x")
    windows._keys = Unread(windows._keys)
    assert fired(windows, 20) == [(5, "x", 10), (5, "x", 20), (15, "x", 20)]
    assert len(windows) == 9


def test_a_key_that_begins_earlier_than_before_fires_with_that_window() -> None:
    windows = AggregateWindows(Texts(), 10, 10)
    windows.add("k", 25, "c")
    windows.add("k", 5, "a")
    windows.add("k", 15, "b")
    windows = pickle.loads(pickle.dumps(windows))
    assert fired(windows, 10) == [("k", "a", 10)]
    assert fired(windows, 30) == [("k", "b", 20), ("k", "c", 30)]
    assert len(windows) == 0


def test_a_key_whose_first_tuple_cannot_be_added_is_not_kept() -> None:
    class Fails(Texts):
        def of(self, item: str) -> str:
            raise ValueError(item)

    windows = AggregateWindows(Fails(), 10, 10)
    with pytest.raises(ValueError, match="x"):
        windows.add("a", 5, "x")
    assert len(windows) == 0


def test_a_tuple_whose_windows_have_all_fired_is_refused() -> None:
    windows = AggregateWindows(Texts(), 20, 10)
    windows.add("k", 5, "a")
    list(windows.advance(30))
    assert not windows.add("k", 10, "b")
    assert windows.add("k", 21, "c")


def test_a_tuple_between_two_windows_is_in_none() -> None:
    windows = AggregateWindows(Texts(), 5, 10)
    assert windows.add("k", 3, "a")
    assert windows.add("k", 6, "b")
    assert fired(windows, 10) == [("k", "b", 10)]


def test_within_the_lateness_windows_fire_again() -> None:
    windows = AggregateWindows(Texts(), 20, 10, lateness_ms=15)
    windows.add("k", 5, "a")
    assert fired(windows, 30) == [("k", "a", 10), ("k", "a", 20)]
    assert windows.add("k", 17, "b")
    again = [(one.total, one.end_ms, one.late) for one in windows.again("k", 17)]
    assert again == [("ab", 20, True), ("b", 30, True)]
    assert fired(windows, 40) == []


@pytest.mark.parametrize("slides", [100, 10, 2])
def test_merges_for_each_pane_do_not_depend_on_the_overlap(slides: int) -> None:
    contents = Texts()
    windows = AggregateWindows(contents, 1000, 1000 // slides)
    last = 100 * 1000
    for at in range(1, last, 1000 // slides):
        windows.add("k", at, "x")
        list(windows.advance(at - 1))
    panes = last * slides // 1000
    assert contents.merges <= 3 * panes


@pytest.mark.parametrize("seed", range(20))
def test_queries_are_what_merging_all_panes_gives(seed: int) -> None:
    chance = random.Random(seed)
    panes, known = Panes(Texts()), dict[int, str]()
    first = last = 1
    for _ in range(300):
        if chance.random() < 0.7:
            pane = first + chance.randrange(12)
            item = chance.choice("abcdef")
            known[pane] = known.get(pane, "") + item
            panes.add(pane, item)
            continue
        first += chance.randrange(4)
        last = max(last, first + chance.randrange(2, 9))
        expected = "".join(known[p] for p in sorted(known) if first <= p <= last)
        found = panes.query(first, last)
        assert found == (expected or NOTHING)
        assert panes.sum_of(first, last) == (expected or NOTHING)
        if chance.random() < 0.5:
            panes.drop_before(first)
            known = {p: text for p, text in known.items() if p >= first}


class Model:
    """Windows as the definition says, from all tuples that came."""

    def __init__(self, length: int, slide: int) -> None:
        self.length, self.slide = length, slide
        self.came: list[tuple[str, int, str]] = []
        self.watermark = 0

    def total(self, key: str, end: int, pane: int) -> str:
        mine = [one for one in self.came if one[0] == key and end - self.length < one[1] <= end]
        return "".join(item for _, at, item in sorted(mine, key=lambda one: -(-one[1] // pane)))

    def advance(self, watermark: int, pane: int) -> list[tuple[str, str, int]]:
        ends = range(self.slide, watermark + 1, self.slide)
        fired = [
            (key, self.total(key, end, pane), end)
            for end in ends
            if end > self.watermark
            for key in sorted({key for key, _, _ in self.came})
        ]
        self.watermark = watermark
        return [one for one in fired if one[1]]


@pytest.mark.parametrize("lateness", [0, 37])
@pytest.mark.parametrize(("length", "slide"), [(10, 10), (40, 10), (25, 10), (4, 10)])
@pytest.mark.parametrize("seed", range(8))
def test_windows_of_many_keys_are_those_of_the_definition(
    seed: int, length: int, slide: int, lateness: int
) -> None:
    """Keys that come and stay away, tuples ahead of the watermark and late ones, jumps of the
    watermark, and restarts from what was stored."""
    chance = random.Random(seed)
    windows, model = AggregateWindows(Texts(), length, slide, lateness), Model(length, slide)
    pane = math.gcd(length, slide)
    for n in range(400):
        kind = chance.random()
        if kind < 0.7:
            key, ahead = chance.choice("abcdefgh"), chance.choice((5, 30, 120))
            at = model.watermark + chance.randrange(1, ahead)
            assert windows.add(key, at, f"{n},")
            model.came.append((key, at, f"{n},"))
        elif kind < 0.8 and lateness:
            key, at = chance.choice("abcdefgh"), model.watermark - chance.randrange(lateness + 1)
            if at <= 0:
                continue
            assert windows.add(key, at, f"{n},")
            model.came.append((key, at, f"{n},"))
            ends = range(-(-at // slide) * slide, model.watermark + 1, slide)
            again = [(model.total(key, end, pane), end) for end in ends if end - length < at]
            if again:
                found = [(one.total, one.end_ms) for one in windows.again(key, at)]
                assert found == again
        elif kind < 0.85:
            windows = pickle.loads(pickle.dumps(windows))
        else:
            watermark = model.watermark + chance.choice((3, 10, 30, 200))
            found_all = sorted(fired(windows, watermark), key=lambda one: (one[2], one[0]))
            assert found_all == model.advance(watermark, pane)
