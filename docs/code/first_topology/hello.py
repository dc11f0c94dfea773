from squall import Bolt, ReplayingSpout, TopologyBuilder, submit_topology


class Names(ReplayingSpout):  # a source: keeps each message until it is processed
    outputs = ["name"]

    def open(self, conf, context):
        self.names = ["Ada", "Grace", "Barbara"]

    def next_message(self):
        return [self.names.pop(0)] if self.names else None


class Greet(Bolt):  # a step: gets one tuple after the other
    def execute(self, tup):
        print(f"Hello, {tup['name']}!")


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("names", Names())
    builder.bolt("greet", Greet()).shuffle("names")
    submit_topology("hello", {}, builder.build())
