"""Components as users of streamparse and pystorm write them. What they did, they note in files of
the folder `conformance.results`, a line each."""

import os

try:
    from streamparse import BatchingBolt, Bolt, ReliableSpout
except ImportError:  # the same without streamparse's own commands
    from pystorm import BatchingBolt, Bolt, ReliableSpout


def note(conf, name, line):
    with open(os.path.join(conf["conformance.results"], name), "a") as file:
        file.write(f"{line}\n")


class Numbers(ReliableSpout):
    """0, 1, 2 ..., which are the ids, too; pystorm emits again what failed."""

    outputs = ["n"]

    def initialize(self, conf, ctx):
        self.conf = conf
        self.left = list(range(conf["conformance.count"]))

    def next_tuple(self):
        if self.left:
            n = self.left.pop(0)
            self.emit([n], tup_id=n)

    def ack(self, tup_id):
        super().ack(tup_id)
        note(self.conf, "acked", repr(tup_id))

    def fail(self, tup_id):
        super().fail(tup_id)
        note(self.conf, "failed", repr(tup_id))


class Split(Bolt):
    """Two words a number; every tenth fails at the first try."""

    outputs = ["n", "word"]
    exit_on_exception = False

    def initialize(self, conf, ctx):
        self.seen = set()

    def process(self, tup):
        n = tup.values.n
        if n % 10 == 0 and n not in self.seen:
            self.seen.add(n)
            raise ValueError(f"{n} at the first try")
        for word in ("even" if n % 2 == 0 else "odd", "number"):
            # The task ids are asked for, and as many as there is one consumer.
            assert len(self.emit([n, word], need_task_ids=True)) == 1


class Batches(BatchingBolt):
    """A batch for each word at each tick."""

    outputs = ["word", "size"]
    ticks_between_batches = 0

    def initialize(self, conf, ctx):
        self.conf = conf

    def group_key(self, tup):
        return tup.values.word

    def process_batch(self, key, tups):
        for tup in tups:
            note(self.conf, "batched", f"{tup.values.n} {key}")
        self.emit([key, len(tups)])


class Sizes(Bolt):
    outputs = []

    def initialize(self, conf, ctx):
        self.conf = conf

    def process(self, tup):
        note(self.conf, "sizes", f"{tup.values[0]} {tup.values[1]}")


if __name__ == "__main__":  # pystorm's way; streamparse has streamparse_run
    globals()[os.environ["COMPONENT"]](serializer=os.environ["SERIALIZER"]).run()
