"""Functions and components for tests of streams. Workers and Spark import them by their paths."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from squall import Bolt, Spout, Tuple
from squall.streams import KeyState, StreamBuilder, Windowed
from squall.testing import FeederSpout, ReplayableSpout
from squall.windows import tumbling


class Numbers(FeederSpout):
    outputs = ["n"]


class Lines(FeederSpout):
    outputs = ["line"]


class Events(FeederSpout):
    outputs = ["user", "amount", "at"]


@dataclass(frozen=True)
class Event:
    user: str
    amount: int
    at: int

    def is_cheap(self) -> bool:
        return self.amount < 10

    @classmethod
    def cheap(cls, event: Event) -> bool:
        return event.amount < 10


def double(n: int) -> int:
    return n * 2


def add_one(n: int) -> int:
    return n + 1


class Undecided:
    """Neither true nor false, as an array of several numbers."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    def __repr__(self) -> str:
        return "Undecided()"


def undecided_on_three(n: int) -> object:
    return Undecided() if n == 3 else n


def is_even(n: int) -> bool:
    return n % 2 == 0


def is_small(n: int) -> bool:
    return n < 5


def is_big(n: int) -> bool:
    return n > 100


def upto(n: int) -> list[int]:
    return list(range(max(0, n % 4)))


def twice(n: int) -> Iterator[int]:
    yield n
    yield n


def parity(n: int) -> str:
    return "even" if n % 2 == 0 else "odd"


def last_digit(n: int) -> int:
    return n % 10


def plus(a: int, b: int) -> int:
    return a + b


def scaled(factor: int, n: int) -> int:
    return factor * n


def zero() -> int:
    return 0


def fail_on_three(n: int) -> int:
    if n == 3:
        raise ValueError("three is not allowed")
    return n


def collect(total: list[Any], n: int) -> list[Any]:
    """Changes the total in place."""
    total.append(object() if n == 3 else n)
    return total


def collect_in_state(key: int, n: int, state: KeyState[list[Any]]) -> Iterator[tuple[int, int]]:
    """Puts the first total, and changes it in place from then on."""
    total = state.get()
    if total is None:
        total = []
        state.put(total)
    collect(total, n)
    yield key, n


def stops(n: int) -> int:
    raise StopIteration


def text(n: int) -> Any:
    return str(n)


async def slow_double(n: int) -> int:
    await asyncio.sleep(0)
    return n * 2


def words_of(line: str) -> list[str]:
    return line.split()


def at_of(event: Event) -> int:
    return event.at


def user_of(event: Event) -> str:
    return event.user


def amount_of(event: Event) -> int:
    return event.amount


def append(values: list[int], event: Event) -> list[int]:
    return [*values, event.amount]


def first_seen(key: str, event: Event, state: KeyState[bool]) -> Iterator[str]:
    if state.get() is None:
        state.put(True)
        yield f"{key} is new"


def best(events: list[Event]) -> int:
    return max(event.amount for event in events)


def word_and_count(counted: Windowed[str, int]) -> tuple[str, int]:
    return counted.key, counted.value


@functools.cache
def cached(n: int) -> int:
    return n + 100


def peeked(n: int) -> None:
    SEEN.append(n)


SEEN: list[int] = []


class Keep(Bolt):
    """Keeps what it gets."""

    def execute(self, tup: Tuple) -> None:
        KEPT.append(dict(zip(tup.fields, tup.values, strict=True)))


KEPT: list[dict[str, Any]] = []


class Negate(Bolt):
    outputs = ["negative"]
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([-tup[0]])


class ManyNumbers(ReplayableSpout):
    outputs = ["n"]


class FiniteLines(Spout):
    """Lines, each with a time, to their end; then failed ones again."""

    outputs = ["line", "at"]

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Mapping[str, Any], context: Any) -> None:
        self.left = list(range(self.count))[::-1]

    def next_tuple(self) -> None:
        if self.left:
            n = self.left.pop()
            self.emit([line_of(n), n], message_id=n)

    def fail(self, msg_id: int) -> None:
        self.left.append(msg_id)


def line_of(n: int) -> str:
    return f"word{n % 7} word{n % 3} the"


def line_in(row: Mapping[str, Any]) -> list[str]:
    found: str = row["line"]
    return found.split()


def row_time(row: Mapping[str, Any]) -> int:
    found: int = row["at"]
    return found


Function = Callable[..., Any]
AsyncFunction = Callable[..., Awaitable[Any]]


def word_count(lines: StreamBuilder, spout: Spout) -> StreamBuilder:
    """Words and how often each has come: the answer is the component "counts"."""
    rows = lines.source("lines", spout)
    words = rows.flat_map(line_in).named("split")
    words.key_by().count().named("count").output("counts", ["word", "count"])
    return lines


def minute_counts(lines: StreamBuilder, spout: Spout) -> StreamBuilder:
    """Words by windows of ten units of event time: the answer is "counts"."""
    rows = lines.source("lines", spout).event_time(row_time)
    words = rows.flat_map(line_in)
    counts = words.key_by().window(tumbling(secs=0.01)).count()
    counts.output("counts", ["key", "value", "end_ms"])
    return lines


def second(pair: tuple[Any, int]) -> int:
    return pair[1]


def appending(values: list[int], n: int) -> list[int]:
    """Changes the total in place, as a state may be."""
    values.append(n)
    return values


def forgets_to_return(values: list[int], n: int) -> Any:
    values.append(n)


def time_of_a_text(n: int) -> Any:
    return {1: "2026-01-01", 2: 1_700_000_000_000_000}.get(n, n)


def not_a_number(n: int) -> Any:
    return (float("nan"), n) if n == 1 else float("nan")


class Nameless:
    def __str__(self) -> str:
        raise ValueError("it has no name")


def nameless_three(n: int) -> Any:
    return Nameless() if n == 3 else n


def append_amount(values: list[int], event: Event) -> list[int]:
    values.append(event.amount)
    return values


def zero_of(n: int) -> int:
    return 0


def append_and_yield(key: int, n: int, state: KeyState[list[int]]) -> Iterator[list[int]]:
    found = state.get([])
    for value in (n, -n):
        found.append(value)
        yield found
    state.put(found)


def latest_number(key: str, n: int, state: KeyState[int]) -> list[int]:
    state.put(n)
    return [n]


def a_text(key: int, n: int, state: KeyState[int]) -> Any:
    return f"{n} is one value"


def unchanged(pair: tuple[str, int]) -> tuple[str, int]:
    return pair


def adding(values: list[int], n: int) -> list[int]:
    if n == 3:
        raise ValueError("three is not allowed")
    return [*values, n]


def picky(user: str, amount: int, at: int) -> Event:
    if amount < 0:
        raise ValueError("a negative amount")
    return Event(user, amount, at)


def raising(values: list[int]) -> int:
    raise ValueError(f"{len(values)} values are too many")


def no_numbers() -> list[int]:
    return []


def joined(first: list[int], second: list[int]) -> list[int]:
    return first + second


FAILED: set[int] = set()


def fails_once(row: Mapping[str, Any]) -> str:
    if row["at"] == 7 and 7 not in FAILED:
        FAILED.add(7)
        raise ValueError("not yet")
    line: str = row["line"]
    return line
