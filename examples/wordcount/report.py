"""Compares the result of a word count with a plain count of the same text.

    python examples/wordcount/report.py --text TEXT.txt --output OUT [--wait SECS] [--top N]

Exit status: 0 when every line is acked and both counts are the same, else 1.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from wordcount import words


def read_progress(output):
    """Lines, acked and failed, over all tasks of the source; None before the first report."""
    files = sorted(Path(output).glob("lines-*.json"))
    if not files:
        return None
    total = Counter()
    for file in files:
        total.update(json.loads(file.read_text(encoding="utf-8")))
    return {key: total[key] for key in ("lines", "acked", "failed")}


def read_counts(output):
    """The counts, over all tasks of `count`."""
    counts = Counter()
    for file in sorted(Path(output).glob("count-*.json")):
        counts.update(json.loads(file.read_text(encoding="utf-8")))
    return counts


def count_plainly(text):
    """The counts by one loop over the text."""
    counts = Counter()
    for line in Path(text).read_text(encoding="utf-8").splitlines():
        counts.update(words(line))
    return counts


def is_complete(progress, counts, expected):
    """Whether every line is acked, and what was counted has been written."""
    return (
        progress is not None
        and progress["acked"] == progress["lines"]
        and counts.total() >= expected.total()
    )


def main():
    parser = argparse.ArgumentParser(description="Compare a word count with a plain one.")
    parser.add_argument("--text", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for the last ack")
    parser.add_argument("--top", type=int, default=10, help="words to show")
    options = parser.parse_args()
    expected = count_plainly(options.text)
    deadline = time.monotonic() + options.wait
    while True:
        progress, counts = read_progress(options.output), read_counts(options.output)
        if is_complete(progress, counts, expected) or time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    progress = progress or {"lines": 0, "acked": 0, "failed": 0}
    print(f"{'word':<20} {'counted':>9} {'plain':>9}")
    for word, count in counts.most_common(options.top):
        print(f"{word:<20} {count:>9} {expected[word]:>9}")
    print(f"{'all words':<20} {counts.total():>9} {expected.total():>9}")
    print(f"{'different words':<20} {len(counts):>9} {len(expected):>9}")
    print("lines {lines}, acked {acked}, failed {failed}".format(**progress))
    if progress["acked"] == progress["lines"] > 0 and counts == expected:
        print("the counts are exact")
        return 0
    wrong = sum(1 for word in counts | expected if counts[word] != expected[word])
    print(f"the counts differ in {wrong} words")
    return 1


if __name__ == "__main__":
    sys.exit(main())
