"""The queries of Nexmark (`examples/nexmark`) over events that were made before the measurement."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from bench.runs import ROOT
from bench.topologies import CountingSpout
from squall import TopologyContext
from squall_common.topology.model import Topology

FOLDER = ROOT / "examples" / "nexmark"
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

RATE = 1_000  # events in a second of their own time


class Auctions(CountingSpout):
    """The first `total` events, and untracked ones that close all windows."""

    outputs = ("event",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        from events import Generator  # type: ignore[import-not-found]

        super().open(conf, context)
        generator = Generator(rate=RATE)
        self.events = [generator.event(n) for n in range(self.total)]
        self.closing = list(generator.closing())

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((self.events[sent],), message_id=sent)
        elif self.closing:
            self.emit((self.closing.pop(0),))


def query(name: str, total: int) -> Topology:
    from nexmark import build  # type: ignore[import-not-found]

    topology: Topology = build(name, Auctions(total, True)).build()
    return topology
