from collections import Counter

from squall import Bolt, ReplayingSpout, TopologyBuilder, submit_topology

SENTENCES = [
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
]


class Sentences(ReplayingSpout):
    outputs = ["sentence"]

    def __init__(self, repeat):
        self.repeat = repeat  # travels to the worker: numbers, text, lists

    def open(self, conf, context):
        self.left = SENTENCES * self.repeat  # made in the worker

    def next_message(self):
        return [self.left.pop()] if self.left else None


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tup):
        for word in tup["sentence"].split():
            self.emit([word])


class Count(Bolt):
    outputs = ["word", "count"]

    def prepare(self, conf, context):
        self.counts = Counter()

    def execute(self, tup):
        if tup.is_tick:
            self.log.info("most frequent: %s", self.counts.most_common(1))
            return
        word = tup["word"]
        self.counts[word] += 1
        self.emit([word, self.counts[word]])


def build(repeat=100):
    builder = TopologyBuilder()
    builder.spout("sentences", Sentences(repeat))
    builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
    count = builder.bolt("count", Count(), parallelism=2, tasks=8).fields("split", "word")
    count.conf({"topology.tick.tuple.freq.secs": 1})
    return builder.build()


if __name__ == "__main__":
    submit_topology("words", {"topology.workers": 2}, build())
