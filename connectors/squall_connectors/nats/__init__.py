"""NATS JetStream: `NatsSpout` and `NatsSink`. Needs `squall[nats]` (nats-py).

builder.spout("orders", NatsSpout("nats://broker:4222", "orders.>", durable="shop"))
builder.bolt("out", NatsSink("nats://broker:4222", subject="priced")).shuffle("price")
"""

from squall_connectors.nats.sink import NatsSink
from squall_connectors.nats.spout import NatsSpout

__all__ = ["NatsSink", "NatsSpout"]
