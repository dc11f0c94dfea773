"""A source whose tasks, and parts of tasks, are far apart in time, and functions of its values."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from squall import Spout


class Row(NamedTuple):
    part: str
    user: str
    at: int


Script = list[Row | float]

SCRIPTS: list[Script] = []
"""By task of the source: what calls of next_tuple emit, and for how many seconds they do not."""


class Apart(Spout):
    """Emits its script, whose end is that of the source."""

    outputs = ["part", "user", "at"]

    def open(self, conf: Any, context: Any) -> None:
        self._left = list(reversed(SCRIPTS[context.this_task_index]))
        self._now = context.monotonic
        self._until = 0.0

    def next_tuple(self) -> None:
        if not self._left or self._now() < self._until:
            return
        one = self._left.pop()
        if isinstance(one, Row):
            self.emit(list(one))
        else:
            self._until = self._now() + one

    def exhausted(self) -> bool:
        return not self._left


class Endless(Apart):
    """The same, which does not say that it has ended."""

    def exhausted(self) -> None:  # type: ignore[override]
        return None


def at_of(row: Row) -> int:
    return row.at


def user_of(row: Row) -> str:
    return row.user


def part_of(row: Row) -> str:
    return row.part


def strict_part_of(row: Row) -> str:
    if not row.part:
        raise ValueError("no part")
    return row.part


def parts_of(row: Row) -> list[str]:
    return [row.part]


def is_kept(row: Row) -> bool:
    return row.user != "nobody"


async def waited(row: Row) -> Row:
    """Those of some times take longer than those that come behind them."""
    await asyncio.sleep((row.at // 7 % 5) / 100)
    return row


def result_key(result: Any) -> Any:
    return result.key


def windows_of(scripts: Iterable[Script], length_ms: int, end_ms: int) -> Counter[tuple[str, int]]:
    """How many values each user has in each window that ends by `end_ms`."""
    found: Counter[tuple[str, int]] = Counter()
    for script in scripts:
        for row in script:
            if isinstance(row, Row) and is_kept(row):
                window_end = -(-row.at // length_ms) * length_ms
                if window_end <= end_ms:
                    found[row.user, window_end] += 1
    return found


def counted(results: Iterable[Sequence[Any]]) -> Counter[tuple[str, int]]:
    """The same of (key, count, start, end); a window that has two results counts twice."""
    found: Counter[tuple[str, int]] = Counter()
    for key, count, _, end_ms in results:
        found[key, end_ms] += count
    return found
