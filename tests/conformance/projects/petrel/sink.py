from notes import note
from petrel import storm
from petrel.emitter import BasicBolt


class Sink(BasicBolt):
    """Anchors and acks by itself."""

    def __init__(self):
        super().__init__(script=__file__)

    @classmethod
    def declareOutputFields(cls):
        return []

    def initialize(self, conf, context):
        self.conf = conf

    def process(self, tup):
        note(self.conf, "doubles", f"{tup.values[0]} {tup.values[1]}")
        storm.log(f"noted {tup.values[0]}")


def run():
    Sink().run()
