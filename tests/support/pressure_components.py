"""Components that are fast, slow or stuck, for the tests of backpressure."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from typing import Any

from squall import Bolt, Spout

STUCK: set[str] = set()  # bolts that do not go on
FREE = threading.Event()  # for those on threads
SEEN: dict[str, Counter[int]] = {}  # component -> number -> times
ORDER: dict[str, list[int]] = {}
ACKED: Counter[int] = Counter()


def clear() -> None:
    STUCK.clear()
    SEEN.clear()
    ORDER.clear()
    ACKED.clear()
    FREE.clear()


def see(bolt: Bolt, number: int) -> None:
    name = bolt.context.this_component_id
    SEEN.setdefault(name, Counter())[number] += 1
    ORDER.setdefault(name, []).append(number)


class Fast(Spout):
    """Numbers from `first` on, `count` of them, as fast as it is let; what fails it emits again.
    `width` is the size of what each carries."""

    outputs = ("number", "load")

    def __init__(self, count: int, first: int = 0, width: int = 0, acked: bool = False) -> None:
        self.count, self.first, self.width, self.acked = count, first, width, acked

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0
        self.again: deque[int] = deque()
        self.load = "x" * self.width

    def next_tuple(self) -> None:
        if self.again:
            number = self.again.popleft()
        elif self.next < self.count:
            number = self.first + self.next
            self.next += 1
        else:
            return
        self.emit([number, self.load], message_id=number if self.acked else None)

    def ack(self, msg_id: Any) -> None:
        ACKED[msg_id] += 1

    def fail(self, msg_id: Any) -> None:
        self.again.append(msg_id)


class Relay(Bolt):
    """Passes each tuple on, `times` times."""

    outputs = ("number", "load")

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def execute(self, tup: Any) -> None:
        for _ in range(self.times):
            self.emit([tup[0], tup[1]])


class Sink(Bolt):
    def execute(self, tup: Any) -> None:
        see(self, tup[0])


class StuckCoroutine(Bolt):
    """Does nothing while its component is in STUCK."""

    outputs = ("number", "load")

    async def execute(self, tup: Any) -> None:
        while self.context.this_component_id in STUCK:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        see(self, tup[0])
        self.emit([tup[0], tup[1]])


class StuckThread(Bolt):
    blocking = True
    outputs = ("number", "load")

    def execute(self, tup: Any) -> None:
        FREE.wait()
        see(self, tup[0])


class Slow(Bolt):
    """One tuple at a time, each takes `ms`."""

    outputs = ("number", "load")

    def __init__(self, ms: float = 1.0) -> None:
        self.secs = ms / 1000

    def prepare(self, conf: Any, context: Any) -> None:
        self.lock = asyncio.Lock()

    async def execute(self, tup: Any) -> None:
        async with self.lock:
            await asyncio.sleep(self.secs)
        see(self, tup[0])
        self.emit([tup[0], tup[1]])


class Hop(Bolt):
    """A part of a cycle: sends a number on as `number - 1000`, `times` times, until it is below
    1,000; then it is seen."""

    outputs = ("number", "load")

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def execute(self, tup: Any) -> None:
        if tup[0] < 1000:
            see(self, tup[0])
            return
        for _ in range(self.times):
            self.emit([tup[0] - 1000, tup[1]])
