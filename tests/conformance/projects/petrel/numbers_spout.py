from notes import note
from petrel import storm
from petrel.emitter import Spout


class Numbers(Spout):
    def __init__(self):
        super().__init__(script=__file__)

    @classmethod
    def declareOutputFields(cls):
        return ["n"]

    def initialize(self, conf, context):
        self.conf = conf
        self.left = list(range(conf["conformance.count"]))

    def nextTuple(self):
        if self.left:
            n = self.left.pop(0)
            storm.emit([n], id=n)

    def ack(self, id):
        note(self.conf, "acked", repr(id))

    def fail(self, id):
        note(self.conf, "failed", repr(id))
        self.left.append(id)


def run():
    Numbers().run()
