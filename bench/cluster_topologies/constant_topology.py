"""One constant tuple, not acked, from a spout to a bolt that counts, until FOLDER/stop exists.

    storm jar bench/cluster_topologies constant_topology NAME FOLDER ROWS

ROWS is 1 for a tuple at a time, more for columns of so many rows. What
`bench/peers/storm/Constant.java` is in Java, with the same files.
"""

import sys
import time
from pathlib import Path

from words_topology import WRITE_SECS, write

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Source(Spout):
    outputs = ["value"]

    def __init__(self, folder, rows):
        self.folder = folder
        self.rows = rows

    def open(self, conf, context):
        self.column = ["constant"] * self.rows
        self.sent = 0
        self.stopped = False
        self.write_at = 0.0

    def next_tuple(self):
        if self.stopped or self.sent & 1023 == 0 or self.rows > 1:
            now = time.monotonic()
            if now > self.write_at:
                self.write_at = now + WRITE_SECS
                self.stopped = self.stopped or (Path(self.folder) / "stop").exists()
                over = int(self.stopped)
                counts = (self.sent, self.sent, 0, over, over)
                write(self.folder, f"lines-{self.context.this_task_id}", " ".join(map(str, counts)))
        if self.stopped:
            return
        self.sent += self.rows
        if self.rows > 1:
            self.emit_columns([self.column[:]])
        else:
            self.emit(("constant",))


class Sink(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.taken = 0

    def execute(self, tup):
        if tup.is_tick:
            report(self)
        else:
            self.taken += 1


class ColumnSink(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.taken = 0
        self.tick()

    def tick(self):
        report(self)
        self.context.call_later(1.0, self.tick)

    def execute_columns(self, columns):
        self.taken += len(columns[0])


def report(sink):
    if (Path(sink.folder) / "stop").exists():
        write(sink.folder, f"count-{sink.context.this_task_id}", f"constant {sink.taken}\n")


def main():
    name, folder, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    builder = TopologyBuilder()
    builder.spout("source", Source(folder, rows))
    ticks = {"topology.tick.tuple.freq.secs": 1} if rows == 1 else {}
    sink = Sink(folder) if rows == 1 else ColumnSink(folder)
    builder.bolt("sink", sink, conf=ticks).shuffle("source")
    submit_topology(name, {"topology.acker.executors": 0}, builder.build())


if __name__ == "__main__":
    main()
