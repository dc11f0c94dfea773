"""Spouts that emit as fast as they are let, into bolts that do nothing until a file is there: a
coroutine, a thread and a child process; and a pipeline beside them that shares nothing with them.

    storm jar tests/topologies/pressure pressure_topology.py NAME FOLDER WORKERS ACKED PYTHON

In FOLDER each component `x` writes its count to `x`: what a spout has emitted, what a bolt has
seen (and in `x.sum` the sum of the numbers). The bolts go on when `go` is there, and the spouts end
when `end` is.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from squall import Bolt, ShellBolt, Spout, TopologyBuilder, submit_topology

LOAD = "x" * 100
_EVERY = 200  # calls between two looks at the folder


class Fast(Spout):
    """Emits 0, 1, 2 ... What fails is emitted again."""

    outputs = ("number", "load")

    def __init__(self, folder: str, acked: bool, per_sec: int = 0) -> None:
        self.folder, self.acked, self.per_sec = Path(folder), acked, per_sec

    def open(self, conf: Any, context: Any) -> None:
        self.name = context.this_component_id
        self.next = self.calls = 0
        self.acks = 0
        self.ended = False
        self.again: deque[int] = deque()
        self.begin = time.monotonic()

    def next_tuple(self) -> None:
        self.calls += 1
        if self.calls % _EVERY == 0 or self.ended:
            self.ended = (self.folder / "end").exists()
            self.report()
        if self.again:
            number = self.again.popleft()
        elif self.ended or (
            self.per_sec and self.next > self.per_sec * (time.monotonic() - self.begin)
        ):
            return
        else:
            number = self.next
            self.next += 1
        self.emit([number, LOAD], message_id=number if self.acked else None)

    def report(self) -> None:
        (self.folder / self.name).write_text(str(self.next))
        (self.folder / f"{self.name}.acked").write_text(str(self.acks))

    def ack(self, msg_id: Any) -> None:
        self.acks += 1

    def fail(self, msg_id: Any) -> None:
        self.again.append(msg_id)


class Relay(Bolt):
    outputs = ("number", "load")

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], tup[1]])


class Seen(Bolt):
    """Tells how many different numbers it has seen."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def prepare(self, conf: Any, context: Any) -> None:
        self.file = self.folder / context.this_component_id
        self.numbers: set[int] = set()
        self.reported_at = 0.0

    def see(self, number: int) -> None:
        self.numbers.add(number)
        if time.monotonic() - self.reported_at > 0.2:
            self.report()

    def report(self) -> None:
        self.reported_at = time.monotonic()
        if self.numbers:
            whole = len(self.numbers) == max(self.numbers) + 1
            self.file.write_text(f"{len(self.numbers)} {'whole' if whole else 'gaps'}")


class Healthy(Seen):
    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.report()
        else:
            self.see(tup[0])


class StuckCoroutine(Seen):
    async def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.report()
            return
        while not (self.folder / "go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        self.see(tup[0])


class StuckThread(Seen):
    blocking = True

    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.report()
            return
        while not (self.folder / "go").exists():
            time.sleep(0.05)
        self.see(tup[0])


def main() -> None:
    name, folder, workers, acked, python = sys.argv[1:6]
    builder = TopologyBuilder()
    tick = {"topology.tick.tuple.freq.secs": 1}
    stuck = {
        "coroutine": StuckCoroutine(folder),
        "thread": StuckThread(folder),
        "child": ShellBolt(python, "stuck_child.py", outputs=[], environment={"FOLDER": folder}),
    }
    for kind, bolt in stuck.items():
        builder.spout(f"spout-{kind}", Fast(folder, acked == "yes"))
        builder.bolt(f"relay-{kind}", Relay(), parallelism=2).shuffle(f"spout-{kind}")
        builder.bolt(kind, bolt, conf=tick).shuffle(f"relay-{kind}")
    builder.spout("spout-healthy", Fast(folder, acked == "yes", per_sec=2_000))
    builder.bolt("healthy", Healthy(folder), conf=tick).shuffle("spout-healthy")
    submit_topology(
        name,
        {
            "topology.workers": int(workers),
            "topology.message.timeout.secs": 600,
            "topology.subprocess.timeout.secs": 600,
        },
        builder.build(),
    )


if __name__ == "__main__":
    main()
