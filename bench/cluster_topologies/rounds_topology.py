"""Word count, acked, in rounds that begin when they are ordered.

    storm jar bench/cluster_topologies rounds_topology NAME LINES_FILE FOLDER WORKERS PASSES

A round is what one run of `word_count` in `bench/topologies.py` is: each spout emits all lines
PASSES times, and counts begin at 0. What runs once a tuple is the same as there, so that the
difference is the cluster's.

FOLDER/round-N orders round N, from 1 on. A spout that has all its messages of the round acked or
failed writes FOLDER/lines-TASK-N ("sent acked failed"); once there is FOLDER/counted-N, each
counter writes FOLDER/count-TASK-N ("word count" a line).
"""

import sys
from itertools import chain, repeat
from pathlib import Path

from words_topology import Split, write

from squall import Bolt, Spout, TopologyBuilder, submit_topology

LOOK_SECS = 0.2


class Lines(Spout):
    outputs = ["line"]

    def __init__(self, file, folder, passes):
        self.file = file
        self.folder = folder
        self.passes = passes

    def open(self, conf, context):
        self.text = Path(self.file).read_text().splitlines()
        self.lines = iter(())
        self.number = 0
        self.sent = self.done = self.failed = 0
        self.reported = True

    def next_tuple(self):
        line = next(self.lines, None)
        if line is not None:
            self.sent = sent = self.sent + 1
            self.emit((line,), message_id=sent)
        elif self.done + self.failed == self.sent:
            self.between_rounds()

    def ack(self, message_id):
        self.done += 1

    def fail(self, message_id):
        self.failed += 1

    def between_rounds(self):
        if not self.reported:
            self.reported = True
            name = f"lines-{self.context.this_task_id}-{self.number}"
            write(self.folder, name, f"{self.sent} {self.done} {self.failed}")
        if (Path(self.folder) / f"round-{self.number + 1}").exists():
            self.number += 1
            self.lines = chain.from_iterable(repeat(self.text, self.passes))
            self.sent = self.done = self.failed = 0
            self.reported = False


class Count(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.counts = {}
        self.number = 1
        self.look()

    def execute(self, tup):
        word = tup.values[0]
        counts = self.counts
        counts[word] = counts.get(word, 0) + 1

    def look(self):
        if (Path(self.folder) / f"counted-{self.number}").exists():
            text = "".join(f"{word} {n}\n" for word, n in self.counts.items())
            write(self.folder, f"count-{self.context.this_task_id}-{self.number}", text)
            self.counts = {}
            self.number += 1
        self.context.call_later(LOOK_SECS, self.look)


def topology(file, folder, tasks, passes):
    """`tasks` of each component."""
    builder = TopologyBuilder()
    builder.spout("lines", Lines(file, folder, passes), parallelism=tasks)
    builder.bolt("split", Split(), parallelism=tasks).shuffle("lines")
    builder.bolt("count", Count(folder), parallelism=tasks).fields("split", "word")
    return builder.build()


def main():
    name, file, folder, workers, passes = sys.argv[1:]
    conf = {
        "topology.workers": int(workers),
        "topology.max.spout.pending": 2_000,  # as in bench/worker.py
    }
    submit_topology(name, conf, topology(file, folder, int(workers), int(passes)))


if __name__ == "__main__":
    main()
