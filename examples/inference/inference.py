"""Scores messages with a model: loaded once a worker, called for a batch at a time.

messages --shuffle--> score --shuffle--> store
"""

import argparse
import json
import os
import sys
import threading

from spam import Model, messages
from squall import Bolt, ReplayingSpout, TopologyBuilder, submit_topology

_loading = threading.Lock()


class Messages(ReplayingSpout):
    """Made-up messages with their true labels."""

    outputs = ["id", "text", "is_spam"]

    def __init__(self, count):
        self.count = count

    def open(self, conf, context):
        self.messages = enumerate(messages(self.count, seed=3))

    def next_message(self):
        for number, (text, is_spam) in self.messages:
            return [number, text, is_spam]
        return None


class Score(Bolt):
    """The model's answer for all messages that are waiting.

    The tasks of a worker share one model through `context.resources`. `blocking = True` lets a
    model of a library that leaves the interpreter (numpy, PyTorch) work beside the other tasks.
    """

    outputs = ["id", "is_spam", "score"]
    blocking = True

    def __init__(self, model):
        self.model_path = model

    def prepare(self, conf, context):
        with _loading:  # tasks of blocking bolts run on threads
            if "model" not in context.resources:
                context.resources["model"] = Model.load(self.model_path)
                self.log.info(
                    "loaded the model with %d words", len(context.resources["model"].odds)
                )
        self.model = context.resources["model"]

    def execute_batch(self, tuples):
        scores = self.model.predict([tup["text"] for tup in tuples])
        for tup, score in zip(tuples, scores, strict=True):
            self.emit([tup["id"], tup["is_spam"], score], anchors=tup)


class Store(Bolt):
    """Writes the scores, a line of JSON each."""

    def __init__(self, path):
        self.path = path

    def prepare(self, conf, context):
        self.file = open(self.path, "a", encoding="utf-8", buffering=1)

    def execute(self, tup):
        self.file.write(json.dumps(dict(zip(tup.fields, tup.values, strict=True))) + "\n")

    def cleanup(self):
        self.file.close()


def build(model, output, count=1_000):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("messages", Messages(count))
    builder.bolt("score", Score(model), parallelism=2, tasks=4).shuffle("messages")
    builder.bolt("store", Store(output)).shuffle("score")
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Score messages with a model.")
    parser.add_argument("model", help="model of spam.py, on every node")
    parser.add_argument("output", help="file for the scores")
    parser.add_argument("--messages", type=int, default=1_000, help="number of messages")
    options = parser.parse_args()
    if not os.path.isfile(options.model):
        sys.exit(f"inference: there is no model {options.model}: python spam.py {options.model}")
    topology = build(
        os.path.abspath(options.model), os.path.abspath(options.output), options.messages
    )
    submit_topology("inference", {"topology.max.spout.pending": 500}, topology)


if __name__ == "__main__":
    main()
