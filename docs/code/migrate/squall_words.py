from collections import Counter

from squall import Bolt, ReplayingSpout, TopologyBuilder
from squall import submit_topology


class Lines(ReplayingSpout):
    outputs = ["line"]

    def __init__(self, lines):
        self.lines = list(lines)

    def next_message(self):
        return [self.lines.pop(0)] if self.lines else None


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tup):
        for word in tup["line"].split():
            self.emit([word])


class Count(Bolt):
    outputs = ["word", "count"]

    def prepare(self, conf, context):
        self.counts = Counter()

    def execute(self, tup):
        word = tup["word"]
        self.counts[word] += 1
        self.emit([word, self.counts[word]])


def build(lines):
    builder = TopologyBuilder()
    builder.spout("lines", Lines(lines))
    split = builder.bolt("split", Split(), parallelism=2)
    split.shuffle("lines")
    count = builder.bolt("count", Count(), parallelism=2)
    count.fields("split", "word")
    return builder.build()


if __name__ == "__main__":
    submit_topology("words", {}, build(["to be", "or not to be"]))
