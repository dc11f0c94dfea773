"""Rolling top words: the most frequent words of each window of event time.

    records --shuffle--> split --fields on window, word--> count --fields on window--> rank

Records are lines such as {"time": 61.5, "text": "to be or not to be"}. A record belongs to the
windows that contain its field `time` (seconds), whenever it arrives. Windows are WINDOW seconds
long and start every SLIDE seconds. `rank` emits the top words of the windows that have changed: on
a cluster at every tick, on Spark at the end of the input (or the micro-batch). The last line of a
(window, rank) is the valid one.

    storm jar       examples/history top_words --records 'in/*.jsonl' --folder OUT
    storm spark run --input 'records=in/*.jsonl' --output rank=OUT examples/history top_words
"""

from source import Records, writes
from words import arguments

from squall import Bolt, StatefulBolt, TopologyBuilder, submit_topology

WINDOW, SLIDE = 60, 20
TOP = 3


class Split(Bolt):
    """Splits a text into words, once for each window that contains it."""

    outputs = ["window", "word"]
    stateless = True

    def execute(self, tup):
        newest = int(tup["time"]) // SLIDE * SLIDE
        for window in range(newest, newest - WINDOW, -SLIDE):
            for word in tup["text"].lower().split():
                self.emit([window, word])


class Count(StatefulBolt):
    outputs = ["window", "word", "count"]

    def execute(self, tup):
        key = (tup["window"], tup["word"])
        count = self.state.get(key, 0) + 1
        self.state.put(key, count)
        self.emit([*key, count])


class Rank(StatefulBolt):
    """Keeps the counts of each window (the largest that came: they may overtake each other)."""

    outputs = ["window", "rank", "word", "count"]

    def prepare(self, conf, context):
        self.changed = set()

    def execute(self, tup):
        if tup.is_tick:
            self.flush()
            return
        window, word, count = tup.values
        counts = dict(self.state.get(window, {}))
        counts[word] = max(count, counts.get(word, 0))
        self.state.put(window, counts)
        self.changed.add(window)

    def flush(self):
        for window in sorted(self.changed):
            counts = self.state.get(window)
            top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]
            for rank, (word, count) in enumerate(top, start=1):
                self.emit([window, rank, word, count], anchors=())
        self.changed.clear()


def build(records, folder):
    builder = TopologyBuilder()
    builder.spout("records", Records(records, ["time", "text"]))
    builder.bolt("split", Split(), parallelism=2).shuffle("records")
    builder.bolt("count", Count(), parallelism=2).fields("split", "window", "word")
    rank = builder.bolt("rank", Rank(), parallelism=2).fields("count", "window")
    rank.conf({"topology.tick.tuple.freq.secs": 1})
    writes(builder, "rank", folder)
    return builder.build()


def main():
    options = arguments("Top words of rolling windows.").parse_args()
    topology = build(options.records, options.folder)
    submit_topology(options.name or "top-words", {"topology.workers": options.workers}, topology)


if __name__ == "__main__":
    main()
