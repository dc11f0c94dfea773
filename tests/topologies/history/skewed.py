"""A topology whose figures are known: of COUNT tuples six in ten have the key `hot`, and every
tenth fails in `flaky`; each takes `slow` a millisecond. What fails is not emitted again.

    storm jar tests/topologies/history skewed.py NAME FOLDER COUNT CONF

    keys --fields on key--> work --shuffle--> slow
    keys --shuffle--> flaky

FOLDER/keys has how many messages were acked and failed. A source that starts anew when that file is
there emits nothing.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from squall import Bolt, Spout, TopologyBuilder, submit_topology

HOT = "hot"


def key_of(number: int) -> str:
    """Six of ten are hot; the others have one of two hundred keys."""
    return HOT if number % 10 < 6 else f"key-{number % 200}"


class Keys(Spout):
    outputs = ("key", "number")

    def __init__(self, folder: str, count: int) -> None:
        self.file, self.count = Path(folder, "keys"), count

    def open(self, conf: Any, context: Any) -> None:
        self.next = self.count if self.file.exists() else 0
        self.acked = self.failed = 0
        self.report()

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit([key_of(self.next), self.next], message_id=self.next)
            self.next += 1

    def ack(self, msg_id: Any) -> None:
        self.acked += 1
        self.report()

    def fail(self, msg_id: Any) -> None:
        self.failed += 1
        self.report()

    def report(self) -> None:
        if (self.acked + self.failed) % 100 == 0:
            self.file.write_text(f"{self.acked} {self.failed}")


class Work(Bolt):
    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        self.emit([tup["number"]])


class Flaky(Bolt):
    def execute(self, tup: Any) -> None:
        if tup["number"] % 10 == 9:
            raise ValueError("the <b>tenth</b>")


class Slow(Bolt):
    def execute(self, tup: Any) -> None:
        time.sleep(0.001)


def main() -> None:
    name, folder, count, conf = sys.argv[1:]
    builder = TopologyBuilder()
    builder.spout("keys", Keys(folder, int(count)))
    builder.bolt("work", Work(), parallelism=4).fields("keys", "key")
    builder.bolt("slow", Slow(), parallelism=2, tasks=8).shuffle("work")
    builder.bolt("flaky", Flaky()).shuffle("keys")
    submit_topology(name, json.loads(conf), builder.build())


if __name__ == "__main__":
    main()
