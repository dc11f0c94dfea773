"""Components for tests of topologies on Spark. Importable by Spark's Python workers."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from squall import (
    AggregateBolt,
    Bolt,
    CustomGrouping,
    Spout,
    StatefulBolt,
    Stream,
    TupleWindow,
    WindowedBolt,
)
from squall.windows import tumbling


class Numbers(Spout):
    """Emits 0 .. count-1, each task its share; has an end."""

    outputs = ["number"]

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Mapping[str, Any], context: Any) -> None:
        tasks = len(context.component_tasks(context.this_component_id))
        self.left = list(range(context.this_task_index, self.count, tasks))[::-1]

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop()])

    def exhausted(self) -> bool:
        return not self.left


class AckedNumbers(Numbers):
    """The same, and wants to hear of acks."""

    def ack(self, msg_id: Any) -> None:
        pass


class RaisingSpout(Numbers):
    def next_tuple(self) -> None:
        raise OSError("the source is gone")


class Endless(Spout):
    outputs = ["sentence"]

    def next_tuple(self) -> None:
        pass


class TypedSentences(Endless):
    outputs = Stream({"sentence": str})


class Split(Bolt):
    outputs = ["word"]
    stateless = True

    def execute(self, tup: Any) -> None:
        for word in tup["sentence"].split():
            self.emit([word])


class Count(Bolt):
    """Counts words and emits the counts at the end."""

    outputs = ["word", "count"]

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Any) -> None:
        self.counts[tup[0]] += 1

    def flush(self) -> None:
        for word, count in self.counts.items():
            self.emit([word, count])


class RunningCount(StatefulBolt):
    """Emits each word with its count so far."""

    outputs = ["word", "count"]

    def execute(self, tup: Any) -> None:
        count = self.state.get(tup[0], 0) + 1
        self.state.put(tup[0], count)
        self.emit([tup[0], count])


class Totals(StatefulBolt):
    """Emits each word with the number of all words so far, kept in one list that is changed in
    place."""

    outputs = ["word", "total"]

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        if self.state.get("all") is None:
            self.state.put("all", [0])

    def execute(self, tup: Any) -> None:
        total = self.state.get("all")
        total[0] += 1
        self.emit([tup[0], total[0]])


class Told(Bolt):
    """Says of each tuple which task of this component got it, and from which task."""

    outputs = ["value", "task", "source"]

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], self.context.this_task_id, tup.source_task])


class Sends(Bolt):
    """Passes on what it gets, with the tasks that emit says it goes to."""

    outputs = {"default": ["value"], "sent": ["value", "tasks"]}

    def execute(self, tup: Any) -> None:
        tasks = self.emit([tup[0]])
        self.emit([tup[0], list(tasks)], stream="sent")


class SendsDirect(Bolt):
    """Sends each number to the task of `target` that it picks."""

    outputs = {"default": Stream(["value"], direct=True)}

    def __init__(self, target: str) -> None:
        self.target = target

    def execute(self, tup: Any) -> None:
        tasks = self.context.component_tasks(self.target)
        self.emit_direct(tasks[tup[0] % len(tasks)], [tup[0]])


class Largest(CustomGrouping):
    """Everything to the task with the largest id."""

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return [self.target_tasks[-1]]


class Streams(Bolt):
    """Odd and even numbers on streams of their own."""

    outputs = {"odd": ["number"], "even": ["number"]}

    def execute(self, tup: Any) -> None:
        self.emit([tup[0]], stream="odd" if tup[0] % 2 else "even")


class Doubles(Bolt):
    """Stateless; also as a coroutine, a batch, columns and a thread below."""

    outputs = ["value"]

    def execute(self, tup: Any) -> None:
        self.emit([tup[0] * 2])


class DoublesAsync(Bolt):
    outputs = ["value"]

    async def execute(self, tup: Any) -> None:
        import asyncio

        await asyncio.sleep(0.001 * (tup[0] % 3))
        self.emit([tup[0] * 2])


class DoublesBatch(Bolt):
    outputs = ["value"]

    def execute_batch(self, tuples: list[Any]) -> None:
        for tup in tuples:
            self.emit([tup[0] * 2], anchors=tup)


class DoublesColumns(Bolt):
    outputs = ["value"]

    def execute_columns(self, columns: Any) -> None:
        self.emit_columns([[value * 2 for value in columns["number"]]])


class DoublesThread(Bolt):
    outputs = ["value"]
    blocking = True

    def execute(self, tup: Any) -> None:
        self.emit([tup[0] * 2])

    def flush(self) -> None:
        self.emit([-1])


class Raises(Bolt):
    outputs = ["value"]

    def execute(self, tup: Any) -> None:
        raise ValueError(f"cannot take {tup[0]}")


class Fails(Bolt):
    outputs = ["value"]

    def execute(self, tup: Any) -> None:
        self.fail(tup)


class Complains(Bolt):
    """Shows an error and goes on."""

    outputs = ["value"]

    def execute(self, tup: Any) -> None:
        self.report_error(ValueError("odd, but fine"))
        self.emit([tup[0]])


class Ticked(Bolt):
    outputs = ["value"]

    def execute(self, tup: Any) -> None:
        pass


class Prepares(Bolt):
    outputs = ["value"]

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        raise RuntimeError("no database here")

    def execute(self, tup: Any) -> None:
        pass


class Rich(Bolt):
    """Values that only a codec with types keeps."""

    outputs = ["number", "value"]
    VALUES = (
        (1, "a"),
        frozenset({1, 2}),
        Decimal("1.50"),
        uuid.UUID(int=7),
        2**80,
        b"bytes",
        None,
        {"k": (1, 2)},
    )

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], self.VALUES[tup[0] % len(self.VALUES)]])


class TypesOf(Bolt):
    outputs = ["number", "type"]

    def execute(self, tup: Any) -> None:
        assert tup["value"] == Rich.VALUES[tup["number"] % len(Rich.VALUES)]
        self.emit([tup["number"], type(tup["value"]).__name__])


class Pair(Bolt):
    """Two values a tuple, for groupings by one of them."""

    outputs = ["key", "number"]

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def execute(self, tup: Any) -> None:
        self.emit([f"k{tup[0] % self.keys}", tup[0]])


class Sums(Bolt):
    """The sum of the last value by the first, at the end."""

    outputs = ["key", "sum"]

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self.sums: dict[Any, int] = {}

    def execute(self, tup: Any) -> None:
        self.sums[tup[0]] = self.sums.get(tup[0], 0) + int(tup.values[-1])

    def flush(self) -> None:
        for key, total in self.sums.items():
            self.emit([key, total])


class Silent(Bolt):
    """Emits nothing, declares nothing."""

    def execute(self, tup: Any) -> None:
        pass


class TwoStreams(Spout):
    outputs = {"orders": ["order", "amount"], "refunds": ["order"]}

    def next_tuple(self) -> None:
        pass


class WritesFiles(Bolt):
    """Appends what it gets to a file of its task: a sink of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self.file = open(f"{self.folder}/{context.this_task_id}", "a")  # noqa: SIM115

    def execute(self, tup: Any) -> None:
        print(tup[0], file=self.file)

    def cleanup(self) -> None:
        self.file.close()


class PlusOne(Bolt):
    """Passes on numbers; every third one twice, none above a hundred."""

    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        number = tup[0] + 1
        if number <= 100:
            self.emit([number])
            if number % 3 == 0:
                self.emit([number])


#: What every `Records` bolt of this process has seen: component and values.
RECORDED: list[tuple[str, tuple[Any, ...]]] = []


class Records(Bolt):
    """Remembers what it gets."""

    def execute(self, tup: Any) -> None:
        RECORDED.append((tup.source_component, tuple(tup.values)))


class NumberedLines(Spout):
    outputs = ["number", "line"]

    def next_tuple(self) -> None:
        pass


class StatelessRaises(Raises):
    stateless = True


class Windows(WindowedBolt):
    """Counts each ten tuples."""

    outputs = ("count",)
    windows = tumbling(count=10)

    def execute_window(self, window: TupleWindow) -> None:
        self.emit([len(window)])


class Panes(WindowedBolt):
    """Says of each window which tuples it has."""

    outputs = ("key", "numbers", "start", "end", "late")

    def execute_window(self, window: TupleWindow) -> None:
        numbers = [tup["number"] for tup in window]
        self.emit([window.key, numbers, window.start_ms, window.end_ms, window.late])


class PanesByMethod(Panes):
    """The same, and finds the timestamps itself."""

    def timestamp(self, tup: Any) -> Any:
        return tup["at"]


class WindowSums(AggregateBolt):
    """Adds up the numbers of each window."""

    outputs = ("key", "sum", "start", "end", "late")

    def init(self) -> Any:
        return 0

    def add(self, total: Any, tup: Any) -> Any:
        return total + tup["number"]

    def merge(self, first: Any, second: Any) -> Any:
        return first + second

    def result(self, total: Any, window: TupleWindow) -> None:
        self.emit([window.key, total, window.start_ms, window.end_ms, window.late])


class WindowSumsWithoutHolding(WindowSums):
    hold = False


class Events(Spout):
    """For --input: numbered events of a key, with their times."""

    outputs = Stream({"key": str, "at": int, "number": int})

    def next_tuple(self) -> None:
        pass


class GivenEvents(Events):
    """The same, from its arguments."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self.rows = rows

    def open(self, conf: Mapping[str, Any], context: Any) -> None:
        self.left = list(self.rows)[::-1]

    def next_tuple(self) -> None:
        if self.left:
            self.emit(self.left.pop())


class Clock(Bolt):
    """Says what it sees, and when: tuples, ticks, and a timer that each tuple starts."""

    outputs = ("what", "number", "at")
    stateless = True

    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.emit(["tick", 0, self.now()])
            return
        number = tup["number"]
        self.emit(["tuple", number, self.now()])
        self.context.call_later(2.5, lambda: self.emit(["timer", number, self.now()]))

    def now(self) -> int:
        return round(self.context.time() * 1000)


class FlushingClock(Clock):
    def flush(self) -> None:
        self.emit(["flush", 0, self.now()])
