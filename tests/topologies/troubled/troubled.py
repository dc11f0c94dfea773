"""Four topologies that run well until a file appears: a slow bolt, a skewed key, a blocked sink,
and one whose second worker a test slows down.

    storm jar tests/topologies/troubled troubled KIND FILE
"""

import asyncio
import os
import sys
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    """Some 300 tuples a second, of many keys, or of one."""

    outputs = ["key"]

    def __init__(self, file, one_key=False):
        self.file = file
        self.one_key = one_key

    def open(self, conf, context):
        self.next = time.monotonic()
        self.number = 0

    def next_tuple(self):
        now = time.monotonic()
        if now < self.next:
            time.sleep(0.001)
            return
        self.next = max(self.next + 1 / 300, now - 1.0)
        self.number += 1
        same = self.one_key and os.path.exists(self.file)
        self.emit([0 if same else self.number % 97])


class Work(Bolt):
    """A little work, or much, while the file is there (always, without one)."""

    def __init__(self, much_secs, file=None):
        self.much_secs = much_secs
        self.file = file

    def execute(self, tup):
        if self.file is None or os.path.exists(self.file):
            time.sleep(self.much_secs)


class Store(Bolt):
    """Waits for another system, which stops answering when the file appears."""

    def __init__(self, file):
        self.file = file

    async def execute(self, tup):
        while os.path.exists(self.file):  # noqa: ASYNC110 - nothing else says so
            await asyncio.sleep(0.05)


def main(kind, file):
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(file, one_key=kind == "skewed"))
    if kind == "slow":
        builder.bolt("work", Work(0.02, file)).shuffle("numbers")
    elif kind == "skewed":
        builder.bolt("work", Work(0.003), parallelism=4).fields("numbers", "key")
    elif kind == "blocked":
        builder.bolt("store", Store(file)).shuffle("numbers")
    else:
        builder.bolt("far", Work(0.0)).shuffle("numbers")
    conf = {
        "topology.workers": 2,
        "topology.acker.executors": 0,
        # Small, so that a queue is full within seconds at this rate.
        "topology.executor.receive.buffer.size": 256,
        "topology.worker.buffer.bytes": 65536,
    }
    submit_topology(kind, conf, builder.build())


if __name__ == "__main__":
    main(*sys.argv[1:])
