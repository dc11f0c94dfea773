"""The components of the topology in this folder."""

from squall import Bolt, Spout


class Words(Spout):
    outputs = ["word"]

    def __init__(self, words):
        self.left = list(words)

    def next_tuple(self):
        if self.left:
            word = self.left.pop()
            self.emit([word], message_id=word)


class Count(Bolt):
    outputs = ["word", "count"]

    def __init__(self):
        self.counts = {}

    def execute(self, tup):
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


class Exclaim(Bolt):
    outputs = ["id", "text"]

    def execute(self, tup):
        self.emit([tup.values[0], tup.values[1] + "!"])
