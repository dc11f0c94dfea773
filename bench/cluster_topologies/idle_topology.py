"""An active topology with nothing to do.

storm jar bench/cluster_topologies idle_topology
"""

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Nothing(Spout):
    outputs = ["line"]

    def next_tuple(self):
        pass


class Split(Bolt):
    outputs = ["word"]

    def execute(self, tup):
        for word in tup["line"].split():
            self.emit([word])


class Count(Bolt):
    def execute(self, tup):
        pass


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("nothing", Nothing())
    builder.bolt("split", Split(), parallelism=2).shuffle("nothing")
    builder.bolt("count", Count(), parallelism=2).fields("split", "word")
    submit_topology("idle", {"topology.workers": 1}, builder.build())
