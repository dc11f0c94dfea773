import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.n = 0

    def next_tuple(self):
        self.n += 1
        self.emit([self.n], message_id=self.n)


class Fast(Bolt):
    outputs = ["n"]

    def execute(self, tup):
        self.emit([tup["n"]])


class Slow(Bolt):
    def execute(self, tup):
        self.look_up(tup["n"])

    def look_up(self, n):
        time.sleep(0.02)  # a slow service, called in the wrong way


def build():
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("fast", Fast()).shuffle("numbers")
    builder.bolt("slow", Slow(), tasks=4).shuffle("fast")
    return builder.build()


if __name__ == "__main__":
    conf = {"topology.max.spout.pending": 1000, "topology.message.timeout.secs": 300}
    submit_topology("slow", conf, build())
