"""Nexmark: queries of an auction site, as streams.

storm jar   examples/nexmark nexmark q5 --events 100000 --output OUT
storm local examples/nexmark nexmark q5 --events 100000 --output OUT
"""

import argparse
import json
import os
from collections import deque

from events import Generator
from queries import QUERIES, answers

from squall import Bolt, Spout, StreamBuilder, submit_topology


class Events(Spout):
    """The first events of a site, each emitted again if it fails, and at the end those that close
    all windows."""

    outputs = ["event"]

    def __init__(self, count, rate=1000, seed=1):
        self.count = count
        self.generator = Generator(seed, rate)

    def open(self, conf, context):
        self.sent = 0
        self.again = deque()
        self.closing = deque(self.generator.closing())

    def next_tuple(self):
        if self.again:
            self.emit_event(self.again.popleft())
        elif self.sent < self.count:
            self.sent += 1
            self.emit_event(self.sent - 1)
        elif self.closing:
            self.emit([self.closing.popleft()])

    def emit_event(self, n):
        self.emit([self.generator.event(n)], message_id=n)

    def fail(self, n):
        self.again.append(n)


class Write(Bolt):
    """Appends answers as lines of JSON to a file of its own."""

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        os.makedirs(self.folder, exist_ok=True)
        name = f"answers-{context.this_task_id}.jsonl"
        self.file = open(os.path.join(self.folder, name), "a", encoding="utf-8", buffering=1)

    def execute(self, tup):
        self.file.write(json.dumps(tup.as_dict()) + "\n")

    def cleanup(self):
        self.file.close()


def build(query, spout, folder=None, parallelism=1, side=None):
    """The streams of one query. `folder` gets the answers; `side` is the file of q13's table."""
    builder = StreamBuilder(parallelism)
    events = builder.source("events", spout)
    found = answers(query, events, side).output("answers")
    if folder is not None:
        found.to("write", Write(folder))
    return builder


def main():
    parser = argparse.ArgumentParser(description="A query of Nexmark.")
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("--events", type=int, default=100_000, help="how many")
    parser.add_argument("--rate", type=int, default=1000, help="events in a second of their time")
    parser.add_argument("--output", required=True, help="folder for the answers")
    parser.add_argument("--side-input", metavar="FILE", help="the table of q13")
    options = parser.parse_args()
    spout = Events(options.events, options.rate)
    side = options.side_input and os.path.abspath(options.side_input)
    builder = build(options.query, spout, os.path.abspath(options.output), side=side)
    print(builder.plan())
    submit_topology(f"nexmark-{options.query}", {}, builder.build())


if __name__ == "__main__":
    main()
