"""One topology in three languages:

    lines (Python) --shuffle--> split (JavaScript) --fields: word--> count (Ruby) --> store (Python)

`split` and `count` are shell components: programs in resources/ that speak Storm's multi-language
protocol on stdin and stdout. The worker starts, feeds, acks and restarts them.
"""

import argparse
import json
import os

from squall import Bolt, ReplayingSpout, ShellBolt, TopologyBuilder, submit_topology

LINES = ["the cow jumped over the moon", "an apple a day", "the moon is not an apple"]


class Lines(ReplayingSpout):
    outputs = ["line"]

    def __init__(self, repeat):
        self.repeat = repeat

    def open(self, conf, context):
        self.left = LINES * self.repeat

    def next_message(self):
        return [self.left.pop()] if self.left else None


class Store(Bolt):
    """The newest count of each word, in a file."""

    def __init__(self, path):
        self.path = path

    def prepare(self, conf, context):
        self.counts = {}

    def execute(self, tup):
        word, count = tup.values
        self.counts[word] = max(count, self.counts.get(word, 0))
        temporary = f"{self.path}.part"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.counts, file)
        os.replace(temporary, self.path)


def build(output, repeat=10):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("lines", Lines(repeat))
    split = ShellBolt("node", "split.js", outputs=["word"])
    builder.bolt("split", split, parallelism=2).shuffle("lines")
    count = ShellBolt("ruby", "count.rb", outputs=["word", "count"])
    builder.bolt("count", count, parallelism=2).fields("split", "word")
    builder.bolt("store", Store(output)).global_("count")
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Count words in three languages.")
    parser.add_argument("output", help="file for the counts")
    parser.add_argument("--repeat", type=int, default=10, help="how often the lines come")
    options = parser.parse_args()
    submit_topology("mix", {}, build(os.path.abspath(options.output), options.repeat))


if __name__ == "__main__":
    main()
