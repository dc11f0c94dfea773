from squall import TopologyBuilder, WindowedBolt
from squall.testing import FeederSpout
from squall.windows import EventTime, sliding


class Readings(FeederSpout):
    outputs = ("sensor", "celsius", "at")


class Average(WindowedBolt):
    outputs = ("sensor", "celsius", "until")

    def execute_window(self, window):
        values = [tup["celsius"] for tup in window]
        self.emit([window.key, sum(values) / len(values), window.end_ms])


def build():
    builder = TopologyBuilder()
    builder.spout("readings", Readings())
    builder.bolt("average", Average(), parallelism=2).windowed(
        sliding(
            secs=60,
            every_secs=10,
            key="sensor",
            event_time=EventTime("at", lag_secs=5, late_stream="late"),
        )
    ).fields("readings", "sensor")
    return builder.build()
