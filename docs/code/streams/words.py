import time
from typing import NamedTuple

from squall import ReplayingSpout, StreamBuilder, submit_topology
from squall.windows import tumbling


class Line(NamedTuple):
    text: str
    at: int  # milliseconds since the epoch

    def words(self):
        return self.text.lower().split()

    def time(self):
        return self.at


class Lines(ReplayingSpout):
    outputs = ["text", "at"]

    def __init__(self, text, count):
        self.text = text
        self.count = count

    def open(self, conf, context):
        super().open(conf, context)
        self.sent = 0

    def next_message(self):
        if self.sent == self.count:
            return None
        self.sent += 1
        return [self.text, int(time.time() * 1000)]


def build(spout):
    builder = StreamBuilder()
    lines = builder.source("lines", spout, of=Line).event_time(Line.time, lag_secs=1)
    words = lines.flat_map(Line.words)
    counts = words.key_by().window(tumbling(secs=60)).count()
    counts.print()
    return builder


if __name__ == "__main__":
    submit_topology("words", {}, build(Lines("to be or not to be", 1000)).build())
