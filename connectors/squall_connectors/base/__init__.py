"""The bases of connectors: `Source`, `AsyncSource`, `Sink` and `ThreadedSink`, and the pure parts
that they consist of (`backoff`, `offsets`, `retries`). Imports no client of any system."""

from squall_connectors.base.backoff import Backoff
from squall_connectors.base.sink import RecordsRejectedError, Sink, ThreadedSink
from squall_connectors.base.source import AsyncSource, Source

__all__ = ["AsyncSource", "Backoff", "RecordsRejectedError", "Sink", "Source", "ThreadedSink"]
