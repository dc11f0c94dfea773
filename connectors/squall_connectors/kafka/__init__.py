"""Apache Kafka: `KafkaSpout`, `KafkaShareSpout`, `RewindableKafkaSpout` and `KafkaBolt`. Needs
`squall[kafka]` (confluent-kafka).

builder.spout("orders", KafkaSpout("broker:9092", "orders"), parallelism=4)
builder.bolt("out", KafkaBolt("broker:9092", "priced")).shuffle("price")
"""

from squall_connectors.kafka.bolt import KafkaBolt
from squall_connectors.kafka.records import KafkaRecord
from squall_connectors.kafka.rewindable import RewindableKafkaSpout
from squall_connectors.kafka.share_spout import KafkaShareSpout
from squall_connectors.kafka.spout import KafkaSpout

__all__ = ["KafkaBolt", "KafkaRecord", "KafkaShareSpout", "KafkaSpout", "RewindableKafkaSpout"]
