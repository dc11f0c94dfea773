"""An output of current values, without Spark."""

from __future__ import annotations

from squall_spark.data.bindings import StreamName, parse_output
from squall_spark.plan import Sink


def sink_of(place: str, key: tuple[str, ...] = ("word",)) -> Sink:
    target = parse_output(f"count={place}", "--current")
    return Sink(StreamName("count"), ("word", "n"), 0, target.path, target.format, key=key)
