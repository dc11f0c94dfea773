"""Word count: each word with its count so far.

records --shuffle--> split --fields on word--> count

Records are lines such as {"text": "to be or not to be"}.

storm jar       examples/history words --records 'in/*.jsonl' --folder OUT
storm local     examples/history words --records 'in/*.jsonl' --folder OUT
storm spark run --input 'records=in/*.jsonl' --output count=OUT examples/history words
"""

import argparse
import os

from source import Records, writes

from squall import Bolt, StatefulBolt, TopologyBuilder, submit_topology


class Split(Bolt):
    """Splits a text into words."""

    outputs = ["word"]
    stateless = True

    def execute(self, tup):
        for word in tup["text"].lower().split():
            self.emit([word])


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup):
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        self.emit([tup["word"], count])


def build(records, folder):
    builder = TopologyBuilder()
    builder.spout("records", Records(records, ["text"]))
    builder.bolt("split", Split(), parallelism=2).shuffle("records")
    builder.bolt("count", Count(), parallelism=2).fields("split", "word")
    writes(builder, "count", folder)
    return builder.build()


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    # Made absolute here, where the user's folder is known: constructor arguments are sent as they
    # are, and the constructor runs again in a worker.
    parser.add_argument(
        "--records", type=os.path.abspath, help="pattern of JSON lines files, on every node"
    )
    parser.add_argument("--folder", type=os.path.abspath, help="folder for results")
    parser.add_argument("--name", help="name of the topology")
    parser.add_argument("--workers", type=int, default=1)
    return parser


def main():
    options = arguments("Count words.").parse_args()
    topology = build(options.records, options.folder)
    submit_topology(options.name or "words", {"topology.workers": options.workers}, topology)


if __name__ == "__main__":
    main()
