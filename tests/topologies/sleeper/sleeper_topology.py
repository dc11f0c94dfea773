"""A worker that is always busy, and notes each execution as a byte in a file of its process.

storm jar tests/topologies/sleeper sleeper_topology.py NAME FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = ["number"]

    def open(self, conf: Any, context: Any) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        self.number += 1
        self.emit([self.number], message_id=self.number)


class Note(Bolt):
    outputs: list[str] = []

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, conf: Any, context: Any) -> None:
        path = os.path.join(self.folder, str(os.getpid()))
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def execute(self, tup: Any) -> None:
        os.write(self.file, b".")
        time.sleep(0.001)


def main() -> None:
    name, folder = sys.argv[1:]
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("note", Note(folder)).shuffle("numbers")
    conf = {"topology.workers": 1, "topology.max.spout.pending": 500}
    submit_topology(name, conf, builder.build())


if __name__ == "__main__":
    main()
