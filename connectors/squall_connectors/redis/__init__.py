"""Redis: `RedisStreamSpout`, `RedisPubSubSpout`, `RedisSink` and `RedisLookup`. Needs
`squall[redis]` (redis-py)."""

from squall_connectors.redis.lookup import RedisLookup
from squall_connectors.redis.pubsub import RedisPubSubSpout
from squall_connectors.redis.sink import RedisSink
from squall_connectors.redis.stream import RedisStreamSpout

__all__ = ["RedisLookup", "RedisPubSubSpout", "RedisSink", "RedisStreamSpout"]
