"""A topology of many executors that do little, until a file appears: then its spout stops.

storm jar tests/topologies/wide wide NAME FILE COMPONENTS EXECUTORS_OF_EACH WORKERS
"""

import os
import sys
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    """Twenty a second."""

    outputs = ["number"]

    def __init__(self, file):
        self.file = file

    def open(self, conf, context):
        self.next = time.monotonic()
        self.number = 0

    def next_tuple(self):
        now = time.monotonic()
        if now < self.next or os.path.exists(self.file):
            time.sleep(0.001)
            return
        self.next = max(self.next + 1 / 20, now - 0.2)
        self.number += 1
        self.emit([self.number])


class Pass(Bolt):
    outputs = ["number"]

    def execute(self, tup):
        self.emit([tup["number"]])


def main(name, file, components, executors, workers):
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(file))
    for i in range(int(components)):
        builder.bolt(f"pass-{i}", Pass(), parallelism=int(executors)).shuffle("numbers")
    conf = {"topology.workers": int(workers), "topology.acker.executors": 0}
    submit_topology(name, conf, builder.build())


if __name__ == "__main__":
    main(*sys.argv[1:])
