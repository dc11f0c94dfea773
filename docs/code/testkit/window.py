from squall import Bolt


class Window(Bolt):
    """Sums numbers for five seconds, then emits the sum and acks what went into it."""

    outputs = ["sum"]
    auto_ack = False
    component_conf = {"topology.tick.tuple.freq.secs": 5}

    def prepare(self, conf, context):
        self.held = []

    def execute(self, tup):
        if not tup.is_tick:
            self.held.append(tup)
            return
        held, self.held = self.held, []
        if held:
            self.emit([sum(one["n"] for one in held)], anchors=held)
        for one in [*held, tup]:
            self.ack(one)
