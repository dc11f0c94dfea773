"""Aggregates over sliding windows, at a constant cost for each tuple.

Time (or a count of tuples) is cut into panes of the greatest common divisor of the window's length
and its interval. A tuple is added to the aggregate of its pane, and is then no longer needed. A
window is a run of panes; to merge them all for each window would cost the length divided by the
interval, for each.

So a run of panes is kept as two stacks:

    front   aggregates from each pane to the last of the front: the oldest is on top
    back    one aggregate of all the panes behind the front

A window is the top of the front merged with the back: one merge. The oldest pane leaves from the
top of the front; when the front is empty, the back becomes the front, with one merge for each of
its panes. So each pane is merged three times in its life, however many windows it is in.

A tuple that is allowed to be late changes a pane that is in the stacks already; they are then made
anew for the next window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from math import gcd
from typing import Any, NamedTuple

from squall.windows.sessions import Contents


class Panes:
    """The panes of one key, by number; those in which nothing came are left out."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._panes: dict[int, Any] = {}
        self._numbers: list[int] = []  # of `_panes`, sorted
        self._waiting: list[int] = []  # of them, those behind the stacks, sorted
        self._front: list[tuple[int, Any]] = []  # the oldest pane is last
        self._back: list[int] = []
        self._back_sum: Any = None
        self._taken = -1  # the last pane that the stacks have covered
        self._changed = False  # a pane in the stacks was

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def first(self) -> int:
        """The first pane in which something came. (There is one.)"""
        return self._numbers[0]

    def add(self, pane: int, item: Any) -> None:
        """Add a tuple to a pane."""
        panes = self._panes
        if pane in panes:
            found = self._contents.add(panes[pane], item)
        else:
            found = self._contents.of(item)
        self._set(pane, found)

    def add_each(self, pane: int, items: Sequence[Any]) -> list[tuple[Any, Exception]]:
        """Add tuples to a pane. Returns those that `Contents` raised for, which are in none."""
        of, add = self._contents.of, self._contents.add
        refused = []
        found = self._panes.get(pane, NOTHING)
        for item in items:
            try:
                found = of(item) if found is NOTHING else add(found, item)
            except Exception as error:
                refused.append((item, error))
        if found is not NOTHING:
            self._set(pane, found)
        return refused

    def merge(self, pane: int, contents: Any) -> None:
        """Add what tuples add up to, to a pane."""
        panes = self._panes
        if pane in panes:
            contents = self._contents.merge(panes[pane], contents)
        self._set(pane, contents)

    def _set(self, pane: int, contents: Any) -> None:
        if pane not in self._panes:
            _put(self._numbers, pane)
            if pane > self._taken:
                _put(self._waiting, pane)
        self._panes[pane] = contents
        if pane <= self._taken:
            self._changed = True

    def query(self, first: int, last: int) -> Any:
        """The aggregate of the panes from `first` to `last`, or NOTHING. From one call to the next,
        neither gets smaller, and their distance stays. Raises what `merge` raises."""
        if first == last:
            return self._panes.get(last, NOTHING)
        try:
            return self._query(first, last)
        except Exception:
            self._changed = True  # the stacks are half done
            raise

    def _query(self, first: int, last: int) -> Any:
        if self._changed:
            self._front, self._back, self._changed = [], [], False
            self._waiting = self._numbers[bisect_left(self._numbers, first) :]
        merge = self._contents.merge
        self._taken = last
        while self._waiting and self._waiting[0] <= last:
            pane = self._waiting.pop(0)
            if pane >= first:
                found = self._panes[pane]
                self._back_sum = merge(self._back_sum, found) if self._back else found
                self._back.append(pane)
        while self._front and self._front[-1][0] < first:
            self._front.pop()
        if not self._front and self._back and self._back[0] < first:
            self._turn(first)
        if self._front and self._back:
            return merge(self._front[-1][1], self._back_sum)
        if self._front:
            return self._front[-1][1]
        return self._back_sum if self._back else NOTHING

    def _turn(self, first: int) -> None:
        """Make the back, from the pane `first` on, the front."""
        merge, front = self._contents.merge, []
        found: Any = NOTHING
        for pane in reversed(self._back):
            if pane < first:
                break
            mine = self._panes[pane]
            found = mine if found is NOTHING else merge(mine, found)
            front.append((pane, found))
        self._front, self._back, self._back_sum = front, [], None

    def sum_of(self, first: int, last: int) -> Any:
        """The aggregate of any panes, made anew; or NOTHING."""
        found: Any = NOTHING
        for pane in self.between(first, last):
            mine = self._panes[pane]
            found = mine if found is NOTHING else self._contents.merge(found, mine)
        return found

    def between(self, first: int, last: int) -> list[int]:
        """The numbers of the panes from `first` to `last` that hold something, in order."""
        numbers = self._numbers
        return numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]

    def drop_before(self, pane: int) -> None:
        """Forget the panes before this one, which no query covers again."""
        end = bisect_left(self._numbers, pane)
        for number in self._numbers[:end]:
            del self._panes[number]
        del self._numbers[:end]
        del self._waiting[: bisect_left(self._waiting, pane)]


NOTHING: Any = object()


def _put(numbers: list[int], number: int) -> None:
    if not numbers or number > numbers[-1]:
        numbers.append(number)
    else:
        insort(numbers, number)


class Aggregated(NamedTuple):
    """A window of one key that fires: what its tuples add up to, up to `end_ms`, or what was raised
    when they were to be added up."""

    key: Hashable
    total: Any
    end_ms: int
    late: bool = False
    error: Exception | None = None


# An `Aggregated` of a tuple of all that it has: its constructor in Python takes twice as long.
_aggregated_of: Callable[[tuple[Any, ...]], Aggregated] = partial(tuple.__new__, Aggregated)


class AggregateWindows:
    """Tumbling and sliding windows in time over aggregates, by key.

    Window ends are multiples of `slide_ms`; a window holds what lies after its end less the length,
    up to its end. It fires when the watermark reaches its end, if it holds anything.
    """

    def __init__(
        self, contents: Contents, length_ms: int, slide_ms: int, lateness_ms: int = 0
    ) -> None:
        self._contents = contents
        self._pane_ms = gcd(length_ms, slide_ms)
        self._length = length_ms // self._pane_ms
        self._slide_ms = slide_ms
        self._lateness_ms = lateness_ms
        self._keys: dict[Hashable, Panes] = {}
        # The keys by the first pane in which something of them came: those of a window that fires,
        # and of panes that leave, are found without a look at the others.
        self._firsts: dict[int, dict[Hashable, Panes]] = {}
        self._numbers: list[int] = []  # the panes in which anything came, of any key, sorted
        self._known: set[int] = set()  # the same
        self._watermark_ms = 0
        self._next_end_ms = 0
        self._has_gaps = slide_ms > length_ms
        self._first = self._first_pane()

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    def panes_until(self, end_ms: int) -> list[int]:
        """The panes of the window that ends at `end_ms` in which something of any key came."""
        last = self._last_of(end_ms)
        numbers = self._numbers
        return numbers[bisect_left(numbers, last - self._length + 1) : bisect_right(numbers, last)]

    def panes_of(self, key: Hashable, end_ms: int) -> list[int]:
        """The panes of the window that ends at `end_ms` in which something of a key came."""
        last = self._last_of(end_ms)
        panes = self._keys.get(key)
        return [] if panes is None else panes.between(last - self._length + 1, last)

    @property
    def pane_ms(self) -> int:
        """How long a pane is. Pane `n` has the timestamps after (n - 1) * pane_ms, up to
        n * pane_ms."""
        return self._pane_ms

    def pane_of(self, timestamp_ms: int) -> int:
        """The number of the pane that a tuple with this timestamp is in."""
        return -(-timestamp_ms // self._pane_ms)

    @property
    def first_pane(self) -> int:
        """The first pane that a window may still hold."""
        return self._first

    def _first_pane(self) -> int:
        end_ms = self._next_end_ms
        if self._lateness_ms:
            again_ms = -(-(self._watermark_ms - self._lateness_ms) // self._slide_ms)
            end_ms = min(end_ms, again_ms * self._slide_ms)
        return self._last_of(end_ms) - self._length + 1

    def add(self, key: Hashable, timestamp_ms: int, item: Any) -> bool:
        """Add a tuple. False if no window can hold it any more. Raises what `Contents` raises; the
        tuple is then in no window."""
        pane = self.pane_of(timestamp_ms)
        if self.is_late(pane):
            return False
        refused = self.add_all(key, pane, (item,))
        for _, error in refused:
            raise error
        return True

    def is_late(self, pane: int) -> bool:
        """Whether no window can hold a tuple of this pane any more."""
        return pane < 0 or (pane < self._first and not self._is_between(pane))

    def _is_between(self, pane: int) -> bool:
        """Whether a pane lies between two windows."""
        if not self._has_gaps:
            return False
        slide = self._slide_ms // self._pane_ms
        return -(-pane // slide) * slide - self._length >= pane

    def add_all(
        self, key: Hashable, pane: int, items: Sequence[Any]
    ) -> Sequence[tuple[Any, Exception]]:
        """Add tuples of one key to a pane that is not late. Returns those that `Contents` raised
        for, which are in no window."""
        if self._is_between(pane):
            return ()
        panes = self._keys.get(key)
        before = None  # the first pane of the key
        if panes is None:
            panes = Panes(self._contents)
        else:
            before = panes.first
        refused: Sequence[tuple[Any, Exception]] = ()
        of_all = getattr(self._contents, "of_all", None)
        if of_all is not None:
            panes.merge(pane, of_all(items))
        else:
            refused = panes.add_each(pane, items)
            if len(refused) == len(items):
                return refused  # and no pane was made for them
        if before is None or pane < before:
            if before is None:
                self._keys[key] = panes
            else:
                del self._firsts[before][key]
            self._firsts.setdefault(pane, {})[key] = panes
        if pane not in self._known:
            self._known.add(pane)
            _put(self._numbers, pane)
        return refused

    def advance(self, watermark_ms: int) -> Iterator[Aggregated]:
        """Fire the windows that end up to the watermark, by their end."""
        self._watermark_ms = watermark_ms
        while self._next_end_ms <= watermark_ms:
            last = self._last_of(self._next_end_ms)
            first = last - self._length + 1
            if self._holds_any(first, last):
                end_ms = self._next_end_ms
                for key, panes in self._begun_by(last):
                    try:
                        total = panes.query(first, last)
                    except Exception as error:
                        yield Aggregated(key, None, end_ms, error=error)
                    else:
                        if total is not NOTHING:
                            yield _aggregated_of((key, total, end_ms, False, None))
                self._next_end_ms += self._slide_ms
            else:
                at = bisect_left(self._numbers, last + 1)
                at_ms = self._numbers[at] * self._pane_ms if at < len(self._numbers) else None
                if at_ms is None or at_ms > watermark_ms:
                    break  # something may still come for a window before that
                self._next_end_ms = -(-at_ms // self._slide_ms) * self._slide_ms
            self._drop()
        if self._lateness_ms:  # windows that hold nothing: a late tuple may come for them
            self._skip(watermark_ms)
        self._drop()

    def _begun_by(self, last: int) -> list[tuple[Hashable, Panes]]:
        """The keys of which something came up to this pane."""
        found: list[tuple[Hashable, Panes]] = []
        for pane in self._numbers[: bisect_right(self._numbers, last)]:
            if pane in self._firsts:
                found += self._firsts[pane].items()
        return found

    def skip_to(self, watermark_ms: int) -> None:
        """Leave out the windows up to the watermark."""
        self._skip(watermark_ms)
        self._drop()

    def _skip(self, watermark_ms: int) -> None:
        after_ms = (watermark_ms // self._slide_ms + 1) * self._slide_ms
        self._next_end_ms = max(self._next_end_ms, after_ms)

    def again(self, key: Hashable, timestamp_ms: int) -> Iterator[Aggregated]:
        """Fire the windows that have fired without a tuple that was added just now, later than the
        watermark but within the allowed lateness."""
        end_ms = -(-timestamp_ms // self._slide_ms) * self._slide_ms
        while end_ms < self._next_end_ms:
            last = self._last_of(end_ms)
            first = last - self._length + 1
            if first > self.pane_of(timestamp_ms):
                return
            try:
                total = self._keys[key].sum_of(first, last)
            except Exception as error:
                yield Aggregated(key, None, end_ms, late=True, error=error)
            else:
                if total is not NOTHING:
                    yield Aggregated(key, total, end_ms, late=True)
            end_ms += self._slide_ms

    def _last_of(self, end_ms: int) -> int:
        return end_ms // self._pane_ms

    def _holds_any(self, first: int, last: int) -> bool:
        at = bisect_left(self._numbers, first)
        return at < len(self._numbers) and self._numbers[at] <= last

    def _drop(self) -> None:
        first = self._first = self._first_pane()
        end = bisect_left(self._numbers, first)
        if end == 0:
            return
        gone = self._numbers[:end]
        self._known.difference_update(gone)
        del self._numbers[:end]
        for pane in gone:
            for key, panes in self._firsts.pop(pane, {}).items():
                panes.drop_before(first)
                if panes:
                    self._firsts.setdefault(panes.first, {})[key] = panes
                else:
                    del self._keys[key]

    # -- for snapshots --

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_firsts"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._firsts = {}
        for key, panes in self._keys.items():
            self._firsts.setdefault(panes.first, {})[key] = panes
