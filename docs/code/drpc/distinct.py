from squall import Bolt, submit_topology
from squall_drpc import BatchBolt, LinearDRPCTopologyBuilder


class Split(Bolt):
    outputs = ["id", "word"]

    def execute(self, tup):
        request, text = tup.values  # the first bolt gets (request id, arguments)
        for word in text.split():
            self.emit([request, word])  # every bolt emits the id first


class CountDistinct(BatchBolt):  # one object for each request and task
    outputs = ["id", "count"]

    def prepare(self, conf, context):
        self.words = set()

    def execute(self, tup):
        self.words.add(tup["word"])

    def finish_batch(self):  # it has seen every tuple of the request
        self.emit([self.request_id, len(self.words)])


class Sum(BatchBolt):
    outputs = ["id", "sum"]  # the last bolt emits (request id, result), once

    def prepare(self, conf, context):
        self.sum = 0

    def execute(self, tup):
        self.sum += tup["count"]

    def finish_batch(self):
        self.emit([self.request_id, self.sum])


def build():
    builder = LinearDRPCTopologyBuilder("distinct")
    builder.add_bolt(Split(), 2)
    builder.add_bolt(CountDistinct(), 4).fields("id", "word")
    builder.add_bolt(Sum(), 2).fields("id")
    return builder


if __name__ == "__main__":
    submit_topology("distinct", {}, build().create_remote_topology())
