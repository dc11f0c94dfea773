from collections import Counter

from streamparse import Bolt, Grouping, Spout, Topology


class Lines(Spout):
    outputs = ["line"]

    def initialize(self, stormconf, context):
        self.lines = ["to be", "or not to be"]
        self.id = 0

    def next_tuple(self):
        if self.lines:
            self.id += 1
            self.emit([self.lines.pop(0)], tup_id=self.id)


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup):
        for word in tup.values[0].split():
            self.emit([word])


class Count(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf, ctx):
        self.counts = Counter()

    def process(self, tup):
        word = tup.values[0]
        self.counts[word] += 1
        self.emit([word, self.counts[word]])


class Words(Topology):
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
