"""Word count: a reliable source, two bolts, exact counts when nothing is killed.

    lines --shuffle--> split --fields on word--> count

    storm jar   examples/wordcount wordcount --text TEXT.txt --output OUT
    storm local examples/wordcount wordcount --text TEXT.txt --output OUT
    python examples/wordcount/report.py      --text TEXT.txt --output OUT

The source keeps each line until all its words are counted, and emits it again if it fails. The
counts are in the memory of the `count` tasks: a killed worker loses them, and a replayed line
counts twice. (Keep results that must survive in a sink outside the worker.)
"""

import argparse
import json
import os
import re
import sys
import time
from collections import Counter, deque
from pathlib import Path

from squall import Bolt, Spout, TopologyBuilder, submit_topology

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words(line):
    """The words of a line, in lower case."""
    return WORD.findall(line.lower())


def write_json(path, value):
    """Replace a file in one step: whoever reads it finds the old value or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    os.replace(temporary, path)


class Lines(Spout):
    """The lines of a text file that is on every node. With several tasks, each takes its share.

    Each line is kept until it is acked. Progress goes to OUTPUT/lines-TASK.json.
    """

    outputs = ["line"]

    def __init__(self, text, output):
        self.text = text
        self.output = output

    def open(self, conf, context):
        tasks = context.component_tasks(context.this_component_id)
        with open(self.text, encoding="utf-8") as file:
            lines = file.read().splitlines()
        mine = range(context.this_task_index, len(lines), len(tasks))
        self.unsent = deque((number, lines[number]) for number in mine)
        self.pending = {}  # line number -> line, emitted and not acked
        self.total, self.acked, self.failed = len(self.unsent), 0, 0
        self.progress = Path(self.output, f"lines-{context.this_task_id}.json")
        self.progress.parent.mkdir(parents=True, exist_ok=True)
        self.written_at = 0.0
        self.write_progress()

    def next_tuple(self):
        if self.unsent:
            number, line = self.unsent.popleft()
            self.pending[number] = line
            self.emit([line], message_id=number)
        if time.monotonic() - self.written_at > 1.0:
            self.write_progress()

    def ack(self, number):
        if self.pending.pop(number, None) is not None:
            self.acked += 1
            if self.acked in (1, self.total):  # the first shows how long the start took
                self.write_progress()

    def fail(self, number):
        line = self.pending.pop(number, None)
        if line is not None:
            self.failed += 1
            self.unsent.append((number, line))

    def close(self):
        self.write_progress()

    def write_progress(self):
        self.written_at = time.monotonic()
        write_json(
            self.progress,
            {"lines": self.total, "acked": self.acked, "failed": self.failed},
        )


class Split(Bolt):
    """A line to its words."""

    outputs = ["word"]

    def execute(self, tup):
        for word in words(tup["line"]):
            self.emit([word])


class Count(Bolt):
    """Counts words. Its counts go to OUTPUT/count-TASK.json on each tick, and at the end."""

    outputs = []

    def __init__(self, output):
        self.output = output

    def prepare(self, conf, context):
        self.counts = Counter()
        self.file = Path(self.output, f"count-{context.this_task_id}.json")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.changed = True
        self.write_counts()

    def execute(self, tup):
        if tup.is_tick:
            self.write_counts()
        else:
            self.counts[tup["word"]] += 1
            self.changed = True

    def cleanup(self):
        self.write_counts()

    def write_counts(self):
        if self.changed:
            write_json(self.file, self.counts)
            self.changed = False


def build(text, output, parallelism):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("lines", Lines(text=text, output=output))
    builder.bolt("split", Split(), parallelism=parallelism).shuffle("lines")
    counter = builder.bolt("count", Count(output=output), parallelism=parallelism)
    counter.fields("split", "word").conf({"topology.tick.tuple.freq.secs": 1})
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Count the words of a text.")
    parser.add_argument("--text", required=True, help="text file, on every node")
    parser.add_argument("--output", required=True, help="folder for counts and progress")
    parser.add_argument("--name", default="wordcount", help="name of the topology")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--parallelism", type=int, default=2, help="executors of each bolt")
    parser.add_argument("--pending", type=int, default=500, help="most pending lines")
    options = parser.parse_args()
    text, output = os.path.abspath(options.text), os.path.abspath(options.output)
    if not os.path.isfile(text):
        sys.exit(f"wordcount: there is no text {text}")
    conf = {"topology.workers": options.workers, "topology.max.spout.pending": options.pending}
    submit_topology(options.name, conf, build(text, output, options.parallelism))


if __name__ == "__main__":
    main()
