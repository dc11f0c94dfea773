"""Word count, acked: the same lines again and again, until FOLDER/stop exists at the end of a pass.

    storm jar bench/cluster_topologies words_topology NAME LINES_FILE FOLDER WORKERS PENDING

What `bench/peers/storm/WordCount.java` is in Java, with the same files: every spout writes
FOLDER/lines-TASK ("sent acked failed passes stopped"), every counter FOLDER/count-TASK ("word
count" a line) once there is FOLDER/stop.
"""

import sys
import time
from pathlib import Path

from squall import Bolt, Spout, TopologyBuilder, submit_topology

WRITE_SECS = 0.2


def write(folder, name, text):
    fresh = Path(folder) / f".{name}"
    fresh.write_text(text)
    fresh.replace(Path(folder) / name)


class Lines(Spout):
    outputs = ["line"]

    def __init__(self, file, folder):
        self.file = file
        self.folder = folder

    def open(self, conf, context):
        self.lines = Path(self.file).read_text().splitlines()
        self.at = iter(self.lines)
        self.sent = self.acked = self.failed = self.passes = 0
        self.stopped = False
        self.write_at = 0.0

    def next_tuple(self):
        if self.stopped or self.sent & 1023 == 0:
            now = time.monotonic()
            if now > self.write_at:
                self.write_at = now + WRITE_SECS
                counts = (self.sent, self.acked, self.failed, self.passes, int(self.stopped))
                write(self.folder, f"lines-{self.context.this_task_id}", " ".join(map(str, counts)))
        if self.stopped:
            return
        line = next(self.at, None)
        if line is None:
            self.passes += 1
            self.at = iter(self.lines)
            self.stopped = (Path(self.folder) / "stop").exists()
            return
        self.sent = sent = self.sent + 1
        self.emit((line,), message_id=sent)

    def ack(self, message_id):
        self.acked += 1

    def fail(self, message_id):
        self.failed += 1


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tup):
        emit = self.emit
        for word in tup.values[0].split():
            emit((word,))


class Count(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.counts = {}

    def execute(self, tup):
        values = tup.values
        if tup.is_tick:
            if (Path(self.folder) / "stop").exists():
                text = "".join(f"{word} {n}\n" for word, n in self.counts.items())
                write(self.folder, f"count-{self.context.this_task_id}", text)
            return
        word = values[0]
        counts = self.counts
        counts[word] = counts.get(word, 0) + 1


def main():
    name, file, folder, workers, pending = sys.argv[1:]
    builder = TopologyBuilder()
    builder.spout("lines", Lines(file, folder), parallelism=int(workers))
    builder.bolt("split", Split(), parallelism=int(workers)).shuffle("lines")
    ticks = {"topology.tick.tuple.freq.secs": 1}
    count = builder.bolt("count", Count(folder), parallelism=int(workers), conf=ticks)
    count.fields("split", "word")
    conf = {
        "topology.workers": int(workers),
        "topology.max.spout.pending": int(pending),
        "topology.message.timeout.secs": 120,
    }
    submit_topology(name, conf, builder.build())


if __name__ == "__main__":
    main()
