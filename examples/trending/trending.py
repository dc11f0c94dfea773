"""Trending topics: the tags that are used most right now, from a stream of posts.

    posts --shuffle--> tags --fields: tag--> scores --global--> top

`tags` works on columns: a list of texts at a time, instead of one tuple after the other. A score
counts uses and is halved every `half_life` seconds, so that what was said long ago fades. Each task
of `scores` sends its own best tags once a second, and `top` merges them: a tag is in one task only.
"""

import argparse
import heapq
import json
import os
import random
import re

from squall import Bolt, FanOut, Spout, TopologyBuilder, submit_topology

TAG = re.compile(r"#(\w{1,50})")
WORDS = ["rain", "storm", "python", "coffee", "train", "music", "football", "spring", "news"]
SCORE_LEAST = 0.01


class Posts(Spout):
    """Posts of a made-up network, in batches. One tag is in fashion at a time. They are not
    tracked: a lost post does not matter for a trend."""

    outputs = ["text"]

    def __init__(self, total, batch=500, seed=1):
        self.total = total
        self.batch = batch
        self.seed = seed

    def open(self, conf, context):
        self.chance = random.Random(self.seed + context.this_task_index)
        self.sent = 0

    def next_tuple(self):
        if self.sent >= self.total:
            return
        count = min(self.batch, self.total - self.sent)
        fashion = WORDS[self.sent * len(WORDS) // self.total]
        self.emit_columns([[self.post(fashion) for _ in range(count)]])
        self.sent += count

    def post(self, fashion):
        tag = fashion if self.chance.random() < 0.5 else self.chance.choice(WORDS)
        return f"{self.chance.choice(WORDS)} and #{tag} #{self.chance.choice(WORDS)}"


class Tags(Bolt):
    """The tags of each post, in lower case."""

    outputs = ["tag"]
    stateless = True

    def execute_columns(self, columns):
        tags, counts = [], []
        for text in columns["text"]:
            found = TAG.findall(text.lower())
            tags += found
            counts.append(len(found))
        self.emit_columns([tags], origins=FanOut(counts))


class Scores(Bolt):
    """Adds up uses, halves them every `half_life` seconds, and emits its best tags on ticks."""

    outputs = ["task", "best"]
    component_conf = {"topology.tick.tuple.freq.secs": 1}

    def __init__(self, top, half_life):
        self.top = top
        self.fade = 0.5 ** (1 / half_life)

    def prepare(self, conf, context):
        self.scores = {}

    def execute_columns(self, columns):
        if not columns.is_tick:
            scores = self.scores
            for tag in columns["tag"]:
                scores[tag] = scores.get(tag, 0.0) + 1.0
            return
        faded = {tag: score * self.fade for tag, score in self.scores.items()}
        self.scores = {tag: score for tag, score in faded.items() if score >= SCORE_LEAST}
        best = heapq.nlargest(self.top, self.scores.items(), key=lambda item: item[1])
        message = [[self.context.this_task_index], [[list(item) for item in best]]]
        self.emit_columns(message, origins=())


class Top(Bolt):
    """Merges the best tags of all tasks, and writes the list whenever it changes."""

    outputs = ["tags"]

    def __init__(self, top, path):
        self.top = top
        self.path = path

    def prepare(self, conf, context):
        self.best = {}
        self.tags = []

    def execute(self, tup):
        self.best[tup["task"]] = tup["best"]
        merged = heapq.nlargest(
            self.top, (item for best in self.best.values() for item in best), key=lambda i: i[1]
        )
        tags = [tag for tag, _ in merged]
        if tags != self.tags:
            self.tags = tags
            self.emit([tags])
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(merged) + "\n")


def build(path, total=200_000, top=3, half_life=10.0):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("posts", Posts(total))
    builder.bolt("tags", Tags(), parallelism=2).shuffle("posts")
    builder.bolt("scores", Scores(top, half_life), parallelism=2, tasks=8).fields("tags", "tag")
    builder.bolt("top", Top(top, path)).global_("scores")
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Trending topics of a made-up network.")
    parser.add_argument("output", help="file for the lists of tags")
    parser.add_argument("--posts", type=int, default=200_000, help="number of posts")
    parser.add_argument("--top", type=int, default=3, help="length of the lists")
    options = parser.parse_args()
    topology = build(os.path.abspath(options.output), options.posts, options.top)
    submit_topology("trending", {"topology.workers": 2}, topology)


if __name__ == "__main__":
    main()
