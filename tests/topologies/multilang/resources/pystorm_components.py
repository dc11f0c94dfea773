"""pystorm's own classes, as its users write components; $COMPONENT says which runs."""

import os

from pystorm import BatchingBolt, Bolt, ReliableSpout

SERIALIZER = os.environ.get("SERIALIZER", "json")


class Sentences(ReliableSpout):
    """Each sentence fails twice before it is acked: pystorm replays up to three times."""

    def initialize(self, conf, context):
        self.left = list(range(50))

    def next_tuple(self):
        if self.left:
            n = self.left.pop(0)
            self.emit([f"sentence number {n}", n], tup_id=f"id-{n}")


class Split(Bolt):
    def initialize(self, conf, context):
        self.tries = {}

    def process(self, tup):
        # With the fields that the context names: pystorm makes namedtuples of them.
        n = self.tries[tup.values.n] = self.tries.get(tup.values.n, 0) + 1
        if n <= int(os.environ.get("FAILS", "0")):
            raise ValueError(f"try {n} of {tup.values.sentence!r}")
        for word in tup.values.sentence.split():
            self.emit([word, tup.values.n])

    exit_on_exception = False


class Asking(Bolt):
    """Checks the task ids that it is told."""

    def process(self, tup):
        ids = self.emit(list(tup.values), need_task_ids=True)
        assert len(ids) == 1, ids


class Batches(BatchingBolt):
    ticks_between_batches = 0

    def group_key(self, tup):
        return tup.values[0]

    def process_batch(self, key, tups):
        self.emit([key, len(tups)])


class Dies(Bolt):
    """Dies of the thirtieth tuple, as pystorm has it: log, error, sync, fail, exit 1."""

    seen = 0

    def process(self, tup):
        self.seen += 1
        mark = os.environ["MARK"]
        if self.seen == 30 and not os.path.exists(mark):
            open(mark, "w").close()
            raise KeyError("the thirtieth")
        self.emit(list(tup.values))


if __name__ == "__main__":
    globals()[os.environ["COMPONENT"]](serializer=SERIALIZER).run()
