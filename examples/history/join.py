"""A join: each order with its customer, whichever came first.

    orders    --fields on customer-->  join
    customers --fields on customer-->

Orders are lines such as {"order": 7, "customer": "c1"}, customers such as
{"customer": "c1", "name": "Ann"}.

    storm jar       examples/history join --records 'in/*.jsonl' --customers 'c/*.jsonl' \\
                    --folder OUT
    storm spark run --input 'orders=in/*.jsonl' --input 'customers=c/*.jsonl' --output join=OUT \\
                    examples/history join
"""

import os

from source import Records, writes
from words import arguments

from squall import StatefulBolt, TopologyBuilder, submit_topology


class Join(StatefulBolt):
    outputs = ["order", "customer", "name"]

    def execute(self, tup):
        name, waiting = self.state.get(tup["customer"], (None, []))
        if tup.source_component == "customers":
            name = tup["name"]
            for order in waiting:
                self.emit([order, tup["customer"], name])
            waiting = []
        elif name is None:
            waiting = [*waiting, tup["order"]]
        else:
            self.emit([tup["order"], tup["customer"], name])
        self.state.put(tup["customer"], (name, waiting))


def build(orders, customers, folder):
    builder = TopologyBuilder()
    builder.spout("orders", Records(orders, ["order", "customer"]))
    builder.spout("customers", Records(customers, ["customer", "name"]))
    join = builder.bolt("join", Join(), parallelism=2)
    join.fields("orders", "customer").fields("customers", "customer")
    writes(builder, "join", folder)
    return builder.build()


def main():
    parser = arguments("Orders with their customers.")
    parser.add_argument(
        "--customers", type=os.path.abspath, help="pattern of JSON lines files, on every node"
    )
    options = parser.parse_args()
    topology = build(options.records, options.customers, options.folder)
    submit_topology(options.name or "join", {"topology.workers": options.workers}, topology)


if __name__ == "__main__":
    main()
