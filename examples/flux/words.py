"""The components of words.yaml, which says how they are connected."""

import json
import os
from collections import Counter

from squall import Bolt, ReplayingSpout


class Pattern:
    """Which words count: the file configures it, and hands it to the bolt that splits."""

    def __init__(self, least):
        self.least = least
        self.ignored = frozenset()

    def ignore(self, *words):
        self.ignored |= set(words)

    def accepts(self, word):
        return len(word) >= self.least and word not in self.ignored


class Sentences(ReplayingSpout):
    outputs = ["sentence"]

    def __init__(self, sentences, repeat=1):
        self.sentences = sentences
        self.repeat = repeat

    def open(self, conf, context):
        self.left = self.sentences * self.repeat

    def next_message(self):
        return [self.left.pop()] if self.left else None


class Split(Bolt):
    outputs = ["word"]

    def __init__(self, pattern):
        self.pattern = pattern
        self.lower = False  # a property, which the file sets

    def execute(self, tup):
        for word in tup.values[0].split():
            if self.lower:
                word = word.lower()
            if self.pattern.accepts(word):
                self.emit([word])


class Count(Bolt):
    """Counts words, and keeps the counts in a file."""

    def __init__(self, path):
        self.path = path

    def prepare(self, conf, context):
        self.counts = Counter()

    def execute(self, tup):
        self.counts[tup.values[0]] += 1
        temporary = f"{self.path}.part"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.counts, file)
        os.replace(temporary, self.path)
