from petrel import storm
from petrel.emitter import Bolt


class Doubles(Bolt):
    """Anchors, acks and fails by hand; every tenth fails at the first try."""

    def __init__(self):
        super().__init__(script=__file__)
        self.seen = set()

    @classmethod
    def declareOutputFields(cls):
        return ["n", "double"]

    def process(self, tup):
        n = tup.values[0]
        if n % 10 == 0 and n not in self.seen:
            self.seen.add(n)
            storm.fail(tup)
            return
        assert len(storm.emit([n, 2 * n], anchors=[tup], need_task_ids=True)) == 1
        storm.ack(tup)


def run():
    Doubles().run()
