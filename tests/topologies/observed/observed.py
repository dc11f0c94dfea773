"""A topology with something to see: orders and clicks are parsed, joined and written; `enrich` is
slow, and one key of `total` gets most of the tuples.

    storm jar tests/topologies/observed observed.py NAME [RATE] [ENRICH_MS] [ERRORS_EVERY]
"""

from __future__ import annotations

import sys
import time
from typing import Any

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Source(Spout):
    """Emits records at a rate a second; what fails is not repeated."""

    outputs = ("record",)

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def open(self, conf: Any, context: Any) -> None:
        self.begin = time.monotonic()
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.rate * (time.monotonic() - self.begin):
            self.next += 1
            self.emit([f"record {self.next}"], message_id=self.next)


class Parse(Bolt):
    outputs = ("key", "value")

    def execute(self, tup: Any) -> None:
        number = int(tup.values[0].split()[1])
        self.emit(["hot" if number % 10 else f"key-{number % 70}", number])


class Enrich(Bolt):
    """Spends a time on each tuple, and raises now and then."""

    outputs = ("key", "value", "more")

    def __init__(self, ms: float, errors_every: int) -> None:
        self.secs, self.errors_every, self.seen = ms / 1000, errors_every, 0

    def execute(self, tup: Any) -> None:
        self.seen += 1
        time.sleep(self.secs)
        if self.errors_every and self.seen % self.errors_every == 0:
            raise ValueError(f"no price for <b>{tup.values[0]}</b>")
        self.emit([*tup.values, "more"])


class Total(Bolt):
    outputs = ("key", "sum")

    def prepare(self, conf: Any, context: Any) -> None:
        self.sums: dict[str, int] = {}

    def execute(self, tup: Any) -> None:
        key, value = tup.values[0], tup.values[1]
        self.sums[key] = self.sums.get(key, 0) + value
        self.emit([key, self.sums[key]])


class Write(Bolt):
    def execute(self, tup: Any) -> None:
        pass


def main(name: str, rate: float = 200, enrich_ms: float = 4.0, errors_every: int = 0) -> None:
    builder = TopologyBuilder()
    builder.spout("orders", Source(rate), parallelism=2)
    builder.spout("clicks", Source(rate / 2), parallelism=1)
    builder.bolt("parse", Parse(), parallelism=2).shuffle("orders").shuffle("clicks")
    builder.bolt("enrich", Enrich(enrich_ms, errors_every), parallelism=2).shuffle("parse")
    builder.bolt("total", Total(), parallelism=3).fields("enrich", "key")
    builder.bolt("audit", Write(), parallelism=1).all("parse")
    builder.bolt("write", Write(), parallelism=2).shuffle("total")
    conf = {
        "topology.workers": 3,
        "topology.max.spout.pending": 200,
        "topology.stats.sample.rate": 1.0,
    }
    submit_topology(name, conf, builder.build())


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:4]), *map(int, sys.argv[4:5]))
