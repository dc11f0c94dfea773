"""Word count as streams: each word with its count so far. The same answer as `words`.

storm jar       examples/history stream_words --records 'in/*.jsonl' --folder OUT
storm local     examples/history stream_words --records 'in/*.jsonl' --folder OUT
storm spark run --input 'records=in/*.jsonl' --output count=OUT examples/history stream_words
"""

from source import Records, Write
from words import arguments

from squall import StreamBuilder, submit_topology


def words_of(text):
    return text.lower().split()


def build(records, folder):
    builder = StreamBuilder(parallelism=2)
    words = builder.source("records", Records(records, ["text"])).flat_map(words_of)
    counts = words.key_by().count().output("count", ["word", "count"])
    if folder is not None:
        counts.to("write", Write(folder))
    return builder.build()


def main():
    options = arguments("Count words.").parse_args()
    topology = build(options.records, options.folder)
    submit_topology(options.name or "stream-words", {"topology.workers": options.workers}, topology)


if __name__ == "__main__":
    main()
