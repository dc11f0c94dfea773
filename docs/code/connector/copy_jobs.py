import sys

from spool import SpoolSink, SpoolSource
from squall import Bolt, TopologyBuilder, submit_topology


class Shout(Bolt):
    outputs = ["name", "value"]

    def execute(self, tup):
        if "fail" in tup["value"]:
            raise ValueError("this job cannot be done")
        self.emit([tup["name"], tup["value"].upper()])


class Morgue(Bolt):
    def execute(self, tup):
        name, _ = tup["values"]
        self.log.warning("given up: %s (%s)", name, tup["reason"])


def build(inbox, outbox):
    builder = TopologyBuilder()
    builder.spout("inbox", SpoolSource(inbox, max_replays=2))
    builder.bolt("shout", Shout(), parallelism=2).shuffle("inbox")
    builder.bolt("outbox", SpoolSink(outbox)).shuffle("shout")
    builder.bolt("morgue", Morgue()).shuffle("inbox", stream="__dead_letter")
    return builder.build()


if __name__ == "__main__":
    submit_topology("jobs", {}, build(*sys.argv[1:]))
