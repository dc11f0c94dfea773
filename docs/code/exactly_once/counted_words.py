"""Counts the words of files, exactly once."""

import sys

from squall import Bolt, StatefulBolt, TopologyBuilder, submit_topology
from squall_connectors.files import LinesSpout
from squall_connectors.sqlite import TransactionalSqliteSink

CREATE = "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INTEGER)"


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tup):
        for word in tup["line"].split():
            self.emit([word])


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup):
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        self.emit([tup["word"], count])


def build(lines, database):
    builder = TopologyBuilder()
    builder.spout("lines", LinesSpout(lines))
    builder.bolt("split", Split(), parallelism=2).shuffle("lines")
    builder.bolt("count", Count(), parallelism=3).fields("split", "word")
    sink = TransactionalSqliteSink(
        database, "counts", ["word", "count"], key=["word"], create=CREATE
    )
    builder.bolt("store", sink).fields("count", "word")
    return builder.build()


def main():
    lines, database, checkpoints = sys.argv[1:]
    conf = {
        "topology.checkpoint.interval.secs": 1,
        "topology.state.url": checkpoints,
    }
    submit_topology("words", conf, build(lines, database))


if __name__ == "__main__":
    main()
