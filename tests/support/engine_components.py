"""Components for the engine's tests: importable, as components must be."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter
from typing import Any

from squall import Bolt, CustomGrouping, Spout, Stream
from squall_common.names import DEFAULT_STREAM

# What happened, by topology-wide key: tests clear it first. (A component cannot hand an object to
# its test any other way: it is made from its arguments.)
LOG: dict[str, list[Any]] = {}


def log(key: str, *what: Any) -> None:
    LOG.setdefault(key, []).append(what if len(what) != 1 else what[0])


class NothingToEmit(Spout):
    """Counts how often it was asked."""

    outputs = ("number",)

    def next_tuple(self) -> None:
        log("asked", None)


class Numbers(Spout):
    """0, 1, 2 ... up to `count`, each with its number as message id."""

    outputs = ("number",)

    def __init__(self, count: int, reliable: bool = True) -> None:
        self.count = count
        self.reliable = reliable

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit([self.next], message_id=self.next if self.reliable else None)
            self.next += 1

    def activate(self) -> None:
        log("spout", "activate")

    def deactivate(self) -> None:
        log("spout", "deactivate")

    def close(self) -> None:
        log("spout", "close")

    def ack(self, msg_id: Any) -> None:
        log("acked", msg_id)

    def fail(self, msg_id: Any) -> None:
        log("failed", msg_id)


class Replaying(Numbers):
    """Emits again what failed."""

    def fail(self, msg_id: Any) -> None:
        super().fail(msg_id)
        self.emit([msg_id], message_id=msg_id)


class Lines(Spout):
    outputs = ("line",)

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def open(self, conf: Any, context: Any) -> None:
        self.pending = list(enumerate(self.lines))
        self.pending.reverse()

    def next_tuple(self) -> None:
        if self.pending:
            number, line = self.pending.pop()
            self.emit([line], message_id=number)


class Split(Bolt):
    outputs = ("word",)

    def execute(self, tup: Any) -> None:
        for word in tup["line"].split():
            self.emit([word])


class Count(Bolt):
    def prepare(self, conf: Any, context: Any) -> None:
        self.counts: Counter[str] = Counter()
        log("counters", self.counts)

    def execute(self, tup: Any) -> None:
        self.counts[tup["word"]] += 1


class Collect(Bolt):
    """Logs (task, source stream, values)."""

    def __init__(self, key: str = "collected") -> None:
        self.key = key

    def execute(self, tup: Any) -> None:
        log(self.key, (self.context.this_task_id, tup.source_stream, tuple(tup.values)))


class Pass(Bolt):
    """Emits what it gets."""

    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        self.emit(list(tup.values))


class Multiply(Bolt):
    """Emits each tuple `times` times."""

    outputs = ("number",)

    def __init__(self, times: int) -> None:
        self.times = times

    def execute(self, tup: Any) -> None:
        for _ in range(self.times):
            self.emit([tup[0]])


class FailOn(Bolt):
    """Raises, or fails, on some numbers, the first `times` that it sees each."""

    outputs = ("number",)

    def __init__(self, numbers: list[int], times: int = 1_000_000, raises: bool = True) -> None:
        self.numbers = numbers
        self.times = times
        self.raises = raises

    def prepare(self, conf: Any, context: Any) -> None:
        self.seen: Counter[int] = Counter()

    def execute(self, tup: Any) -> None:
        number = tup[0]
        self.seen[number] += 1
        if number in self.numbers and self.seen[number] <= self.times:
            if self.raises:
                raise ValueError(f"no {number}")
            self.fail(tup)
            return
        self.emit([number])


class Manual(Bolt):
    """Acks by hand: keeps tuples until there are `size`, then emits their sum anchored to all."""

    outputs = ("sum",)
    auto_ack = False

    def __init__(self, size: int) -> None:
        self.size = size

    def prepare(self, conf: Any, context: Any) -> None:
        self.kept: list[Any] = []

    def execute(self, tup: Any) -> None:
        self.kept.append(tup)
        if len(self.kept) == self.size:
            self.emit([sum(t[0] for t in self.kept)], anchors=self.kept)
            for kept in self.kept:
                self.ack(kept)
            self.kept = []


class Forgetful(Bolt):
    """Never acks."""

    auto_ack = False

    def execute(self, tup: Any) -> None:
        log("forgotten", tup[0])


class Resetting(Bolt):
    """Keeps the first tuple and resets its timeout on every tick; acks it after `ticks`."""

    auto_ack = False

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def prepare(self, conf: Any, context: Any) -> None:
        self.kept: Any = None

    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.ack(tup)
            if self.kept is None:
                return
            self.ticks -= 1
            if self.ticks:
                self.reset_timeout(self.kept)
            else:
                self.ack(self.kept)
                self.kept = None
        else:
            self.kept = tup


class Ticked(Bolt):
    outputs = ("ticks",)

    def prepare(self, conf: Any, context: Any) -> None:
        self.ticks = 0

    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.ticks += 1
            self.emit([self.ticks])


class Streams(Bolt):
    """Odd and even numbers on streams of their own, and directly to the task named by the last."""

    outputs = {"odd": ["number"], "even": ["number"], "to": Stream(["number"], direct=True)}

    def prepare(self, conf: Any, context: Any) -> None:
        self.targets = context.component_tasks("direct")

    def execute(self, tup: Any) -> None:
        number = tup[0]
        self.emit([number], stream="odd" if number % 2 else "even")
        self.emit_direct(self.targets[number % len(self.targets)], [number], stream="to")


class EmitsSettled(Bolt):
    """Emits with the tuple before last, which is settled."""

    outputs = ("number",)

    def prepare(self, conf: Any, context: Any) -> None:
        self.last: Any = None

    def execute(self, tup: Any) -> None:
        last, self.last = self.last, tup
        if last is not None:
            self.emit([1], anchors=[last])


class Sleeps(Bolt):
    """A coroutine a tuple."""

    outputs = ("number",)

    def __init__(self, secs: float, fail_on: int = -1) -> None:
        self.secs = secs
        self.fail_on = fail_on

    def prepare(self, conf: Any, context: Any) -> None:
        self.flying = 0

    async def execute(self, tup: Any) -> None:
        self.flying += 1
        log("flying", self.flying)
        try:
            # Different times: they finish in another order than they began.
            await asyncio.sleep(self.secs * (1 + (tup[0] * 7) % 5))
            if tup[0] == self.fail_on:
                raise ValueError(f"no {tup[0]}")
            self.emit([tup[0]])
        finally:
            self.flying -= 1


class AsyncNumbers(Spout):
    outputs = ("number",)

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0

    async def next_tuple(self) -> None:
        await asyncio.sleep(0.001)
        if self.next < self.count:
            self.emit([self.next], message_id=self.next)
            self.next += 1

    def ack(self, msg_id: Any) -> None:
        log("acked", msg_id)


class Batches(Bolt):
    """execute_batch: doubles, fails one number, names its anchors."""

    outputs = ("number",)

    def __init__(self, fail_on: int = -1) -> None:
        self.fail_on = fail_on

    def execute_batch(self, tuples: list[Any]) -> None:
        log("batches", len(tuples))
        for tup in tuples:
            if tup[0] == self.fail_on:
                self.fail(tup)
            else:
                self.emit([2 * tup[0]], anchors=tup)


class BatchWithoutAnchors(Bolt):
    outputs = ("number",)

    def execute_batch(self, tuples: list[Any]) -> None:
        self.emit([1])


class BlockingNumbers(Spout):
    """Waits for its source on a thread."""

    outputs = ("number",)
    blocking = True

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Any, context: Any) -> None:
        self.source: queue.Queue[int] = queue.Queue()
        for number in range(self.count):
            self.source.put(number)
        self.thread = threading.get_ident()

    def next_tuple(self) -> None:
        try:
            number = self.source.get(timeout=0.01)
        except queue.Empty:
            return
        self.emit([number], message_id=number)
        log("threads", threading.get_ident() == self.thread)

    def ack(self, msg_id: Any) -> None:
        log("threads", threading.get_ident() == self.thread)
        log("acked", msg_id)


class BlockingDouble(Bolt):
    outputs = ("number",)
    blocking = True

    def __init__(self, secs: float = 0.001, fail_on: int = -1) -> None:
        self.secs = secs
        self.fail_on = fail_on

    def execute(self, tup: Any) -> None:
        time.sleep(self.secs)
        if tup[0] == self.fail_on:
            raise ValueError(f"no {tup[0]}")
        log("bolt_threads", threading.current_thread().name)
        self.emit([2 * tup[0]])


class Breaks(Bolt):
    """Breaks where it is told to."""

    def __init__(self, where: str) -> None:
        if where == "constructor" and threading.current_thread().name != "client":
            raise RuntimeError("no constructor")
        self.where = where

    def prepare(self, conf: Any, context: Any) -> None:
        if self.where == "prepare":
            raise RuntimeError("no prepare")

    def execute(self, tup: Any) -> None:
        pass

    def cleanup(self) -> None:
        log("cleanup", self.where)
        if self.where == "cleanup":
            raise RuntimeError("no cleanup")


class BreakingSpout(Spout):
    """next_tuple and ack raise now and then."""

    outputs = ("number",)

    def open(self, conf: Any, context: Any) -> None:
        self.calls = 0

    def next_tuple(self) -> None:
        self.calls += 1
        if self.calls % 3 == 0 or self.calls > 6:
            raise ValueError("no next_tuple")
        self.emit([self.calls], message_id=self.calls)

    def ack(self, msg_id: Any) -> None:
        log("acked", msg_id)
        if msg_id == 1:
            raise ValueError("no ack")


class Mutates(Bolt):
    """Changes what it emitted."""

    outputs = ("list",)

    def execute(self, tup: Any) -> None:
        values = [[1]]
        self.emit(values)
        values[0].append(2)


class EmitsUnencodable(Bolt):
    outputs = ("number", "thing")

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], object() if tup[0] == 1 else None])


class Unanchored(Bolt):
    outputs = ("number",)
    auto_anchor = False

    def execute(self, tup: Any) -> None:
        self.emit([tup[0]])
        if tup[0] == 3:
            self.emit([33], anchors=[tup])


class ToAllAndNone(CustomGrouping):
    """Even numbers to every task, odd ones to none, 99 to a task that is not there."""

    def choose_tasks(self, task: int, values: Any) -> Any:
        if values[0] == 99:
            return [12345]
        return list(self.target_tasks) if values[0] % 2 == 0 else []


class Looping(Bolt):
    """A cycle: sends a number on, one less, until it is zero."""

    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        log("looped", tup[0])
        if tup[0] > 0:
            self.emit([tup[0] - 1])


class WrongEmits(Bolt):
    """Emits in every wrong way, and logs what it was told."""

    outputs = {DEFAULT_STREAM: ["a", "b"], "direct": Stream(["a"], direct=True)}

    def execute(self, tup: Any) -> None:
        for emit in (
            lambda: self.emit([1]),
            lambda: self.emit("ab"),
            lambda: self.emit(7),  # type: ignore[arg-type]
            lambda: self.emit([1], stream="direkt"),
            lambda: self.emit([1], stream="direct"),
            lambda: self.emit_direct(1, [1, 2]),
            lambda: self.emit([1, 2], anchors=["x"]),  # type: ignore[list-item]
        ):
            try:
                emit()
            except (ValueError, TypeError) as error:
                log("told", str(error))


class Held(Bolt):
    """Sleeps on the loop, which nobody should."""

    def __init__(self, secs: float) -> None:
        self.secs = secs

    def execute(self, tup: Any) -> None:
        time.sleep(self.secs)


class Woken(Spout):
    """Emits what `push` gives it, from another thread, and wakes the engine then."""

    outputs = ("number",)

    def open(self, conf: Any, context: Any) -> None:
        self.queue: list[int] = []
        self.emitted_at = 0.0
        log("woken", self)

    def push(self) -> None:
        self.queue.append(1)
        self.context.wake()

    def next_tuple(self) -> None:
        if self.queue:
            self.emitted_at = time.monotonic()
            self.emit([self.queue.pop()])


class Paced(Spout):
    """So many numbers a second, by the loop's clock."""

    outputs = ("number",)

    def __init__(self, per_sec: int) -> None:
        self.per_sec = per_sec

    def open(self, conf: Any, context: Any) -> None:
        self.begin = asyncio.get_running_loop().time()
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < (asyncio.get_running_loop().time() - self.begin) * self.per_sec:
            self.emit([self.next])
            self.next += 1


class Uneven(Bolt):
    """Tasks one of which (by its index) takes `ms` a tuple, one at a time."""

    def __init__(self, slow_task: int, ms: float) -> None:
        self.slow_task, self.secs = slow_task, ms / 1000

    def prepare(self, conf: Any, context: Any) -> None:
        self.slow = context.this_task_index == self.slow_task
        self.turn = asyncio.Lock()

    async def execute(self, tup: Any) -> None:
        if self.slow:
            async with self.turn:
                await asyncio.sleep(self.secs)
        log("worked", self.context.this_task_id)
