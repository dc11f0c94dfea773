import asyncio
import sqlite3

from squall import Bolt, FanOut


class Price(Bolt):
    """Plain: the default, and the fastest for work that only computes."""

    outputs = ["order", "cents"]

    def execute(self, tup):
        self.emit([tup["order"], round(tup["amount"] * 100)])


class Enrich(Bolt):
    """Coroutines: many tuples wait at the same time."""

    outputs = ["order", "country"]
    component_conf = {"topology.bolt.async.concurrency": 50}

    async def prepare(self, conf, context):
        self.lookups = 0  # open an aiohttp.ClientSession here

    async def execute(self, tup):
        self.lookups += 1
        await asyncio.sleep(0.1)  # a request to a service
        self.emit([tup["order"], "NL"])


class Score(Bolt):
    """Batches: one call of a model, or one request, for many tuples."""

    outputs = ["order", "score"]

    def execute_batch(self, tuples):
        scores = [len(tup["order"]) for tup in tuples]  # model.predict(...)
        for tup, score in zip(tuples, scores, strict=True):
            self.emit([tup["order"], score], anchors=tup)


class Words(Bolt):
    """Columns: the fastest, a list for each field instead of an object for each tuple."""

    outputs = ["word"]

    def execute_columns(self, columns):
        words, counts = [], []
        for line in columns["line"]:
            found = line.split()
            words += found
            counts.append(len(found))  # so many words descend from this line
        self.emit_columns([words], origins=FanOut(counts))


class Store(Bolt):
    """A thread of its own, for libraries that block; with batches, one transaction for many."""

    blocking = True

    def __init__(self, path):
        self.path = path

    def prepare(self, conf, context):
        self.database = sqlite3.connect(self.path)
        self.database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")

    def execute_batch(self, tuples):
        with self.database:
            rows = [(tup["order"],) for tup in tuples]
            self.database.executemany("INSERT OR REPLACE INTO orders VALUES (?)", rows)

    def cleanup(self):
        self.database.close()


class Pairs(Bolt):
    """Acks by hand: a tuple that waits for another one is not done yet."""

    outputs = ["left", "right"]
    auto_ack = False

    def prepare(self, conf, context):
        self.waiting = None

    def execute(self, tup):
        if self.waiting is None:
            self.waiting = tup
            return
        first, self.waiting = self.waiting, None
        self.emit([first[0], tup[0]], anchors=[first, tup])
        self.ack(first)
        self.ack(tup)
