"""AMQP 0.9.1, as RabbitMQ speaks it: `AmqpSpout` and `AmqpSink`. Needs `squall[amqp]` (aio-pika).

builder.spout("orders", AmqpSpout("amqp://shop@broker", "orders", password_env="AMQP_PASSWORD"))
builder.bolt("out", AmqpSink("amqp://broker", exchange="priced", routing_key_field="region"))
"""

from squall_connectors.amqp.sink import AmqpSink
from squall_connectors.amqp.spout import AmqpSpout

__all__ = ["AmqpSink", "AmqpSpout"]
