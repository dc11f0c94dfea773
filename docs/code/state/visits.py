from squall import CounterState, Spout, StatefulBolt, TopologyBuilder


class Requests(Spout):
    outputs = ["user", "page"]

    def open(self, conf, context):
        self.todo = [("ann", "/"), ("bob", "/"), ("ann", "/cart")]

    def next_tuple(self):
        if self.todo:
            user, page = self.todo.pop()
            self.emit([user, page], message_id=(user, page))


class Visits(StatefulBolt):
    outputs = ["user", "visits", "last"]

    def prepare(self, conf, context):
        self.visits = CounterState(self.state, "visits")

    def execute(self, tup):
        user = tup["user"]
        last = self.state.get(user)
        self.state.put(user, tup["page"])
        self.emit([user, self.visits.inc(user), last])


def topology():
    builder = TopologyBuilder()
    builder.spout("requests", Requests())
    builder.bolt("visits", Visits(), parallelism=2).fields("requests", "user")
    return builder.build()


CONF = {
    "topology.state.provider": "store",
    "topology.state.url": "/mnt/shared/squall-state",
}
